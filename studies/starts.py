"""Do heads that begin as shifts help an ordinary vision transformer on small data?

    python studies/starts.py docs/experiments/starts.csv          # trains the runs that the table lacks, row by row
    python studies/starts.py docs/experiments/starts.csv --show   # prints the tables of docs/experiments.md

Sizes, arms, seeds and rates were written down before the runs. What was changed since: after ten runs at 2,000 images
the rate 0.02 was dropped, and the larger sets got fewer arms and epochs, for want of time; digits were first cut into
single pixels and seen 6 times, and changed when the first run had learned nothing in that time. Last came `even-2`,
since heads of `strong-3` turned out to be wider than those of `random-2`.
"""

import argparse
import csv
import hashlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import astuple, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from scipy.special import stdtr
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from conv2attn import capture
from conv2attn.errors import CheckpointError
from conv2attn.generators import devices_of, generators_kept
from conv2attn.lab.data import Augmentation, LabelledImages, accuracy, normalised_images, read_images_of
from conv2attn.networks.starts import Parts, Start, kernel, start_at_convolution
from conv2attn.networks.starts.parts import attending_layers
from conv2attn.report.markup import markdown_table
from studies.figures import draw_curve
from studies.transformer import TransformerPlan, VisionTransformer

BATCH, WEIGHT_DECAY, CLIP, WARM_UP = 50, 0.05, 1.0, 0.15
HEAD_IMAGES = 64  # on which heads are measured, and which fix the scale of a start
CURVE = 1000  # the test images on which the curve is measured, after each epoch
LOCAL = 0.25  # the share of its attention at one displacement from which a head counts as a shift
LEVEL = 0.05  # of p, as usual: of twenty tables of starts that do not differ, one has a gain that is called clear

# The plan

CORE = ("default", "shift-3-2", "default/torch", "shift-3-2/torch")
REST = ("mimetic", "written", "positions", "shift-3-1", "shift-3-4", "shift-5-2", "shift-5-1", "shift-5-4")
ANCHORS = ("default/torch", "mimetic", "mimetic/torch", "shift-3-2/torch")
CONTROLS = (*ANCHORS, "far-2/torch", "random-2/torch", "image-2/torch")
CAUSES = ("random-1/torch", "random-4/torch", "strong-3/torch", "faster-5/torch")
LASTING = ("default/torch", "shift-3-2/torch", "far-2/torch", "random-2/torch", "image-2/torch")
OF_LARGE = ("default/torch", "shift-3-2/torch", "image-2/torch")
# `default` draws linear layers with deviation 0.02, as vision transformers do; `/torch` as torch does, by their widths.
START_ARMS = tuple(dict.fromkeys((*CORE, *REST, *CONTROLS, *CAUSES, "even-2/torch")))
START_SEEDS = (0, 1, 2, 3, 4)
CONTROL_SEEDS = (
    5,
    6,
    7,
    8,
    9,
)  # others, since image-2 was put together after runs with four of the first had been seen
START_RATES = (0.005, 0.01)  # 0.02 was tried for the first two arms, and was the worst of three
RATE_SEED = 100  # of the runs that choose the rate of an arm, on a validation split of the training images


@dataclass(frozen=True)
class Task:
    """A data set, pixels along the side of a patch, and layers and heads of timm's transformer (else the package's)."""

    data: str
    patch: int
    timm: tuple[int, int] | None = None


TASKS = {
    "fashion-mnist": Task("fashion-mnist", 4),
    "digits": Task("digits", 2),
    "fashion-mnist/timm-small": Task("fashion-mnist", 2, timm=(2, 2)),
    "fashion-mnist/timm": Task("fashion-mnist", 2, timm=(3, 4)),
    "fashion-mnist/timm-large": Task("fashion-mnist", 2, timm=(4, 6)),
}


@dataclass(frozen=True)
class TrainingSize:
    """A training set: the first images of a task, epochs, arms and seeds; gains are over the default, or anchors."""

    data: str
    images: int
    epochs: int
    arms: tuple[str, ...]
    seeds: tuple[int, ...] = START_SEEDS
    anchors: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.data} {self.images} x {self.epochs}"


