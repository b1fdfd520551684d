"""Front ends for the attention of other libraries: one file per family, which registers its rules."""

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
