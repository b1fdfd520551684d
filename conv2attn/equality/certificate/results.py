"""A certificate as one value; its JSON document and schema follow from these types."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, final

from msgspec import field
from torch import Tensor

from conv2attn.equality.worlds import LIMIT, PartingPlace
from conv2attn.errors import Conv2AttnError
from conv2attn.report import counted
from conv2attn.report.result import Number, Part, Result
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

SAME_MAP = (
    "the second network is the same map as the first network in the forward pass, for all finite inputs that are not "
    "empty"
)
SAME_FORMULA = "both networks are one formula in real arithmetic, for all finite inputs"
SAME_MAP_RUN = "the layers are the same maps, and the networks are equal bit for bit on the inputs that were run,"
MOVED = "the first"  # the circumstance that says how the input was moved
ROOT = "(root)"  # the label of a network that is itself a layer
OUTPUT = {2: ("class",), 3: ("channel", "position"), 4: ("channel", "row", "column")}
OUTPUT[5] = ("channel", "plane", "row", "column")


PartName = Literal[
    "geometry",
    "weights",
    "leak",
    "measured",
    "structure",
    "formula",
    "sections",
    "numbers",
    "outputs",
    "support",
    "modes",
]


@final
class Finding(Part, frozen=True):
    """The verdict on one part with its strength; unless it holds, with the rule and a sentence.

    `structure`: between the layers both are the same code. `formula`: both are one formula over a finite ring.
    `sections`: between nonlinear functions both agree within rounding. `numbers`: the difference of two plain calls in
    units of rounding. `support`: the question is outside what is supported. `modes`: both are in training or both in
    evaluation mode. `licensed_by` are the claims of proofs/ whose premises were checked where the finding was made.
    """

    part: PartName
    verdict: Verdict
    strength: Strength = Strength.PROVED
    code: str = ""
    sentence: str = ""
    licensed_by: tuple[str, ...] = ()


def holds(
    part: Any,
    strength: Strength = Strength.PROVED,
    code: str = "",
    sentence: str = "",
    licensed_by: tuple[str, ...] = (),
) -> Finding:
    """A finding that holds; the sentence is an optional warning."""
    return Finding(part, Verdict.HOLDS, strength, code, sentence, licensed_by)


def refuted(part: Any, code: str, sentence: str) -> Finding:
    """A finding that refutes: a fact, hence proved."""
    return Finding(part, Verdict.REFUTED, Strength.PROVED, code, sentence)


def undecided(part: Any, code: str, sentence: str) -> Finding:
    """A finding without an answer."""
    return Finding(part, Verdict.UNDECIDED, Strength.PROVED, code, sentence)


def unsupported(code: str, sentence: str) -> Finding:
    """A finding that the question is not supported."""
    return Finding("support", Verdict.UNSUPPORTED, Strength.PROVED, code, sentence)


@final
class Licences(Part, frozen=True):
    """The claims of proofs/ on which the bound and the leak of a layer rest; steps without a theorem are named.

    `missing` are the premises that do not hold here, each after the claim that needs it.
    """

    bound: tuple[str, ...] = ()
    leak: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@final
class Row(Part, frozen=True):
    """One layer. `max_error` was measured on inputs up to `input_range`; `bound` holds for the whole range.

    `findings` are those of its parts; the worst decides. `leak` is the largest off-target mass of a head. A `skipped`
    row was left out on request and does not count.
    """

    derived: ClassVar[tuple[str, ...]] = ("strength", "verdict")
    name: str
    convolution: str
    findings: tuple[Finding, ...]
    grid: tuple[int, ...] | None = None
    heads: int | None = None
    alpha: Number | None = None
    leak: Number | None = None
    input_range: Number | None = None
    max_error: Number | None = None
    bound: Number | None = None
    skipped: bool = False
    licensed_by: Licences = Licences()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its parts."""
        return worst_verdict(finding.verdict for finding in self.findings)

    @property
    def strength(self) -> Strength | None:
        """The strength of the claim for all inputs: that of the weakest part, measurements excluded."""
        parts = [finding.strength for finding in self.findings if finding.part not in ("measured", "support")]
        return weakest_strength(parts) if parts and not self.skipped else None

    def part(self, name: str) -> Finding | None:
        """The finding of a part, if there is one."""
        return next((finding for finding in self.findings if finding.part == name), None)


def unsupported_row(name: str, signature: str, error: Conv2AttnError) -> Row:
    """The row of a refused layer, without the layer's name in its sentence, since reports print it before."""
    return Row(name, signature, (unsupported(error.code, error.found.removeprefix(f"{name}: ")),))


@final
class Gap(Part, frozen=True):
    """The largest difference in one tensor of the outputs: its path, its place, both numbers, how many differ."""

    output: str
    place: tuple[int, ...]
    original: Number
    converted: Number
    count: int
    derived: ClassVar[tuple[str, ...]] = ("axes",)

    @property
    def axes(self) -> dict[str, int]:
        """The place, its axes named."""
        return dict(zip(axis_names(len(self.place)), self.place, strict=True))

    @property
    def difference(self) -> float:
        """|converted - original|."""
        return abs(self.converted - self.original)


