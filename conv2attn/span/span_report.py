"""The result of check_span: its JSON document and schema follow from these types."""

from fractions import Fraction
from typing import Any, ClassVar, Literal, final

from msgspec import field

from conv2attn.report.result import Number, Part, Result
from conv2attn.span.attention_rows import Limits, Whole
from conv2attn.span.weighing import Dyadic
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

ConditionName = Literal["per-query", "per-image", "joint", "interior", "kernel"]


@final
class Evidence:
    """Confirms the verdict on one target: a mixing for each group of rows `image * queries + query`, or a dual.

    It is not part of the JSON document.
    """

    def __init__(
        self,
        groups: tuple[Whole, ...] = (),
        mixings: tuple[tuple[float | Fraction, ...], ...] = (),
        dual: Dyadic | None = None,
    ):
        self.groups, self.mixings, self.dual = groups, mixings, dual


@final
class Counting(Part, frozen=True):
    """Fewer heads than shifts, all of which the query of `row` (image * queries + query) sees: TAPS_far of proofs/.

    Whatever the heads attend to, some shift has a residual of at least 1 there, as much as without heads.
    """

    heads: int
    targets: int
    row: int
    least_residual: float = 1.0
    theorem: str = "TAPS_far"


@final
class Ends(Part, frozen=True):
    """How far every layer of these heads stays, and how near one comes, for an image of at most 1: a robust Lemma 3.

    By `theorem` every layer whose coefficients are within the largest norm misses the shift of `tap` by `far` (or a
    number as near to it as one likes) at some image of ones and minus ones; with TAPS_far every layer at all, and
    some tap. Some layer differs by at most `near` from the convolution that was given, or, where none was, from each
    whose weights into an output have absolute values that sum to 1. `licensed_by` names the claims.
    """

    far: Number
    theorem: str | None
    tap: str | None
    near: Number
    of_convolution: bool
    licensed_by: tuple[str, ...]


@final
class Target(Part, frozen=True, eq=False):
    """One offset, or one combination of offsets, with its verdict and bounds.

    `residual` is certified from above, for a mixing within the bound; `floor` from below, for all such mixings.
    `weights` is the mixing, where one serves all rows; exact ones are fractions such as "9/7". `dual_rows` are the rows
    (image * queries + query) at which a dual refutes. `distance` is that of the least-squares mixing in the Frobenius
    norm, over the norm of the target: 0 to 1. `excluded` is the norm up to which no mixing at all leaves what counts as
    none; None for every norm. `stability` is how far every entry of the attention may move, as a share of itself,
    before the dual fails. The numbers that confirm the verdict are its `evidence`, None where it is undecided.
    """

    label: str
    verdict: Verdict
    strength: Strength
    residual: Number
    floor: Number
    norm: Number
    weights: tuple[float | str, ...] = ()
    dual_rows: tuple[int, ...] = ()
    offset: tuple[int, ...] | None = None
    distance: Number | None = None
    excluded: Number | None = 0.0
    stability: Number | None = None
    evidence: Evidence | None = None

    @property
    def reached(self) -> float | None:
        """R^2: 1 less the squared distance of the target from the span, over its square."""
        return None if self.distance is None else 1 - self.distance**2


@final
class Condition(Part, frozen=True, eq=False):
    """One of the conditions, decided: `verdict` is that of the worst target unless counting decides.

    `rank` counts the singular values above `threshold`; `around` are the last above it and the first below. `sentence`
    says what a verdict alone does not. `explained` is the share of the attention, in squares, that the best convolution
    with these taps is, one for each head. `ends` are those of the robust Lemma 3, where one Phi serves all queries.
    """

    name: ConditionName
    verdict: Verdict
    strength: Strength
    targets: tuple[Target, ...] = ()
    queries: int = 0
    rank: int | None = None
    around: tuple[Number | None, ...] = (None, None)
    threshold: Number | None = None
    counting: Counting | None = None
    sentence: str = ""
    sampled: bool = False
    explained: Number | None = None
    ends: Ends | None = None

    @property
    def residual(self) -> float | None:
        """The largest residual of all targets."""
        return max((target.residual for target in self.targets), default=None)

    @property
    def distance(self) -> float | None:
        """The largest distance of all targets, where it was computed."""
        return max((t.distance for t in self.targets if t.distance is not None), default=None)

    @property
    def norm(self) -> float | None:
        """The largest sum of absolute values of a row of Phi."""
        return max((target.norm for target in self.targets), default=None)


@final
class SpanRow(Part, frozen=True, eq=False):
    """One layer: the first of its conditions decides."""

    name: str
    heads: int
    images: int
    grid: tuple[int, ...]
    limits: Limits
    conditions: tuple[Condition, ...]
    notes: tuple[str, ...] = ()

    @property
    def deciding(self) -> Condition:
        """The condition that decides."""
        return self.conditions[0]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the condition that decides."""
        return self.deciding.verdict

    def condition(self, name: str) -> Condition:
        """The condition of this name, among those that were asked for."""
        return next(condition for condition in self.conditions if condition.name == name)


@final
class SpanReport(Result, frozen=True, eq=False):
    """Whether attention can express the shifts of a kernel, layer by layer; the worst row decides, or undecided where
    there is none.

    `inputs` is what the network ran on and how it was prepared, in words, where these came from a file.
    """

    derived: ClassVar[tuple[str, ...]] = ("exit_code", "strength", "verdict")
    rows: tuple[SpanRow, ...] = field(name="layers")
    asked: str
    inputs: str = ""
    schema: Literal["conv2attn.span/5"] = "conv2attn.span/5"

    @property
    def verdict(self) -> Verdict:
        """The verdict of the worst row; undecided where there is none."""
        return worst_verdict(row.verdict for row in self.rows)

    @property
    def strength(self) -> Strength:
        """The weakest strength of the conditions that decide."""
        return weakest_strength(row.deciding.strength for row in self.rows)

    @property
    def exit_code(self) -> Literal[0, 1, 3]:
        """0 holds; 1 refuted; 3 undecided or unsupported."""
        code: Any = self.verdict.exit_code
        return code
