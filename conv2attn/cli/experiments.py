"""The commands on the paper's experiments: train, reproduce, figures, prune."""

import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from conv2attn.cli.group import main
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


@main.command()
@click.argument("kind", type=click.Choice(KINDS), required=False)
@click.option("-o", "--output", type=click.Path(), help="Folder of the run; runs/KIND-DATA by default.")
@click.option("--resume", type=click.Path(), help="Continue the run in this folder instead.")
@click.option("--device", default="cpu", show_default=True, help="Where to compute.")
@recipe_options
@click.pass_context
def train(
    context: click.Context, kind: str | None, output: str | None, resume: str | None, device: str, **given: Any
) -> None:
    """Train an attention network of the paper, or the ResNet18 that it is compared with; the defaults are Table 2's.

    Under torchrun the processes share each batch. Ctrl-C writes a checkpoint and exits with 130.
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


def whole_numbers(text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers.

    Raises:
        UsageError: something else is among them (C2A001).
    """
    try:
        return tuple(int(number) for number in text.split(",") if number.strip())
    except ValueError:
        raise UsageError("C2A001", f"{text!r} is not a list of whole numbers") from None