@final
class Outputs(Part, frozen=True):
    """The outputs of both networks on some images: measurements without a bound.

    `stable` counts the images on which the margin between the two largest classes exceeds the differences of both
    outputs; `gaps` are the widest gaps, one for each tensor of the output.
    """

    images: str
    count: int
    max_difference: Number
    largest_output: Number
    same_top1: int | None = None
    correct: tuple[int, int] | None = None
    stable: int | None = None
    gaps: tuple[Gap, ...] = ()


@final
class Counterexample(Part, frozen=True, eq=False):
    """An image on which both networks differ: in the kind of their outputs (`told`, in words), or in numbers, most at
    the `gap`.

    `index` is its number in the batch; it is shown alone. `allowed` is the difference at that place above which two
    numbers refute; the gap counts the numbers that do. The image itself is stored separately.
    """

    image: Tensor
    index: int = 0
    told: str = ""
    gap: Gap | None = None
    allowed: Number | None = None

    def in_words(self) -> str:
        """The counterexample in a sentence."""
        sides, fact = "x".join(map(str, self.image.shape)), self.told
        if self.gap is not None:
            _, *axes = self.gap.axes.items()  # without that of the image, whose number says nothing
            where = ", ".join([self.gap.output, *(f"{name} {number}" for name, number in axes)])
            many = f" ({counted(self.gap.count, 'number')} off)" if self.gap.count else ""
            fact = f"{where} is {self.gap.converted:.9g}, not {self.gap.original:.9g}{many}"
        largest = self.image.abs().max().item() if self.image.numel() else 0.0
        return f"an input {sides} within +-{largest:g} (image {self.index}) shows it: {fact}"


@final
class State(Part, frozen=True):
    """The state of the networks during the comparison: mode, dtypes, device, sizes, modes of gradients, and threads."""

    mode: Literal["evaluation", "training", "mixed"] = "evaluation"
    dtypes: tuple[str, ...] = ()
    device: str = "cpu"
    sizes: tuple[tuple[int, ...], ...] = ()
    gradients: tuple[str, ...] = ()
    threads: int = 1

    def in_words(self) -> str:
        """The state in one line."""
        tried = " and ".join(map(in_mode, self.gradients))
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        return f"{self.mode} mode, {' and '.join(self.dtypes) or 'no weights'}, {self.device}, {threads}, {tried}"


@final
class Identified(Part, frozen=True):
    """Two networks that are one formula: the error probability, and the numbers from which it follows.

    The probability is at most 2^`log2_chance`. It follows from the number of `values` compared, from `degree` and
    `height` between two levels of oracles, and from `primes`.
    """

    log2_chance: Number
    values: int
    degree: int
    height: Number
    primes: int
    sizes: tuple[tuple[int, ...], ...]
    mode: str


@final
class Rounded(Part, frozen=True):
    """Two networks whose sections agree within `units` of rounding, each 2^`log2_unit` of the numbers there.

    `arguments` of functions were compared, at inputs of these `sizes`. `ratio` is the difference of the plain outputs,
    in units of what rounding explains there.
    """

    units: Number
    log2_unit: int
    arguments: int
    sizes: tuple[tuple[int, ...], ...]
    ratio: Number = 0.0

    def in_words(self) -> str:
        """The claim, with its limits."""
        return (
            f"on inputs of {in_words(self.sizes)}, with these integers, booleans, Python numbers and masks (inputs of "
            "only 0, 1 and large negative numbers), the outputs come from the same functions; between them every "
            "section agreed, in exact arithmetic on random numbers, within "
            f"{self.units:.2g} units of rounding of 2^{self.log2_unit} ({LIMIT:g} allowed). Not covered: stored "
            "numbers lost beside larger ones, numbers that never win a maximum in the sample, effects of rounding "
            "itself, inputs at which code divides by zero, state kept from one call to the next. A sample, not a "
            f"proof. The plain outputs differ by {self.ratio:.2g} of rounding"
        )


