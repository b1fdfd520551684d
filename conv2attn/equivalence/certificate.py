"""A certificate as values: one row per layer, the findings on the context, the measured outputs."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

from conv2attn.equivalence import document
from conv2attn.equivalence.counterexample import Witness
from conv2attn.equivalence.finding import CLAIMS, Finding
from conv2attn.equivalence.outputs import Outputs
from conv2attn.equivalence.stored import StoredContext, StoredForm
from conv2attn.report import Cell, Document, Report
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

NO_GRAPHS = StoredContext(("", ""), ())
SAME_MAP = "the second is the same map as the first, for all finite inputs"


@final
@dataclass(frozen=True)
class Row:
    """One layer. `max_error` was measured on inputs up to `input_range`; `bound` holds for all of that range.

    `forms` are the geometries of both layers, evidence for whoever checks the stored report again. `findings` are those
    of its parts; the worst decides. `memory_saved` counts the bytes of the dense attention of one image. `leak` is the
    largest off-target mass of a head. A `skipped` row was left out on request and does not count.
    """

    name: str
    convolution: str
    findings: tuple[Finding, ...]
    strength: Strength | None = None
    grid: tuple[int, ...] | None = None
    heads: int | None = None
    d_head: int | None = None
    alpha: float | None = None
    parameters: int | None = None
    memory_saved: int | None = None
    leak: float | None = None
    input_range: float | None = None
    max_error: float | None = None
    bound: float | None = None
    skipped: bool = False
    forms: tuple[StoredForm, StoredForm] | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst of all parts."""
        return worst_verdict(finding.verdict for finding in self.findings)

    @property
    def decisive(self) -> Finding:
        """The part that decides."""
        return next(finding for finding in self.findings if finding.verdict is self.verdict)

    @property
    def placed(self) -> bool:
        """Whether geometry was asked, and is the same."""
        geometry = self.part("geometry")
        return geometry is not None and geometry.verdict is Verdict.HOLDS

    @property
    def licensed_by(self) -> dict[str, tuple[str, ...]]:
        """The statements of proofs/ that license its numbers."""
        numbers = {"bound": self.bound, "leak": self.leak}
        return {key: () if number is None else CLAIMS[key] for key, number in numbers.items()}

    def part(self, name: str) -> Finding | None:
        """The finding of a part, if it was asked."""
        return next((finding for finding in self.findings if finding.part == name), None)

    def cells(self) -> list[Cell]:
        """The row of the table."""
        grid = "x".join(map(str, self.grid)) if self.grid else None
        verdict = "skipped" if self.skipped else self.verdict
        columns: list[Cell] = [self.name, self.convolution, grid, self.heads, self.alpha, self.max_error, self.bound]
        return [*columns, self.strength, verdict]


@final
@dataclass(frozen=True, repr=False)
class Certificate(Report):
    """Whether the second network computes the first: the worst row decides, the weakest strength counts.

    `between` are the findings on what stands between the layers and on the outputs. Where a `tolerance` was given,
    `claim` says what is certified instead of equality. `witnesses` are inputs that show what is refuted, and `unshown`
    says what no image shows.
    """

    rows: tuple[Row, ...]
    between: tuple[Finding, ...] = ()
    outputs: Outputs | None = None
    assumptions: tuple[str, ...] = ()
    claim: str = SAME_MAP
    circumstances: tuple[tuple[str, str], ...] = ()
    witnesses: tuple[Witness, ...] = field(default=(), compare=False, repr=False)
    unshown: tuple[str, ...] = ()
    context: StoredContext = NO_GRAPHS

    @cached_property
    def counted(self) -> tuple[Row, ...]:
        """The rows that count."""
        return tuple(row for row in self.rows if not row.skipped)

    @property
    def verdict(self) -> Verdict:
        """The worst of all rows and of what is between; undecided where all rows were skipped."""
        verdicts = [row.verdict for row in self.counted] + [finding.verdict for finding in self.between]
        return worst_verdict([*verdicts, *([Verdict.UNDECIDED] if self.rows and not self.counted else [])])

    @property
    def sampled(self) -> bool:
        """Whether some images alone compare the two networks: neither was converted, and their graphs differ."""
        return any(finding.part == "sampled" for finding in self.between)

    @property
    def holding_tolerance(self) -> float | None:
        """For an undecided certificate, the smallest tolerance known to hold: by a bound, or on the images."""
        if self.sampled and self.verdict is Verdict.UNDECIDED and self.outputs is not None:
            return self.outputs.max_difference
        every = [*self.between, *(finding for row in self.counted for finding in row.findings)]
        undecided = {finding.part for finding in every if finding.verdict is not Verdict.HOLDS}
        if self.verdict is not Verdict.UNDECIDED or not undecided <= {"leak", "tolerance"} or self.outputs is None:
            return None
        return self.outputs.bound

    @property
    def strength(self) -> Strength:
        """The weakest of all rows, and of what compares the networks between them."""
        between = [each.strength for each in self.between if each.part in ("structure", "sampled", "tolerance")]
        return weakest_strength([*between, *(row.strength for row in self.counted if row.strength is not None)])

    @property
    def exit_code(self) -> int:
        """0 holds, 1 refuted, 3 undecided, unsupported or nothing checked."""
        return self.verdict.exit_code

    def __bool__(self) -> bool:
        """Whether it holds; an undecided certificate is not true."""
        return self.verdict is Verdict.HOLDS

    def document(self, verbose: bool = False) -> Document:
        """The verdict, the rows, and what was found, measured and assumed; all assumptions where `verbose`."""
        return document.document(self, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; its schema is docs/certificate.schema.json."""
        return document.to_dict(self)
