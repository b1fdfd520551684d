"""The hyper-parameters of a training run; the defaults are the paper's (Cordonnier et al. 2020, Table 2)."""

import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self, final

from conv2attn.errors import CheckpointError, UsageError
from conv2attn.theory.score_terms import ScoreTerms

OF_CLASSIFIERS = (
    "width", "heads", "layers", "hidden", "patch", "terms", "absolute", "positions", "dropout", "attention_dropout",
    "initialisation",
)  # fmt: skip
"""The settings of a fresh attention classifier."""
NETWORK_KINDS = ("quadratic", "generalised", "learned", "resnet")
CONFIGURATION = "configuration.json"
"""The file with a run's recipe."""
OF_NETWORK, OF_DATA, OF_OPTIMISATION = "Network", "Data", "Optimisation"


def setting(
    default: Any,
    meaning: str,
    heading: str = "Options",
    *,
    least: float | None = None,
    below: float = math.inf,
    choices: tuple[str, ...] = (),
    default_in_words: str | None = None,
) -> Any:
    """A field of a recipe: its meaning in a sentence, the heading of its option, and the values that it takes."""
    limits = {"least": least, "below": below, "choices": choices}
    words = {"meaning": meaning, "heading": heading, "default_in_words": default_in_words}
    return field(default=default, metadata=words | limits)


