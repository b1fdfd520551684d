"""A certificate as one value: its JSON document, and the schema of that, follow from these types."""

import math
from collections.abc import Mapping
from typing import Any, Literal, final

from msgspec import field
from msgspec.structs import force_setattr, replace
from torch import Tensor

from conv2attn.report import counted
from conv2attn.report.result import Number, Part, Result
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

SAME_MAP = "the second is the same map as the first in the forward pass, for all finite inputs that are not empty"
ROOT = "(root)"  # the label of a network that is a layer
WHOLE_NETWORK = "(network)"  # in place of a layer's name
GRID = {0: (), 1: ("position",), 2: ("row", "column"), 3: ("plane", "row", "column")}
OUTPUT = {2: ("class",), **{axes + 2: ("channel", *GRID[axes]) for axes in (1, 2, 3)}}
CLAIMS: dict[str, tuple[str, ...]] = {
    "geometry": ("L1", "PAD", "STR"),
    "weights": ("T1",),
    "leak": ("L2b", "L2c", "A46"),
    "bound": ("T1", "L2c", "L2d"),
}


@final
class Finding(Part, frozen=True):
    """The verdict on one part and its strength; for all but `holds`, the rule and a sentence.

    `support` says that there was nothing to ask. `licensed_by` are the statements of proofs/ that license it.
    """

    part: Literal["geometry", "weights", "leak", "measured", "tolerance", "structure", "outputs", "sampled", "support"]
    verdict: Verdict
    strength: Strength = Strength.PROVED
    code: str = ""
    sentence: str = ""
    licensed_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "licensed_by", CLAIMS.get(self.part, ()))


def holds(part: Any, strength: Strength = Strength.PROVED, code: str = "", sentence: str = "") -> Finding:
    """A finding that nothing is wrong; the sentence is a warning, if there is one."""
    return Finding(part, Verdict.HOLDS, strength, code, sentence)


def refuted(part: Any, code: str, sentence: str) -> Finding:
    """A finding that refutes: a fact, hence proved."""
    return Finding(part, Verdict.REFUTED, Strength.PROVED, code, sentence)


def undecided(part: Any, code: str, sentence: str) -> Finding:
    """A finding that neither answer is known."""
    return Finding(part, Verdict.UNDECIDED, Strength.PROVED, code, sentence)


def unsupported(code: str, sentence: str) -> Finding:
    """A finding that the question is not one that is answered here."""
    return Finding("support", Verdict.UNSUPPORTED, Strength.PROVED, code, sentence)


@final
class Licences(Part, frozen=True):
    """The statements of proofs/ that license the bound and the leak of a layer."""

    bound: tuple[str, ...] = ()
    leak: tuple[str, ...] = ()


@final
class Row(Part, frozen=True):
    """One layer. `max_error` was measured on inputs up to `input_range`; `bound` holds for all of that range.

    `findings` are those of its parts; the worst decides. `memory_saved` counts the bytes of the dense attention of one
    image. `leak` is the largest off-target mass of a head. A `skipped` row was left out on request and does not count.
    """

    name: str
    convolution: str
    findings: tuple[Finding, ...]
    strength: Strength | None = None
    grid: tuple[int, ...] | None = None
    heads: int | None = None
    d_head: int | None = None
    alpha: Number | None = None
    parameters: int | None = None
    memory_saved: int | None = None
    leak: Number | None = None
    input_range: Number | None = None
    max_error: Number | None = None
    bound: Number | None = None
    skipped: bool = False
    verdict: Verdict = Verdict.UNDECIDED
    licensed_by: Licences = Licences()

    def __post_init__(self) -> None:
        force_setattr(self, "verdict", worst_verdict(finding.verdict for finding in self.findings))
        bound, leak = (CLAIMS[key] if getattr(self, key) is not None else () for key in ("bound", "leak"))
        force_setattr(self, "licensed_by", Licences(bound, leak))

    @property
    def decisive(self) -> Finding:
        """The part that decides."""
        return next(finding for finding in self.findings if finding.verdict is self.verdict)

    def part(self, name: str) -> Finding | None:
        """The finding of a part, if it was asked."""
        return next((finding for finding in self.findings if finding.part == name), None)


