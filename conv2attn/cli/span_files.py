"""The attention that a file holds: our own networks, arrays, and models that the user builds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Sides
from conv2attn.checkpoints.arrays import holds_arrays, stored
from conv2attn.checkpoints.options import Reading
from conv2attn.errors import Conv2AttnError, UsageError
from conv2attn.models import attention_layers
from conv2attn.models.capture import NamedAttention, capture
from conv2attn.models.positions import position_attention
from conv2attn.models.positions.reading import ATTENDS, position_part
from conv2attn.span.sources.prefix import leading_in, prefix_of

NEEDS_CONTENT = "Pass images with --inputs, or --position-only."


@final
@dataclass(frozen=True, eq=False)
class Part:
    """Attention by name, the sides of its grid where known, and by name the leading tokens that are no pixels."""

    layers: NamedAttention
    sides: Sides | None = None
    extra: Mapping[str, int] = field(default_factory=dict)


def attention_in(
    network: nn.Module, path: str, sides: Sides | None, inputs: str | None, reading: Reading
) -> list[Part]:
    """All attention in the network of a file, by name, in parts that share a grid, and its sides where known."""
    images = reading.images(inputs, network)[0] if inputs else None
    layers = attention_layers(network)
    if not layers or any(layer.has_content for layer in layers.values()):
        if images is None and not layers and not attends(network):
            found = f"{type(network).__name__} has no layer that is known to attend"
            raise UsageError("C2A501", found, "Pass --inputs if it attends nevertheless.")
        if images is None:
            raise UsageError("C2A004", f"attention in {path} depends on the content", NEEDS_CONTENT)
        with told_of(network, images):
            seen = capture(network, images)
        prefix = prefix_of(network)
        sizes = {name: each.shape[-1] for name, each in seen.items() if isinstance(each, Tensor)}
        extra = {name: leading_in(size, prefix, sides) for name, size in sizes.items()}
        return [Part(seen, sides, extra)]
    given = [sides] * len(layers) if sides else grids(network, layers, images)
    return [
        Part(NamedAttention({name or "(root)": layer}), at)
        for (name, layer), at in zip(layers.items(), given, strict=True)
    ]


def attends(network: nn.Module) -> bool:
    """Whether the class of a module says that it attends."""
    return any(ATTENDS.search(type(module).__name__) for module in network.modules())


def network_in(path: str, inputs: str | None, reading: Reading) -> nn.Module | None:
    """The network in a file; None where it holds attention itself. With an architecture, it holds a state dict.

    Raises:
        UsageError: inputs are given for attention itself (C2A004).
    """
    if reading.arch is not None or not holds_arrays(path):
        return reading.load(path)
    if inputs:
        raise UsageError("C2A004", f"--inputs runs a network, and {path} holds attention itself", "Leave it out.")
    return None


def positions_in(network: nn.Module, sides: Sides | None) -> list[Part]:
    """All attention by position alone in a network, in the same form; its layers that could not be read among it."""
    ours = attention_layers(network)
    if sides is None and ours:
        given = zip(ours.items(), grids(network, ours, None), strict=True)
        return [own_by_position(name or "(root)", layer, inside) for (name, layer), inside in given]
    found = position_attention(network, sides)
    own = {name: layer for name, layer in found.items() if isinstance(layer, MultiHeadSelfAttention)}
    others = {name: layer for name, layer in found.items() if name not in own}
    return [Part(NamedAttention(layers), at) for layers, at in ((own, sides), (others, None)) if layers]


def own_by_position(name: str, layer: MultiHeadSelfAttention, sides: Sides) -> Part:
    """A layer of ours for inputs with these sides; only its encoding, where it reads content too."""
    if layer.has_content:
        return Part(NamedAttention({name: position_part(layer, sides)}))
    return Part(NamedAttention({name: layer}), sides)


def grids(network: nn.Module, layers: Mapping[str, MultiHeadSelfAttention], images: Tensor | None) -> list[Sides]:
    """Sides of the image that each layer is given when the network runs on `images`, or on its own input size.

    Raises:
        UsageError: neither says how large an image the network takes (C2A005).
    """
    size: Sides | None = getattr(getattr(network, "plan", None), "input_size", None)
    like = next(network.parameters())
    if images is None:
        if size is None:
            raise UsageError("C2A005", "nothing says how large the grid is", "Pass --grid.")
        images = torch.zeros(1, *size)
    seen: dict[nn.Module, Sides] = {}
    handles = [
        layer.register_forward_pre_hook(lambda layer, args: seen.setdefault(layer, tuple(args[0].shape[2:])) and None)
        for layer in layers.values()
    ]
    with torch.no_grad(), told_of(network, images):
        network(images[:1].to(like))
    for handle in handles:
        handle.remove()
    return [seen[layer] for layer in layers.values()]


@contextmanager
def told_of(network: nn.Module, images: Tensor) -> Iterator[None]:
    """Whatever a network raises on these images, told as what they are.

    Raises:
        UsageError: it does not (C2A009).
    """
    try:
        yield
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, Conv2AttnError):
            raise
        shape = "x".join(map(str, images.shape))
        told = str(error).splitlines()[0]
        found = f"{type(network).__name__} does not run on images of {shape} numbers ({told})"
        raise UsageError("C2A009", found, "Pass --inputs that it takes.") from error


def arrays(path: str) -> dict[str, Any]:
    """Attention arrays (heads, queries, keys), (layers or images, heads, queries, keys), by name.

    A four-axis array in a file with one array is split into layers; a list of tensors is one of layers already.
    """
    held = stored(path)
    if len(held) == 1 and next(iter(held.values())).ndim == 4 and "layer 0" not in held:
        (name, whole), *_ = held.items()
        return {f"{name}[{index}]": layer for index, layer in enumerate(whole)}
    return held
