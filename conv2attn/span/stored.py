"""The JSON document of a span report as types; docs/span.schema.json is written from them."""

from typing import Literal

from conv2attn.report.stored import Number, Stored
from conv2attn.verdicts import Strength, Verdict

SCHEMA = "conv2attn.span/2"
Exact = float | str
"""A number, or a fraction such as "1/3"."""


class StoredMixing(Stored, frozen=True, tag_field="kind", tag="mixing"):
    """The weights of the heads that form a target."""

    target: int
    weights: list[Exact]


class StoredMixings(Stored, frozen=True, tag_field="kind", tag="mixings"):
    """Weights of the heads for each query; only their number is stored."""

    target: int
    rows: int


class StoredNullVector(Stored, frozen=True, tag_field="kind", tag="null vector"):
    """A combination of rows that is 0 for every head and not for the target."""

    target: int
    entries: list[list[Exact]]


class StoredDual(Stored, frozen=True, tag_field="kind", tag="dual"):
    """The rows at which a dual vector bounds the residual from below."""

    target: int
    rows: list[int]
    inverse: list[list[int | list[Exact]]] | None


class StoredCounting(Stored, frozen=True, tag_field="kind", tag="counting"):
    """Fewer heads than targets: a bound without any search."""

    heads: int
    targets: int
    least_residual: float


class StoredTarget(Stored, frozen=True):
    """The decision on one target row."""

    label: str
    verdict: Verdict
    strength: Strength
    residual: Number
    floor: Number
    norm: Number
    weights: list[Exact]
    witness: StoredMixing | StoredMixings | StoredNullVector | StoredDual | None
    exactly: bool | None
    offset: list[int] | None
    distance: Number | None
    stability: Number | None


class StoredCondition(Stored, frozen=True):
    """One form of the condition: per query, joint, interior or for a kernel."""

    name: str
    verdict: Verdict
    strength: Strength
    targets: list[StoredTarget]
    queries: int
    rank: int | None
    around: list[Number | None]
    threshold: Number | None
    counting: StoredCounting | None
    sentence: str
    sampled: bool
    explained: Number | None


class StoredLimits(Stored, frozen=True):
    """Limits: the residual that counts as none, and the largest norm of the mixing matrix."""

    eps: float
    max_phi: float
    per_norm: float


class StoredRow(Stored, frozen=True):
    """One layer."""

    name: str
    heads: int
    images: int
    grid: list[int]
    verdict: Verdict
    strength: Strength
    conditions: list[StoredCondition]
    decisive: Literal["per-query", "joint", "interior", "kernel"]
    limits: StoredLimits
    beside: list[StoredCondition]
    content: float
    notes: list[str]


class StoredSpan(Stored, frozen=True):
    """Whether attention can express the convolutions that were asked for."""

    schema: Literal["conv2attn.span/2"]
    asked: str
    verdict: Verdict
    strength: Strength
    exit_code: Literal[0, 1, 3]
    layers: list[StoredRow]
