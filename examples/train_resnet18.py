"""Train examples/resnet18.pt: a ResNet-18 of width 16, in torchvision's layout, on Fashion-MNIST.

The data set is the Debian package dataset-fashion-mnist. On one thread of a CPU:

    apt-get install dataset-fashion-mnist
    OMP_NUM_THREADS=1 python examples/train_resnet18.py
"""

import argparse
import gzip
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from conv2attn.checkpoints.examples import prepare
from conv2attn.models.resnet import ResNetPlan, build

HERE = Path(__file__).parent
CLASSES = ["T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]
BATCH, LEARNING_RATE, MOMENTUM, DECAY, SHIFT = 128, 0.2, 0.9, 5e-4, 2


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
def accuracy(network: nn.Module, pixels: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit is their label's, batch norm in evaluation mode."""
    network.eval()
    right = [network(prepare(p)).argmax(1) == t for p, t in zip(pixels.split(500), labels.split(500), strict=True)]
    return torch.cat(right).double().mean().item()


def train(network: nn.Module, pixels: Tensor, labels: Tensor, epochs: int) -> None:
    """Stochastic gradient descent with Nesterov momentum over one cycle of the learning rate."""
    optimiser = torch.optim.SGD(network.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=DECAY, nesterov=True)
    steps = len(pixels) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, epochs=epochs, steps_per_epoch=steps)
    for epoch in range(epochs):
        network.train()
        start, losses = time.monotonic(), []
        for batch in torch.randperm(len(pixels))[: steps * BATCH].split(BATCH):
            loss = cross_entropy(network(prepare(augment(pixels[batch]))), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1:2d}  loss {np.mean(losses):.4f}  {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    """Train, print the accuracy on the 10,000 test images, write the weights and the first test image of each class."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pixels, labels, test_pixels, test_labels = (
        read_idx(options.data / f"{part}-ubyte.gz")
        for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    )
    labels, test_labels = labels.long(), test_labels.long()
    torch.manual_seed(options.seed)
    network = build(ResNetPlan(width=16, classes=len(CLASSES))).to(memory_format=torch.channels_last)
    train(network, pixels, labels, options.epochs)
    print(f"test accuracy {accuracy(network, test_pixels, test_labels):.4f}")
    state = {key: tensor.contiguous() for key, tensor in network.state_dict().items()}
    torch.save(state, HERE / "resnet18.pt")
    first = [int((test_labels == label).nonzero()[0]) for label in range(len(CLASSES))]
    np.savez(HERE / "images.npz", pixels=test_pixels[first].numpy(), labels=test_labels[first].numpy(), classes=CLASSES)


if __name__ == "__main__":
    main()
