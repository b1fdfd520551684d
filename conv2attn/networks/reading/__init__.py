"""Reads attention from runs of a network: the positions of its tokens, and the matrices of its heads."""

from conv2attn.networks.reading.double_precision import cast_once, double_copy
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.records import Windows
from conv2attn.networks.reading.replay_result import MOST_RESIDUAL as MOST_RESIDUAL

__all__ = ["Perturbed", "Windows", "cast_once", "double_copy"]
