"""The hyper-parameters of a training run; the defaults are the paper's (Cordonnier et al. 2020, Table 2)."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, final

from conv2attn.errors import UsageError

NETWORK_KINDS = ("quadratic", "generalised", "learned", "content", "resnet")
CHOICES = {
    "kind": NETWORK_KINDS,
    "optimiser": ("sgd", "adamw"),
    "schedule": ("cosine", "steps", "constant"),
    "precision": ("float32", "float64", "bfloat16", "float16"),
}
AT_LEAST: dict[str, float] = {
    **dict.fromkeys(("width", "heads", "layers", "hidden", "patch", "positions", "batch", "epochs"), 1),
    **dict.fromkeys(("dropout", "learning_rate", "momentum", "weight_decay", "warm_up", "crop_padding", "seed"), 0),
    **dict.fromkeys(("position_rate", "content_rate"), 0),
    "images": 1,
    "test_images": 1,
    "step_factor": 0,
}
TRANSFORM: dict[str, Any] = {
    "only": ("layer4.*",),
    "alpha": 2.0,
    "optimiser": "adamw",
    "learning_rate": 2e-3,
    "position_rate": 10.0,
    "content_rate": 1.0,
    "weight_decay": 0.05,
    "schedule": "cosine",
    "epochs": 4,
}
"""The recipe of `conv2attn transform`, found on a validation split: docs/experiments.md has what was tried."""
BELOW = {"dropout": 1, "momentum": 1, "warm_up": 1, "seed": 2**63}


@final
@dataclass(frozen=True)
class TrainingRecipe:
    """A training run, but for the place where it runs.

    Args:
        kind: of the network: attention with quadratic, generalised or learned positions, with learned positions and
            content, or the CIFAR ResNet18.
        data: see `data.read_images_of`.
        width, heads, layers, hidden, patch, positions, dropout: of an attention network, see `ClassifierPlan`. The
            default width is 400, or 64 for the first stage of a ResNet.
        optimiser, learning_rate, momentum, weight_decay: momentum is the first beta of adamw. Centres and widths of
            heads do not decay.
        position_rate, content_rate: factors of the rate for centres and widths of heads, and for queries and keys.
        batch: images a step, over all processes.
        schedule: cosine to 0; or steps, by `step_factor` after each epoch in `milestones`; or constant. The
            default is cosine, or steps for a ResNet.
        warm_up: share of the steps over which the rate rises linearly to `learning_rate`.
        crop_padding: pixels of padding before a random crop; by default an eighth of the side, 4 of CIFAR's 32.
        mirror: mirror images at random; by default where mirror images are of the same class.
        images: train on the first so many only.
        precision: of products; under autocast where it is below float32, and the weights stay in float32.
        engine: of the attention layers.
        test_images: evaluate on the first so many only.
        start: a file with a network to begin at, instead of a fresh one.
        arch, arch_args: how to build that network, where the file does not say it, as `load` takes them; arch_args as
            JSON.
        only, skip: where either is given, convolutions become attention before the network is trained: those whose
            names fit, see `convert`. Their heads read silent content, which begins at nothing.
        alpha: the sharpness of the heads of these layers.
        seed: of everything that is drawn.
    Raises:
        UsageError: a value out of range (C2A001), none of the choices (C2A002), or an architecture without
            a file to start from (C2A004).
    Source: Cordonnier et al. 2020, Table 2; He et al. 2016 for the steps of a ResNet.
    """

    kind: str
    data: str = "fashion-mnist"
    width: int | None = None
    heads: int = 9
    layers: int = 6
    hidden: int = 512
    patch: int = 2
    positions: int = 400
    dropout: float = 0.1
    optimiser: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    position_rate: float = 1.0
    content_rate: float = 1.0
    batch: int = 100
    epochs: int = 300
    schedule: str | None = None
    warm_up: float = 0.05
    milestones: tuple[int, ...] = (80, 150, 250)
    step_factor: float = 0.1
    crop_padding: int | None = None
    mirror: bool | None = None
    images: int | None = None
    precision: str = "float32"
    engine: str = "auto"
    test_images: int | None = None
    start: str | None = None
    arch: str | None = None
    arch_args: str | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    alpha: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices and (name, value) != ("schedule", None):
                raise UsageError("C2A002", f"{name}={value!r} is not one of {', '.join(choices)}", "Pass one of them.")
        for name, least in AT_LEAST.items():
            value = getattr(self, name)
            below = BELOW.get(name, math.inf)
            if value is not None and not least <= value < below:
                limits = f"at least {least:g}" + ("" if math.isinf(below) else f" and less than {below:g}")
                raise UsageError("C2A001", f"{name}={value!r} is not {limits}", "Pass a number within these limits.")
        if not 0 < self.alpha < math.inf:
            raise UsageError(
                "C2A001", f"alpha={self.alpha!r} is not a positive finite number", "Pass a positive finite number."
            )
        if (self.arch or self.arch_args) and not self.start:
            reason = "an architecture is named, and no file to start from"
            raise UsageError("C2A004", reason, "Name the file with --start, or leave out --arch and --arch-args.")
        if self.milestones and (list(self.milestones) != sorted(set(self.milestones)) or self.milestones[0] < 1):
            raise UsageError(
                "C2A001",
                f"milestones={self.milestones} are not epochs from 1 on in rising order",
                "Write the epochs in rising order, such as 80,150,250.",
            )

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
        """The recipe that `to_dict` wrote.

        Raises:
            UsageError: it is not that of one (C2A302).
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or not {"kind", "milestones"} <= content.keys() <= names:
            raise UsageError("C2A302", "the configuration of the run is not whole", "Start a new run.")
        given: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in content.items()}
        try:
            return cls(**given)
        except TypeError as error:
            raise UsageError(
                "C2A302", f"the configuration of the run is not whole ({error})", "Start a new run."
            ) from error


def learning_rate(recipe: TrainingRecipe, step: int, steps: int) -> float:
    """The rate of step `step` of `steps`, counted from 0.

    >>> recipe = TrainingRecipe("quadratic", warm_up=0.5)
    >>> [round(learning_rate(recipe, step, 8), 3) for step in range(8)]
    [0.025, 0.05, 0.075, 0.1, 0.1, 0.085, 0.05, 0.015]
    """
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
