"""The work of explore, between the file of a network and the page."""

import warnings
from pathlib import Path

from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints.examples import SIDE, example_image
from conv2attn.checkpoints.options import Reading
from conv2attn.checkpoints.writing import write_text_atomically
from conv2attn.errors import Conv2AttnWarning, UsageError
from conv2attn.explore import captured_layers, explore_page, explored_layers, moving_picture
from conv2attn.explore.layers import is_wanted
from conv2attn.models import attention_layers, convert
from conv2attn.models.positions.reading import ATTENDS
from conv2attn.models.provenance import assumed_of, provenance_of
from conv2attn.models.zoo import AttentionClassifier

EXAMPLE = "the first test image of Fashion-MNIST's first class, a T-shirt"
PUBLISHED = 224
"""Side of the images of a vision transformer that does not say another."""


def explore_file(
    model: str, output: str, image: str | None, only: tuple[str, ...], reading: Reading, force: bool
) -> list[str]:
    """Writes the page of the network in a file, or as .svg a moving picture of its first layer of such a name.

    Returns what to tell: layers that are not shown, and the file.

    Raises:
        UsageError: the network does not take the image, or does not tell its size (C2A120).
        UnsupportedError: no layer can be shown (C2A110).
    """
    network = reading.load(model)
    captured = not attention_layers(network) and attends(network)
    if not attention_layers(network) and not captured:
        with warnings.catch_warnings(action="ignore", category=Conv2AttnWarning):
            network = convert(network)
    if Path(output).suffix == ".svg":
        found = [(name, layer) for name, layer in attention_layers(network).items() if is_wanted(name, only)]
        if not found:
            raise UsageError("C2A008", f"{model} has no converted layer of such a name to draw", "Choose with --only.")
        write_text_atomically(output, moving_picture(found[0][1], found[0][0]), force)
        return [f"wrote {output}"]
    if image is None:
        shown, words = example_image(*size_for(network, captured)), EXAMPLE
    else:
        size = size_for(network, captured)
        batch, words = reading.images(image, network, (size[0], size[1], size[1]))
        batch = batch if batch.ndim == 4 else batch[None]
        shown, words = batch[:1], words if len(batch) == 1 else f"the first of {words}"
    explore = captured_layers if captured else explored_layers
    explored = explore(network, shown.to(next(network.parameters())), only)
    assumed = [told] if (told := assumed_of(network)) else []
    write_text_atomically(output, explore_page(explored, Path(model).name, "; ".join((words, *assumed))), force)
    return [*assumed, *(f"not shown: {reason}" for reason in explored.left_out), f"wrote {output}"]


def attends(network: nn.Module) -> bool:
    """Whether a module of another library attends, by its name."""
    return any(ATTENDS.search(type(each).__name__) for each in network.modules())


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