# In the order of the runs. 10,000 images are seen three times and 60,000 once, by the most telling arms, which is what
# two cores can afford.
TRAINING_SIZES = (
    TrainingSize("fashion-mnist", 2000, 10, CORE),
    TrainingSize("digits", 500, 60, CORE),
    TrainingSize("fashion-mnist", 60000, 1, CORE[:2]),
    TrainingSize("fashion-mnist", 500, 20, CORE),
    TrainingSize("fashion-mnist", 2000, 10, REST),
    TrainingSize("digits", 1437, 30, CORE),
    TrainingSize("fashion-mnist", 10000, 3, CORE),
    TrainingSize("fashion-mnist", 60000, 1, CORE[2:]),
    TrainingSize("fashion-mnist", 500, 20, REST),
    TrainingSize("fashion-mnist", 500, 20, (*CONTROLS, *CAUSES), CONTROL_SEEDS, ANCHORS),
    TrainingSize("fashion-mnist", 2000, 10, CONTROLS, CONTROL_SEEDS, ANCHORS),
    TrainingSize("fashion-mnist", 500, 60, LASTING, CONTROL_SEEDS, LASTING[:2]),
    TrainingSize("fashion-mnist/timm", 500, 20, LASTING, CONTROL_SEEDS[:3], LASTING[:2]),
    TrainingSize("fashion-mnist/timm-small", 500, 20, LASTING, CONTROL_SEEDS[:3], LASTING[:2]),
    TrainingSize("fashion-mnist/timm-large", 500, 20, OF_LARGE, CONTROL_SEEDS[:3], OF_LARGE[:2]),
    TrainingSize("fashion-mnist", 500, 20, ("even-2/torch",), CONTROL_SEEDS, ("default/torch", "random-2/torch")),
    TrainingSize("fashion-mnist", 2000, 10, ("even-2/torch",), CONTROL_SEEDS, ("default/torch", "random-2/torch")),
)
COMPARED_WITH = tuple(dict.fromkeys(anchor for size in TRAINING_SIZES for anchor in size.anchors))
# The runs that choose a rate, by task: training images, epochs, and validation images, the last training ones.
CHOSEN_AT = {
    "fashion-mnist": (2000, 10, 4000),
    "digits": (1000, 40, 437),
    **dict.fromkeys(("fashion-mnist/timm-small", "fashion-mnist/timm", "fashion-mnist/timm-large"), (500, 20, 1000)),
}

# The arms


