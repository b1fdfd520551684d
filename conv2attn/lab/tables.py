"""Tables 1 and 4 of the paper, counted again: the paper's numbers beside the counts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, final

from conv2attn.errors import UsageError
from conv2attn.lab.counting import count_flops, count_parameters, count_weight_flops
from conv2attn.lab.training.paper_recipes import described
from conv2attn.lab.training.run_folder import TrainingRun
from conv2attn.layers.attention import ScoreTerms
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan, ResNet, ResNetPlan
from conv2attn.report import Document, Notes, Report, Table, document
from conv2attn.verdicts import Verdict

PAPER = ClassifierPlan()
PRUNED = (7, 5, 8, 7, 3, 9)
"""Heads that are left in each layer once [2, 4, 1, 2, 6, 0] of nine are pruned (App. E)."""


@final
@dataclass(frozen=True)
class PaperModel:
    """A row of the tables.

    Args:
        key: a short name.
        title: as the paper prints it.
        plan: of the network.
        accuracy, parameters, flops: as the paper prints them; None and "" where it prints none.
        note: distinguishes rows of the same title.
    """

    key: str
    title: str
    plan: ClassifierPlan | ResNetPlan
    accuracy: float | None
    parameters: str
    flops: str
    note: str = ""


GENERALISED = replace(PAPER, encoding="generalised")
LEARNED = replace(PAPER, encoding="learned")
CONTENT = replace(LEARNED, terms=ScoreTerms.of("qk+qr"))
MODELS = (
    PaperModel("resnet", "ResNet18", ResNetPlan(classes=10, stem="cifar"), 0.938, "11.2M", "1.1B"),
    PaperModel("quadratic", "quadratic", PAPER, 0.938, "12.1M", "6.2B"),
    PaperModel("generalised", "generalised", GENERALISED, 0.934, "12.1M", "6.2B"),
    PaperModel("pruned", "generalised, pruned", replace(GENERALISED, heads=PRUNED), 0.934, "9.7M", "4.9B"),
    PaperModel("learned", "learned", LEARNED, 0.918, "12.3M", "6.2B", "D_p = 800"),
    PaperModel("learned", "learned", replace(LEARNED, positions=200), 0.918, "12.3M", "6.2B", "D_p = 400"),
    PaperModel("content", "learned + content", CONTENT, 0.871, "29.5M", "15B", "D_p = 400"),
    PaperModel("many-heads", "quadratic, 16 heads", replace(PAPER, heads=16), None, "", "", "Fig. 14"),
)
"""The paper's text says D_p = 400, which is that of its content; without content, 12.3M is the count of D_p = 800."""


UNITS = {"M": 1e6, "B": 1e9}
PAPER_COLUMNS = (
    "model", "whose terms", "setting", "accuracy", "ours", "best", "recipe", "parameters", "exact", "FLOPs",
    "weights alone", "all products",
)  # fmt: skip
PAPER_SPARE = (
    "all products",
    "weights alone",
    "exact",
    "setting",
    "ours",
    "best",
    "recipe",
    "FLOPs",
    "whose terms",
    "parameters",
)


@final
@dataclass(frozen=True)
class TableRow:
    """One model: the paper's numbers and the counts.

    Args:
        terms: of the scores of Eq. (8) that the counted network has, and whose they are; "" of a ResNet.
        weight_flops: of products with weights alone, as the paper counted.
        flops: of all products, by the engine of the table.
        accuracy, best: of a run that was given, after its last epoch and after its best one, on the test images of
            `data`.
        recipe: how that run was trained, in words.
    """

    key: str
    title: str
    terms: str
    note: str
    paper_accuracy: float | None
    paper_parameters: str
    paper_flops: str
    parameters: int
    weight_flops: int
    flops: int
    accuracy: float | None = None
    best: float | None = None
    data: str = ""
    recipe: str = ""


@final
@dataclass(frozen=True, repr=False)
class Tables(Report):
    """Tables 1 and 4.

    The verdict holds when each number of parameters and FLOPs that the paper prints is that of a row here, rounded:
    row by row, each at its own width D_p of position vectors.
    """

    schema: ClassVar[str] = "conv2attn.report/1"
    rows: tuple[TableRow, ...]
    engine: str

    @property
    def differing(self) -> list[str]:
        """The numbers that the paper prints and no row of their model reproduces."""
        numbers = []
        for title in dict.fromkeys(row.title for row in self.rows):
            rows = [row for row in self.rows if row.title == title]
            if not rows[0].paper_parameters:
                continue
            if not any(rounds_to(row.parameters, row.paper_parameters) for row in rows):
                numbers.append(f"{title}: {rows[0].paper_parameters} parameters")
            if not any(rounds_to(row.weight_flops, row.paper_flops) for row in rows):
                numbers.append(f"{title}: {rows[0].paper_flops} FLOPs")
        return numbers

    @property
    def verdict(self) -> Verdict:
        """Refuted where a printed number is not reproduced, otherwise holds."""
        return Verdict.REFUTED if self.differing else Verdict.HOLDS


