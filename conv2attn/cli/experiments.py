"""The commands on the paper's experiments: train, soften."""

import os
import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from conv2attn.cli.group import main
from conv2attn.cli.options import (
    DEVICE,
    INPUT_SIZE,
    INPUTS,
    RUNS,
    Decorator,
    Parsed,
    Read,
    Showing,
    choosing,
    options,
    output_option,
    parse_sharpness,
    reading_images,
    reporting,
)
from conv2attn.errors import UsageError
from conv2attn.lab.training_recipe import NETWORK_KINDS, TrainingRecipe, check_new_run
from conv2attn.suffixes import NETWORK_SUFFIXES

EPOCHS = Parsed(
    "a list of whole numbers",
    lambda text: tuple(int(number) for number in text.split(",") if number.strip()),
    "80,150,250",
)
NUMBER_KINDS = (str, int, float)
METAVARS = {"arch": "KIND:NAME", "arch_args": "JSON", "only": "GLOB", "skip": "GLOB", "milestones": "EPOCHS"}


def recipe_options(*left_out: str, **defaults: Any) -> Decorator:
    """A decorator that adds an option per field of a recipe, without some fields, and with other defaults for some."""
    wanted = (field for field in fields(TrainingRecipe) if field.name not in left_out)
    return options(*(recipe_option(field, defaults.get(field.name, field.default)) for field in wanted))


def recipe_option(field: Field[Any], default: Any) -> Any:
    """The option of one field of a recipe."""
    option, words = option_of(field.name), str(field.type)
    about: dict[str, Any] = {"help": field.metadata["meaning"], "metavar": METAVARS.get(field.name), "default": default}
    if default == field.default and field.metadata["default_in_words"]:
        about["show_default"] = field.metadata["default_in_words"]
    if "bool" in words:
        option += f"/--no-{field.name}"
    elif "tuple[str" in words:
        about["multiple"] = True
    elif field.name == "milestones":
        about |= {"type": EPOCHS, "default": ",".join(map(str, default))}
    elif choices := field.metadata["choices"]:
        about["type"] = click.Choice(choices)
    else:
        about["type"] = (
            Read() if field.name == "start" else next(kind for kind in NUMBER_KINDS if kind.__name__ in words)
        )
    return options(click.option(option, field.name, **about), heading=field.metadata["heading"])


def option_of(field: str) -> str:
    """The option of a field of a recipe."""
    return "--train-images" if field == "images" else "--" + field.replace("_", "-")


@main.command(example="conv2attn train quadratic --data digits --epochs 2")
@click.argument("kind", metavar="[KIND]", type=click.Choice(NETWORK_KINDS), required=False)
@output_option("Folder of the run; by default runs/KIND-DATA.", required=False)
@click.option("--resume", type=click.Path(), help="Continue the run in this folder instead.")
@DEVICE
@recipe_options("kind", "parent")
@click.pass_context
def train(
    context: click.Context, /, kind: str | None, output: str | None, resume: str | None, device: str, **arguments: Any
) -> None:
    """Train an attention network of the paper, or its ResNet18.

    KIND is quadratic, generalised, learned (positions), or resnet; --terms lets the heads read content. The defaults
    are those of Table 2, with its dropout applied after the layers. Under torchrun the processes share each batch.
    Ctrl-C writes a checkpoint and exits with 130. --resume FOLDER --epochs N continues until epoch N; nothing else of a
    run can be changed.
    """
    if (kind is None) == (resume is None):
        raise UsageError("C2A004", "train takes either a KIND or --resume FOLDER", "Name one of them.")
    if resume is not None:
        for name in ("output", *(arguments.keys() - {"epochs"})):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError("C2A004", f"{option_of(name)} has no effect with --resume", "Leave out one of both.")
    recipe = None if kind is None else TrainingRecipe(kind, **arguments)
    for name in recipe.unused if recipe else ():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            network = f"in the network of {recipe.start}" if recipe and recipe.start else "in a resnet"
            where = "without --only or --skip" if name == "alpha" else network
            raise UsageError("C2A004", f"{option_of(name)} has no effect {where}", "Leave it out.")
    folder = next(each for each in (resume, output, f"runs/{kind}-{Path(arguments['data']).name}") if each is not None)
    if resume is None and os.environ.get("RANK", "0") == "0":  # only one of several processes creates the folder
        check_new_run(Path(folder))
    from conv2attn.lab.training import train as run_training

    longer = context.get_parameter_source("epochs") is ParameterSource.COMMANDLINE and resume is not None
    run = run_training(recipe, folder, device=device, epochs=arguments["epochs"] if longer else None)
    sys.exit(0 if run.finished else 130)


@main.command(example="conv2attn soften resnet18.attn.pt -o soft.pt --alpha 5")
@click.argument("model", type=Read())
@output_option("Where to write the softened network.", NETWORK_SUFFIXES)
@click.option(
    "--alpha",
    type=Parsed("a number", parse_sharpness, "5"),
    metavar="A",
    required=True,
    help="Sharpness of every head; gradients reach the centres from about 5 down.",
)
@choosing("Soften")
@options(INPUTS, INPUT_SIZE, heading=RUNS)
@reading_images
@reporting
def soften(
    model: str, output: str, inputs: str | None, input_size: Any, showing: Showing, reading: Any, **arguments: Any
) -> None:
    """Lower the sharpness of the heads in MODEL, so that they train.

    The report gives the leak of each layer, and a bound on the change of its outputs. On --inputs, or on a random image
    of --input-size, the change is measured too.
    """
    from conv2attn.cli.attention_files import inputs_for
    from conv2attn.files import save
    from conv2attn.networks import soften as lower_sharpness

    network = reading.load(model)
    example = inputs_for(network, inputs, input_size, reading).inputs if inputs else input_size
    softening = lower_sharpness(network, example, **arguments)
    save(softening.network, output, force=showing.force)
    showing.finish(softening, f"wrote {output}")
