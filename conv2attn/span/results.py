"""Results of check_span as types: the JSON document and its schema follow from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, final

from conv2attn.report import Document, Report
from conv2attn.report.stored import Number, Stored, written
from conv2attn.span import document
from conv2attn.span.limits import Limits
from conv2attn.span.rows import Whole
from conv2attn.span.weighing import Dyadic
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

SCHEMA = "conv2attn.span/3"
Name = Literal["per-query", "per-image", "joint", "interior", "kernel"]


class Counting(Stored, frozen=True):
    """Fewer heads than orthogonal targets, each asked for at `queries` queries: one has a residual of this at least."""

    heads: int
    targets: int
    least_residual: float


class Target(Stored, frozen=True):
    """One offset, or one combination of them, and what is known of it.

    `residual` is certified from above, for a mixing within the bound; `floor` from below, for all such mixings.
    `weights` is the mixing, where one serves all rows; exact ones are fractions such as "9/7". `dual_rows` are the rows
    (image * queries + query) at which a dual refutes. `distance` is that of the least-squares mixing in the Frobenius
    norm, over the norm of the target: 0 to 1. `excluded` is the norm up to which no mixing at all leaves what counts as
    none; None for every norm. `stability` is how far every entry of the attention may move, as a share of itself,
    before the dual fails.
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


class Condition(Stored, frozen=True):
    """One of the conditions, decided: `verdict` is that of the worst target unless counting decides.

    `rank` counts the singular values above `threshold`; `around` are the last above it and the first below. `sentence`
    says what a verdict alone does not. `explained` is the share of the attention, in squares, that the best convolution
    with these taps is, one for each head.
    """

    name: Name
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

    @property
    def residual(self) -> float | None:
        """The largest of all targets."""
        return max((float(target.residual) for target in self.targets), default=None)

    @property
    def distance(self) -> float | None:
        """The largest of all targets, where it was computed."""
        return max((float(t.distance) for t in self.targets if t.distance is not None), default=None)

    @property
    def norm(self) -> float | None:
        """The largest sum of absolute values of a row of Phi."""
        return max((float(target.norm) for target in self.targets), default=None)


class SpanRow(Stored, frozen=True):
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
        """That of the condition that decides."""
        return self.deciding.verdict

    def condition(self, name: str) -> Condition:
        """The condition of this name, among those that were asked for."""
        return next(condition for condition in self.conditions if condition.name == name)


class StoredSpan(Stored, frozen=True):
    """Whether attention can express the convolutions that were asked for."""

    schema: Literal["conv2attn.span/3"]
    asked: str
    verdict: Verdict
    strength: Strength
    exit_code: Literal[0, 1, 3]
    layers: tuple[SpanRow, ...]


@final
@dataclass(frozen=True, eq=False)
class Witness:
    """What confirms the verdict on one target: a mixing for each group of rows, or a dual at a few rows.

    `groups` are of rows `image * queries + query`; `mixings` has one row for each group.
    """

    groups: tuple[Whole, ...] = ()
    mixings: tuple[tuple[float | Fraction, ...], ...] = ()
    dual: Dyadic | None = None


@final
@dataclass(frozen=True, repr=False)
class SpanReport(Report):
    """Whether attention can express the shifts of a kernel, layer by layer; the worst row decides.

    `witnesses` has what confirms each target by the names of its layer and condition.
    """

    rows: tuple[SpanRow, ...]
    asked: str
    witnesses: Mapping[tuple[str, str], tuple[Witness | None, ...]]

    @property
    def verdict(self) -> Verdict:
        """The worst of all rows; undecided where there is none."""
        return worst_verdict(row.verdict for row in self.rows)

    @property
    def strength(self) -> Strength:
        """The weakest of all rows that decide."""
        return weakest_strength(row.deciding.strength for row in self.rows)

    @property
    def exit_code(self) -> int:
        """0 holds, 1 refuted, 3 undecided or nothing checked."""
        return self.verdict.exit_code

    def document(self, verbose: bool = False) -> Document:
        """The answer, a row for each layer and notes; all conditions and a picture of each layer where `verbose`."""
        return document.document(self, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; its schema is docs/span.schema.json."""
        names = ("asked", "verdict", "strength", "exit_code")
        body = {name: getattr(self, name) for name in names} | {"schema": SCHEMA, "layers": self.rows}
        return written(body, StoredSpan)
