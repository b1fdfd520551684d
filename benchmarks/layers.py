"""The layers of ResNet-18 at 224x224, and the ways to compute each."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import Timing, interleave
from conv2attn.attention import MultiHeadSelfAttention, set_engine
from conv2attn.models import attention_layers, convert
from conv2attn.models.zoo.resnet import ResNetPlan, build
from conv2attn.theorem import attention_for, read

FAST = ("conv", "gather", "separable")
ALL_PAIRS = ("sdpa", "dense", "dense unchunked", "scaled_dot_product_attention")
LARGEST_ATTENTION = 2**30  # bytes of attention up to which all pairs are compared here; the rest is only estimated


@final
@dataclass(frozen=True)
class LayerCase:
    """One kind of layer: `count` layers of the network have this convolution on this image."""

    name: str
    convolution: nn.Conv2d
    image: Tensor
    count: int

    @property
    def signature(self) -> str:
        """The convolution and its input in one line."""
        c = self.convolution
        return f"{c.in_channels}->{c.out_channels} k{c.kernel_size[0]} s{c.stride[0]} at {self.image.shape[-1]}"

    def attention(self, engine: str, memory_limit: int | None = None) -> MultiHeadSelfAttention:
        """The layer as attention, with this engine."""
        layer = attention_for(read(self.convolution))
        set_engine(layer, engine, memory_limit)
        return layer

    def scores(self) -> int:
        """heads x queries x keys."""
        layer = self.attention("dense")
        return layer.heads * math.prod(layer.question(layer.basis(), self.image).grid.shape)


def network(sides: int) -> tuple[nn.Module, Tensor]:
    """A seeded ResNet-18 in evaluation mode, and an image."""
    torch.manual_seed(0)
    return build(ResNetPlan()).eval(), torch.randn(1, 3, sides, sides)


def layer_cases(sides: int) -> list[LayerCase]:
    """The different layers of ResNet-18, each with how often it occurs."""
    model, image = network(sides)
    seen: dict[tuple[Any, ...], tuple[str, nn.Conv2d, Tensor]] = {}
    counts: dict[tuple[Any, ...], int] = {}

    def note(name: str, conv: nn.Conv2d, given: Tensor) -> None:
        key = (conv.weight.shape, conv.stride, given.shape)
        seen.setdefault(key, (name, conv, given.clone()))
        counts[key] = counts.get(key, 0) + 1

    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(lambda conv, args, name=name: note(name, conv, args[0]))
    model(image)
    return [LayerCase(*found, counts[key]) for key, found in seen.items()]


def fused_attention(case: LayerCase) -> Callable[[], Tensor]:
    """torch's fused attention with as many heads, queries and keys, all as wide as the layer's input."""
    layer, width = case.attention("dense"), case.image.shape[1]
    queries, keys = layer.question(layer.basis(), case.image).grid.shape
    query, key, value = (torch.randn(1, layer.heads, n, width) for n in (queries, keys, keys))
    return lambda: F.scaled_dot_product_attention(query, key, value)


def time_layer(case: LayerCase, seconds: float) -> dict[str, Timing]:
    """Native convolution and the engines; engines that compare all pairs only where their attention is not too big."""
    timings = interleave(
        {"native": lambda: case.convolution(case.image), **{e: on(case.attention(e), case.image) for e in FAST}},
        seconds,
    )
    if 4 * case.scores() > LARGEST_ATTENTION:
        return timings
    slow = {
        "native": lambda: case.convolution(case.image),
        "sdpa": on(case.attention("sdpa"), case.image),
        "dense": on(case.attention("dense"), case.image),
        "dense unchunked": on(case.attention("dense", 2**40), case.image),
        "scaled_dot_product_attention": fused_attention(case),
    }
    measured = interleave(slow, seconds, 2)
    return timings | {name: measured[name] for name in ALL_PAIRS}


def time_network(sides: int, seconds: float) -> dict[str, Timing]:
    """The whole network, native and converted, interleaved."""
    model, image = network(sides)
    functions = {"native": on(model, image)}
    for engine in FAST:
        attention = convert(model)
        assert len(attention_layers(attention)) == 20
        set_engine(attention, engine)
        functions[engine] = on(attention, image)
    return interleave(functions, seconds, 5)


def on(module: nn.Module, image: Tensor) -> Callable[[], Tensor]:
    """`module` called on `image`."""
    return lambda: module(image)
