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
    "width": "Width of a token, 400; or of a ResNet's first stage, 64.",
    "heads": "Heads in a layer.",
    "layers": "Layers of attention.",
    "hidden": "Width inside the two linear layers behind the attention.",
    "patch": "Side of the squares of pixels that become tokens.",
    "positions": "Width of a learned position vector along one axis.",
    "dropout": "Probability.",
    "optimiser": "sgd or adamw.",
    "learning_rate": "Highest rate.",
    "momentum": "Of sgd; the first beta of adamw.",
    "weight_decay": "Of all but the centres and widths of heads.",
    "batch": "Images a step, over all processes.",
    "epochs": "Passes over the training images.",
    "schedule": "Of the rate: cosine, steps or constant.  [default: cosine; steps for resnet]",
    "warm_up": "Share of the steps over which the rate rises.",
    "milestones": "Epochs after which steps lowers the rate; comma-separated.",
    "step_factor": "By which steps lowers the rate.",
    "crop_padding": "Pixels of padding before a random crop.  [default: an eighth of the side]",
    "mirror": "Mirror images at random.  [default: where mirror images are of the same class]",
    "images": "Train on the first so many images only.",
    "precision": "Of products; below float32 under autocast.",
    "engine": "Of the attention.",
    "start": "A file with a network to begin at, instead of a fresh one.",
    "seed": "Of everything that is drawn.",
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
@click.option("-o", "--output", type=click.Path(), help="Folder of the run; runs/KIND-DATA by default.")
@click.option("--resume", type=click.Path(), help="Continue the run in this folder instead.")
@click.option("--device", default="cpu", show_default=True, help="Where to compute.")
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
        raise UsageError("C2A001", "train takes either a KIND or --resume FOLDER", "Name one of them.")
    if resume is not None:
        for name in ("output", *given):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                option = "--" + name.replace("_", "-")
                raise UsageError("C2A001", f"{option} changes nothing beside --resume", "Leave out one of both.")
    recipe = None if kind is None else Recipe(kind, **{**given, "milestones": whole_numbers(given["milestones"])})
    folder = resume or output or f"runs/{kind}-{Path(given['data']).name}"
    from conv2attn.experiments.training import train as run_training

    run = run_training(recipe, folder, device=device)
    sys.exit(0 if run.finished else 130)


@main.command(example="conv2attn figures runs/quadratic-digits -o figures")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path())
@click.option("-o", "--output", type=click.Path(), required=True, help="Folder of the figures.")
@click.option("--suffix", type=click.Choice(["png", "svg", "pdf"]), default="png", show_default=True, help="Format.")
@click.option("--average", type=click.IntRange(1), default=100, show_default=True, help="Test images to average over.")
@click.option("--examples", type=click.IntRange(0), default=3, show_default=True, help="Test images shown alone.")
@click.option("--query", metavar="ROW,COLUMN", help="The token that asks; the one in the middle by default.")
@click.option("--zoom", type=click.IntRange(0), default=7, show_default=True, help="Tokens around it; 0 shows all.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def figures(runs: tuple[str, ...], output: str, suffix: str, query: str | None, zoom: int, **given: Any) -> None:
    """Draw the figures of the paper from training runs.

    Learning curves of all runs; heads and attention of the first.
    """
    from conv2attn.experiments.figures import draw_figures
    from conv2attn.experiments.training import Run

    asked = None if query is None else whole_numbers(query)
    if asked is not None and len(asked) != 2:
        raise UsageError("C2A001", f"--query {query} is not a row and a column")
    found = [Run(Path(run)) for run in runs]
    place = None if asked is None else (asked[0], asked[1])
    for path in draw_figures(found, output, suffix=f".{suffix}", query=place, zoom=zoom or None, **given):
        click.echo(f"wrote {path}", err=True)


@main.command(example="conv2attn prune generalised.pt -o smaller.pt")
@click.argument("model", type=click.Path())
@click.option("-o", "--output", type=click.Path(), metavar="FILE", required=True, help="The smaller network.")
@click.option("--smallest", type=float, default=1e-5, show_default=True, help="Of the largest eigenvalue of a head.")
@click.option("--condition", type=float, default=1e5, show_default=True, help="Largest condition number of a head.")
@reporting
def prune(model: str, output: str, showing: Showing, **thresholds: float) -> None:
    """Remove degenerate heads from the attention classifier in MODEL.

    See App. E of the paper; the report says what that saves. To train on at a tenth of the rate: conv2attn
    train KIND --start OUTPUT --learning-rate 0.01.
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
@click.option("-o", "--output", type=click.Path(), metavar="FILE", required=True, help="The softened network.")
@click.option("--alpha", type=float, help="Sharpness of every head; centres move from about 5 down.")
@click.option("--max-difference", type=float, metavar="E", help="Or the smallest alpha that changes outputs by E |x|.")
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
    """Count and print again what the paper prints."""


@reproduce.command(cls=Command, example="conv2attn reproduce tables")
@click.option("--run", "runs", multiple=True, metavar="MODEL=FOLDER", help="A run whose accuracy to show; repeatable.")
@click.option("--engine", default="dense", show_default=True, help="Of the attention whose products are counted.")
@reporting
def tables(runs: tuple[str, ...], engine: str, showing: Showing) -> None:
    """Tables 1 and 4: parameters, FLOPs and accuracies of all models, beside the paper's."""
    from conv2attn.experiments.tables import reproduce_tables
    from conv2attn.experiments.training import Run

    showing.check()
    if any("=" not in run for run in runs):
        raise UsageError("C2A001", "--run takes MODEL=FOLDER, such as quadratic=runs/quadratic-cifar")
    found = reproduce_tables({run.partition("=")[0]: Run(Path(run.partition("=")[2])) for run in runs}, engine)
    showing.finish(found)
    sys.exit(found.exit_code)


def whole_numbers(text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers.

    Raises:
        UsageError: something else is among them (C2A001).
    """
    try:
        return tuple(int(number) for number in text.split(",") if number.strip())
    except ValueError:
        raise UsageError("C2A001", f"{text!r} is not a list of whole numbers") from None
