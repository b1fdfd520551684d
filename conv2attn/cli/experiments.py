"""The commands on the paper's experiments: train, reproduce, figures, prune, soften."""

import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from conv2attn.cli.group import Command, main
from conv2attn.cli.options import Showing, choosing, reading, reading_images, reporting
from conv2attn.cli.paths import Read, Written
from conv2attn.errors import UsageError
from conv2attn.experiments.training_recipe import CHOICES, NETWORK_KINDS, TRANSFORM, TrainingRecipe
from conv2attn.suffixes import NETWORK

HELP = {
    "data": "fashion-mnist, digits, a CIFAR archive or folder, or a folder with train/CLASS/ and test/CLASS/.",
    "width": "Width of a token, by default 400; or of the first stage of a ResNet, by default 64.",
    "heads": "Number of heads in a layer.",
    "layers": "Number of attention layers.",
    "hidden": "Hidden width of the feed-forward layers.",
    "patch": "Side in pixels of the square patches that become tokens.",
    "positions": "Width of a learned position vector, per axis.",
    "dropout": "Probability of dropout.",
    "optimiser": "The optimiser.",
    "learning_rate": "Highest learning rate.",
    "momentum": "Momentum of sgd, or the first beta of adamw.",
    "weight_decay": "Weight decay; not applied to the centres and widths of heads.",
    "position_rate": "Factor of the learning rate for the centres and widths of heads.",
    "content_rate": "Factor of the learning rate for queries and keys.",
    "batch": "Images per step, over all processes.",
    "epochs": "Number of passes over the training images.",
    "schedule": "Schedule of the learning rate.  [default: cosine; steps for resnet]",
    "warm_up": "Share of the steps in which the learning rate rises.",
    "milestones": "Epochs after which the schedule steps lowers the rate; comma-separated.",
    "step_factor": "Factor by which the schedule steps lowers the rate.",
    "crop_padding": "Pixels of padding before a random crop.  [default: an eighth of the side]",
    "mirror": "Mirror images at random.  [default: if mirror images keep their class]",
    "images": "Train only on this many images, the first ones.",
    "precision": "Precision of matrix products; below float32, autocast is used.",
    "engine": "Engine that computes the attention.",
    "test_images": "Evaluate only on this many test images, the first ones.",
    "arch": "How to build the network of the file, as in convert: timm:NAME, package.module:factory and others.",
    "arch_args": "Arguments for building it: '{\"num_classes\": 10}'.",
    "only": "Make convolutions whose name matches attention; repeatable. Without --only and --skip none becomes it.",
    "skip": "Make all others attention, and leave convolutions of such a name; repeatable.",
    "alpha": "Sharpness of the heads of converted layers.",
    "start": "File with a network to start from, instead of random weights.",
    "seed": "Seed of all random numbers.",
}
TYPES: dict[str, Any] = {"milestones": str, "data": str, "engine": str, "start": Read(), "arch": str, "arch_args": str}
METAVARS = {"arch": "KIND:NAME", "arch_args": "JSON"}


def recipe_options(*left_out: str, **defaults: Any) -> Callable[[Any], Any]:
    """A decorator that adds an option for each field of a recipe but those left out, some with other defaults."""

    def add(command: Any) -> Any:
        for field in reversed(fields(TrainingRecipe)):
            if field.name not in left_out:
                command = recipe_option(field, defaults.get(field.name, field.default))(command)
        return command

    return add


def recipe_option(field: Field[Any], default: Any) -> Any:
    """The option of one field of a recipe."""
    option, shown = option_of(field.name), default not in (None, MISSING)
    if field.name == "mirror":
        return click.option(f"{option}/--no-mirror", default=None, help=HELP[field.name])
    if field.name in ("only", "skip"):
        return click.option(option, multiple=True, default=default, metavar="GLOB", help=HELP[field.name])
    kind = click.Choice(CHOICES[field.name]) if field.name in CHOICES else TYPES.get(field.name)
    kind = kind or (int if "int" in str(field.type) else float)
    default = ",".join(map(str, default)) if isinstance(default, tuple) else default
    metavar, told = METAVARS.get(field.name), HELP[field.name]
    return click.option(option, field.name, type=kind, default=default, show_default=shown, metavar=metavar, help=told)


