"""Train examples/attention-quadratic.pt and attention-learned.pt: classifiers of Fashion-MNIST that only attend.

The data set is the Debian package dataset-fashion-mnist. On one thread of a CPU, for each encoding:

    apt-get install dataset-fashion-mnist
    OMP_NUM_THREADS=1 python examples/train_attention.py quadratic
    OMP_NUM_THREADS=1 python examples/train_attention.py learned
"""

import argparse
from pathlib import Path

import torch
from fashion_mnist import CLASSES, FOLDER, accuracy, read, train
from torch import Tensor, nn

from conv2attn import save
from conv2attn.attention import HeadPositions, set_engine
from conv2attn.checkpoints.examples import DEVIATION, MEAN
from conv2attn.models.zoo.classifier import AttentionClassifier, ClassifierPlan

HERE = Path(__file__).parent
LEARNING_RATE, DECAY, SMALLEST_ALPHA = 3e-3, 0.02, 0.01


def prepare(pixels: Tensor) -> Tensor:
    """Bytes (images, 28, 28) to floats (images, 1, 28, 28) of mean 0 and deviation 1 over the training set."""
    return ((pixels.float() / 255 - MEAN) / DEVIATION)[:, None]


def optimiser_for(network: nn.Module, kept: set[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW that does not decay the parameters `kept`."""
    decayed = [parameter for parameter in network.parameters() if parameter not in kept]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": list(kept), "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=LEARNING_RATE)


def main() -> None:
    """Train, print the accuracy on the 10,000 test images, and write the network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoding", choices=["quadratic", "learned"])
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pixels, labels, test_pixels, test_labels = read(options.data)
    torch.manual_seed(options.seed)
    sizes = {"side": 28, "patch": 4, "channels": 1, "width": 64, "layers": 4, "hidden": 128, "positions": 16}
    network = AttentionClassifier(ClassifierPlan(options.encoding, classes=len(CLASSES), dropout=0.0, **sizes))
    set_engine(network, "dense")
    positions = [module for module in network.modules() if isinstance(module, HeadPositions)]

    def keep_heads_sharp() -> None:
        for module in positions:
            module.alpha.data.clamp_(min=SMALLEST_ALPHA)

    kept = {parameter for module in positions for parameter in module.parameters()}
    train(network, prepare, pixels, labels, optimiser_for(network, kept), options.epochs, keep_heads_sharp)
    print(f"test accuracy {accuracy(network, prepare, test_pixels, test_labels):.4f}")
    save(set_engine(network.eval(), "auto"), HERE / f"attention-{options.encoding}.pt", force=True)


if __name__ == "__main__":
    main()
