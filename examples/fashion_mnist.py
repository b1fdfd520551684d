"""Fashion-MNIST from its Debian package, dataset-fashion-mnist, and the training loop that the examples share."""

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

CLASSES = ["T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]
FOLDER = Path("/usr/share/datasets/fashion-mnist")
BATCH, SHIFT = 128, 2

Prepare = Callable[[Tensor], Tensor]


def read(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pixels (images, 28, 28) and labels for training, then for the test."""
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    pixels, labels, test_pixels, test_labels = (read_idx(folder / f"{part}-ubyte.gz") for part in parts)
    return pixels, labels.long(), test_pixels, test_labels.long()


def read_idx(path: Path) -> Tensor:
    """The bytes of an idx file, in the shape that its header gives."""
    raw = gzip.decompress(path.read_bytes())
    axes = raw[3]
    shape = np.frombuffer(raw, ">i4", axes, offset=4)
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape).copy())


def augment(pixels: Tensor) -> Tensor:
    """Each image mirrored with probability 1/2 and shifted by up to two pixels along either axis."""
    pixels = torch.where(torch.rand(len(pixels), 1, 1) < 0.5, pixels.flip(-1), pixels)
    windows = pad(pixels, [SHIFT] * 4).unfold(1, 28, 1).unfold(2, 28, 1)
    down, right = torch.randint(2 * SHIFT + 1, (2, len(pixels)))
    return windows[torch.arange(len(pixels)), down, right]


@torch.no_grad()
def accuracy(network: nn.Module, prepare: Prepare, pixels: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit is their label's, in evaluation mode."""
    network.eval()
    right = [network(prepare(p)).argmax(1) == t for p, t in zip(pixels.split(500), labels.split(500), strict=True)]
    return torch.cat(right).double().mean().item()


def train(
    network: nn.Module,
    prepare: Prepare,
    pixels: Tensor,
    labels: Tensor,
    optimiser: torch.optim.Optimizer,
    epochs: int,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Minimises the cross entropy over one cycle of the learning rate, which peaks at the optimiser's own."""
    steps, peak = len(pixels) // BATCH, optimiser.param_groups[0]["lr"]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, peak, epochs=epochs, steps_per_epoch=steps)
    for epoch in range(epochs):
        network.train()
        start, losses = time.monotonic(), []
        for batch in torch.randperm(len(pixels))[: steps * BATCH].split(BATCH):
            loss = cross_entropy(network(prepare(augment(pixels[batch]))), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            after_step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1:2d}  loss {np.mean(losses):.4f}  {time.monotonic() - start:.0f} s", flush=True)
