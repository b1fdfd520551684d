"""Adapters to other libraries' attention: one file a family, each entering the rules that it has."""

from conv2attn.models.frontends import beit, bert, clip, convit, dinov2, levit, sam, swin, vit, whisper
from conv2attn.models.frontends.registry import ENCODERS, RELATIVE

__all__ = [
    "ENCODERS",
    "RELATIVE",
    "beit",
    "bert",
    "clip",
    "convit",
    "dinov2",
    "levit",
    "sam",
    "swin",
    "vit",
    "whisper",
]
