"""The commands on the paper's experiments: train, reproduce, figures, prune, soften."""

import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from conv2attn.cli.group import Command, main
from conv2attn.cli.options import reporting
from conv2attn.cli.reports import Showing
from conv2attn.errors import UsageError
from conv2attn.experiments.recipe import CHOICES, KINDS, Recipe

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
    "start": "File with a network to start from, instead of random weights.",
    "seed": "Seed of all random numbers.",
}
TYPES: dict[str, Any] = {"milestones": str, "data": str, "engine": str, "start": click.Path()}


def recipe_options(command: Any) -> Any:
    """An option for each field of a recipe but its kind."""
    for field in reversed(fields(Recipe)):
        if field.name == "kind":
            continue
        option = "--" + field.name.replace("_", "-")
        shown = field.default not in (None, MISSING)
        default: Any = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        if field.name == "mirror":
            command = click.option(f"{option}/--no-mirror", default=None, help=HELP[field.name])(command)
            continue
        kind = click.Choice(CHOICES[field.name]) if field.name in CHOICES else TYPES.get(field.name)
        kind = kind or (int if "int" in str(field.type) else float)
        command = click.option(option, type=kind, default=default, show_default=shown, help=HELP[field.name])(command)
    return command


@main.command(example="conv2attn train quadratic --data digits --epochs 2")
@click.argument("kind", type=click.Choice(KINDS), required=False)
@click.option("-o", "--output", type=click.Path(), help="Folder of the run; by default runs/KIND-DATA.")
@click.option("--resume", type=click.Path(), help="Continue the run in this folder instead.")
@click.option("--device", default="cpu", show_default=True, help="Device to run on.")
@recipe_options
@click.pass_context
def train(
    context: click.Context, kind: str | None, output: str | None, resume: str | None, device: str, **given: Any
) -> None:
    """Train an attention network of the paper, or its ResNet18.

    The defaults are those of Table 2. Under torchrun the processes share each batch. Ctrl-C writes a checkpoint and
    exits with 130.
    """
    if (kind is None) == (resume is None):
        raise UsageError("C2A004", "train takes either a KIND or --resume FOLDER", "Name one of them.")
    if resume is not None:
        for name in ("output", *given):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                option = "--" + name.replace("_", "-")
                raise UsageError("C2A004", f"{option} changes nothing beside --resume", "Leave out one of both.")
    recipe = None if kind is None else Recipe(kind, **{**given, "milestones": whole_numbers(given["milestones"])})
    folder = resume or output or f"runs/{kind}-{Path(given['data']).name}"
    from conv2attn.experiments.training import train as run_training

    run = run_training(recipe, folder, device=device)
    sys.exit(0 if run.finished else 130)


@main.command(example="conv2attn figures runs/quadratic-digits -o figures")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path())
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

    These are the learning curves of all runs, and the heads and the attention of the first run.
    """
    from conv2attn.experiments.figures import draw_figures
    from conv2attn.experiments.training import Run

    asked = None if query is None else whole_numbers(query)
    if asked is not None and len(asked) != 2:
        raise UsageError("C2A006", f"--query {query} is not a row and a column")
    found = [Run(Path(run)) for run in runs]
    place = None if asked is None else (asked[0], asked[1])
    for path in draw_figures(found, output, suffix=f".{suffix}", query=place, zoom=zoom or None, **given):
        click.echo(f"wrote {path}", err=True)


@main.command(example="conv2attn prune generalised.pt -o smaller.pt")
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), metavar="FILE", required=True, help="Where to write the smaller network."
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
@reporting
def prune(model: str, output: str, showing: Showing, **thresholds: float) -> None:
    """Remove degenerate heads from the attention classifier in MODEL.

    This is the pruning of App. E of the paper; the report says how much it saves. To continue training at a tenth of
    the learning rate: conv2attn train KIND --start OUTPUT --learning-rate 0.01.
    """
    from conv2attn.checkpoints import load, save
    from conv2attn.experiments.pruning import prune_degenerate

    showing.check(output, read=(model,))
    smaller, found = prune_degenerate(load(model), **thresholds)
    save(smaller, output, force=showing.force)
    showing.finish(found)
    showing.say(f"wrote {output}")
    sys.exit(found.exit_code)


@main.command(example="conv2attn soften resnet18.attn.pt -o soft.pt --alpha 5")
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), metavar="FILE", required=True, help="Where to write the softened network."
)
@click.option("--alpha", type=float, help="Sharpness of every head; gradients reach the centres from about 5 down.")
@click.option(
    "--max-difference",
    type=float,
    metavar="E",
    help="Instead of --alpha: take the smallest alpha that changes each layer's output by at most E max|x|.",
)
@reporting
def soften(model: str, output: str, showing: Showing, alpha: float | None, **given: float | None) -> None:
    """Lower the sharpness of the heads in MODEL, so that they train.

    The report says how much attention each layer then leaks.
    """
    from conv2attn.checkpoints import load, save
    from conv2attn.models import soften as lower_sharpness

    showing.check(output, read=(model,))
    softening = lower_sharpness(load(model), alpha=alpha, max_difference=given["max_difference"])
    save(softening.network, output, force=showing.force)
    showing.finish(softening)
    showing.say(f"wrote {output}")
    sys.exit(softening.exit_code)


@main.group()
def reproduce() -> None:
    """Compute the tables of the paper again."""


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

    showing.check()
    if any("=" not in run for run in runs):
        raise UsageError("C2A006", "--run takes MODEL=FOLDER, such as quadratic=runs/quadratic-cifar")
    found = reproduce_tables({run.partition("=")[0]: Run(Path(run.partition("=")[2])) for run in runs}, engine)
    showing.finish(found)
    sys.exit(found.exit_code)


def whole_numbers(text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers.

    Raises:
        UsageError: something else is among them (C2A006).
    """
    try:
        return tuple(int(number) for number in text.split(",") if number.strip())
    except ValueError:
        raise UsageError("C2A006", f"{text!r} is not a list of whole numbers") from None
