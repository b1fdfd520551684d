"""Every row of Tables 1 and 4 and of Figure 14 of the paper: counted, trained by a whole recipe, and drawn.

python studies/paper.py tables
python studies/paper.py experiments --data DATA
python studies/paper.py figures RUN -o FOLDER
python studies/paper.py prune NETWORK -o SMALLER
"""

import copy
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, final, get_args

import click
import torch
from torch import Tensor, nn

from conv2attn.cli.experiments import recipe_options
from conv2attn.cli.group import Group
from conv2attn.cli.options import DEVICE, Parsed, Read, Showing, force, output_option, reading_options, reporting
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.files import load, save, write_text_atomically
from conv2attn.lab.training import TrainingRecipe, TrainingRun, network_digest, train
from conv2attn.lab.training.run_folder import CHECKPOINT
from conv2attn.layers.attention import MultiHeadSelfAttention, ScoreTerms
from conv2attn.networks import attention_layers
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan, ResNet, ResNetPlan
from conv2attn.report import Document, Notes, Report, Table, document
from conv2attn.suffixes import NETWORK_SUFFIXES
from conv2attn.verdicts import Verdict
from studies.figures import draw_figures
from studies.pruning import count_flops, count_parameters, prune_degenerate

Source = Literal["published", "code"]
"""`published`: the paper's tables and text; `code`: the program that the authors released, with its commands."""
SOURCES: tuple[Source, ...] = get_args(Source)
PRUNED_FILE = "pruned.pt"
"""The network that the pruned run starts from, in the folder of the run that it continues."""
EPOCHS, BATCH, WIDTH, HEADS = 300, 100, 400, 9
"""Of all rows but the pruned one of the code, and of all but Figure 14: Table 2, and the authors' commands."""


@final
@dataclass(frozen=True)
class PaperRow:
    """A row: its kind of network, the terms of its scores, and its heads for nine of the others."""

    kind: str
    terms: str = "vr"
    heads: int = HEADS


ROWS: Mapping[str, PaperRow] = {
    "resnet": PaperRow("resnet"),
    "quadratic": PaperRow("quadratic"),
    "generalised": PaperRow("generalised"),
    "pruned": PaperRow("generalised"),
    "learned": PaperRow("learned"),
    "content": PaperRow("learned", "qk+qr"),
    "many-heads": PaperRow("quadratic", heads=16),
}
"""By the key of the row, in the order of training."""


@final
@dataclass(frozen=True)
class PaperRecipe:
    """One way to train all rows; settings that it does not name are those of the caller, such as the data.

    Args:
        attention: settings of a `TrainingRecipe` for networks of attention.
        resnet, pruned: what differs for the ResNet, and for the run that goes on with a pruned network.
        pruned_epochs: of the pruned run, for 300 of the others.
        condition: the condition number from which a head is pruned.
    """

    attention: Mapping[str, Any]
    resnet: Mapping[str, Any]
    pruned: Mapping[str, Any] = field(default_factory=lambda: {"learning_rate": 0.01})
    pruned_epochs: int = EPOCHS
    condition: float = 1e5

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that this recipe fixes."""
        return tuple(self.attention)


# Table 2 has one dropout and does not say where: the network of the authors has two of 0.1, behind its layers and on
# the weights of attention. The paper says nothing of how the ResNet was trained, but that it takes 300 epochs too
# (Fig. 2): its steps are those of the authors' command, in both recipes.
TABLE_2 = {
    "optimiser": "sgd",
    "learning_rate": 0.1,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "position_rate": 1.0,
    "content_rate": 1.0,
    "schedule": "cosine",
    "warm_up": 0.05,
    "step_factor": 0.1,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "initialisation": "paper",
}
STEPS = {"schedule": "steps", "warm_up": 0.0}
RECIPES: Mapping[Source, PaperRecipe] = {
    "published": PaperRecipe(TABLE_2, STEPS),
    "code": PaperRecipe(
        TABLE_2 | {"schedule": "authors", "initialisation": "code"},
        STEPS,
        pruned_epochs=100,
        condition=1e3,
    ),
}
MILESTONES = (80, 150, 250)
"""Of the ResNet's 300 epochs: each lowers the rate to a tenth."""