@final
class Gap(Part, frozen=True):
    """The largest difference in one tensor of the outputs: its path, its place, both numbers, how many differ."""

    output: str
    place: tuple[int, ...]
    original: Number
    converted: Number
    count: int
    axes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        force_setattr(self, "axes", dict(zip(axis_names(len(self.place)), self.place, strict=True)))

    @property
    def difference(self) -> float:
        """|converted - original|."""
        return abs(self.converted - self.original)


@final
class Outputs(Part, frozen=True):
    """The outputs of both networks on some images: measured, not bounded.

    `stable` counts the images whose two largest classes are further apart than both outputs' differences on them;
    `gaps` are the widest gaps, one for each tensor of the output. A bound is `vacuous` if it exceeds the outputs.
    """

    images: str
    count: int
    max_difference: Number
    largest_output: Number
    same_top1: int | None = None
    correct: tuple[int, int] | None = None
    stable: int | None = None
    bound: Number | None = None
    vacuous: bool | None = None
    stable_by_bound: int | None = None
    gaps: tuple[Gap, ...] = ()


@final
class Counterexample(Part, frozen=True, eq=False):
    """An input on which two layers, or both networks, differ at `place`, and by how much.

    Of a layer (`part` is empty) the place is an output channel and the coordinates of a query, and the input an image
    without a batch. Of the networks `part` says what is shown: outputs that are not the same in kind (`told`) or in
    number, or a tolerance that is exceeded; `index` is the number of the image among those given.

    `allowed` is what may differ there: by rounding, or the tolerance; None where nothing is known. `exact` is the
    difference in exact arithmetic, where the computed one does not exceed what is allowed and it is known. `count`
    numbers differ by more than is allowed. The input itself is saved apart.
    """

    layer: str
    image: Tensor
    place: tuple[int, ...] = ()
    original: Number = math.nan
    converted: Number = math.nan
    allowed: Number | None = None
    exact: Number | None = None
    count: int = 0
    part: Literal["", "outputs", "tolerance"] = ""
    output: str = ""
    told: str = ""
    index: int | None = None
    axes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("output channel", *GRID.get(len(self.place) - 1, ())) if self.place else ()
        axes = dict(zip(names, self.place, strict=False))
        if self.output:  # of one image, whose number says nothing
            axes = dict(list(zip(axis_names(len(self.place)), self.place, strict=True))[1:])
        force_setattr(self, "axes", axes)

    @property
    def difference(self) -> float:
        """|converted - original| there; infinite if only the converted is not finite, NaN if the original is not."""
        off = abs(self.converted - self.original)
        return math.inf if off != off and abs(self.original) < math.inf else off

    @property
    def exceeds(self) -> bool:
        """Whether the difference as computed is more than may be."""
        return self.allowed is not None and self.difference > self.allowed

    @property
    def shows(self) -> bool:
        """Whether it refutes: by the numbers as computed, by the exact ones, or by what is not the same in kind."""
        return self.exceeds or bool(self.exact) or bool(self.told)

    @property
    def where(self) -> str:
        """The place, its axes named."""
        return ", ".join(filter(None, [self.output, *(f"{name} {number}" for name, number in self.axes.items())]))

    @property
    def fact(self) -> str:
        """The difference in words."""
        many = f" ({counted(self.count, 'number')} off)" if self.count else ""
        numbers = f"{self.where} is {self.converted:.9g}, not {self.original:.9g}{many}" if self.where else ""
        return "; ".join(filter(None, [self.told, numbers]))

    def at(self, gap: Gap) -> "Counterexample":
        """This input with the place and the numbers of a gap in the outputs."""
        numbers: Any = {each: getattr(gap, each) for each in ("output", "place", "original", "converted", "count")}
        return replace(self, **numbers)

    def in_words(self) -> str:
        """The counterexample in a sentence."""
        sides = "x".join(map(str, self.image.shape[0 if self.part else 1 :]))
        largest = self.image.abs().max().item() if self.image.numel() else 0.0
        which = "" if self.index is None else f" (image {self.index})"
        exactly = "" if self.exceeds or not self.exact else f", and in exact arithmetic off by {self.exact:.3g}"
        return f"an input {sides} within +-{largest:g}{which} shows it: {self.fact}{exactly}"


