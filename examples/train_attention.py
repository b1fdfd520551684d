"""Train examples/attention-quadratic.pt and attention-learned.pt: classifiers of Fashion-MNIST that only attend.

The data set is the Debian package dataset-fashion-mnist. On one thread of a CPU, for each encoding:

    apt-get install dataset-fashion-mnist
    OMP_NUM_THREADS=1 python examples/train_attention.py quadratic
    OMP_NUM_THREADS=1 python examples/train_attention.py learned
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train_resnet18 import CLASSES, augment, read_idx

from conv2attn.attention import HeadPositions
from conv2attn.checkpoints import save
from conv2attn.checkpoints.examples import DEVIATION, MEAN
from conv2attn.models.classifier import AttentionClassifier, ClassifierPlan

HERE = Path(__file__).parent
BATCH, LEARNING_RATE, DECAY, SMALLEST_ALPHA = 128, 3e-3, 0.02, 0.01


def prepare(pixels: Tensor) -> Tensor:
    """Bytes (images, 28, 28) to floats (images, 1, 28, 28) of mean 0 and deviation 1 over the training set."""
    return ((pixels.float() / 255 - MEAN) / DEVIATION)[:, None]


@torch.no_grad()
def accuracy(network: nn.Module, pixels: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit is their label's."""
    network.eval()
    right = [network(prepare(p)).argmax(1) == t for p, t in zip(pixels.split(500), labels.split(500), strict=True)]
    return torch.cat(right).double().mean().item()


def train(network: nn.Module, pixels: Tensor, labels: Tensor, epochs: int) -> None:
    """AdamW over one cycle of the learning rate; positions are not decayed, and no head gets flatter than a limit."""
    positions = [module for module in network.modules() if isinstance(module, HeadPositions)]
    kept = {id(parameter) for module in positions for parameter in module.parameters()}
    groups = [
        {"params": [p for p in network.parameters() if id(p) not in kept], "weight_decay": DECAY},
        {"params": [p for p in network.parameters() if id(p) in kept], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW([group for group in groups if group["params"]])
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
            for module in positions:
                module.alpha.data.clamp_(min=SMALLEST_ALPHA)
            losses.append(loss.item())
        print(f"epoch {epoch + 1:2d}  loss {np.mean(losses):.4f}  {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    """Train, print the accuracy on the 10,000 test images, and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoding", choices=["quadratic", "learned"])
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pixels, labels, test_pixels, test_labels = (
        read_idx(options.data / f"{part}-ubyte.gz")
        for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    )
    torch.manual_seed(options.seed)
    sizes = {"side": 28, "patch": 4, "channels": 1, "width": 64, "layers": 4, "hidden": 128, "positions": 16}
    network = AttentionClassifier(ClassifierPlan(options.encoding, classes=len(CLASSES), dropout=0.0, **sizes))
    for block in network.blocks:
        block.attention.engine = "dense"
    train(network, pixels, labels.long(), options.epochs)
    print(f"test accuracy {accuracy(network, test_pixels, test_labels.long()):.4f}")
    save(network.eval(), HERE / f"attention-{options.encoding}.pt", force=True)


if __name__ == "__main__":
    main()