@document.register
def _(tables: Tables, verbose: bool = False) -> Document:
    """The verdict, the table, and what its columns mean."""
    rows = tuple(
        (
            *(row.title, row.terms, row.note, three_digits(row.paper_accuracy)),
            None if row.accuracy is None else f"{row.accuracy:.3f} on {row.data}",
            *(three_digits(row.best), row.recipe or None),
            *(
                row.paper_parameters or None,
                row.parameters,
                row.paper_flops or None,
                f"{row.weight_flops:.4g}",
                f"{row.flops:.4g}",
            ),
        )
        for row in tables.rows
    )
    counts = {(row.key, row.note): f"{row.parameters:,}" for row in tables.rows}
    notes = (
        "accuracy, parameters, FLOPs: the numbers that Cordonnier et al. 2020 print, for CIFAR-10.",
        "ours, best: the last and the best test accuracy of each run that is passed as --run, trained by the recipe "
        "beside them. The authors' code returns the best.",
        "exact: the parameters, counted.",
        "weights alone: FLOPs of products with weights, 2 per multiply-add; the paper counts these.",
        f"all products: FLOPs of these and of attention by the engine {tables.engine}.",
        "whose terms: the terms of Eq. (8) in the network counted, and whose they are.",
        f"The text's D_p = 400 gives 29.5M, {counts['content', 'D_p = 400']}; the paper's 12.3M is "
        f"{counts['learned', 'D_p = 800']}, the count of D_p = 800.",
        *(f"Differs: {number}." for number in tables.differing),
    )
    detail = ", row by row; 12.3M with D_p = 800, 29.5M with 400" if tables.verdict is Verdict.HOLDS else ""
    answer = (f"{tables.verdict.value}: Tables 1 and 4{detail}",)
    table = Table(PAPER_COLUMNS, rows, PAPER_SPARE)
    of_runs = {"best", "recipe"} if all(row.accuracy is None for row in tables.rows) else set[str]()
    return Document(answer, (table.without(of_runs), Notes(notes)), tables.verdict)


def three_digits(share: float | None) -> str | None:
    """A share as the paper prints it; None for none."""
    return None if share is None else f"{share:.3f}"


def rounds_to(count: int, printed: str) -> bool:
    """Whether `count` is what was printed, to as many digits.

    >>> rounds_to(12_086_844, "12.1M"), rounds_to(12_182_682, "12.3M"), rounds_to(15_023_000_000, "15B")
    (True, False, True)
    """
    digits = len(printed.partition(".")[2]) - 1 if "." in printed else 0
    return f"{count / UNITS[printed[-1]]:.{digits}f}" == printed[:-1]


def reproduce_tables(runs: Mapping[str, TrainingRun] | None = None, engine: str = "dense") -> Tables:
    """Tables 1 and 4, counted on networks that are built for it.

    Args:
        runs: training runs by the key of their model, whose last accuracy is shown beside the paper's.
        engine: of the attention products.
    Raises:
        UsageError: a key is no model's (C2A002).
    """
    runs = runs or {}
    if unknown := sorted(runs.keys() - {model.key for model in MODELS}):
        keys = ", ".join(dict.fromkeys(model.key for model in MODELS))
        raise UsageError("C2A002", f"{unknown[0]!r} is no model of the tables ({keys})", "Name one of these.")
    return Tables(tuple(row_for(model, runs.get(model.key), engine) for model in MODELS), engine)


def row_for(model: PaperModel, run: TrainingRun | None, engine: str) -> TableRow:
    """The row of a model, counted on a network that is built for it."""
    plan = model.plan
    network = AttentionClassifier(plan) if isinstance(plan, ClassifierPlan) else ResNet(plan)
    counts = (
        count_parameters(network),
        count_weight_flops(network, plan.input_size),
        count_flops(network, plan.input_size, engine),
    )
    terms = f"paper: {plan.terms}" if isinstance(plan, ClassifierPlan) else ""
    printed = (model.key, model.title, terms, model.note, model.accuracy, model.parameters, model.flops)
    if run is None:
        return TableRow(*printed, *counts)
    accuracies = [row["test_accuracy"] for row in run.metrics()]
    recipe = described(model.key, run.recipe)
    return TableRow(*printed, *counts, accuracies[-1], max(accuracies), run.recipe.data, recipe)
