"""Differences of two networks that no rounding explains: both run in float64, where their rounding is enclosed."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any, final

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Basis
from conv2attn.equivalence.bases import Pair, comparable_basis, gradual_underflow
from conv2attn.equivalence.bound import SLACK, BoundWalk, Carried, LayerRule, Stop, name_of
from conv2attn.equivalence.graph import Graph
from conv2attn.equivalence.matching import Matching, moved_constants, only_constants_differ
from conv2attn.equivalence.opaque import Layer, weights_of
from conv2attn.equivalence.outputs import leaves, wide, widest_gap
from conv2attn.equivalence.results import NETWORK, Counterexample
from conv2attn.equivalence.rounding import difference_bounds, differences
from conv2attn.equivalence.rows import absolute_rows
from conv2attn.models.conversion.replacement import current_convolution
from conv2attn.theorem import Convolution

CONVOLVE: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CASTS = ("to", "_to_copy", "type_as", "float")
GROSS = 2.0**-20  # chosen: of the largest output, in float64; an honest way of writing a formula loses far less
NEAR = 2.0**-16  # chosen: of the largest number; weights that differ by no more are not those of another network
SEEN = 2.0**-46  # chosen: of the largest output; what two orders of the sums of a network leave in float64


@final
@dataclass(frozen=True, eq=False)
class Pass:
    """A run in float64: the outputs, and a bound on their rounding, or None where it cannot be carried."""

    outputs: Any
    rounding: float | None
    kept: dict[fx.Node, Any]


def ran(walk: "DoubleWalk", images: Tensor) -> Pass | None:
    """The outputs of a walk in float64, or None if it fails."""
    try:
        with torch.inference_mode(False), gradual_underflow():
            outputs = walk.on(images.double())
    except Exception:  # an operator may refuse float64, or these images
        return None
    return Pass(outputs, None if walk.stopped else walk.bound, walk.kept)


class DoubleWalk(BoundWalk):
    """A walk in float64 that encloses its rounding as far as the rules of bounds go.

    Args:
        stand_ins: layers that are computed by others, which are the same maps.
    """

    def __init__(self, graph: Graph, stand_ins: Mapping[Layer, Layer], wanted: Sequence[fx.Node]):
        super().__init__(graph, self.compute_double, lambda layer: self.rules[layer], None)
        self.stand_ins, self.wanted = stand_ins, set(wanted)
        self.rules: dict[Layer, LayerRule] = {}
        self.doubles: dict[Layer, Any] = {}
        self.moved: Mapping[str, tuple[Tensor, Tensor]] = {}
        self.wrong: Mapping[Layer, Pair] = {}

    def numbers(self, tensor: Tensor) -> Tensor:
        """A constant in float64; one that is `moved` is moved further where it is."""
        if not tensor.is_floating_point():
            return tensor
        other = next((theirs for ours, theirs in self.moved.values() if ours is tensor), tensor)
        return further(tensor.detach().double(), tensor != other)

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
        """The output of a layer in float64, and the rule that encloses its rounding."""
        numbered, layer = layer, self.stand_ins.get(layer, layer)
        if layer not in self.doubles:
            self.doubles[layer] = doubled(layer)
        module = self.doubles[layer]
        if isinstance(module, MultiHeadSelfAttention):
            used = None
            if layer.function is not None:
                used = weights_of(layer.convolution(*(layer.tensors or (weight, bias)))).to(torch.float64)
            result: Tensor = module.forward(layer.padded(image), sides, used)
            basis = comparable_basis(module, used)
            basis = replace_fields(basis, padding=layer.widened(basis.padding))
        else:
            convolution = module or layer.convolution(weight, bias)
            basis = comparable_basis(convolution)
            result = convolved(convolution, image, sides)
        if numbered in self.wrong:
            weights, biases = differences(self.wrong[numbered])
            shape = [-1 if axis == result.ndim - len(basis.form.stride) - 1 else 1 for axis in range(result.ndim)]
            result = further(result, (weights + biases > 0).reshape(shape))
        self.rules[numbered] = rounding_rule(basis, tuple(image.shape[-len(basis.form.stride) :]))
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
        raise Stop("a transposed convolution of a size that is asked for")
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


def rounding_rule(basis: Basis, sides: tuple[int, ...]) -> LayerRule:
    """How a layer in float64 carries an error on, and what it adds by rounding on images of these sides."""
    rows, pair = absolute_rows(basis) * SLACK, Pair(basis, basis)

    def rule(given: Carried) -> Carried:
        added = difference_bounds(pair, given.reach, tuple(basis.padding.sides(sides)))
        own = torch.tensor(math.inf if added is None else added, dtype=torch.float64)
        return Carried(0.0, (rows * given.error + own).max().item() * SLACK)

    return rule


def shown_difference(
    found: Matching, images: Tensor, computed: tuple[Any, Any], *, alike: bool
) -> Counterexample | None:
    """Where the outputs of both networks on some images differ by more than rounding explains, or None.

    Both run in float64. What rounds there is enclosed; where a bound cannot be carried, only a gross difference counts.
    Unless the layers are `alike`, the difference must exceed the rounding of the networks' own outputs too.

    Args:
        computed: what both networks return of these images.
    """
    if found.graphs is None or not all(bool(each.isfinite().all()) for _, each in leaves(computed[0])):
        return None
    passes = [each for each in both_in_double(found, images) if each is not None]
    if len(passes) < 2:
        return None
    first, second = (each.outputs for each in passes)
    roundings = [each.rounding for each in passes if each.rounding is not None]
    allowed = sum(roundings) if len(roundings) == 2 else GROSS * largest_of(first)
    if not alike:
        allowed += sum(apart(ours, each.outputs) for ours, each in zip(computed, passes, strict=True))
    gap = widest_gap(first, second, allowed)
    if gap is None or not math.isfinite(allowed) or not gap.difference > allowed:
        return None
    return Counterexample(
        NETWORK,
        images[0],
        gap.place,
        gap.original,
        gap.converted,
        allowed,
        count=gap.count,
        part="outputs",
        output=gap.output,
    )


def both_in_double(found: Matching, images: Tensor, wanted: Sequence[fx.Node] = ()) -> list[Pass | None]:
    """Both graphs on some images in float64; layers of the second that are the same maps are the first's."""
    assert found.graphs is not None
    same = {pair.second: pair.first for pair in found.pairs if pair.same}
    walks = (DoubleWalk(graph, each, wanted) for graph, each in zip(found.graphs, ({}, same), strict=True))
    return [ran(walk, images) for walk in walks]


