"""One run of the experiment on starts: a start, a training, and the accuracy and heads after it."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from conv2attn.extras import optional
from conv2attn.generators import generators_kept
from conv2attn.lab.data import Augmentation, LabelledImages, accuracy, normalised_images, read_images_of
from conv2attn.lab.starts.arms import ARMS, begin, faster
from conv2attn.lab.starts.starts_plan import BATCH, CLIP, TASKS, WARM_UP, WEIGHT_DECAY, Task
from conv2attn.networks.capture import capture
from conv2attn.networks.starts import Start, kernel
from conv2attn.networks.starts.start import draw_as_torch
from conv2attn.networks.zoo.transformer import TransformerPlan, VisionTransformer

HEAD_IMAGES = 64
"""Images on which heads are measured, and which fix the scale of a start."""
CURVE = 1000
"""Test images for the curve: the first ones, after each epoch."""
LOCAL = 0.25
"""The share of its attention at one displacement from which a head counts as a shift."""


@final
@dataclass(frozen=True)
class RunKey:
    """The parameters that determine a run."""

    data: str
    images: int
    epochs: int
    arm: str
    rate: float
    seed: int
    held_out: int = 0

    @property
    def text(self) -> tuple[str, ...]:
        """The values as texts, as the columns of the table have them."""
        return tuple(map(str, (self.data, self.images, self.epochs, self.arm, self.rate, self.seed, self.held_out)))


def run_start(key: RunKey) -> dict[str, Any]:
    """Trains one network by its seed, and returns its row.

    Evaluated on the test images, or on the last `held_out` training images.
    """
    start_time = time.process_time()
    task = TASKS[key.data]
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


def network_of(task: Task, side: int, drawn: Literal["vit", "torch"], seed: int) -> nn.Module:
    """A fresh network for square images, from the current generator.

    Args:
        drawn: "vit" draws linear layers with deviation 0.02, "torch" by their widths.
        seed: of the second draw of timm's network, where "torch" replaces the first.
    Raises:
        UsageError: timm cannot be imported (C2A003).
    """
    if task.timm is None:
        return VisionTransformer(TransformerPlan(side=side, patch=task.patch, drawn=drawn))
    timm = optional("timm.models.vision_transformer", "the start of timm's network")
    layers, heads = task.timm
    sizes = {"embed_dim": 16 * heads, "depth": layers, "num_heads": heads, "mlp_ratio": 2}
    network: nn.Module = timm.VisionTransformer(side, task.patch, in_chans=1, num_classes=10, **sizes)
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
