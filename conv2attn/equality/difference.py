"""Differences of two networks beyond rounding: both run in float64, and in float32 to see how much rounds there."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as replace_fields
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.equality.bases import gradual_underflow
from conv2attn.equality.context.graph import OperatorGraph, name_of
from conv2attn.equality.context.opaque import Layer, tap_weights
from conv2attn.equality.context.walk import Walk
from conv2attn.equality.matching import Matching, only_constants_differ
from conv2attn.equality.outputs import dense_parts, is_finite, wide, widest_gap
from conv2attn.equality.results import WHOLE_NETWORK, Counterexample
from conv2attn.models.conversion.replacement import current_convolution
from conv2attn.theorem import Convolution

CONVOLVE: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CASTS = ("to", "_to_copy", "type_as", "float")
EXPLAINED_CODE = 2.0**-20, 1.0
"""Chosen: shares of the largest output and of what float32 loses, to which numbers in code are rounded."""
EXPLAINED_SUMS = 2.0**-46, 2.0**-19
"""Chosen: shares of the same, 2^10 times what float64 loses of sums in another order."""
SHAKEN = 2.0**-50, 2.0**8
"""Chosen: the share by which sums and products are shaken, and how many times what that changes is explained."""
SUMS_AND_PRODUCTS = {
    *("add", "sub", "rsub", "mul", "div", "sum", "mean", "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum"),
    *("batch_norm", "layer_norm", "group_norm", "instance_norm", "var", "std"),
}


class FormatWalk(Walk):
    """A walk that computes in one floating-point format.

    Args:
        stand_ins: layers that are computed by others, which are the same maps.
        shaken: whether sums and products are moved by some units in the last place. Numbers that cancel and code that
            jumps then show what another order of sums may do.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        stand_ins: Mapping[Layer, Layer],
        wanted: Sequence[fx.Node],
        dtype: torch.dtype,
        *,
        shaken: bool = False,
    ):
        super().__init__(graph, self.compute_layer, wanted)
        self.stand_ins, self.dtype, self.layers = stand_ins, dtype, dict[Layer, Any]()
        self.noise = torch.Generator().manual_seed(0) if shaken else None

    def outputs(self, images: Tensor) -> Any:
        """The outputs of the graph, or None if it fails: an operator may refuse the format, or these images."""
        try:
            with torch.inference_mode(False), gradual_underflow():
                return self.on(images.to(self.dtype))
        except Exception:
            return None

    def numbers(self, tensor: Tensor) -> Tensor:
        """A constant in the format."""
        return tensor.detach().to(self.dtype) if tensor.is_floating_point() else tensor

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Computes one operator; casts between floating-point formats are left out, and checks of dtypes."""
        name = name_of(target)
        if name == "_assert_tensor_metadata":
            return None
        value = super().call_function(target, args, kwargs)
        other = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != self.dtype
        if other:
            return args[0] if name in CASTS and args[0].dtype == self.dtype else value.to(self.dtype)
        return self.shake(value) if name.removesuffix("_") in SUMS_AND_PRODUCTS else value

    def shake(self, value: Any) -> Any:
        """Numbers that were computed, each moved a little if the walk is shaken; sizes stay as they are."""
        if self.noise is None or not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        noise = torch.rand(value.shape, generator=self.noise, dtype=torch.float64).to(value) * 2 - 1
        return value.mul_(1 + noise * SHAKEN[0])

    def compute_layer(
        self, layer: Layer, image: Tensor, weight: Any = None, bias: Any = None, sides: Any = None
    ) -> Tensor:
        """The output of a layer in the format."""
        layer = self.stand_ins.get(layer, layer)
        if layer not in self.layers:
            self.layers[layer] = layer_in(layer, self.dtype)
        module = self.layers[layer]
        if not isinstance(module, MultiHeadSelfAttention):
            return self.shake(convolved(module or layer.convolution(weight, bias), image, sides))
        used = None
        if layer.function is not None:
            used = tap_weights(layer.convolution(*(layer.tensors or (weight, bias)))).to(self.dtype)
        result: Tensor = module.forward(layer.padded(image), sides, used)
        return self.shake(result)


def layer_in(layer: Layer, dtype: torch.dtype) -> Any:
    """A layer in a format: attention with softmaxes, or a convolution; None if its weight is computed."""
    if isinstance(layer.module, MultiHeadSelfAttention):
        return copy.deepcopy(layer.softened).to(dtype)  # type: ignore[union-attr]
    if layer.function is not None:
        return layer.tensors and convolution_in(layer.convolution(*layer.tensors), dtype)
    assert layer.module is not None
    with current_convolution(layer.module) as convolution:
        return convolution_in(convolution, dtype)


def convolution_in(convolution: Convolution, dtype: torch.dtype) -> Convolution:
    """A convolution with its numbers in a format."""
    numbers = convolution.weight, convolution.bias
    weight, bias = (each if each is None else each.detach().to(dtype) for each in numbers)
    assert weight is not None
    return replace_fields(convolution, weight=weight, bias=bias)


def convolved(convolution: Convolution, image: Tensor, sides: Any) -> Tensor:
    """The output of a convolution for an image, in a batch or not."""
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
    matching: Matching, images: Tensor, computed: tuple[Any, Any], *, alike: bool
) -> Counterexample | None:
    """The place where the outputs of both networks differ by more than rounding explains; None if there is none.

    Unless the layers are `alike`, the difference must exceed the rounding of the networks' own outputs too.

    Args:
        computed: what both networks return of these images.
    """
    if matching.graphs is None or not all(is_finite(each) for _, each in dense_parts(computed[0])):
        return None
    runs = in_both_formats(matching, images)
    if runs is None:
        return None
    first, second, *lost = runs
    allowed = explained_by_rounding(first, lost, EXPLAINED_SUMS if only_constants_differ(matching) else EXPLAINED_CODE)
    if not alike:
        allowed += sum(largest_distance(*pair) for pair in zip(computed, (first, second), strict=True))
    gap = widest_gap(first, second, allowed)
    if gap is None or not math.isfinite(allowed) or not gap.difference > allowed:
        return None
    return Counterexample(WHOLE_NETWORK, images[0], allowed=allowed, part="outputs").at(gap)


def walks_in(
    matching: Matching,
    wanted: Sequence[fx.Node] = (),
    dtype: torch.dtype = torch.float64,
    *,
    shaken: bool = False,
    between: bool = False,
) -> tuple[FormatWalk, FormatWalk]:
    """Walks of both graphs in a format; layers of the second that are the same maps are the first's.

    Args:
        between: whether all are, so that what stands between the layers alone can differ.
    """
    assert matching.graphs is not None
    same = {pair.second: pair.first for pair in matching.pairs if between or pair.same}
    first, second = zip(matching.graphs, ({}, same), strict=True)
    return FormatWalk(*first, wanted, dtype, shaken=shaken), FormatWalk(*second, wanted, dtype, shaken=shaken)


def in_both_formats(
    matching: Matching, images: Tensor, *, between: bool = False
) -> tuple[Any, Any, float, float] | None:
    """The outputs of both networks in float64, and what both lose in float32 and if shaken; None where float64 fails.

    What float32 loses shows how both amplify rounding, by cancellation for instance: in float64 it is 2^-29 of that,
    where nothing jumps.
    """
    exact = [walk.outputs(images) for walk in walks_in(matching, between=between)]
    if any(each is None for each in exact):
        return None
    narrow = walks_in(matching, dtype=torch.float32, between=between)
    shaken = walks_in(matching, shaken=True, between=between)
    lost, moved = (
        sum(largest_distance(walk.outputs(images), own) for walk, own in zip(walks, exact, strict=True))
        for walks in (narrow, shaken)
    )
    return exact[0], exact[1], lost, moved


def explained_by_rounding(outputs: Any, lost: Sequence[float], shares: tuple[float, float]) -> float:
    """The difference that rounding explains: a share of the largest output, or of what is lost if more."""
    largest = max((wide(each).abs().max().item() for _, each in dense_parts(outputs) if each.numel()), default=0.0)
    return max(shares[0] * largest, shares[1] * lost[0], SHAKEN[1] * lost[1])


def largest_distance(computed: Any, exact: Any) -> float:
    """The largest distance of outputs from those in float64 where either is finite; infinite for other kinds."""
    ours, theirs = dict(dense_parts(computed)), dict(dense_parts(exact))
    if list(ours) != list(theirs) or any(ours[key].shape != theirs[key].shape for key in ours):
        return math.inf
    pairs = [(wide(ours[key]), wide(theirs[key])) for key in ours if ours[key].numel()]
    gaps = ((a - b).abs().nan_to_num(math.inf)[a.isfinite() | b.isfinite()] for a, b in pairs)
    return max((each.max().item() for each in gaps if each.numel()), default=0.0)


def apart_in_float64(matching: Matching, images: Tensor, *, between: bool = False) -> bool | None:
    """Whether the outputs differ in float64 by more than sums in another order explain; None if that does not run.

    Args:
        between: whether the layers of the first stand for those of the second, whatever map these are.
    """
    runs = in_both_formats(matching, images, between=between)
    if runs is None:
        return None
    first, second, *lost = runs
    return not largest_distance(first, second) <= explained_by_rounding(first, lost, EXPLAINED_SUMS)


def graphs_apart(matching: Matching, images: Tensor) -> bool:
    """Whether graphs of one normal form compute other numbers, which shows that a rule is wrong for these graphs.

    False too where they do not run in float64: then the rules alone, which laws hold, say that they are equal.
    """
    return any(apart_in_float64(matching, each, between=True) for each in trial_images(images))


def seen_apart(matching: Matching, images: Tensor) -> bool:
    """Whether layers and constants that are other numbers make a difference to the outputs that float64 shows.

    It is looked for on these images and on noise. True where the networks do not run so.
    """
    if matching.graphs is None or matching.forms is None:
        return True
    answers = [apart_in_float64(matching, each) for each in trial_images(images)]
    return any(answers) or all(each is None for each in answers)


def trial_images(images: Tensor) -> Iterator[Tensor]:
    """A few of the images, noise of three sizes, and small integers, at which code jumps."""
    yield images[:2]
    for seed in range(4):
        noise = torch.randn(images[:1].shape, generator=torch.Generator().manual_seed(seed)).to(images)
        yield 10.0**seed * noise if seed < 3 else (2 * noise).round()
