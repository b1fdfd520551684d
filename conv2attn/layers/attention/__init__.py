"""The paper's layer, its positional encodings, and the engines that evaluate it."""

from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.engines import ENGINES, EngineName, choose_engine, explain_engines
from conv2attn.layers.attention.gated import GatedAttention, from_gpsa, to_gpsa
from conv2attn.layers.attention.hardness import hard_offsets
from conv2attn.layers.attention.layer import MultiHeadSelfAttention
from conv2attn.layers.attention.multihead import PositionedAttention, from_mha, to_mha
from conv2attn.layers.attention.places import LearnedPlaces, SinusoidalPlaces
from conv2attn.layers.attention.settings import set_engine

__all__ = [
    "ENGINES",
    "Encoding",
    "EngineName",
    "GatedAttention",
    "LearnedPlaces",
    "MultiHeadSelfAttention",
    "PositionedAttention",
    "SinusoidalPlaces",
    "choose_engine",
    "explain_engines",
    "from_gpsa",
    "from_mha",
    "hard_offsets",
    "set_engine",
    "to_gpsa",
    "to_mha",
]
