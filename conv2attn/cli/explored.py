"""What explore does, between the file of a network and the page."""

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints.examples import SIDE, example_image
from conv2attn.checkpoints.images import read_images
from conv2attn.checkpoints.options import Reading
from conv2attn.checkpoints.writing import write_text_atomically
from conv2attn.errors import CheckpointError, Conv2AttnWarning, UsageError
from conv2attn.models import attention_layers, convert
from conv2attn.models.positions.reading import ATTENDS
from conv2attn.models.provenance import provenance_of
from conv2attn.models.zoo import AttentionClassifier
from conv2attn.report.explore import captured_layers, explore_page, explored_layers

EXAMPLE = "the first test image of Fashion-MNIST's first class, a T-shirt"
PICTURES = (".png", ".jpg", ".jpeg")
PUBLISHED = 224
"""Side of the images of a vision transformer that does not say another."""


def explore_file(
    model: str, output: str, image: str | None, only: tuple[str, ...], reading: Reading, force: bool
) -> list[str]:
    """Writes the page of the network in a file; returns what to tell: layers that are not shown, and the page.

    Raises:
        UsageError: the network does not take the image, or does not tell its size (C2A120).
        UnsupportedError: no layer can be shown (C2A110).
    """
    network = reading.load(model)
    captured = not attention_layers(network) and attends(network)
    if not attention_layers(network) and not captured:
        with warnings.catch_warnings(action="ignore", category=Conv2AttnWarning):
            network = convert(network)
    if image is None:
        shown, words = example_image(*size_for(network, captured)), EXAMPLE
    elif Path(image).suffix.lower() in PICTURES:
        shown, words = picture(image, network, captured)
    else:
        shown, words = first_image(image)
    explore = captured_layers if captured else explored_layers
    explored = explore(network, shown.to(next(network.parameters())), only)
    write_text_atomically(output, explore_page(explored, Path(model).name, words), force)
    return [*(f"not shown: {reason}" for reason in explored.left_out), f"wrote {output}"]


def first_image(path: str) -> tuple[Tensor, str]:
    """The first image of a file as a batch of one, and what it is called."""
    images = read_images(path)
    batch = images if images.ndim == 4 else images[None]
    return batch[:1], f"the first image of {Path(path).name}"


def attends(network: nn.Module) -> bool:
    """Whether a module of another library attends, by its name."""
    return any(ATTENDS.search(type(each).__name__) for each in network.modules())


def picture(path: str, network: nn.Module, captured: bool) -> tuple[Tensor, str]:
    """A PNG or JPEG file in the size that `network` takes, and what was done to it.

    Raises:
        UsageError: Pillow is not installed, or the network takes neither 1 nor 3 channels (C2A001).
        CheckpointError: there is no such file (C2A301), or it is no picture (C2A303).
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("C2A001", f"{path} needs Pillow, which is not installed", "pip install pillow.") from error
    channels, side = size_for(network, captured)
    if channels not in (1, 3):
        raise UsageError("C2A001", f"the network takes {channels} channels, a picture has 1 or 3", "Pass a .npy file.")
    try:
        with Image.open(path) as opened:
            pixels = np.array(opened.convert("L" if channels == 1 else "RGB").resize((side, side)))
    except FileNotFoundError as error:
        raise CheckpointError("C2A301", f"{path} does not exist") from error
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise CheckpointError("C2A303", f"{path} is not a picture", "Pass a PNG or JPEG file.") from error
    shown = torch.from_numpy(pixels).reshape(1, side, side, channels).movedim(-1, 1).double() / 255
    words, known = f"{Path(path).name}, resized to {side}x{side}, values from 0 to 1", provenance_of(network)
    if known is None or known.mean is None or known.std is None:
        return shown, words
    mean, std = (torch.tensor(each).reshape(1, -1, 1, 1) for each in (known.mean, known.std))
    return (shown - mean) / std, f"{words} and then normalised as {known.architecture} asks"


def size_for(network: nn.Module, captured: bool) -> tuple[int, int]:
    """Channels and side of an image that `network` takes.

    The side is the one that the network is published for, where its attention is captured, or that of a classifier;
    else 56.

    Raises:
        UsageError: the network has neither a convolution nor attention of this project to tell the channels (C2A120).
    """
    if isinstance(network, AttentionClassifier):
        return network.plan.channels, network.plan.side
    known = provenance_of(network)
    if captured and known is not None and known.input_size is not None:
        return known.input_size[0], known.input_size[-1]
    for each in network.modules():
        if isinstance(each, MultiHeadSelfAttention):
            return each.d_in, SIDE
        if isinstance(each, nn.Conv2d):
            return each.in_channels, PUBLISHED if captured else SIDE
    raise UsageError("C2A120", "the network does not tell the size of its images", "Pass a .npy file with --image.")
