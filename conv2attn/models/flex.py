"""flex_attention while it runs: it is compiled as a whole, so that its softmax has to be computed in the open."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from conv2attn.models.attending import attention_of_flex


@contextmanager
def watched_flex(network: nn.Module, keep: Callable[[Tensor], None]) -> Iterator[None]:
    """Meanwhile, flex_attention in the code of the network's modules computes, and keeps, its softmax in the open.

    It is compiled as a whole, so that nothing inside it can be intercepted.
    """

    def watched(query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any) -> Tensor:
        with torch._C.DisableTorchFunction():
            attention = attention_of_flex(query, key, value, *arguments, **options)
        keep(attention)
        return attention.to(value.dtype) @ value

    spaces = {id(space): space for module in network.modules() if (space := namespace(type(module))) is not None}
    places = [(space, name) for space in spaces.values() for name, value in space.items() if is_flex(value)]
    before = [space[name] for space, name in places]
    for space, name in places:
        space[name] = watched
    try:
        yield
    finally:
        for (space, name), value in zip(places, before, strict=True):
            space[name] = value


def namespace(kind: type[nn.Module]) -> dict[str, Any] | None:
    """The global names that the forward of a class of modules sees."""
    return getattr(getattr(kind, "forward", None), "__globals__", None)


def is_flex(value: Any) -> bool:
    """Whether `value` is flex_attention, plain or compiled."""
    return value is flex_attention or getattr(value, "_torchdynamo_orig_callable", None) is flex_attention
