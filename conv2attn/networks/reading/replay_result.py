"""The result of replaying a layer, and the reasons why one does not replay."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from conv2attn.networks.reading.head_matrices import HeadMatrices

MOST_RESIDUAL = 1e-3
"""The largest difference between the output and its replay, as a share of the output's spread over tokens."""
MOST_PASSES = 4096
"""Most runs of one module for one candidate axis of heads."""
NO_SUM = "its output is not a sum over heads of attention, tokens and matrices"
NOT_LINEAR = "the steps after its attention are not linear"
NOT_FINITE = "its output is not finite under random attention in float64"
SAME_OUTPUT = "its output does not change with its attention: all its values are equal on these inputs"
NOT_ONE_EACH = "tokens are mixed after its attention"
UNKNOWN = "unknown why it does not replay"
SEVERAL_TIMES = "its module attends more than once"
NO_PRODUCT = "no product of its softmax with values was observed"
CHANNELS = "it attends between channels, not between tokens"
OTHER_HEADS = "it replays with other heads than the places of its tokens show"
MIXES_VALUES = "its values mix tokens"
VALUES_NOT_LINEAR = "its values are not linear in its tokens"
NO_ORDER = "its heads read different tokens"
CONSTANT_VALUES = "some of its keys have values that depend on no token of its input"


def too_many(passes: int, heads: int, width: int, together: int) -> str:
    """The reason for a layer whose matrices would take more than `MOST_PASSES` runs."""
    sizes = f"{heads} heads of {width} channels, {together} in a run"
    return (
        f"its matrices take {passes:,} runs ({sizes}), above the limit of {MOST_PASSES:,}: more queries need fewer runs"
    )


@final
@dataclass(frozen=True, eq=False)
class Replayed:
    """`matrices` (heads, d_out, d_in) and `bias` (d_out) in float64, None if unread, for the reason `why`.

    `residual` is the largest difference between the output and its replay over the output's spread, None if nothing was
    replayed. `heads` is the axis of heads among the leading axes of queries and keys. `start` and `end` are the modules
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
