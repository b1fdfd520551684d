"""Train examples/resnet18.pt: a ResNet-18 of width 16, in torchvision's layout, on Fashion-MNIST.

The data set is the Debian package dataset-fashion-mnist. On one thread of a CPU:

    apt-get install dataset-fashion-mnist
    OMP_NUM_THREADS=1 python examples/train_resnet18.py
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from conv2attn.examples import prepare
from conv2attn.lab.data import Augmentation, LabelledImages, read_images_of
from conv2attn.networks.zoo.resnet import ResNet, ResNetPlan

HERE = Path(__file__).parent
LEARNING_RATE, MOMENTUM, DECAY, BATCH = 0.2, 0.9, 5e-4, 128


def train(network: nn.Module, images: LabelledImages, epochs: int) -> None:
    """Minimises the cross entropy over one cycle of the learning rate; images are mirrored and shifted at random."""
    steps, augment = len(images.pixels) // BATCH, Augmentation(padding=2, mirror=True)
    optimiser = torch.optim.SGD(network.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=DECAY, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, epochs=epochs, steps_per_epoch=steps)
    for epoch in range(epochs):
        network.train()
        losses = []
        for batch in torch.randperm(len(images.pixels))[: steps * BATCH].split(BATCH):
            pixels = augment(images.pixels[batch], torch.default_generator)
            loss = cross_entropy(network(prepare(pixels[:, 0])), images.labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1:2d}  loss {np.mean(losses):.4f}", flush=True)


@torch.no_grad()
def accuracy(network: nn.Module, images: LabelledImages) -> float:
    """The share of test images whose largest logit is their label's."""
    network.eval()
    parts = zip(images.test_pixels[:, 0].split(500), images.test_labels.split(500), strict=True)
    return torch.cat([network(prepare(pixels)).argmax(1) == labels for pixels, labels in parts]).double().mean().item()


def main() -> None:
    """Train, print the accuracy on the 10,000 test images, write the weights and the first test image of each class."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--images", type=int, help="train on the first so many images only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE, help="folder to write into")
    options = parser.parse_args()
    images = read_images_of("fashion-mnist")
    images = images.first(options.images) if options.images else images
    torch.manual_seed(options.seed)
    network = ResNet(ResNetPlan(width=16, classes=len(images.classes))).to(memory_format=torch.channels_last)
    train(network, images, options.epochs)
    print(f"test accuracy {accuracy(network, images):.4f}")
    torch.save(
        {key: tensor.contiguous() for key, tensor in network.state_dict().items()}, options.output / "resnet18.pt"
    )
    labels = images.test_labels
    first = [int((labels == label).nonzero()[0]) for label in range(len(images.classes))]
    np.savez(
        options.output / "images.npz",
        pixels=images.test_pixels[first, 0].numpy(),
        labels=labels[first].numpy(),
        classes=images.classes,
    )


if __name__ == "__main__":
    main()
