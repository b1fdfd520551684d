"""Differences of two networks that rounding does not explain: both run in float64."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_fields
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.equivalence.bases import gradual_underflow
from conv2attn.equivalence.graph import Graph, name_of
from conv2attn.equivalence.matching import Matching, only_constants_differ
from conv2attn.equivalence.opaque import Layer, weights_of
from conv2attn.equivalence.outputs import leaves, wide, widest_gap
from conv2attn.equivalence.results import NETWORK, Counterexample
from conv2attn.equivalence.walk import Walk
from conv2attn.models.conversion.replacement import current_convolution
from conv2attn.theorem import Convolution

CONVOLVE: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CASTS = ("to", "_to_copy", "type_as", "float")
GROSS = 2.0**-20  # chosen: of the largest output, in float64; an honest way of writing a formula loses far less
SEEN = 2.0**-46  # chosen: of the largest output; what two orders of the sums of a network leave in float64


class DoubleWalk(Walk):
    """A walk in float64.

    Args:
        stand_ins: layers that are computed by others, which are the same maps.
    """

    def __init__(self, graph: Graph, stand_ins: Mapping[Layer, Layer], wanted: Sequence[fx.Node]):
        super().__init__(graph, self.compute_double, wanted)
        self.stand_ins, self.doubles = stand_ins, dict[Layer, Any]()

    def outputs(self, images: Tensor) -> Any:
        """What the graph returns, or None if it fails: an operator may refuse float64, or these images."""
        try:
            with torch.inference_mode(False), gradual_underflow():
                return self.on(images.double())
        except Exception:
            return None

    def numbers(self, tensor: Tensor) -> Tensor:
        """A constant in float64."""
        return tensor.detach().double() if tensor.is_floating_point() else tensor

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Computes one operator; casts between floating-point formats are left out, and checks of dtypes."""
        name = name_of(target)
        if name == "_assert_tensor_metadata":
            return None
        value = super().call_function(target, args, kwargs)
        narrow = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
        if not narrow:
            return value
        if name in CASTS and args[0].dtype == torch.float64:
            return args[0]
        return value.double()

    def compute_double(
        self, layer: Layer, image: Tensor, weight: Any = None, bias: Any = None, sides: Any = None
    ) -> Tensor:
        """The output of a layer in float64."""
        layer = self.stand_ins.get(layer, layer)
        if layer not in self.doubles:
            self.doubles[layer] = doubled(layer)
        module = self.doubles[layer]
        if not isinstance(module, MultiHeadSelfAttention):
            return convolved(module or layer.convolution(weight, bias), image, sides)
        used = None
        if layer.function is not None:
            used = weights_of(layer.convolution(*(layer.tensors or (weight, bias)))).to(torch.float64)
        result: Tensor = module.forward(layer.padded(image), sides, used)
        return result


def doubled(layer: Layer) -> Any:
    """A layer in float64: attention with softmaxes, or a convolution; None if its weight is computed."""
    if isinstance(layer.module, MultiHeadSelfAttention):
        return copy.deepcopy(layer.softened).double()  # type: ignore[union-attr]
    if layer.function is not None:
        return layer.tensors and in_float64(layer.convolution(*layer.tensors))
    assert layer.module is not None
    with current_convolution(layer.module) as convolution:
        return in_float64(convolution)


def in_float64(convolution: Convolution) -> Convolution:
    """A convolution with its numbers in float64."""
    weight, bias = (each if each is None else each.detach().double() for each in (convolution.weight, convolution.bias))
    assert weight is not None
    return replace_fields(convolution, weight=weight, bias=bias)


def convolved(convolution: Convolution, image: Tensor, sides: Any) -> Tensor:
    """What a convolution makes of an image, in a batch or not."""
    if sides is not None:
        raise NotImplementedError("a transposed convolution of a size that is asked for")
    axes = len(convolution.stride)
    batch = image if image.ndim == axes + 2 else image[None]
    padded = convolution.padding.pad(batch)
    result: Tensor = CONVOLVE[axes](
        padded,
        convolution.weight,
        convolution.bias,
        stride=convolution.stride,
        dilation=convolution.dilation,
        groups=convolution.groups,
    )
    return result if batch is image else result[0]


def shown_difference(
    found: Matching, images: Tensor, computed: tuple[Any, Any], *, alike: bool
) -> Counterexample | None:
    """Where the outputs of both networks on some images differ by more than rounding explains, or None.

    Both run in float64, where only a gross difference counts, unless the graphs differ in numbers alone. Unless the
    layers are `alike`, the difference must exceed the rounding of the networks' own outputs too.

    Args:
        computed: what both networks return of these images.
    """
    if found.graphs is None or not all(bool(each.isfinite().all()) for _, each in leaves(computed[0])):
        return None
    first, second = (walk.outputs(images) for walk in double_walks(found))
    if first is None or second is None:
        return None
    allowed = (SEEN if only_constants_differ(found) else GROSS) * largest_of(first)
    if not alike:
        allowed += sum(apart(*pair) for pair in zip(computed, (first, second), strict=True))
    gap = widest_gap(first, second, allowed)
    if gap is None or not math.isfinite(allowed) or not gap.difference > allowed:
        return None
    return Counterexample(NETWORK, images[0], allowed=allowed, part="outputs").at(gap)


def double_walks(found: Matching, wanted: Sequence[fx.Node] = ()) -> tuple[DoubleWalk, DoubleWalk]:
    """Walks of both graphs in float64; layers of the second that are the same maps are the first's."""
    assert found.graphs is not None
    same = {pair.second: pair.first for pair in found.pairs if pair.same}
    return DoubleWalk(found.graphs[0], {}, wanted), DoubleWalk(found.graphs[1], same, wanted)


def apart(computed: Any, exact: Any) -> float:
    """How far outputs are from those in float64; infinite where they are of other kinds."""
    ours, theirs = dict(leaves(computed)), dict(leaves(exact))
    if list(ours) != list(theirs) or any(ours[key].shape != theirs[key].shape for key in ours):
        return math.inf
    gaps = [(wide(ours[key]) - wide(theirs[key])).abs().max().item() for key in ours if ours[key].numel()]
    return max(gaps, default=0.0)


def seen_apart(found: Matching, images: Tensor) -> bool:
    """Whether layers and constants that are other numbers make a difference to the outputs that float64 shows.

    It is looked for on these images and on noise. True where the networks do not run so.
    """
    if found.graphs is None or found.forms is None:
        return True
    noise = [torch.randn(images[:1].shape, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    tried = False
    for each in (images[:2], *(10.0**place * noise[place].to(images) for place in range(3))):
        first, second = (walk.outputs(each) for walk in double_walks(found))
        if first is not None and second is not None:
            tried = True
            if differ(first, second):
                return True
    return not tried


def largest_of(outputs: Any) -> float:
    """The largest magnitude of all outputs."""
    return max((wide(each).abs().max().item() for _, each in leaves(outputs) if each.numel()), default=0.0)


def differ(first: Any, second: Any) -> bool:
    """Whether the outputs of two runs in float64 are apart by more than another order of sums leaves."""
    ours, theirs = dict(leaves(first)), dict(leaves(second))
    if list(ours) != list(theirs):
        return True
    return any(not apart(each, theirs[key]) <= SEEN * largest_of(each) for key, each in ours.items())
