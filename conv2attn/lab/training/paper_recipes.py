"""The rows of Tables 1 and 4 and of Figure 14, and how each was trained: as the paper says, or as the authors' code.

recipes(TrainingRecipe("quadratic", epochs=30), folder, "code")["pruned"].epochs    # 10, of 100 for 300
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, final, get_args

from conv2attn.lab.training_recipe import TrainingRecipe

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
