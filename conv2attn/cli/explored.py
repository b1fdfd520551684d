"""What explore does, between the file of a network and the page."""

import warnings
from pathlib import Path

from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints.examples import SIDE, example_image
from conv2attn.checkpoints.images import read_images
from conv2attn.checkpoints.options import Reading
from conv2attn.checkpoints.writing import write_text_atomically
from conv2attn.errors import Conv2AttnWarning
from conv2attn.models import attention_layers, convert
from conv2attn.models.zoo import AttentionClassifier
from conv2attn.report.explore import explore_page, explored_layers

EXAMPLE = "the first test image of Fashion-MNIST's first class, a T-shirt"


def explore_file(model: str, output: str, image: str | None, reading: Reading, force: bool) -> list[str]:
    """Writes the page of the network in a file; returns what to tell: layers that are not shown, and the page.

    Raises:
        UsageError: the network does not take the image (C2A120).
        UnsupportedError: no layer can be shown (C2A110).
    """
    network = reading.load(model)
    if not attention_layers(network):
        with warnings.catch_warnings(action="ignore", category=Conv2AttnWarning):
            network = convert(network)
    shown, words = first_image(image) if image else (example_for(network), EXAMPLE)
    explored = explored_layers(network, shown.to(next(network.parameters())))
    write_text_atomically(output, explore_page(explored, Path(model).name, words), force)
    return [*(f"not shown: {reason}" for reason in explored.left_out), f"wrote {output}"]


def first_image(path: str) -> tuple[Tensor, str]:
    """The first image of a file as a batch of one, and what it is called."""
    images = read_images(path)
    batch = images if images.ndim == 4 else images[None]
    return batch[:1], f"the first image of {Path(path).name}"


def example_for(network: nn.Module) -> Tensor:
    """The first example image with as many channels as `network` takes, 56x56 unless a classifier says its size."""
    if isinstance(network, AttentionClassifier):
        return example_image(network.plan.channels, network.plan.side)
    first = next(each for each in network.modules() if isinstance(each, (nn.Conv2d, MultiHeadSelfAttention)))
    return example_image(first.d_in if isinstance(first, MultiHeadSelfAttention) else first.in_channels, SIDE)