def recipes(common: TrainingRecipe, folder: Path, source: Source = "published") -> dict[str, TrainingRecipe]:
    """The recipe of each row.

    Args:
        common: the data, sizes and length of all rows; its kind, terms and settings of training are not read. Heads,
            the width of the ResNet, and what the source counts in epochs are in proportion.
        folder: of the runs; the pruned network lies in that of the run that it continues.
    """
    recipe, made = RECIPES[source], dict[str, TrainingRecipe]()
    settings = {**recipe.attention, "milestones": milestones_of(common.epochs)}
    for key, row in ROWS.items():
        heads = max(1, round(row.heads * common.heads / HEADS))
        made[key] = replace(common, kind=row.kind, terms=row.terms, heads=heads, **settings)
    epochs = max(1, round(recipe.pruned_epochs * common.epochs / EPOCHS))
    start = str(folder / "generalised" / PRUNED_FILE)
    made["pruned"] = replace(made["pruned"], start=start, epochs=epochs, **recipe.pruned)
    width = None if common.width is None else max(1, round(64 * common.width / WIDTH))
    made["resnet"] = replace(made["resnet"], width=width, **recipe.resnet)
    return made


def milestones_of(epochs: int) -> tuple[int, ...]:
    """The epochs after which the rate of the ResNet falls, in a run of so many.

    A shorter run that kept those of 300 epochs would train the ResNet at its highest rate to the end, beside attention
    whose rate falls to 0.
    """
    return tuple(sorted({max(1, round(milestone * epochs / EPOCHS)) for milestone in MILESTONES}))


def source_of(key: str, recipe: TrainingRecipe) -> str:
    """The name of the recipe by which a run of a row was trained, "another recipe" for one of neither."""
    for source in SOURCES:
        made = recipes(recipe, Path(), source)[key]
        names = {*RECIPES[source].settings, "kind", "terms", *(("milestones",) if key == "resnet" else ())}
        if all(getattr(made, name) == getattr(recipe, name) for name in names):
            return source
    return "another recipe"


def described(key: str, recipe: TrainingRecipe) -> str:
    """The recipe of a run in words, with what is not that of the paper: "published, 30 of 300 epochs, batch 10"."""
    source = source_of(key, recipe)
    whole = RECIPES[source].pruned_epochs if source in SOURCES and key == "pruned" else EPOCHS
    length = f"{recipe.epochs} epochs" if recipe.epochs == whole else f"{recipe.epochs} of {whole} epochs"
    parts = [source, length]
    parts += [f"batch {recipe.batch}"] if recipe.batch != BATCH else []
    parts += [f"width {recipe.width}"] if recipe.width not in (None, 64 if key == "resnet" else WIDTH) else []
    parts += [f"{recipe.images} images"] if recipe.images is not None else []
    return ", ".join(parts)


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
        flops: of all products, those of attention by the engine dense.
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
        "all products: FLOPs of these and of attention by the engine dense.",
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


def reproduce_tables(runs: Mapping[str, TrainingRun] | None = None) -> Tables:
    """Tables 1 and 4, counted on networks that are built for it.

    Args:
        runs: training runs by the key of their model, whose last accuracy is shown beside the paper's.
    Raises:
        UsageError: a key is no model's (C2A002).
    """
    runs = runs or {}
    if unknown := sorted(runs.keys() - {model.key for model in MODELS}):
        keys = ", ".join(dict.fromkeys(model.key for model in MODELS))
        raise UsageError("C2A002", f"{unknown[0]!r} is no model of the tables ({keys})", "Name one of these.")
    return Tables(tuple(row_for(model, runs.get(model.key)) for model in MODELS))


def row_for(model: PaperModel, run: TrainingRun | None) -> TableRow:
    """The row of a model, counted on a network that is built for it."""
    plan = model.plan
    # Counts need no numbers, and a network of the paper has twelve million of them to draw.
    with torch.device("meta"):
        network = AttentionClassifier(plan) if isinstance(plan, ClassifierPlan) else ResNet(plan)
    counts = (
        count_parameters(network),
        count_weight_flops(network, plan.input_size),
        count_flops(network, plan.input_size),
    )
    terms = f"paper: {plan.terms}" if isinstance(plan, ClassifierPlan) else ""
    printed = (model.key, model.title, terms, model.note, model.accuracy, model.parameters, model.flops)
    if run is None:
        return TableRow(*printed, *counts)
    accuracies = [row["test_accuracy"] for row in run.metrics()]
    recipe = described(model.key, run.recipe)
    return TableRow(*printed, *counts, accuracies[-1], max(accuracies), run.recipe.data, recipe)


def count_weight_flops(network: nn.Module, input_size: tuple[int, ...]) -> int:
    """Operations of the products with weights alone: attention is free, as the paper counted it."""
    network = copy.deepcopy(network).to("meta")
    for name in attention_layers(network):
        parent, _, child = name.rpartition(".")
        setattr(network.get_submodule(parent), child, WeightProducts(network.get_submodule(name)))
    return count_flops(network, input_size)


