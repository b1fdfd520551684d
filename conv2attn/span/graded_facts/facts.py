"""Facts of heads as types, from which the JSON document and its schema are derived."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import msgspec
import numpy as np

from conv2attn.networks.reading.head_matrices import HeadMatrices
from conv2attn.report.result import Part, Result
from conv2attn.span.attention_rows import Array
from conv2attn.span.graded_facts.effects import Effect, Replaced, ReplacedTogether
from conv2attn.verdicts import Strength, Verdict

HeadKind = Literal[
    "class token",
    "sink",
    "itself",
    "shift",
    "local",
    "bar",
    "uniform",
    "content",
    "varies with the image",
    "mixed",
    "one query",
]


@final
@dataclass(frozen=True)
class KindRule:
    """A head is of this kind if `number` is at least `threshold` and no earlier rule decides."""

    kind: HeadKind
    number: str
    threshold: float
    meaning: str


KIND_RULES = (
    KindRule("class token", "extra", 0.5, "half of its attention goes to leading tokens that are not pixels"),
    KindRule("sink", "sink", 0.5, "one key has half of the attention of the queries that may read it"),
    KindRule("itself", "itself", 0.5, "half of its attention goes to the query's own position"),
    KindRule("shift", "peak_mass", 0.5, "half of its attention goes to one displacement other than zero"),
    KindRule("local", "around", 0.5, "half of it goes to the displacements next to its peak, diagonals included"),
    KindRule("bar", "bar", 0.5, "half of it goes to displacements of one row, or of one column, of the grid"),
    KindRule("uniform", "evenness", 0.8, "exp of its entropy is four fifths of the keys that a query may read"),
    KindRule(
        "content",
        "lost",
        0.5,
        "if heads are replaced: its mean over images changes the output at least half as much as uniform attention",
    ),
    KindRule("varies with the image", "content", 0.5, "half of its energy about the mean varies over the images"),
)
"""The first rule that fits decides; a head that fits no rule is mixed. Kinds need at least two queries."""
CLOSE = 0.05
"""A number this close to its threshold may be on the other side for other images. It was chosen as a tenth of 1/2."""


def kind_of(number: Callable[[str], float | None], queries: int) -> tuple[HeadKind, float]:
    """The kind of a head and its margin.

    The margin is the number of the deciding rule minus its threshold. For a mixed head it is the distance of a number
    to its threshold, for the rule where this is least. With one query, a sink and a shift cannot be distinguished, so
    the kind is "one query" and the margin 0.
    """
    if queries < 2:
        return "one query", 0.0
    measured = [(rule, value) for rule in KIND_RULES if (value := number(rule.number)) is not None]
    for rule, value in measured:
        if value >= rule.threshold:
            return rule.kind, value - rule.threshold
    return "mixed", min((rule.threshold - value for rule, value in measured), default=0.0)


def other_kind(kind: HeadKind, number: Callable[[str], float | None]) -> HeadKind | None:
    """The other kind that a head would have after the smallest change of one number; None if that exceeds `CLOSE`."""
    measured = [(rule, value - rule.threshold) for rule in KIND_RULES if (value := number(rule.number)) is not None]
    before = [(rule, margin) for rule, margin in measured if margin < 0]
    near: list[tuple[float, HeadKind]] = [(-margin, rule.kind) for rule, margin in before]
    decided = next((place for place, (rule, margin) in enumerate(measured) if margin >= 0), None)
    # An earlier rule decides as soon as its number reaches the threshold. A later rule decides only if the present rule
    # fails. If both numbers have the same margin, both rules fail together, as "shift" and "local" do if all attention
    # around the peak is at the peak.
    if decided is not None:
        margin = measured[decided][1]
        behind = (rule.kind for rule, other in measured[decided + 1 :] if other >= 0 and other != margin)
        near = [*near[:decided], (margin, next(behind, "mixed"))]
    distance, other = min(near, default=(CLOSE, None))
    return other if distance < CLOSE and kind not in ("one query", "content") else None


class Shares(Part, frozen=True):
    """Shares of relative position, of other position, and of content; None if the images do not determine them."""

    relative: float | None = None
    absolute: float | None = None
    content: float | None = None


class Errors(Part, frozen=True):
    """Standard errors over the images; None if the images do not determine them."""

    relative: float | None = None
    absolute: float | None = None
    content: float | None = None
    peak_mass: float | None = None
    horizontal: float | None = None
    vertical: float | None = None
    anisotropy: float | None = None
    overlap: float | None = None
    likeness: float | None = None
    moved: float | None = None


class HeadFacts(Part, frozen=True):
    """The facts of one head. `FACTS` of `fact_table` has the definition and the source of each number.

    `relative`, `absolute` and `content` are shares of its energy about the mean over the keys that a query may read.
    They are None if one image does not determine them, or if the head attends evenly.
    """

    head: int
    kind: HeadKind
    margin: float
    peak: tuple[int, ...]
    peak_mass: float
    argmax: float
    argmax_at: tuple[int, ...]
    itself: float
    around: float
    bar: float | None
    distance: float
    keys_in_use: float
    evenness: float
    largest: float
    sink: float
    extra: float
    relative: float | None
    absolute: float | None
    content: float | None
    horizontal: float | None = None
    vertical: float | None = None
    anisotropy: float | None = None
    overlap: float | None = None
    likeness: float | None = None
    moved: float | None = None
    errors: Errors = Errors()
    replaced: Replaced | None = None


class SpanFact(Part, frozen=True):
    """R^2 of the heads' span for the offsets of a kernel: for the centre, as a mean, and for the best offset.

    `chance` is the mean for heads that attend uniformly; it is None if queries may read different numbers of keys.
    """

    kernel_size: int
    dilation: int
    center: float
    mean: float
    best: float
    error: float | None = None
    chance: float | None = None


class ConvolutionFact(Part, frozen=True, eq=False):
    """The zero-padded convolution nearest to the map `x -> sum_h A_h x M_h^T` of a layer, over all queries and images.

    Let L_q be the matrix from all tokens to the output of query q, and C_q the same matrix of the convolution. `taps`
    (offsets, d_out, d_in) minimise `sum |L_q - C_q|^2`. `share` is `1 - sum |L_q - C_q|^2 / sum |L_q|^2`,
    estimated without bias, and `share_error` its standard error. `error` is `max_q sum_k |L_qk - C_qk|` with the
    Frobenius norm of a key's matrix, and `norm` is `max_q sum_k |L_qk|`. If no token is longer than r, an output of the
    layer is at most `norm r` long, and the output of the convolution differs from it by at most `error r`. `chance` is
    the share for heads that attend uniformly; it is None if queries may read different numbers of keys. The JSON
    document leaves out the taps, which are the sums over heads of `combination` (heads, offsets) times `matrices`
    (heads, d_out, d_in).
    """

    kernel_size: int
    share: float
    share_error: float | None
    error: float | None
    norm: float | None
    combination: Array
    packed: HeadMatrices = msgspec.field(name="matrices")
    chance: float | None = None

    @property
    def matrices(self) -> Array:
        """The matrix of each head. It is multiplied on access, since a report keeps the factors only."""
        return self.packed.dense().numpy()

    @property
    def taps(self) -> Array:
        """The taps of the convolution. They are computed on access, since they may be larger than the attention."""
        made: Array = np.einsum("ht,hoi->toi", self.combination, self.matrices)
        return made


class LayerFacts(Part, frozen=True, eq=False):
    """The facts of one layer: its heads, R^2 of their span, and its nearest convolutions if its weights are read.

    `grid` is the grid of keys. `unread` is the reason why a layer was not read; such a layer has no heads. `means`
    holds the means of shares over the heads, and `errors` the standard errors of means over the heads. `replay` is the
    largest difference between the layer's output and the output computed from its weights and attention, divided by the
    output's spread over tokens. `mass` (heads, *(2 side - 1)) is the mean attention by displacement. The JSON document
    leaves out `mass` and `bias`.
    """

    name: str
    grid: tuple[int, ...] = ()
    images: int = 0
    queries: tuple[int, ...] = ()
    heads: tuple[HeadFacts, ...] = ()
    spans: tuple[SpanFact, ...] = ()
    convolutions: tuple[ConvolutionFact, ...] = ()
    means: Shares = Shares()
    errors: Errors = Errors()
    unread: str = ""
    replay: float | None = None
    coverage: float | None = None
    coverage_error: float | None = None
    redundant_pairs: int | None = None
    notes: tuple[str, ...] = ()
    mass: Array | None = None
    bias: Array | None = None

    def mean(self, name: str) -> float | None:
        """The mean of a number over the heads; None if a head lacks this number."""
        if hasattr(self.means, name):
            mean: float | None = getattr(self.means, name)
            return mean
        values = [getattr(head, name) for head in self.heads]
        return None if None in values else float(np.mean(values))

    def span(self, size: int, dilation: int = 1) -> SpanFact | None:
        """The R^2 of one kernel; None if it is wider than the grid."""
        return next((fact for fact in self.spans if (fact.kernel_size, fact.dilation) == (size, dilation)), None)

    def convolution(self, size: int) -> ConvolutionFact | None:
        """The nearest convolution of one size; None if it was not computed."""
        return next((fact for fact in self.convolutions if fact.kernel_size == size), None)


class HeadsReport(Result, frozen=True, eq=False):
    """Facts of the heads of each layer, which are numbers without a claim.

    If no layer was read, the verdict is undecided, and the exit code 3. `read_as` says in words what was assumed about
    the file of the network, and `needed` which argument would make unread layers readable. `together` is the effect of
    replacing heads at once. `inputs` says in words on which inputs the network ran, and how they were prepared if they
    came from a file.
    """

    derived: ClassVar[tuple[str, ...]] = ("exit_code", "strength", "verdict")
    layers: tuple[LayerFacts, ...]
    read_as: str = ""
    together: ReplacedTogether | None = None
    needed: str = ""
    inputs: str = ""
    schema: Literal["conv2attn.heads/4"] = "conv2attn.heads/4"

    @property
    def verdict(self) -> Verdict:
        """Holds if a layer was read; otherwise undecided."""
        return Verdict.HOLDS if any(not layer.unread for layer in self.layers) else Verdict.UNDECIDED

    @property
    def strength(self) -> Strength:
        """Sampled: the facts are about the given inputs alone."""
        return Strength.SAMPLED

    @property
    def exit_code(self) -> Literal[0, 3]:
        """0 if a layer was read; 3 otherwise."""
        code: Any = self.verdict.exit_code
        return code

    def records(self) -> list[dict[str, Any]]:
        """One record per head of each layer, for a table such as CSV."""
        records = []
        for layer in self.layers:
            for head in layer.heads:
                body = msgspec.to_builtins(head)
                errors = {f"{name}_error": value for name, value in body.pop("errors").items()}
                body.pop("replaced")
                errors |= effect_columns(head.replaced)
                places = {name: " ".join(map(str, body[name])) for name in ("peak", "argmax_at")}
                records.append({"layer": layer.name, **body, **places, **errors})
        return records


def effect_columns(replaced: Replaced | None) -> dict[str, Any]:
    """The effects of a replacement as columns of a table."""
    if replaced is None:
        return {}
    parts: dict[str, Effect] = {"": replaced.effect, "uniform_": replaced.uniform}
    numbers = {f"{part}{key}": x for part, effect in parts.items() for key, x in msgspec.to_builtins(effect).items()}
    numbers |= {"by": replaced.by, "lost": replaced.lost, "lost_error": replaced.lost_error}
    return {f"replaced_{name}": value for name, value in numbers.items()}