def apart(computed: Any, exact: Any) -> float:
    """How far outputs are from those in float64; infinite where they are of other kinds."""
    ours, theirs = dict(leaves(computed)), dict(leaves(exact))
    if list(ours) != list(theirs) or any(ours[key].shape != theirs[key].shape for key in ours):
        return math.inf
    gaps = [(wide(ours[key]) - wide(theirs[key])).abs().max().item() for key in ours if ours[key].numel()]
    return max(gaps, default=0.0)


def seen_apart(found: Matching, images: Tensor) -> bool:
    """Whether layers and constants that are other numbers make a difference to the outputs, as far as float64 shows.

    It shows where the outputs differ on these images, or on noise. Where all numbers are nearly the same, it also shows
    where the outputs of the first depend on them: they are moved further. True where the networks do not run so.
    """
    if found.graphs is None or found.forms is None:
        return True
    noise = [torch.randn(images[:1].shape, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    tried, moved = False, moved_constants(found) if only_constants_differ(found) else None
    wrong = {pair.first: pair.bases for pair in found.pairs if not pair.same and pair.readable}
    near = moved is not None and all(nearly(*each) for each in moved.values()) and all(map(nearly_pair, wrong.values()))
    for each in (images[:2], *(10.0**place * noise[place].to(images) for place in range(3))):
        passes = both_in_double(found, each)
        if near and passes[0] is not None:
            nudged = DoubleWalk(found.graphs[0], {}, ())
            nudged.moved, nudged.wrong = moved or {}, wrong
            passes[1] = ran(nudged, each) if not differ(*passes) else passes[1]
        if passes[0] is not None and passes[1] is not None:
            tried = True
            if differ(*passes):
                return True
    return not tried


def largest_of(outputs: Any) -> float:
    """The largest magnitude of all outputs."""
    return max((wide(each).abs().max().item() for _, each in leaves(outputs) if each.numel()), default=0.0)


def differ(first: Pass | None, second: Pass | None) -> bool:
    """Whether the outputs of two runs in float64 are apart by more than another order of sums leaves."""
    if first is None or second is None:
        return False
    ours, theirs = dict(leaves(first.outputs)), dict(leaves(second.outputs))
    if list(ours) != list(theirs):
        return True
    return any(not apart(each, theirs[key]) <= SEEN * largest_of(each) for key, each in ours.items())


def nearly(first: Tensor, second: Tensor) -> bool:
    """Whether numbers differ by little beside the largest of them."""
    away = (first.double() - second.double()).abs().max().item()
    return away <= NEAR * first.double().abs().max().item() or away < torch.finfo(torch.float32).smallest_normal


def nearly_pair(pair: Pair) -> bool:
    """Whether the weights and the biases of two layers of one geometry differ by little."""
    if set(pair.original.starts) != set(pair.converted.starts) or pair.original.form != pair.converted.form:
        return False
    weights, biases = differences(pair)
    limit = pair.magnitudes[0].max().item() + (0 if (b := pair.original.weights.bias) is None else b.abs().max().item())
    return max(weights.max().item(), biases.max().item()) <= NEAR * limit


def further(tensor: Tensor, where: Tensor) -> Tensor:
    """Numbers moved further at some places."""
    return torch.where(where, tensor * (1 + 2.0**-10) + 2.0**-10, tensor)
