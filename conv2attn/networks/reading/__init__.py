"""How a network attends, asked of its run: where its tokens lie, and which matrices its heads apply."""

from conv2attn.networks.reading.double_precision import double_copy, held
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.records import Windows
from conv2attn.networks.reading.replay_result import MOST_RESIDUAL as MOST_RESIDUAL

__all__ = ["Perturbed", "Windows", "double_copy", "held"]
