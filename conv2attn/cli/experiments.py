"""The commands on the paper's experiments: train, reproduce, figures, prune, soften."""

import os
import re
import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from conv2attn.cli.group import Command, main
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
    force,
    options,
    output_option,
    parse_sharpness,
    reading_images,
    reading_options,
    reporting,
)
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.lab.training_recipe import NETWORK_KINDS, TrainingRecipe, check_new_run
from conv2attn.suffixes import NETWORK_SUFFIXES

EPOCHS = Parsed(
    "a list of whole numbers",
    lambda text: tuple(int(number) for number in text.split(",") if number.strip()),
    "80,150,250",
)
NUMBER_KINDS = (str, int, float)
METAVARS = {"arch": "KIND:NAME", "arch_args": "JSON", "only": "GLOB", "skip": "GLOB", "milestones": "EPOCHS"}


NO_OPTIONS_OF_THE_PAPER = (
    *("kind", "terms", "absolute", "start", "parent", "arch", "arch_args", "only", "skip", "alpha"),
    *("optimiser", "learning_rate", "momentum", "weight_decay", "position_rate", "content_rate", "schedule", "warm_up"),
    *("milestones", "step_factor", "dropout", "attention_dropout", "initialisation"),
)
"""Settings of a row of the paper: its network, and the recipe that --as names."""


def recipe_options(*left_out: str, **defaults: Any) -> Decorator:
    """A decorator that adds an option for each field of a recipe but those left out, some with other defaults."""
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

    KIND is quadratic, generalised, learned (positions), or resnet; --terms lets the heads read content.
    The defaults are those of Table 2, its dropout taken as that behind the layers. Under torchrun the processes share
    each batch. Ctrl-C writes a checkpoint and exits with 130. --resume FOLDER --epochs N goes on until epoch N; nothing
    else of a run can be changed.
    """
    if (kind is None) == (resume is None):
        raise UsageError("C2A004", "train takes either a KIND or --resume FOLDER", "Name one of them.")
    if resume is not None:
        for name in ("output", *(arguments.keys() - {"epochs"})):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError(
                    "C2A004", f"{option_of(name)} changes nothing beside --resume", "Leave out one of both."
                )
    recipe = None if kind is None else TrainingRecipe(kind, **arguments)
    for name in recipe.unused if recipe else ():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            network = f"in the network of {recipe.start}" if recipe and recipe.start else "in a resnet"
            where = "without --only or --skip" if name == "alpha" else network
            raise UsageError("C2A004", f"{option_of(name)} changes nothing {where}", "Leave it out.")
    folder = next(each for each in (resume, output, f"runs/{kind}-{Path(arguments['data']).name}") if each is not None)
    if resume is None and os.environ.get("RANK", "0") == "0":  # of several processes one makes the folder
        check_new_run(Path(folder))
    from conv2attn.lab.training import train as run_training

    longer = context.get_parameter_source("epochs") is ParameterSource.COMMANDLINE and resume is not None
    run = run_training(recipe, folder, device=device, epochs=arguments["epochs"] if longer else None)
    sys.exit(0 if run.finished else 130)


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


@main.command(example="conv2attn figures runs/quadratic-digits -o figures")
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
    from conv2attn.lab.figures import draw_figures
    from conv2attn.lab.training import TrainingRun

    trained = [TrainingRun(Path(run)) for run in runs]
    arguments["examples"] = sum(each for each in examples if isinstance(each, int))
    arguments["pictures"] = [each for each in examples if isinstance(each, Path)]
    for path in draw_figures(trained, output, suffix=f".{suffix}", zoom=zoom or None, **arguments):
        click.echo(f"wrote {path}", err=True)


@main.command(example="conv2attn prune generalised.pt -o smaller.pt")
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
    from conv2attn.files import save
    from conv2attn.lab.pruning import prune_degenerate

    smaller, pruning = prune_degenerate(reading.load(model), **thresholds)
    save(smaller, output, force=showing.force)
    showing.finish(pruning, f"wrote {output}")


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

    The report says how much attention each layer then leaks, and bounds how much its outputs change. On --inputs, or on
    a random image of --input-size, the change is measured too.
    """
    from conv2attn.cli.attention_files import inputs_for
    from conv2attn.files import save
    from conv2attn.networks import soften as lower_sharpness

    network = reading.load(model)
    example = inputs_for(network, inputs, input_size, reading).inputs if inputs else input_size
    softening = lower_sharpness(network, example, **arguments)
    save(softening.network, output, force=showing.force)
    showing.finish(softening, f"wrote {output}")


@main.group()
def reproduce() -> None:
    """Compute the tables of the paper again."""


def parse_model_run(text: str) -> tuple[str, Path]:
    """`quadratic=runs/quadratic-cifar` as the name of a model and the folder of its run; a ValueError otherwise.

    Raises:
        CheckpointError: the folder is not there (C2A301).
    """
    model, folder = text.split("=", 1)
    if not Path(folder).is_dir():
        raise CheckpointError("C2A301", f"{folder or repr(folder)} is not a folder", "Pass the folder of a run.")
    return model, Path(folder)


@reproduce.command(cls=Command, example="conv2attn reproduce tables")
@click.option(
    "--run",
    "runs",
    type=Parsed("MODEL=FOLDER", parse_model_run, "--run quadratic=runs/quadratic-cifar"),
    multiple=True,
    metavar="MODEL=FOLDER",
    help="Show the accuracy of this run; repeatable.",
)
@click.option("--engine", default="dense", help="Engine whose multiplications are counted.")
@reporting
def tables(runs: tuple[tuple[str, Path], ...], engine: str, showing: Showing) -> None:
    """Print Tables 1 and 4 beside the paper's.

    They hold the parameters, FLOPs and accuracies of all models.
    """
    from conv2attn.lab.tables import reproduce_tables
    from conv2attn.lab.training import TrainingRun

    showing.finish(reproduce_tables({model: TrainingRun(folder) for model, folder in runs}, engine))


@reproduce.command(cls=Command, example="conv2attn reproduce experiments --data cifar-10-binary.tar.gz")
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
    from conv2attn.lab.paper_runs import train_paper

    folder = Path(output or f"runs/paper-{source}")
    tables = train_paper(TrainingRecipe("quadratic", **arguments), folder, showing.say, device, source)
    if tables is None:
        sys.exit(130)
    showing.finish(tables)
