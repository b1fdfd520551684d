"""Sets the evaluation of a network's attention, never the function it computes."""

from typing import TypeVar

from torch import nn

from conv2attn.arguments import check_network
from conv2attn.errors import UsageError, whole_number
from conv2attn.layers.attention.engines import EngineName
from conv2attn.layers.attention.layer import MultiHeadSelfAttention

NetworkT = TypeVar("NetworkT", bound=nn.Module)


def set_engine(network: NetworkT, engine: EngineName, memory_limit: int | None = None) -> NetworkT:
    """Sets the engine, and the memory limit in bytes if one is given, of every attention layer in `network`.

    Parameters are never changed. A layer for which the engine is not exact raises at its call.

    Returns:
        The network itself.
    Raises:
        UsageError: there is no such engine (C2A002), a limit that is not positive (C2A001), or no attention layer
            (C2A008).
    Examples:
        >>> import conv2attn, torch
        >>> conv, image = torch.nn.Conv2d(3, 4, 3), torch.randn(1, 3, 6, 7)
        >>> layer = conv2attn.set_engine(conv2attn.convert(conv), "dense")
        >>> torch.allclose(layer(image), conv(image), atol=1e-5)
        True
    """
    check_network(network)
    if memory_limit is not None and whole_number(memory_limit, "memory_limit") <= 0:
        raise UsageError(
            "C2A001",
            f"memory_limit={memory_limit} is not a positive number of bytes",
            "Pass a positive number of bytes.",
        )
    layers = [module for module in network.modules() if isinstance(module, MultiHeadSelfAttention)]
    if not layers:
        raise UsageError(
            "C2A008",
            f"{type(network).__name__} has no attention layer to set an engine of",
            "Pass a network that conv2attn.convert made.",
        )
    for layer in layers:
        layer.engine = engine
        layer.memory_limit = memory_limit or layer.memory_limit
        layer.prepare()
    return network