@final
class CallInput(Part, frozen=True):
    """A tensor, or a plain value without shape and dtype, with which both networks were called, and its sha256."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str


@final
class Certificate(Result, frozen=True, eq=False):
    """Whether the second network computes the first. Two plain calls can refute; the weakest strength decides.

    `between` are the findings on the code between the layers and on the outputs. `claim` is the certified statement,
    empty unless it holds. `counterexamples` are inputs that refute. `place` is the first section in which the networks
    differ, if found. `inputs` are those of the plain calls; random ones are drawn from `seed`.
    """

    derived: ClassVar[tuple[str, ...]] = ("claim", "exit_code", "strength", "verdict")
    rows: tuple[Row, ...]
    between: tuple[Finding, ...] = ()
    outputs: Outputs | None = None
    assumptions: tuple[str, ...] = ()
    circumstances: Mapping[str, str] = field(default_factory=dict)
    counterexamples: tuple[Counterexample, ...] = ()
    state: State = State()
    identified: Identified | None = None
    rounded: Rounded | None = None
    place: PartingPlace | None = None
    inputs: tuple[CallInput, ...] = ()
    seed: int = 0
    limits: str = ""
    schema: Literal["conv2attn.certificate/6"] = "conv2attn.certificate/6"

    @property
    def verdict(self) -> Verdict:
        """The verdict on the network: the worst of its findings and rows, but a refuted row leaves it undecided.

        Layers may differ while the networks compute the same; only for a network that is one layer does its row decide.
        """
        verdicts = [Verdict.UNDECIDED if row in self.rows_refuted else row.verdict for row in self.counted]
        verdicts += [finding.verdict for finding in self.between]
        return worst_verdict([*verdicts, *([Verdict.UNDECIDED] if self.rows and not self.counted else [])])

    @property
    def rows_refuted(self) -> tuple[Row, ...]:
        """The layers of the network that are refuted."""
        return tuple(row for row in self.counted if row.verdict is Verdict.REFUTED and row.name != ROOT)

    @property
    def strength(self) -> Strength:
        """The strength of the finding that decides: the refuting one, or the weakest of all that hold.

        If nothing decides, it only says that these inputs were run."""
        if self.verdict is Verdict.REFUTED:
            findings = [*self.between, *(finding for row in self.counted for finding in row.findings)]
            return next(finding.strength for finding in findings if finding.verdict is Verdict.REFUTED)
        if self.verdict is not Verdict.HOLDS:
            return Strength.SAMPLED
        between = [each.strength for each in self.between if each.part in ("structure", "formula", "sections")]
        return weakest_strength([*between, *(row.strength for row in self.counted if row.strength is not None)])

    @property
    def exit_code(self) -> Literal[0, 1, 3]:
        """0 holds; 1 refuted; 3 undecided or unsupported."""
        code: Any = self.verdict.exit_code
        return code

    @property
    def claim(self) -> str:
        """The statement that is certified; empty unless it holds."""
        if self.verdict is not Verdict.HOLDS:
            return ""
        mode = f"in {self.state.mode} mode" if self.state.mode != "mixed" else "in the modes that its modules are in"
        read = self.circumstances.get("read as")
        of = f"; of networks {read}" if read else ""
        if self.rounded is not None:
            return f"{self.rounded.in_words()}; {mode}{self.limits}{of}"
        if self.identified is not None:
            sizes = in_words(self.identified.sizes)
            power = f"2^{self.identified.log2_chance:.0f}"
            chance = f"a chance of {power} that unequal ones agree wherever they were evaluated"
            formula = f"{SAME_FORMULA} of {sizes}, {self.identified.mode}{self.limits}, but for {chance}"
            return "; ".join([f"{formula}{of}", *self.beside_formulas(mode)])
        elsewhere = f"; at other sizes than {in_words(self.state.sizes)}, if their own code does the same there"
        # A single layer has no code around it that could depend on the size.
        alone = [row.name for row in self.rows] == [ROOT]
        return f"{SAME_MAP}, {mode}{self.limits}{of}{elsewhere * bool(self.state.sizes and not alone)}"

    def beside_formulas(self, mode: str) -> Iterator[str]:
        """The statements for sizes and modes of gradients at which formulas were not compared."""
        identified = self.identified.sizes if self.identified else ()
        if others := [size for size in self.state.sizes if size not in {each[1:] for each in identified}]:
            yield f"{SAME_MAP_RUN} of {in_words(others)}, {mode}"
        if len(self.state.gradients) > 1:
            modes = " and ".join(map(in_mode, self.state.gradients[1:]))
            yield f"{modes} each returns the same on the inputs that were run"

    @property
    def counted(self) -> tuple[Row, ...]:
        """The rows that are not skipped."""
        return tuple(row for row in self.rows if not row.skipped)

    @property
    def input_shown(self) -> Tensor | None:
        """An image (channels, *sides) on which the networks differ, if there is one."""
        return next((each.image for each in self.counterexamples), None)

    def __bool__(self) -> bool:
        """Whether it holds; an undecided certificate is false."""
        return self.verdict is Verdict.HOLDS


def with_names(sentence: str, first: str, second: str) -> str:
    """A sentence with the names that the caller uses for the two networks.

    >>> with_names("the second network does not run where the first network does", "a.pt", "b.pt")
    'b.pt does not run where a.pt does'
    """
    return sentence.replace("the first network", first).replace("the second network", second)


def in_words(sizes: Sequence[Sequence[int]]) -> str:
    """Sizes in words."""
    return " and ".join("x".join(map(str, size)) for size in sizes)


def in_mode(gradients: str) -> str:
    """A mode of gradients in words."""
    return "in inference mode" if gradients == "inference" else f"with {gradients}".replace("with no ", "without ")


def axis_names(axes: int) -> tuple[str, ...]:
    """The axes of an output by torch's convention: images, then classes, or channels and the axes of a grid."""
    return ("image", *OUTPUT.get(axes, [f"axis {axis}" for axis in range(1, axes)]))[:axes]