@dataclass(frozen=True)
class Arm:
    """A start, and how its queries and keys are trained.

    Args:
        options: of `start_at_convolution`; without them weights stay as drawn.
        then: what is done next, by the network, its `Start`, the seed, the tokens along a side, and images.
        drawn: whether the parameter of a name keeps its drawn values.
        planted: whether heads are the shifts of a kernel, which are followed in training.
        factor: by which each step moves queries and keys, over what the optimiser moves them.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    then: Callable[[nn.Module, Any, int, int, Tensor], None] | None = None
    drawn: Callable[[str], bool] = lambda name: False
    planted: bool = False
    factor: float = 1.0


def begin(network: nn.Module, name: str, seed: int, images: Tensor, side: int) -> Start | None:
    """Sets the weights of a network of `side` tokens along an axis as an arm says; the `Start` of planted heads."""
    arm, start = ARMS[name], None
    drawn = {key: value.detach().clone() for key, value in network.named_parameters() if arm.drawn(key)}
    if arm.options:
        parts = Parts(sides=(side, side))  # else the sides are read from many runs
        start = start_at_convolution(network, seed=seed, example_input=images, parts=parts, **arm.options)
    if arm.then is not None:
        arm.then(network, start, seed, side, images)
    for key, value in drawn.items():
        network.get_parameter(key).detach().copy_(value)
    return start if arm.planted else None


@contextmanager
def faster(network: nn.Module, factor: float) -> Iterator[None]:
    """Around a step of an optimiser: queries and keys move by `factor` times what it moves them."""
    layers = attending_layers(network).values() if factor != 1 else ()
    weights = [weight for layer in layers for weight in (layer.query, layer.key)]
    before = [weight.clone() for weight in weights]
    yield
    for weight, old in zip(weights, before, strict=True):
        weight.add_(weight - old, alpha=factor - 1)


def strengthen(network: nn.Module, start: None, seed: int, side: int, images: Tensor, *, factor: float) -> None:
    """Queries and keys as drawn, times a factor: strong attention that reads content and positions alike."""
    for layer in attending_layers(network).values():
        layer.query.mul_(factor)
        layer.key.mul_(factor)


@torch.no_grad()
def even_out(network: nn.Module, start: None, seed: int, side: int, images: Tensor, *, like: str) -> None:
    """Queries and keys as drawn, scaled head by head until each head has the mean entropy that it has in another arm.

    So heads are as strong as those of the other arm, and read content and positions as they were drawn to.
    """
    other = deepcopy(network)
    begin(other, like, seed, images, side)
    layers = attending_layers(network)
    wanted = [entropies(log_attention(other, images, at)) for at in range(len(layers))]
    for at, layer in enumerate(layers.values()):
        logs = log_attention(network, images, at)  # behind the layers that are scaled already
        # A softmax of the logarithm of attention, times a factor, is the attention of scores times the factor; entropy
        # falls as the factor rises.
        low, high = torch.full((layer.heads,), -10.0).double(), torch.full((layer.heads,), 20.0).double()
        for _ in range(40):
            middle = (low + high) / 2
            flat = entropies((middle.exp()[:, None, None] * logs).log_softmax(-1)) > wanted[at]
            low, high = torch.where(flat, middle, low), torch.where(flat, high, middle)
        factor = (low / 2).exp().repeat_interleave(layer.width)
        for weight in (layer.query, layer.key, *layer.biases):
            weight.mul_(factor.to(weight).view(-1, *[1] * (weight.ndim - 1)))


def log_attention(network: nn.Module, images: Tensor, at: int) -> Tensor:
    """The logarithm of the attention of one layer (images, heads, queries, keys), in evaluation mode."""
    mode = network.training
    maps = [each for each in capture(network.eval(), images).values() if isinstance(each, Tensor)][at]
    network.train(mode)
    return maps.double().log()


def entropies(logs: Tensor) -> Tensor:
    """The mean entropy of each head, from the logarithm of its attention (images, heads, queries, keys)."""
    return -(logs.exp() * logs.clamp_min(-1e3)).sum(-1).mean((0, 2))


def turn_far(network: nn.Module, start: Start, seed: int, side: int, images: Tensor) -> None:
    """Turns each head to an offset of 2 tokens or more along each axis, so that none is in a 3x3 kernel."""
    generator, channels = torch.Generator().manual_seed(seed), start.channels
    for layer in attending_layers(network).values():
        for head in range(layer.heads):
            lengths = torch.randint(2, side, (2,), generator=generator)
            offset = (lengths * (2 * torch.randint(0, 2, (2,), generator=generator) - 1)).tolist()
            turned, plain = kernel.readers((side, side), start.frequencies, offset, start.heads[0].alpha)
            rows = slice(head * layer.width, head * layer.width + channels)
            gain = layer.key[rows, :channels].norm() / plain.norm()
            layer.query[rows, :channels] = (gain * turned).to(layer.query)


def read_at_random(network: nn.Module, start: Start, seed: int, side: int, images: Tensor) -> None:
    """Lets queries and keys read the waves by random matrices, for each head of the norm that its own have."""
    generator, channels = torch.Generator().manual_seed(seed), start.channels
    for layer in attending_layers(network).values():
        for weight in (layer.query, layer.key):
            for rows in weight.split(layer.width):
                drawn = torch.randn(len(rows), channels, generator=generator)
                rows[:, :channels] = drawn * (rows[:, :channels].norm() / drawn.norm())


@torch.no_grad()
def mimetic(network: Any, start: None, seed: int, side: int, images: Tensor) -> None:
    """`W_qry^T W_key ~ 0.7 (Z + I)` and `W_out W_val ~ 0.4 (Z - I)`, Z normal of variance 1/d, for each head and layer.

    Source: Trockman and Kolter 2023 (arXiv 2305.09828), Sec. 4; the constants are theirs. Positions are sinusoidal.
    """
    generator = torch.Generator().manual_seed(seed)
    for layer in network.layers:
        attention: nn.MultiheadAttention = layer.self_attn
        width, heads = attention.embed_dim, attention.num_heads
        identity = torch.eye(width)

        def random_matrix(size: int = width) -> Tensor:
            return torch.randn(size, size, generator=generator) / size**0.5

        assert attention.in_proj_weight is not None
        query, key, value = attention.in_proj_weight.chunk(3)
        for rows in torch.arange(width).chunk(heads):
            left, sizes, right = torch.linalg.svd(0.7 * (random_matrix() + identity))
            root = sizes[: len(rows)].sqrt()
            query[rows], key[rows] = (left[:, : len(rows)] * root).T, root[:, None] * right[: len(rows)]
        left, sizes, right = torch.linalg.svd(0.4 * (random_matrix() - identity))
        value.copy_(sizes.sqrt()[:, None] * right)
        attention.out_proj.weight.copy_(left * sizes.sqrt())


KERNEL = {"kernel_size": 3, "alpha": 2.0}
IMAGE = {"kernel_size": "image", "alpha": 2.0, "content": "drawn", "values": "blind"}
SHIFTS = {
    f"shift-{size}-{alpha}": {"kernel_size": size, "alpha": float(alpha)} for size in (3, 5) for alpha in (1, 2, 4)
}
# By the names in the column `arm`, without the `/torch`. `written` leaves the zeroed rows of what writes to tokens as
# drawn; `positions` has them and the waves, and drawn heads.
ARMS: Mapping[str, Arm] = {
    "default": Arm(),
    **{name: Arm(options, planted=True) for name, options in SHIFTS.items()},
    "written": Arm(KERNEL, drawn=lambda name: "in_proj" not in name and name != "positions", planted=True),
    "positions": Arm(KERNEL, drawn=lambda name: "in_proj" in name),
    "far-2": Arm(KERNEL, turn_far),
    **{f"random-{alpha}": Arm(SHIFTS[f"shift-3-{alpha}"], read_at_random) for alpha in (1, 2, 4)},
    "image-2": Arm(IMAGE),
    "mimetic": Arm(then=mimetic),
    "strong-3": Arm(then=partial(strengthen, factor=3.0)),
    "even-2": Arm(then=partial(even_out, like="random-2")),
    "faster-5": Arm(factor=5.0),
}

# One run


@dataclass(frozen=True)
class RunKey:
    """The parameters that determine a run; evaluated on the test images, or on the last `held_out` training images."""

    data: str
    images: int
    epochs: int
    arm: str
    rate: float
    seed: int
    held_out: int = 0

    @property
    def text(self) -> tuple[str, ...]:
        """The values as the table has them."""
        return tuple(map(str, astuple(self)))


def run_start(key: RunKey) -> dict[str, Any]:
    """Trains one network by its seed, and returns its row."""
    start_time, task = time.process_time(), TASKS[key.data]
    images = read_images_of(task.data)
    mean, deviation = images.statistics()
    test, truth = images.test_pixels, images.test_labels
    if key.held_out:
        test, truth = images.pixels[-key.held_out :], images.labels[-key.held_out :]
    test = normalised_images(test, mean, deviation)
    shown_images = normalised_images(images.pixels[: min(key.images, HEAD_IMAGES)], mean, deviation)
    start_name, _, torch_drawn = key.arm.partition("/")
    with generators_kept(seed=key.seed):
        network = network_of(task, images.shape[1], "torch" if torch_drawn else "vit", key.seed)
        start = begin(network, start_name, key.seed, shown_images, images.shape[1] // task.patch)
        before = displacements(network, shown_images)
        epochs = trained(network, key, images.first(key.images), mean, deviation, ARMS[start_name].factor)
        curve = [accuracy(network.eval(), test[:CURVE], truth[:CURVE]) for _ in epochs]
    after = displacements(network, shown_images)
    return {
        **dict(zip(RunKey.__dataclass_fields__, key.text, strict=True)),
        "accuracy": round(accuracy(network.eval(), test, truth), 5),
        **head_changes(start, before, after),
        "seconds": round(time.process_time() - start_time),
        "curve": " ".join(f"{share:.3f}" for share in curve),
    }


def draw_as_torch(network: nn.Module, seed: int) -> None:
    """Draws linear layers within 1 / sqrt(inputs), and queries, keys and values of torch's attention by Glorot."""
    with generators_kept(devices_of(network), seed):
        for module in network.modules():
            if isinstance(module, nn.Linear):
                nn.Linear.reset_parameters(module)
        for module in network.modules():
            if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
                nn.init.xavier_uniform_(module.in_proj_weight)
                for bias in (module.in_proj_bias, module.out_proj.bias):
                    if bias is not None:
                        nn.init.zeros_(bias)


