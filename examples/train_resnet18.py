"""Train examples/resnet18.pt: a ResNet-18 of width 16, in torchvision's layout, on Fashion-MNIST.

The data set is the Debian package dataset-fashion-mnist. On one thread of a CPU:

    apt-get install dataset-fashion-mnist
    OMP_NUM_THREADS=1 python examples/train_resnet18.py
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from fashion_mnist import CLASSES, FOLDER, accuracy, read, train

from conv2attn.checkpoints.examples import prepare
from conv2attn.models.zoo.resnet import ResNetPlan, build

HERE = Path(__file__).parent
LEARNING_RATE, MOMENTUM, DECAY = 0.2, 0.9, 5e-4


def main() -> None:
    """Train, print the accuracy on the 10,000 test images, write the weights and the first test image of each class."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pixels, labels, test_pixels, test_labels = read(options.data)
    torch.manual_seed(options.seed)
    network = build(ResNetPlan(width=16, classes=len(CLASSES))).to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(network.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=DECAY, nesterov=True)
    train(network, prepare, pixels, labels, optimiser, options.epochs)
    print(f"test accuracy {accuracy(network, prepare, test_pixels, test_labels):.4f}")
    state = {key: tensor.contiguous() for key, tensor in network.state_dict().items()}
    torch.save(state, HERE / "resnet18.pt")
    first = [int((test_labels == label).nonzero()[0]) for label in range(len(CLASSES))]
    np.savez(HERE / "images.npz", pixels=test_pixels[first].numpy(), labels=test_labels[first].numpy(), classes=CLASSES)


if __name__ == "__main__":
    main()
