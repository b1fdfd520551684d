"""The result for one condition: a verdict with its witness, and the figures that go with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from conv2attn.basis import Offset
from conv2attn.verdicts import Strength, Verdict

Numbers = tuple[float, ...]
Row = Sequence[float | Fraction]


@final
@dataclass(frozen=True)
class Mixing:
    """A row of Phi, the heads' weights for one target: what it leaves counts as none."""

    target: int
    weights: Row


@final
@dataclass(frozen=True)
class Mixings:
    """A row of Phi_q for each query, images one after the other: the printed condition holds."""

    target: int
    rows: tuple[Row, ...]


@final
@dataclass(frozen=True)
class NullVector:
    """Numbers y on few (image, query, key) with `A y = 0` for every head and `E y != 0`: no Phi at all will do."""

    target: int
    entries: tuple[tuple[int, int, int, Fraction], ...]


@final
@dataclass(frozen=True)
class DualVector:
    """Integers y at a few rows (image * queries + query), one for each key: every Phi within its norm leaves too much.

    `inverse`, where it is needed, bounds the norms that matter: rows, and a matrix (heads, heads).
    """

    target: int
    values: tuple[tuple[int, Sequence[int]], ...]
    inverse: tuple[tuple[int, ...], tuple[Numbers, ...]] | None = None


@final
@dataclass(frozen=True)
class Counting:
    """Fewer heads than orthogonal targets, each asked for at `queries` queries: one has a residual of this at least."""

    heads: int
    targets: int
    least_residual: float


Witness = Mixing | Mixings | NullVector | DualVector | Counting


@final
@dataclass(frozen=True)
class Target:
    """One offset, or one combination of them, and what is known of it.

    `residual` is certified from above, for a mixing within the bound; `floor` from below, for all such mixings.
    `distance` is that of the least-squares mixing in the Frobenius norm, over the norm of the target: 0 to 1.
    `stability` is how far every entry of the attention may move, as a share of itself, before what refutes fails.
    `exactly` tells whether the ideal operator spans it with no residual at all, where that was decided.
    """

    label: str
    verdict: Verdict
    strength: Strength
    residual: float
    floor: float
    norm: float
    weights: Row
    witness: Witness | None
    exactly: bool | None = None
    offset: Offset | None = None
    distance: float | None = None
    stability: float | None = None


@final
@dataclass(frozen=True)
class Condition:
    """One of the conditions, decided: `verdict` is that of the worst target unless counting decides.

    `rank` counts the singular values above `threshold`; `around` are the last above it and the first below. `sentence`
    says what a verdict alone does not. `explained` is the share of the attention, in squares, that the best convolution
    with these taps is, one for each head.
    """

    name: str
    verdict: Verdict
    strength: Strength
    targets: tuple[Target, ...]
    queries: int
    rank: int | None = None
    around: tuple[float | None, float | None] = (None, None)
    threshold: float | None = None
    counting: Counting | None = None
    sentence: str = ""
    sampled: bool = False
    explained: float | None = None

    @property
    def residual(self) -> float | None:
        """The largest of all targets."""
        return max((target.residual for target in self.targets), default=None)

    @property
    def distance(self) -> float | None:
        """The largest of all targets, where it was computed."""
        return max((target.distance for target in self.targets if target.distance is not None), default=None)

    @property
    def norm(self) -> float | None:
        """The largest sum of absolute values of a row of Phi."""
        return max((target.norm for target in self.targets), default=None)

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        """The witnesses with which a checker confirms the verdict."""
        decisive = [t.witness for t in self.targets if t.verdict is self.verdict and t.witness is not None]
        counted = [self.counting] if self.counting and self.verdict is Verdict.REFUTED else []
        return (*decisive, *counted)