@final
class Context(Part, frozen=True):
    """The hashes of both graphs in normal form, empty where there is none, and the guards on the sizes of inputs."""

    digests: tuple[str, str] = ("", "")
    guards: tuple[str, ...] = ()


@final
class Certificate(Result, frozen=True, eq=False):
    """Whether the second network computes the first: the worst row decides, the weakest strength counts.

    `between` are the findings on what stands between the layers and on the outputs. `claim` says what is certified, and
    is empty unless that holds. `counterexamples` are inputs that show what is refuted, `unshown` what no image shows.
    """

    rows: tuple[Row, ...]
    between: tuple[Finding, ...] = ()
    outputs: Outputs | None = None
    assumptions: tuple[str, ...] = ()
    claim: str = SAME_MAP
    circumstances: Mapping[str, str] = field(default_factory=dict)
    counterexamples: tuple[Counterexample, ...] = ()
    unshown: tuple[str, ...] = ()
    context: Context = Context()
    verdict: Verdict = Verdict.UNDECIDED
    strength: Strength = Strength.SAMPLED
    exit_code: Literal[0, 1, 3] = 3
    schema: Literal["conv2attn.certificate/4"] = "conv2attn.certificate/4"

    def __post_init__(self) -> None:
        verdicts = [row.verdict for row in self.counted] + [finding.verdict for finding in self.between]
        verdict = worst_verdict([*verdicts, *([Verdict.UNDECIDED] if self.rows and not self.counted else [])])
        between = [each.strength for each in self.between if each.part in ("structure", "sampled", "tolerance")]
        rows = [row.strength for row in self.counted if row.strength is not None]
        force_setattr(self, "verdict", verdict)
        force_setattr(self, "strength", weakest_strength([*between, *rows]))
        force_setattr(self, "exit_code", verdict.exit_code)
        if verdict is not Verdict.HOLDS:
            force_setattr(self, "claim", "")

    @property
    def counted(self) -> tuple[Row, ...]:
        """The rows that count."""
        return tuple(row for row in self.rows if not row.skipped)

    @property
    def sampled(self) -> bool:
        """Whether some images alone compare the two networks: neither was converted, and their graphs differ."""
        return any(finding.part == "sampled" for finding in self.between)

    @property
    def holding_tolerance(self) -> float | None:
        """For an undecided certificate, the smallest tolerance known to hold: by a bound, or on the images."""
        if self.verdict is not Verdict.UNDECIDED or self.outputs is None:
            return None
        if self.sampled:
            return self.outputs.max_difference
        every = [*self.between, *(finding for row in self.counted for finding in row.findings)]
        parts = {finding.part for finding in every if finding.verdict is not Verdict.HOLDS}
        return self.outputs.bound if parts <= {"leak", "tolerance"} else None

    def __bool__(self) -> bool:
        """Whether it holds; an undecided certificate is not true."""
        return self.verdict is Verdict.HOLDS


def axis_names(axes: int) -> tuple[str, ...]:
    """The axes of an output by torch's convention: images, then classes, or channels and the axes of a grid."""
    return ("image", *OUTPUT.get(axes, [f"axis {axis}" for axis in range(1, axes)]))[:axes]