class WeightProducts(nn.Module):
    """The products with weights of an attention layer, each of whose heads reads the query's own pixel."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        assert isinstance(layer, MultiHeadSelfAttention)
        self.matrices = [weight for weight in (layer.query, layer.key) if weight is not None]
        self.position_key = layer.position_key
        self.taps = layer.weights.taps().detach()

    def forward(self, image: Tensor) -> Tensor:
        """(batch, d_in, *sides) to (batch, d_out, *sides)."""
        tokens = image.flatten(2)
        projected = [torch.einsum("hdc,bcn->bhdn", weight, tokens) for weight in self.matrices]
        if self.position_key is not None:
            torch.einsum("hdp,bhdn->bhpn", self.position_key, projected[0])
        head_tokens = tokens[:, None].expand(-1, len(self.taps), -1, -1)
        return torch.einsum("hoc,bhcn->bon", self.taps, head_tokens).unflatten(2, image.shape[2:])


def train_paper(
    common: TrainingRecipe,
    folder: Path,
    report: Callable[[str], None],
    device: str = "cpu",
    source: Source = "published",
    **options: int | None,
) -> Tables | None:
    """Trains the rows that are not done yet, and writes `tables.md` and `figures/` into `folder`.

    A run that was interrupted continues, to the numbers of an unbroken one.

    Args:
        common: the data, sizes and length of all rows; see `recipes`.
        source: whose recipe.
        options: of each call of `train`.
    Returns:
        The tables, or None where a run was interrupted.
    Raises:
        UsageError: a folder holds a run of another recipe (C2A004).
    """
    runs: dict[str, TrainingRun] = {}
    for key, recipe in recipes(common, folder, source).items():
        if recipe.start is not None:
            parent = load(runs["generalised"].network)
            recipe = replace(recipe, parent=network_digest(parent))
            start = folder / "generalised" / PRUNED_FILE
            if not start.exists():
                pruned, _ = prune_degenerate(parent, condition=RECIPES[source].condition)
                save(pruned, start)
        run = TrainingRun(folder / key)
        begun = (run.folder / CHECKPOINT).is_file()
        # The parent's digest says what the run starts from; where that file lies now is no part of the recipe.
        if begun and replace(run.recipe, start=recipe.start) != recipe:
            raise UsageError(
                "C2A004",
                f"{run.folder} holds a run of another recipe",
                "Pass the options of that run, or another folder.",
            )
        if not (begun and run.finished):
            report(f"{key}: {'continued' if begun else 'begun'} in {run.folder}")
            run = train(None if begun else recipe, run.folder, device=device, report=report, **options)
        if not run.finished:
            return None
        runs[key] = run
    return write_tables(runs, folder)


def write_tables(runs: Mapping[str, TrainingRun], folder: Path) -> Tables:
    """The tables with the accuracies of the runs, written with the figures."""
    tables = reproduce_tables(runs)
    write_text_atomically(folder / "tables.md", tables.to_markdown(), force=True)
    draw_figures(list(runs.values()), folder / "figures", force=True)
    return tables


NO_OPTIONS_OF_THE_PAPER = (
    *("kind", "terms", "absolute", "start", "parent", "arch", "arch_args", "only", "skip", "alpha"),
    *("optimiser", "learning_rate", "momentum", "weight_decay", "position_rate", "content_rate", "schedule", "warm_up"),
    *("milestones", "step_factor", "dropout", "attention_dropout", "initialisation"),
)
"""Settings of a row of the paper: its network, and the recipe that --as names."""


@click.group("paper", cls=Group, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
def paper() -> None:
    """Count, train, draw and prune the networks of the paper's experiments again."""


def parse_model_run(text: str) -> tuple[str, Path]:
    """`quadratic=runs/quadratic-cifar` as the name of a model and the folder of its run; a ValueError otherwise.

    Raises:
        CheckpointError: the folder is not there (C2A301).
    """
    model, folder = text.split("=", 1)
    if not Path(folder).is_dir():
        raise CheckpointError("C2A301", f"{folder or repr(folder)} is not a folder", "Pass the folder of a run.")
    return model, Path(folder)