def option_of(field: str) -> str:
    """The option of a field of a recipe."""
    return "--train-images" if field == "images" else "--" + field.replace("_", "-")


@main.command(example="conv2attn train quadratic --data digits --epochs 2")
@click.argument("kind", type=click.Choice(NETWORK_KINDS), required=False)
@click.option("-o", "--output", type=click.Path(), help="Folder of the run; by default runs/KIND-DATA.")
@click.option("--resume", type=click.Path(), help="Continue the run in this folder instead.")
@click.option("--device", default="cpu", show_default=True, help="Device to run on.")
@recipe_options("kind")
@click.pass_context
def train(
    context: click.Context, /, kind: str | None, output: str | None, resume: str | None, device: str, **given: Any
) -> None:
    """Train an attention network of the paper, or its ResNet18.

    The defaults are those of Table 2. Under torchrun the processes share each batch. Ctrl-C writes a checkpoint and
    exits with 130. --resume FOLDER --epochs N goes on until epoch N; nothing else of a run can be changed.
    """
    if (kind is None) == (resume is None):
        raise UsageError("C2A004", "train takes either a KIND or --resume FOLDER", "Name one of them.")
    if resume is not None:
        for name in ("output", *(given.keys() - {"epochs"})):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError(
                    "C2A004", f"{option_of(name)} changes nothing beside --resume", "Leave out one of both."
                )
    recipe = (
        None if kind is None else TrainingRecipe(kind, **{**given, "milestones": whole_numbers(given["milestones"])})
    )
    folder = resume or output or f"runs/{kind}-{Path(given['data']).name}"
    from conv2attn.experiments.training import train as run_training

    longer = context.get_parameter_source("epochs") is ParameterSource.COMMANDLINE and resume is not None
    run = run_training(recipe, folder, device=device, epochs=given["epochs"] if longer else None)
    sys.exit(0 if run.finished else 130)


@main.command(example="conv2attn transform cnn.pt -o hybrid.pt --data fashion-mnist")
@click.argument("model", type=Read())
@click.option(
    "-o", "--output", type=Written(NETWORK), metavar="FILE", required=True, help="Where to write the network."
)
@click.option("--run", "folder", type=click.Path(), help="Folder of the run; by default OUTPUT without its suffix.")
@click.option("--device", default="cpu", show_default=True, help="Device to run on.")
@reporting
@recipe_options("kind", "width", "heads", "layers", "hidden", "patch", "positions", "dropout", "start", **TRANSFORM)
@click.pass_context
def transform(
    context: click.Context,
    /,
    model: str,
    output: str,
    folder: str | None,
    device: str,
    showing: Showing,
    milestones: str,
    **given: Any,
) -> None:
    """Go on from the CNN in MODEL as attention: convert its last stage, soften the heads, and train.

    Heads begin as the taps of the convolutions and may move; content begins at nothing and may open. The report has
    the accuracies, and for each layer how far heads moved and how much content counts.
    """
    from conv2attn.checkpoints import save
    from conv2attn.experiments.training import Run
    from conv2attn.experiments.training.recipe_networks import read_as
    from conv2attn.experiments.transform import transform as go_on

    place = folder or str(Path(output).with_suffix(""))
    recipe = TrainingRecipe("resnet", start=model, milestones=whole_numbers(milestones), **given)
    found = go_on(recipe, place, device=device)
    if found.finished:
        save(read_as(recipe, Run(Path(place)).network), output, force=showing.force)
        showing.say(f"wrote {output}")
    showing.finish(found)
    sys.exit(0 if found.finished else 130)


