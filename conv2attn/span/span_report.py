"""The result of check_span; its JSON document and schema are derived from these types."""

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
    """The numbers that confirm a verdict: one mixing of heads for each group of rows, or a dual that refutes.

    Rows are numbered `image * queries + query`. The JSON document leaves these numbers out.
    """

    # A plain class, since msgspec would write the fields of a struct into the document.

    def __init__(
        self,
        groups: tuple[Whole, ...] = (),
        mixings: tuple[tuple[float | Fraction, ...], ...] = (),
        dual: Dyadic | None = None,
    ):
        self.groups, self.mixings, self.dual = groups, mixings, dual


@final
class Counting(Part, frozen=True):
    """A refutation by counting: there are fewer heads than shifts, and all shifts are on the grid at one query.

    `row` is the number of that query, `image * queries + query`. By TAPS_far of proofs/, some shift has a residual of
    at least 1 there, whatever the heads attend to. A layer without heads has the residual 1.
    """

    heads: int
    targets: int
    row: int
    least_residual: float = 1.0
    theorem: str = "TAPS_far"


@final
class Ends(Part, frozen=True):
    """A robust Lemma 3 for images within +-1: all layers with these heads stay `far`, or some layer comes `near`.

    By L3_far, every layer with these heads and with coefficients within the largest norm misses the shift of `tap` by
    `far`, or by a number arbitrarily near to it, at some image of ones and minus ones. By TAPS_far, layers with
    coefficients of any norm miss the shift of some tap in this way. Some layer with these heads differs by at most
    `near` from the given convolution. Without a given convolution, `near` is for every convolution whose weights into
    an output have absolute values that sum to 1. `licensed_by` names the claims.
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

    A mixing is a row of Phi: one coefficient per head. `residual` is an upper bound on the residual of one mixing
    within the norm, and `floor` is a lower bound for all such mixings. `weights` is the mixing if one mixing serves all
    rows; exact coefficients are fractions such as "9/7". `dual_rows` are the rows (image * queries + query) at which a
    dual refutes. `distance` is the distance of the least-squares mixing in the Frobenius norm, divided by the norm of
    the target, from 0 to 1. `excluded` is the norm up to which the residual of every mixing counts as non-zero; it is
    None if this is so for every norm. `stability` is the largest relative change of every entry of the attention under
    which the dual still refutes. `evidence` confirms the verdict, and is None if the verdict is undecided.
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
        """R^2 of the target: `1 - distance^2`."""
        return None if self.distance is None else 1 - self.distance**2


@final
class Condition(Part, frozen=True, eq=False):
    """One condition with its verdict, which is that of the worst target unless counting refutes.

    `rank` is the number of singular values above `threshold`; `around` holds the last singular value above it and the
    first below it. `sentence` holds notes beyond the figures. `explained` is the share of the attention, in squares,
    that the best convolution with these taps for each head explains. `ends` holds the distances of the robust Lemma 3,
    if the condition is about one Phi for all queries.
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
        """The largest distance of all targets; None if none was computed."""
        return max((t.distance for t in self.targets if t.distance is not None), default=None)

    @property
    def norm(self) -> float | None:
        """The largest sum of absolute values of a row of Phi."""
        return max((target.norm for target in self.targets), default=None)


@final
class SpanRow(Part, frozen=True, eq=False):
    """One layer with its conditions, the first of which decides the verdict."""

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
        """The condition with this name; raises StopIteration if it was not decided."""
        return next(condition for condition in self.conditions if condition.name == name)


@final
class SpanReport(Result, frozen=True, eq=False):
    """Whether attention can express the shifts of a kernel, layer by layer.

    `asked` names the offsets in words. `inputs` says in words on which inputs the network ran, and how they were
    prepared if they came from a file.
    """

    derived: ClassVar[tuple[str, ...]] = ("exit_code", "strength", "verdict")
    rows: tuple[SpanRow, ...] = field(name="layers")
    asked: str
    inputs: str = ""
    schema: Literal["conv2attn.span/5"] = "conv2attn.span/5"

    @property
    def verdict(self) -> Verdict:
        """The verdict of the worst row; undecided if there is none."""
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