@paper.command(example="python studies/paper.py tables")
@click.option(
    "--run",
    "runs",
    type=Parsed("MODEL=FOLDER", parse_model_run, "--run quadratic=runs/quadratic-cifar"),
    multiple=True,
    metavar="MODEL=FOLDER",
    help="Show the accuracy of this run; repeatable.",
)
@reporting
def tables(runs: tuple[tuple[str, Path], ...], showing: Showing) -> None:
    """Print Tables 1 and 4 beside the paper's.

    They hold the parameters, FLOPs and accuracies of all models.
    """

    showing.finish(reproduce_tables({model: TrainingRun(folder) for model, folder in runs}))


@paper.command(example="python studies/paper.py experiments --data cifar-10-binary.tar.gz")
@output_option("Folder of the runs, the tables and the figures; by default runs/paper-published.", required=False)
@DEVICE
@reporting
@click.option(
    "--as",
    "source",
    type=click.Choice(("published", "code")),
    default="published",
    help="Train as the paper's tables and text say, or as the authors' program does.",
)
@recipe_options(*NO_OPTIONS_OF_THE_PAPER)
def experiments(output: str | None, device: str, source: Any, showing: Showing, **arguments: Any) -> None:
    """Train every row of Tables 1 and 4 and of Figure 14, and write their table and the figures.

    A recipe is whole: --as names it. --epochs shortens it in proportion. The same call continues after Ctrl-C, and
    skips what is done. With 300 epochs this takes days on one GPU.
    """

    folder = Path(output or f"runs/paper-{source}")
    tables = train_paper(TrainingRecipe("quadratic", **arguments), folder, showing.say, device, source)
    if tables is None:
        sys.exit(130)
    showing.finish(tables)


def parse_query(text: str) -> tuple[int, ...]:
    """`3,4` as two numbers; a ValueError otherwise."""
    row, column = map(int, text.split(","))
    return row, column


def parse_example(text: str) -> int | Path:
    """A number of test images, or the file of an image; a ValueError for a number below 0."""
    if re.fullmatch(r"-?\d+", text) is None:
        return Path(text)
    if (number := int(text)) < 0:
        raise ValueError(text)
    return number


@paper.command(example="python studies/paper.py figures runs/quadratic-digits -o figures")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=Read())
@output_option("Folder to write the figures to.")
@click.option(
    "--suffix",
    type=click.Choice(["png", "svg", "pdf"]),
    default="png",
    help="Format of the figures.",
)
@click.option("--average", type=click.IntRange(1), default=100, help="Number of test images to average over.")
@click.option(
    "--examples",
    type=Parsed("a number of test images, or an image file", parse_example, "--examples cat.png"),
    multiple=True,
    default=("3",),
    metavar="N|FILE",
    help="Images shown one by one: so many test images, or the image in a file; repeatable.",
)
@click.option(
    "--query",
    type=Parsed("a row and a column", parse_query, "3,4"),
    metavar="ROW,COLUMN",
    help="The query token; by default the one in the middle.",
)
@click.option(
    "--zoom",
    type=click.IntRange(0),
    default=7,
    help="Number of tokens shown around the query; 0 shows all.",
)
@force
def figures(
    runs: tuple[str, ...], output: str, suffix: str, zoom: int, examples: tuple[int | Path, ...], **arguments: Any
) -> None:
    """Draw the figures of the paper from training runs.

    These are the learning curves of all runs, and the heads and the attention of each.
    """

    trained = [TrainingRun(Path(run)) for run in runs]
    arguments["examples"] = sum(each for each in examples if isinstance(each, int))
    arguments["pictures"] = [each for each in examples if isinstance(each, Path)]
    for path in draw_figures(trained, output, suffix=f".{suffix}", zoom=zoom or None, **arguments):
        click.echo(f"wrote {path}", err=True)


@paper.command(example="python studies/paper.py prune generalised.pt -o smaller.pt")
@click.argument("model", type=Read())
@output_option("Where to write the smaller network.", NETWORK_SUFFIXES)
@click.option(
    "--smallest",
    type=float,
    default=1e-5,
    help="Remove heads whose largest eigenvalue is below this.",
)
@click.option("--condition", type=float, default=1e5, help="Remove heads whose condition number is above this.")
@reading_options
@reporting
def prune(model: str, output: str, showing: Showing, reading: Any, **thresholds: float) -> None:
    """Remove degenerate heads from the attention classifier in MODEL.

    This is the pruning of App. E of the paper; the report says how much it saves. To continue training at a tenth of
    the learning rate: conv2attn train KIND --start OUTPUT --learning-rate 0.01.
    """

    smaller, pruning = prune_degenerate(reading.load(model), **thresholds)
    save(smaller, output, force=showing.force)
    showing.finish(pruning, f"wrote {output}")


if __name__ == "__main__":
    paper()