@final
@dataclass(frozen=True)
class TrainingRecipe:
    """All settings of a training run except its device and folder. `kind` is that of a fresh network; see each field.

    Raises:
        UsageError: a value out of range (C2A001), none of the choices (C2A002), or an architecture without
            a file to start from (C2A004).
    Source: Cordonnier et al. 2020, Table 2; He et al. 2016 for the steps of a ResNet.
    """

    kind: str = field(metadata={"choices": NETWORK_KINDS})
    data: str = setting(
        "fashion-mnist",
        "fashion-mnist, digits, motifs (lines of symbols), a CIFAR archive or folder, or train/CLASS/ and test/CLASS/.",
        OF_DATA,
    )
    width: int | None = setting(
        None, "Width of a token, by default 400; or of the first stage of a ResNet, by default 64.", OF_NETWORK, least=1
    )
    heads: int = setting(9, "Number of heads in a layer.", OF_NETWORK, least=1)
    layers: int = setting(6, "Number of attention layers.", OF_NETWORK, least=1)
    hidden: int = setting(512, "Hidden width of the feed-forward layers.", OF_NETWORK, least=1)
    patch: int = setting(2, "Side in pixels of the square patches that become tokens.", OF_NETWORK, least=1)
    terms: str = setting(
        "vr", "Terms of the scores, of Eq. (8): a sum of qk, qr, uk and vr. The paper's content is qk+qr.", OF_NETWORK
    )
    absolute: str = setting(
        "none", "Positions added to the tokens.", OF_NETWORK, choices=("none", "learned", "sinusoidal")
    )
    positions: int | None = setting(
        None,
        "Width of a learned position vector, per axis.",
        OF_NETWORK,
        least=1,
        default_in_words="400; half the width of a token with qr",
    )
    dropout: float = setting(0.1, "Probability of dropout.", OF_NETWORK, least=0, below=1)
    attention_dropout: float = setting(
        0.0,
        "Probability with which a weight of attention is dropped; the authors' code has 0.1.",
        OF_NETWORK,
        least=0,
        below=1,
    )
    initialisation: str = setting(
        "paper",
        "How positions of heads are drawn: as in the paper, or with larger deviations, as in the authors' code.",
        OF_NETWORK,
        choices=("paper", "code"),
    )
    optimiser: str = setting("sgd", "The optimiser.", OF_OPTIMISATION, choices=("sgd", "adamw"))
    learning_rate: float = setting(0.1, "Highest learning rate.", OF_OPTIMISATION, least=0)
    momentum: float = setting(0.9, "Momentum of sgd, or the first beta of adamw.", OF_OPTIMISATION, least=0, below=1)
    weight_decay: float = setting(
        1e-4, "Weight decay; not applied to the centres and widths of heads.", OF_OPTIMISATION, least=0
    )
    position_rate: float = setting(
        1.0, "Factor of the learning rate for the centres and widths of heads.", OF_OPTIMISATION, least=0
    )
    content_rate: float = setting(1.0, "Factor of the learning rate for queries and keys.", OF_OPTIMISATION, least=0)
    batch: int = setting(100, "Images per step, over all processes.", OF_OPTIMISATION, least=1)
    epochs: int = setting(300, "Number of passes over the training images.", OF_OPTIMISATION, least=1)
    schedule: str | None = setting(
        None,
        "Schedule of the learning rate: cosine to 0, steps at the milestones, constant, or the cosine of the authors' "
        "code, which is set once an epoch.",
        OF_OPTIMISATION,
        choices=("cosine", "steps", "constant", "authors"),
        default_in_words="cosine; steps for resnet",
    )
    warm_up: float = setting(
        0.05, "Share of the steps in which the learning rate rises linearly.", OF_OPTIMISATION, least=0, below=1
    )
    milestones: tuple[int, ...] = setting(
        (80, 150, 250), "Epochs after which the schedule steps lowers the rate; comma-separated.", OF_OPTIMISATION
    )
    step_factor: float = setting(0.1, "Factor by which the schedule steps lowers the rate.", OF_OPTIMISATION, least=0)
    crop_padding: int | None = setting(
        None,
        "Pixels of padding before a random crop.",
        OF_DATA,
        least=0,
        default_in_words="an eighth of the side",
    )
    mirror: bool | None = setting(
        None, "Mirror images at random.", OF_DATA, default_in_words="if mirror images keep their class"
    )
    images: int | None = setting(None, "Train only on this many images, the first ones.", OF_DATA, least=1)
    precision: str = setting(
        "float32",
        "Precision of matrix products; below float32, autocast is used, and weights stay in float32.",
        OF_OPTIMISATION,
        choices=("float32", "float64", "bfloat16", "float16"),
    )
    engine: str = setting("auto", "Engine that computes the attention.", OF_NETWORK)
    test_images: int | None = setting(None, "Evaluate only on this many test images, the first ones.", OF_DATA, least=1)
    start: str | None = setting(None, "File with a network to start from, instead of random weights.", OF_NETWORK)
    parent: str | None = setting(
        None, "Digest of the network in that file, which identifies the run that it comes from.", OF_NETWORK
    )
    arch: str | None = setting(
        None,
        "How to build the network of the file, as in convert: timm:NAME, package.module:factory and others.",
        OF_NETWORK,
    )
    arch_args: str | None = setting(None, "Arguments for building it: '{\"num_classes\": 10}'.", OF_NETWORK)
    only: tuple[str, ...] = setting(
        (),
        "Convert convolutions whose name matches to attention that reads content, with initial score 0; repeatable.",
        default_in_words="none, without --skip",
    )
    skip: tuple[str, ...] = setting((), "Convert all convolutions, except those whose name matches; repeatable.")
    alpha: float = setting(2.0, "Sharpness of the heads of converted layers.")
    seed: int = setting(0, "Seed of all random numbers.", "What to run on", least=0, below=2**63)

    def __post_init__(self) -> None:
        for each in fields(self):
            value, choices = getattr(self, each.name), each.metadata["choices"]
            if choices and value not in choices and (each.name, value) != ("schedule", None):
                reason = f"{each.name}={value!r} is not one of {', '.join(choices)}"
                raise UsageError("C2A002", reason, "Pass one of them.")
            least, below = each.metadata.get("least"), each.metadata.get("below", math.inf)
            if least is not None and value is not None and not least <= value < below:
                limits = f"at least {least:g}" + ("" if math.isinf(below) else f" and less than {below:g}")
                reason = f"{each.name}={value!r} is not {limits}"
                raise UsageError("C2A001", reason, "Pass a number within these limits.")
        if not 0 < self.alpha < math.inf:
            reason = f"alpha={self.alpha!r} is not a positive finite number"
            raise UsageError("C2A001", reason, "Pass a positive finite number.")
        ScoreTerms.of(self.terms)
        if (self.arch or self.arch_args) and not self.start:
            reason = "an architecture is named, but no file to start from"
            raise UsageError("C2A004", reason, "Name the file with --start, or leave out --arch and --arch-args.")
        if self.milestones and (list(self.milestones) != sorted(set(self.milestones)) or self.milestones[0] < 1):
            reason = f"milestones={self.milestones} are not increasing epochs from 1"
            raise UsageError("C2A001", reason, "Write the epochs in rising order, such as 80,150,250.")

    @property
    def unused(self) -> tuple[str, ...]:
        """The settings without effect, given the others.

        >>> TrainingRecipe("resnet").unused[:3], TrainingRecipe("learned").unused
        (('heads', 'layers', 'hidden'), ('alpha',))
        """
        of_network = OF_CLASSIFIERS if self.start else OF_CLASSIFIERS[1:] if self.kind == "resnet" else ()
        return (*of_network, *(() if self.only or self.skip else ("alpha",)))

    @property
    def classifier_width(self) -> int:
        """`width`, or the default of the kind."""
        return self.width or (64 if self.kind == "resnet" else 400)

    @property
    def rate_schedule(self) -> str:
        """`schedule`, or the default of the kind."""
        return self.schedule or ("steps" if self.kind == "resnet" else "cosine")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """The recipe from `to_dict`.

        Raises:
            UsageError: the content is not that of a recipe (C2A302).
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or not {"kind", "milestones"} <= content.keys() <= names:
            raise UsageError("C2A302", "the configuration of the run is incomplete", "Start a new run.")
        values: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in content.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise UsageError(
                "C2A302", f"the configuration of the run is incomplete ({error})", "Start a new run."
            ) from error


def check_new_run(folder: Path) -> None:
    """Refuses a folder for a new run that has more than a configuration (C2A305)."""
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - {CONFIGURATION}):
        remedy = "Choose another folder, or continue it: conv2attn train --resume FOLDER."
        raise CheckpointError("C2A305", f"{folder} exists", remedy)


def learning_rate(recipe: TrainingRecipe, step: int, steps: int) -> float:
    """The rate of step `step` of `steps`, counted from 0.

    >>> recipe = TrainingRecipe("quadratic", warm_up=0.5)
    >>> [round(learning_rate(recipe, step, 8), 3) for step in range(8)]
    [0.025, 0.05, 0.075, 0.1, 0.1, 0.085, 0.05, 0.015]
    """
    if recipe.rate_schedule == "authors":
        return authors_rate(recipe, step, steps)
    warm = round(recipe.warm_up * steps)
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    match recipe.rate_schedule:
        case "cosine":
            return recipe.learning_rate * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))) / 2
        case "steps":
            epoch = step * recipe.epochs // steps
            return recipe.learning_rate * recipe.step_factor ** sum(epoch >= m for m in recipe.milestones)
        case _:
            return recipe.learning_rate


def authors_rate(recipe: TrainingRecipe, step: int, steps: int) -> float:
    """The rate of the authors' code: the rate of an epoch's first step, for the whole epoch.

    It counts one step too many per epoch (`images // batch + 1`), so it does not end at 0; and it begins at 0, so the
    first epoch has no effect.

    >>> recipe = TrainingRecipe("quadratic", schedule="authors", epochs=4, warm_up=0.5)
    >>> [round(authors_rate(recipe, step, 8), 4) for step in range(8)]
    [0.0, 0.0, 0.0333, 0.0333, 0.0667, 0.0667, 0.1, 0.1]
    """
    in_epoch = steps // recipe.epochs
    begun = step // in_epoch * in_epoch
    counted = (in_epoch + 1) * recipe.epochs
    warm = int(counted * recipe.warm_up)
    if begun < warm:
        return recipe.learning_rate * begun / warm
    return recipe.learning_rate * (1 + math.cos(math.pi * (begun - warm) / (counted - warm))) / 2
