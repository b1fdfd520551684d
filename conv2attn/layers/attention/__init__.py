"""The paper's layer, its positional encodings, and the engines that evaluate it."""

from conv2attn.layers.attention.distilled import DistilledAttention
from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.engines import ENGINES, EngineName
from conv2attn.layers.attention.features import score_error
from conv2attn.layers.attention.hardness import hard_offsets
from conv2attn.layers.attention.layer import MultiHeadSelfAttention
from conv2attn.layers.attention.measured_arithmetic import arithmetics as arithmetics
from conv2attn.layers.attention.multihead import PositionedAttention, to_mha
from conv2attn.layers.attention.places import LearnedPlaces, SinusoidalPlaces
from conv2attn.layers.attention.plan import from_plan as from_plan
from conv2attn.layers.attention.plan import to_plan as to_plan
from conv2attn.layers.attention.probes import exponential_underflows as exponential_underflows
from conv2attn.layers.attention.probes import indirect_convolution as indirect_convolution
from conv2attn.layers.attention.probes import spread_of_kernels as spread_of_kernels
from conv2attn.layers.attention.probes import spread_of_spike as spread_of_spike
from conv2attn.layers.attention.recipe import OperatorFacts
from conv2attn.layers.attention.recipe import score_dtype as score_dtype
from conv2attn.layers.attention.settings import set_engine
from conv2attn.theory.score_terms import ScoreTerms

__all__ = [
    "ENGINES",
    "DistilledAttention",
    "Encoding",
    "EngineName",
    "LearnedPlaces",
    "MultiHeadSelfAttention",
    "OperatorFacts",
    "PositionedAttention",
    "ScoreTerms",
    "SinusoidalPlaces",
    "hard_offsets",
    "score_error",
    "set_engine",
    "to_mha",
]
