"""The result of replaying a layer, and the reasons why one does not replay."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from conv2attn.networks.reading.head_matrices import HeadMatrices

MOST_RESIDUAL = 1e-3
"""The largest difference between the output and its replay, as a share of the output's spread over tokens."""
MOST_PASSES = 4096
"""Runs of one module for one candidate of its heads, at most."""
NO_SUM = "its output is no sum over heads of attention, tokens and matrices"
NOT_LINEAR = "what stands behind its attention is not linear"
NOT_FINITE = "its output is not finite under random attention in float64"
SAME_OUTPUT = "its output does not change with its attention: all its values are equal on these inputs"
NOT_ONE_EACH = "tokens are mixed behind its attention"
UNKNOWN = "unknown why it does not replay"
SEVERAL_TIMES = "its module attends more than once"
NO_PRODUCT = "no product of its softmax with values was seen"
CHANNELS = "it attends between channels, not between tokens"
OTHER_HEADS = "it replays with other heads than those that lie at the same tokens"
MIXES_VALUES = "its values mix tokens"
VALUES_NOT_LINEAR = "its values are not linear in its tokens"
NO_ORDER = "its heads read different tokens"
CONSTANT_VALUES = "some of its keys have values that no token of its input gives"
PREMISES = (NOT_LINEAR, NOT_ONE_EACH, CHANNELS, MIXES_VALUES, VALUES_NOT_LINEAR, NO_ORDER, CONSTANT_VALUES)
"""Reasons that are no part of the formula."""


def too_many(passes: int, heads: int, width: int, together: int) -> str:
    """The reason why a layer does not replay whose matrices take more runs than are made."""
    each = f"{heads} heads of {width} channels, {together} in a run"
    return f"its matrices take {passes:,} runs ({each}), above the limit of {MOST_PASSES:,}: more queries take fewer"


@final
@dataclass(frozen=True, eq=False)
class Replayed:
    """`matrices` (heads, d_out, d_in) and `bias` (d_out) in float64, None where `why` says which part is not read.

    `residual` is the largest difference of the output from its replay over the output's spread, None where nothing was
    replayed. `heads` is the axis of heads among those in front of queries and keys. `start` and `end` are the modules
    whose input is x and whose output is y.
    """

    residual: float | None = None
    matrices: HeadMatrices | None = None
    bias: Tensor | None = None
    heads: int = 0
    start: str = ""
    end: str = ""
    why: str = ""

    @property
    def passes(self) -> bool:
        """Whether the layer replays."""
        return self.residual is not None and self.residual <= MOST_RESIDUAL