@main.command(example="conv2attn figures runs/quadratic-digits -o figures")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=Read())
@click.option("-o", "--output", type=click.Path(), required=True, help="Folder to write the figures to.")
@click.option(
    "--suffix",
    type=click.Choice(["png", "svg", "pdf"]),
    default="png",
    show_default=True,
    help="Format of the figures.",
)
@click.option(
    "--average", type=click.IntRange(1), default=100, show_default=True, help="Number of test images to average over."
)
@click.option(
    "--examples", type=click.IntRange(0), default=3, show_default=True, help="Number of test images shown one by one."
)
@click.option("--query", metavar="ROW,COLUMN", help="The query token; by default the one in the middle.")
@click.option(
    "--zoom",
    type=click.IntRange(0),
    default=7,
    show_default=True,
    help="Number of tokens shown around the query; 0 shows all.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def figures(runs: tuple[str, ...], output: str, suffix: str, query: str | None, zoom: int, **given: Any) -> None:
    """Draw the figures of the paper from training runs.

    These are the learning curves of all runs, and the heads and the attention of each.
    """
    from conv2attn.experiments.figures import draw_figures
    from conv2attn.experiments.training import Run

    asked = None if query is None else whole_numbers(query)
    if asked is not None and len(asked) != 2:
        raise UsageError("C2A006", f"--query {query} is not a row and a column", "Write --query 3,4, say.")
    found = [Run(Path(run)) for run in runs]
    place = None if asked is None else (asked[0], asked[1])
    for path in draw_figures(found, output, suffix=f".{suffix}", query=place, zoom=zoom or None, **given):
        click.echo(f"wrote {path}", err=True)


@main.command(example="conv2attn prune generalised.pt -o smaller.pt")
@click.argument("model", type=Read())
@click.option(
    "-o", "--output", type=Written(NETWORK), metavar="FILE", required=True, help="Where to write the smaller network."
)
@click.option(
    "--smallest",
    type=float,
    default=1e-5,
    show_default=True,
    help="Remove heads whose largest eigenvalue is below this.",
)
@click.option(
    "--condition", type=float, default=1e5, show_default=True, help="Remove heads whose condition number is above this."
)
@reading
@reporting
def prune(model: str, output: str, showing: Showing, reading: Any, **thresholds: float) -> None:
    """Remove degenerate heads from the attention classifier in MODEL.

    This is the pruning of App. E of the paper; the report says how much it saves. To continue training at a tenth of
    the learning rate: conv2attn train KIND --start OUTPUT --learning-rate 0.01.
    """
    from conv2attn.checkpoints import save
    from conv2attn.experiments.pruning import prune_degenerate

    smaller, found = prune_degenerate(reading.load(model), **thresholds)
    save(smaller, output, force=showing.force)
    showing.finish(found)
    showing.say(f"wrote {output}")
    sys.exit(found.exit_code)


@main.command(example="conv2attn soften resnet18.attn.pt -o soft.pt --alpha 5")
@click.argument("model", type=Read())
@click.option(
    "-o", "--output", type=Written(NETWORK), metavar="FILE", required=True, help="Where to write the softened network."
)
@click.option("--alpha", type=float, help="Sharpness of every head; gradients reach the centres from about 5 down.")
@click.option(
    "--max-difference",
    type=float,
    metavar="E",
    help="Instead of --alpha: take the smallest alpha that changes each layer's output by at most E max|x|.",
)
@choosing("Soften")
@click.option("--inputs", type=Read(), help="Also measure the change on these: a PNG, folder, .npy, .npz or .pt file.")
@click.option("--input-size", metavar="CxHxW", help="Also measure the change on a random image of this size.")
@reading_images
@reporting
def soften(
    model: str, output: str, inputs: str | None, input_size: str | None, showing: Showing, reading: Any, **given: Any
) -> None:
    """Lower the sharpness of the heads in MODEL, so that they train.

    The report says how much attention each layer then leaks, and bounds how much its outputs change.
    """
    from conv2attn.checkpoints import save
    from conv2attn.cli.head_files import inputs_for, numbers
    from conv2attn.models import soften as lower_sharpness

    network = reading.load(model)
    example: Any = numbers(input_size, "--input-size", "3x224x224") if input_size else None
    if inputs:
        example, _ = inputs_for(network, inputs, input_size, reading)
    softening = lower_sharpness(network, example, **given)
    save(softening.network, output, force=showing.force)
    showing.finish(softening)
    showing.say(f"wrote {output}")
    sys.exit(softening.exit_code)


@main.group()
def reproduce() -> None:
    """Compute the tables of the paper, and those of docs/experiments.md, again."""


@reproduce.command(cls=Command, example="conv2attn reproduce tables")
@click.option("--run", "runs", multiple=True, metavar="MODEL=FOLDER", help="Show the accuracy of this run; repeatable.")
@click.option("--engine", default="dense", show_default=True, help="Engine whose multiplications are counted.")
@reporting
def tables(runs: tuple[str, ...], engine: str, showing: Showing) -> None:
    """Print Tables 1 and 4 beside the paper's.

    They hold the parameters, FLOPs and accuracies of all models.
    """
    from conv2attn.experiments.tables import reproduce_tables
    from conv2attn.experiments.training import Run

    if any("=" not in run for run in runs):
        raise UsageError(
            "C2A006",
            "--run takes MODEL=FOLDER, such as quadratic=runs/quadratic-cifar",
            "Write --run quadratic=runs/quadratic-cifar, say.",
        )
    found = reproduce_tables({run.partition("=")[0]: Run(Path(run.partition("=")[2])) for run in runs}, engine)
    showing.finish(found)
    sys.exit(found.exit_code)


@reproduce.command(cls=Command, example="conv2attn reproduce starts starts.csv")
@click.argument("table", type=click.Path())
@click.option("--part", default="1/1", show_default=True, help="Do the k-th of n shares of the runs, such as 1/2.")
@click.option("--show", is_flag=True, help="Only show the rows that are there.")
@reporting
def starts(table: str, part: str, show: bool, showing: Showing) -> None:
    """Train the runs of the experiment on starts that TABLE, a CSV file, lacks.

    Each run appends its row as it ends; a restart skips what is there.
    """
    import torch

    from conv2attn.experiments.run_rows import read_rows
    from conv2attn.experiments.starts import COLUMNS, Starts, complete_starts

    if show:
        showing.finish(Starts(tuple(read_rows(Path(table), COLUMNS))))
        return
    share = whole_numbers(part.replace("/", ","))
    if len(share) != 2 or not 1 <= share[0] <= share[1]:
        raise UsageError("C2A006", f"--part {part} is not one of several shares, such as 1/2", "Write --part 1/2, say.")
    torch.set_num_threads(1)
    showing.finish(complete_starts(Path(table), showing.say, share[0] - 1, share[1]))


@reproduce.command(cls=Command, example="conv2attn reproduce hybrids hybrids.csv")
@click.argument("table", type=click.Path())
@click.option("--runs", default="runs/hybrids", show_default=True, type=click.Path(), help="Folder of the runs.")
@click.option("--show", is_flag=True, help="Only show the rows that are there.")
@reporting
def hybrids(table: str, runs: str, show: bool, showing: Showing) -> None:
    """Train the runs of the experiment on transformed CNNs that TABLE, a CSV file, lacks.

    Each run appends its row as it ends; an interrupted run continues.
    """
    import torch

    from conv2attn.experiments.hybrids import COLUMNS, Hybrids, complete_hybrids
    from conv2attn.experiments.run_rows import read_rows

    torch.set_num_threads(1)
    rows = tuple(read_rows(Path(table), COLUMNS))
    showing.finish(Hybrids(rows) if show else complete_hybrids(Path(table), Path(runs), showing.say))


def whole_numbers(text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers.

    Raises:
        UsageError: something else is among them (C2A006).
    """
    try:
        return tuple(int(number) for number in text.split(",") if number.strip())
    except ValueError:
        raise UsageError("C2A006", f"{text!r} is not a list of whole numbers", "Write 80,150,250, say.") from None