def network_of(task: Task, side: int, drawn: Any, seed: int) -> nn.Module:
    """A fresh network for square images; `seed` is of the second draw of timm's, where "torch" replaces the first."""
    if task.timm is None:
        return VisionTransformer(TransformerPlan(side=side, patch=task.patch, drawn=drawn))
    from timm.models.vision_transformer import VisionTransformer as OfTimm

    layers, heads = task.timm
    sizes = {"embed_dim": 16 * heads, "depth": layers, "num_heads": heads, "mlp_ratio": 2}
    network: nn.Module = OfTimm(side, task.patch, in_chans=1, num_classes=10, **sizes)
    if drawn == "torch":
        draw_as_torch(network, seed)
    return network


def trained(
    network: nn.Module, key: RunKey, images: LabelledImages, mean: Tensor, deviation: Tensor, factor: float
) -> Iterator[None]:
    """Trains a network, and yields after each epoch.

    By AdamW, on images mirrored at random where that keeps the class, with a rate that rises and falls once (Smith and
    Topin 2019); queries and keys move by `factor` times what each step moves them.
    """
    steps, generator = key.images // BATCH, torch.Generator().manual_seed(key.seed)
    augment = Augmentation(0, images.mirrors)
    optimiser = torch.optim.AdamW(network.parameters(), key.rate, weight_decay=WEIGHT_DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, key.rate, key.epochs * steps, pct_start=WARM_UP)
    for _ in range(key.epochs):
        network.train()
        for chosen in torch.randperm(len(images.pixels), generator=generator)[: steps * BATCH].split(BATCH):
            batch = normalised_images(augment(images.pixels[chosen], generator), mean, deviation)
            loss = cross_entropy(network(batch), images.labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            with faster(network, factor):
                optimiser.step()
            schedule.step()
        yield


def displacements(network: nn.Module, images: Tensor) -> Tensor:
    """The mean attention of each head at each displacement key - query: (layers, heads, 2 side - 1, 2 side - 1).

    The mean is over images and queries whose key at this displacement is on the grid; a class token is left out.
    """
    captured = capture(network.eval(), images).values()
    attention = torch.stack([maps.double().mean(0) for maps in captured if isinstance(maps, Tensor)])
    side = math.isqrt(attention.shape[-1])
    attention = attention[..., -side * side :, -side * side :]
    places = kernel.grid_of((side, side)).displacements().flatten(0, 1) + side - 1
    bins = places @ torch.tensor([2 * side - 1, 1])
    sums = attention.new_zeros(*attention.shape[:2], (2 * side - 1) ** 2).index_add(-1, bins, attention.flatten(2))
    return (sums / bins.bincount()).unflatten(-1, (2 * side - 1, 2 * side - 1))


def head_changes(start: Start | None, before: Tensor, after: Tensor) -> dict[str, Any]:
    """Counts of heads: shifts before and after training, and planted ones that still attend most at their offset."""
    side = (before.shape[-1] + 1) // 2
    window = slice(side - 3, side + 2)
    inner = [maps[..., window, window].flatten(2) for maps in (before, after)]  # where means are over many queries
    row: dict[str, Any] = {"heads": before.shape[0] * before.shape[1]}
    row["shifts_before"], row["shifts_after"] = (int((maps.amax(-1) >= LOCAL).sum()) for maps in inner)
    if start is not None:
        at = torch.tensor([head.offset for head in start.heads]) + 2  # heads are in the order of layers
        planted = (at @ torch.tensor([5, 1])).view(before.shape[:2])
        masses = [maps.gather(-1, planted[..., None]) for maps in inner]
        row["mass_before"], row["mass_after"] = (round(float(mass.mean()), 4) for mass in masses)
        row["kept"] = int((inner[1].argmax(-1) == planted).sum())
    return row


# Gains


@dataclass(frozen=True)
class Gain:
    """The gains of one start over another, seed by seed; `corrected` is p after Holm's correction."""

    values: tuple[float, ...]
    corrected: float | None = None

    @property
    def p(self) -> float | None:
        """How probable so large a mean of either sign is where there is no gain (Student 1908); None below two runs."""
        count = len(self.values)
        if count < 2:
            return None
        mean, error = abs(statistics.fmean(self.values)), statistics.stdev(self.values) / count**0.5
        # Equal gains of all seeds are no proof, since accuracies are whole numbers of images; p is then 0 or 1.
        return float(2 * stdtr(count - 1, -mean / error)) if error else float(not mean)

    @property
    def clear(self) -> bool:
        """Whether the gain is clear of zero after correction."""
        return self.corrected is not None and self.corrected <= LEVEL

    @property
    def text(self) -> str:
        """Mean and standard error, and in brackets p and p corrected."""
        p = "" if self.p is None or self.corrected is None else f" (p {in_short(self.p)}, {in_short(self.corrected)})"
        return mean_and_error(self.values) + p


def corrected_gains(gains: Mapping[Any, Gain]) -> dict[Any, Gain]:
    """The gains, each with its p corrected for their number (Holm 1979).

    At level .05 one of twenty such tables has any gain below it where there is none at all, however gains depend on
    each other.
    """
    tested = sorted((gain.p, place) for place, gain in enumerate(gains.values()) if gain.p is not None)
    corrected: dict[int, float] = {}
    highest = 0.0
    for before, (p, place) in enumerate(tested):
        highest = corrected[place] = max(highest, min(1.0, p * (len(tested) - before)))
    return {key: Gain(gain.values, corrected.get(place)) for place, (key, gain) in enumerate(gains.items())}


def in_short(p: float) -> str:
    """A probability without its zero: .031, <.001, 1."""
    return "<.001" if p < 0.0005 else "1" if p > 0.9995 else f"{p:.3f}"[1:]


def mean_and_error(values: Sequence[float]) -> str:
    """The mean and its standard error: 2.00 +- 0.58."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) < 2 else f"{mean} +- {statistics.stdev(values) / len(values) ** 0.5:.2f}"


# The table of all runs

MEANINGS = {
    "data": "data set; /timm: by timm's vision transformer of three sizes, a class token, patches of 2x2",
    "images": "training images, the first ones",
    "epochs": "how often they are seen",
    "arm": "the start",
    "rate": "highest learning rate",
    "seed": "of weights, order and mirroring",
    "held_out": "training images, the last ones, on which the run is evaluated; 0: on the test images",
    "accuracy": "share of the images of the evaluation that are classified right, after the last epoch",
    "heads": "heads of the network",
    "shifts_before": "heads with a quarter of their attention at one displacement, before training",
    "shifts_after": "the same after training",
    "mass_before": "mean attention of planted heads at their offset, before training; empty where none is planted",
    "mass_after": "the same after training",
    "kept": "planted heads that attend most at their offset after training",
    "seconds": "processor time",
    "curve": f"accuracy on the first {CURVE} images of the evaluation, after each epoch",
}
NOTES = """\
- rate: the one that is best on a validation split. gain: over the default of the same seed and draw.
- p: two-sided, by Student's t over the gains of the seeds; behind the comma corrected by Holm for {} comparisons.
- shifts: heads with a quarter of their attention at one displacement, before > after training.
- kept: planted heads that attend most at their offset after training."""


@dataclass(frozen=True)
class Starts:
    """The rows of the table, and the gains of one start over another at a size: keys are (size, arm, other arm)."""

    rows: tuple[dict[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> "Starts":
        """The rows of a CSV file; none where there is no file yet.

        Raises:
            CheckpointError: there could be no such file (C2A301), or it is no table of these columns (C2A303).
        """
        if not path.parent.is_dir():
            raise CheckpointError("C2A301", f"{path.parent} is not a folder", "Make it first, or choose another.")
        if not path.exists():
            return cls(())
        try:
            reader = csv.DictReader(path.read_text().splitlines())
            rows = tuple(reader)
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError("C2A301", f"{path} cannot be read: {error}", "Name a CSV file.") from error
        if reader.fieldnames != [*MEANINGS] or any(None in row or None in row.values() for row in rows):
            reason = f"{path} is not a table with the columns {', '.join(MEANINGS)}"
            raise CheckpointError("C2A303", reason, "Name another file.")
        return cls(rows)

    def runs_of(self, size: TrainingSize, arm: str) -> dict[str, dict[str, str]]:
        """The rows of an arm at a size on the test images, by seed."""
        wanted = {RunKey(size.data, size.images, size.epochs, arm, 0, seed).text for seed in size.seeds}
        keys = (tuple({**row, "rate": "0"}[name] for name in RunKey.__dataclass_fields__) for row in self.rows)
        return {row["seed"]: row for row, key in zip(self.rows, keys, strict=True) if key in wanted}

    def accuracies(self, size: TrainingSize, arm: str) -> dict[str, float]:
        """The accuracy of each run of an arm at a size in per cent, by seed."""
        return {seed: 100 * float(row["accuracy"]) for seed, row in self.runs_of(size, arm).items()}

    def gain(self, size: TrainingSize, arm: str, other: str) -> Gain:
        """The gain of an arm over another, of the seeds that both have."""
        own, others = self.accuracies(size, arm), self.accuracies(size, other)
        return Gain(tuple(own[seed] - others[seed] for seed in sorted(own.keys() & others)))

    def gains_over_default(self) -> dict[Any, Gain]:
        """Of the sizes without anchors, the gain of each arm over the default of the same draw."""
        pairs = [(size, arm, default_of(arm)) for size in TRAINING_SIZES if not size.anchors for arm in size.arms]
        return corrected_gains({pair: self.gain(*pair) for pair in pairs if pair[1] != pair[2]})

    def gains_over_anchors(self) -> dict[Any, Gain]:
        """Of the other sizes, the gain of each arm over each anchor, both ways; a pair is one comparison, not two."""
        gains: dict[Any, Gain] = {}
        for size in TRAINING_SIZES:
            for arm, anchor in product(size.arms, size.anchors):
                if arm != anchor and (size, anchor, arm) not in gains:
                    gains[size, arm, anchor] = self.gain(size, arm, anchor)
        gains = corrected_gains(gains)
        for (size, arm, anchor), gain in list(gains.items()):
            gains[size, anchor, arm] = Gain(tuple(-value for value in gain.values), gain.corrected)
        return gains

    def pooled_gains(self) -> dict[Any, Gain]:
        """The comparisons that were made twice, by the first seeds and by those of the controls: ten seeds in all."""
        values: dict[Any, list[Gain]] = {}
        for size, arm, anchor in (*self.gains_over_default(), *self.gains_over_anchors()):
            values.setdefault((size.text, arm, anchor), []).append(self.gain(size, arm, anchor))
        both = {
            key: Gain(tuple(x for gain in gains for x in gain.values)) for key, gains in values.items() if gains[1:]
        }
        return corrected_gains(both)

    def by_run(self) -> dict[tuple[str, ...], float]:
        """The accuracy of each run, by the texts of its `RunKey`."""
        return {tuple(row[name] for name in RunKey.__dataclass_fields__): float(row["accuracy"]) for row in self.rows}

    def missing(self) -> Iterator[RunKey]:
        """The runs of the plan without a row: those that choose the rate of an arm, then those by the best rate."""
        done = self.by_run()
        for size in TRAINING_SIZES:
            keys, best = list[RunKey](), dict[str, float]()
            for arm in size.arms:
                tried = rate_keys(size.data, arm)
                if all(key.text in done for key in tried):
                    best[arm] = max(tried, key=lambda key: done[key.text]).rate
                else:
                    keys += tried
            for seed, (arm, rate) in product(size.seeds, best.items()):
                keys.append(RunKey(size.data, size.images, size.epochs, arm, rate, seed))
            yield from (key for key in keys if key.text not in done)


def default_of(arm: str) -> str:
    """The default of the same draw."""
    return "default" + "".join(arm.partition("/")[1:])


def rate_keys(data: str, arm: str) -> list[RunKey]:
    """The runs that choose the rate of an arm on a data set."""
    images, epochs, held_out = CHOSEN_AT[data]
    return [RunKey(data, images, epochs, arm, rate, RATE_SEED, held_out) for rate in START_RATES]


def train_missing(path: Path) -> Starts:
    """Trains the runs that the table lacks, and appends the row of each as it ends."""
    while (key := next(Starts.read(path).missing(), None)) is not None:
        row, new = run_start(key), not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, [*MEANINGS], lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)
        print(*key.text, f"{row['accuracy']:.4f}", f"{row['seconds']} s")
    return Starts.read(path)


def page_of(starts: Starts) -> str:
    """The tables of docs/experiments.md."""
    arms = [(size, arm) for size in TRAINING_SIZES for arm in size.arms]
    done, planned = sum(len(starts.runs_of(*each)) for each in arms), sum(len(size.seeds) for size, _ in arms)
    over_default, over_anchors, pooled = starts.gains_over_default(), starts.gains_over_anchors(), starts.pooled_gains()
    header = ("images x epochs", "start", "rate", "runs", "accuracy", "gain", "shifts", "kept")
    over = ("images x epochs", "start", "runs", "accuracy", *(f"over {anchor}" for anchor in COMPARED_WITH))
    both = ("images x epochs", "in both tables", "runs", "pooled gain")
    tested = number_tested(over_anchors) // 2
    accuracies, chosen = starts.by_run(), list[tuple[str, ...]]()
    for data in CHOSEN_AT:
        trained_arms = {arm for size, arm in arms if size.data == data}
        for arm in sorted(trained_arms, key=START_ARMS.index):
            shares = [accuracies.get(key.text) for key in rate_keys(data, arm)]
            chosen.append((data, arm, *("-" if share is None else f"{100 * share:.2f}" for share in shares)))
    evaluated = sum(row["held_out"] == "0" for row in starts.rows)
    rates = sum(cell != "-" for _, _, *cells in chosen for cell in cells)
    dropped = len(starts.rows) - evaluated - rates
    counts = f"{evaluated} on the test images, {rates} that chose a rate, {dropped} of rates dropped"
    parts = [
        f"{done} of {planned} runs are done; accuracies in per cent of the test images, +- one standard error",
        markdown_table(header, [arm_cells(starts, over_default, *each) for each in arms if not each[0].anchors]),
        f"{NOTES.format(number_tested(over_default))}\n- {clear_gains(over_default)}",
        markdown_table(over, [control_cells(starts, over_anchors, *each) for each in arms if each[0].anchors]),
        f"- over: gain over this start, seed by seed; p corrected for {tested} comparisons of two.\n"
        f"- {clear_gains(over_anchors)}",
        markdown_table(both, [(k[0], f"{k[1]} over {k[2]}", len(g.values), g.text) for k, g in pooled.items()]),
        markdown_table(("data", "start", *(f"validation at {rate:g}" for rate in START_RATES)), chosen),
        f"- {len(starts.rows)} rows: {counts}",
        markdown_table(("column", "what it is"), [*MEANINGS.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def number_tested(gains: Mapping[Any, Gain]) -> int:
    """How many of the comparisons have runs enough to be tested."""
    return sum(gain.p is not None for gain in gains.values())


def clear_gains(gains: Mapping[Any, Gain]) -> str:
    """The sentence on the gains above zero that are clear of it after correction."""
    clear = [
        f"{arm} over {anchor} at {size.text}"
        for (size, arm, anchor), gain in gains.items()
        if gain.clear and statistics.fmean(gain.values) > 0
    ]
    return f"corrected p of at most {LEVEL:g}: {'; '.join(clear) or 'none'}."


def control_cells(starts: Starts, gains: Mapping[Any, Gain], size: TrainingSize, arm: str) -> tuple[str, ...]:
    """The row of an arm beside the anchors of its size: training set, arm, runs, accuracy, gain over each anchor."""
    shares = [*starts.accuracies(size, arm).values()]
    over = [gains.get((size, arm, anchor), Gain(())).text for anchor in COMPARED_WITH]
    return (size.text, arm, f"{len(shares)} of {len(size.seeds)}", mean_and_error(shares), *over)


def arm_cells(starts: Starts, gains: Mapping[Any, Gain], size: TrainingSize, arm: str) -> tuple[str, ...]:
    """The row of an arm: training set, arm, rate, runs, accuracy, gain over the default of the same draw, shifts, kept.

    Shifts are mean counts of heads, before and after training; kept counts planted heads that kept their offset.
    """
    runs = [*starts.runs_of(size, arm).values()]
    done = f"{len(runs)} of {len(size.seeds)}"
    if not runs:
        return (size.text, arm, "-", done, "-", "-", "-", "-")
    before, after = (
        f"{statistics.fmean(float(row[column]) for row in runs):.0f}" for column in ("shifts_before", "shifts_after")
    )
    planted = [float(row["kept"]) for row in runs if row["kept"]]
    kept = f"{statistics.fmean(planted):.0f} of {runs[0]['heads']}" if planted else "-"
    accuracy_of_arm = mean_and_error([*starts.accuracies(size, arm).values()])
    gain = gains.get((size, arm, default_of(arm)), Gain(())).text
    return (size.text, arm, f"{runs[0]['rate']} ", done, accuracy_of_arm, gain, f"{before} > {after}", kept)


# The learning curves


def mean_curves(starts: Starts, size: TrainingSize) -> dict[str, list[float]]:
    """For each arm that has runs at a size, the mean over its seeds of the accuracy after each epoch, in per cent."""
    curves = {}
    for arm in size.arms:
        runs = [[100 * float(share) for share in row["curve"].split()] for row in starts.runs_of(size, arm).values()]
        if runs:
            curves[arm] = [statistics.fmean(epoch) for epoch in zip(*runs, strict=True)]
    return curves


def draw_start_curves(starts: Starts) -> Figure:
    """A panel for each training set that is seen more than once and has runs, a line for each arm."""
    drawn = [(size, curves) for size in TRAINING_SIZES if size.epochs > 1 and (curves := mean_curves(starts, size))]
    across = 4
    down = max(1, math.ceil(len(drawn) / across))
    figure = Figure(figsize=(3.2 * across, 3 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel in panels[len(drawn) :]:
        panel.set_axis_off()
    for panel, (size, curves) in zip(panels, drawn, strict=False):
        for arm, accuracies in curves.items():
            draw_curve(panel, START_ARMS.index(arm), arm, range(1, size.epochs + 1), accuracies)
        panel.set_title(f"{size.text} epochs", fontsize=8)
        panel.set(xlabel="epoch", ylabel="accuracy in %")
        panel.legend(fontsize=6)
    return figure


def digest_of(starts: Starts) -> str:
    """A digest of the curves, which the file of the figure carries."""
    text = repr([(astuple(size), mean_curves(starts, size)) for size in TRAINING_SIZES])
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Trains the runs that TABLE, a CSV file, lacks, and prints its tables."
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("--show", action="store_true", help="only print the tables of the rows that are there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        print(page_of((Starts.read if arguments.show else train_missing)(arguments.table)))
    except CheckpointError as error:
        parser.error(str(error))
