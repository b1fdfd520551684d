"""Both networks run, on copies: the second as it is, beside a copy of the first that returns the second's numbers.

A layer of that copy is still the convolution that it was to any code that looks: its class, its attributes, and the
form of what it returns (strides, fresh memory, requires_grad). Its numbers are those of the second's layer. So the
layers are equal by construction, and twins return equal bits unless the code between the layers sees a difference.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.equality.failures import blame, reason, without_memory
from conv2attn.equality.layers import own, softened_module, with_weights
from conv2attn.equality.rows import LayerPair
from conv2attn.equality.twins import Lockstep, attending, is_layer, modules_outside_layers, same_bits
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.models.conversion.functional import geometry_of
from conv2attn.models.conversion.redirection import AttendedForward, Redirection
from conv2attn.models.conversion.replacement import copy_network
from conv2attn.theorem import Convolution

LOCK = threading.RLock()
"""Held while both networks run: torch's generators are one for the process."""
FEW = 2  # images on which gradients are tried, as many as batch normalisation in training mode needs


@final
@dataclass(frozen=True)
class Returned:
    """What a network returned of some images, or how it failed; `fault` names whose error it was, if not its own."""

    output: Any = None
    image: Any = None
    failure: str = ""
    fault: str = ""


@final
@dataclass(frozen=True)
class Runs:
    """The outputs of both networks, and where the second differs from the first with the second's layers in it.

    Args:
        first, second: as they are; the layers were measured while the first ran.
        seen: what code between the layers sees of the second's layers, in words; empty if nothing.
    """

    first: Any
    second: Returned
    seen: str = ""


def copied(network: nn.Module, which: str) -> nn.Module:
    """A copy on which a network is run, so that the caller's stays as it is.

    Raises:
        UnsupportedError: the copy is another network, since it still holds objects of this one (C2A106).
    """
    try:
        copy = copy_network(network)
        difference = Lockstep(network, copy).difference if copy is not network else "it is returned itself"
    except Exception as error:  # the code of a network may raise anything
        if without_memory(error):
            raise
        difference = f"{type(error).__name__}: {reason(error)}"
    if difference and "hooks act on all modules" not in difference:
        sentence = f"a copy of the {which} is another network, and is not run in its place: {difference}"
        raise UnsupportedError("C2A106", sentence, "Keep no reference to the network in closures of its own.")
    result: nn.Module = copy
    return result


@contextmanager
def seeded() -> Iterator[None]:
    """While active, random numbers are the same each time."""
    with LOCK, torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def call(network: nn.Module, images: Tensor, *, gradients: bool = False) -> Returned:
    """What a network returns, and what it leaves in the images that it was given.

    Raises:
        UsageError: there is not enough memory (C2A202).
    """
    given = images.clone()
    try:
        with seeded(), torch.set_grad_enabled(gradients):
            return Returned(network(given), given)
    except Exception as error:  # the code of a network may raise anything
        if without_memory(error):
            sentence = "the networks need more memory than there is"
            raise UsageError("C2A202", sentence, "Pass smaller images.") from error
        return Returned(failure=f"{type(error).__name__}: {reason(error)}", fault=blame(error))


def run_both(
    networks: tuple[nn.Module, nn.Module], pairs: Mapping[str, list[LayerPair]], images: Tensor, described: str
) -> Runs:
    """Runs copies of both networks without gradients, on a few images with them, and measures the layers.

    Args:
        pairs: of the layers, by the names of their modules; of functions by the name of their owner.
    Raises:
        UsageError: the first does not run (C2A009), or there is not enough memory (C2A202).
        UnsupportedError: a copy is not the network (C2A106).
    """
    first = call(copied(networks[0], "first"), images)
    if first.failure:
        reason_why = first.failure.partition(": ")[2]
        remedy = "Pass images that the network takes: their size with --input-size, or --inputs."
        raise UsageError("C2A009", f"the original does not run on {described}: {reason_why}", remedy)
    output = tree_map_only(Tensor, Tensor.detach, first.output)
    exchanged, second = copy_network(networks[0]), copied(networks[1], "second")
    exchange(exchanged, second, pairs)
    theirs = call(second, images)
    seen = difference(call(exchanged, images), theirs)
    if not seen and not theirs.failure:
        few = images[:FEW]
        found = difference(*(call(network, few, gradients=True) for network in (exchanged, second)))
        seen = f"with gradients, {found}" if found else ""
    return Runs(output, replace(theirs, output=tree_map_only(Tensor, Tensor.detach, theirs.output)), seen)


def exchange(first: nn.Module, second: nn.Module, pairs: Mapping[str, list[LayerPair]]) -> None:
    """Lets the layers of `first` return the numbers of those of `second`; both are copies that nobody else has.

    The layers are measured at their first calls.
    """
    theirs = modules_outside_layers(second)
    for name, module in modules_outside_layers(first).items():
        other, measured = theirs.get(name), pairs.get(name, [])
        if other is None:
            continue
        if (calls := attending(other)) is not None:
            forward = vars(module).get("forward")
            inner = forward.inner if isinstance(forward, AttendedForward) else module.forward
            numbers = FunctionNumbers(calls, measured)
            vars(module)["forward"] = partial(redirected, numbers, inner)
        elif is_layer(module) and is_layer(other):
            vars(module)["forward"] = LayerNumbersOf(module, other, measured).forward


def redirected(numbers: "FunctionNumbers", inner: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """The result of a forward whose functional convolutions return other numbers."""
    with Redirection(numbers):  # type: ignore[arg-type]
        return inner(*args, **keywords)


@final
class LayerNumbersOf:
    """The forward of a layer whose result has the form of its own and the numbers of another's."""

    def __init__(self, layer: nn.Module, other: nn.Module, pairs: list[LayerPair]):
        self.layer, self.other, self.pairs = layer, other, pairs

    def forward(self, input: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        """The output; the difference of both layers is counted."""
        result: Tensor = type(self.layer).forward(self.layer, input, *rest, **keywords)
        given = input.detach()
        for pair in self.pairs if not torch.is_grad_enabled() else ():
            softened = softened_module(self.other)
            assert softened is not None
            pair.measure(result.detach(), partial(own, softened, given, *rest, **keywords), given)
        return with_numbers(result, own(self.other, given, *rest, **keywords))


@final
class FunctionNumbers:
    """Computes a functional convolution, and gives its result the numbers of the attention in its place."""

    def __init__(self, calls: Any, pairs: list[LayerPair]):
        self.calls, self.pairs, self.untouched = calls, pairs, calls.untouched
        known = [*calls.geometries, *calls.later_layers]
        self.by_geometry = dict(zip(known, pairs, strict=False))

    def __call__(self, convolution: Convolution, image: Tensor, plain: "partial[Tensor]") -> Tensor:
        """The output of one call."""
        result = plain()
        layer = self.calls.layer_for(convolution)
        pair = self.by_geometry.get(geometry_of(convolution))
        if pair is not None and not torch.is_grad_enabled():
            pair.called_with(convolution)
            softened = softened_module(layer)
            assert softened is not None
            pair.measure(result, partial(with_weights, softened, image, convolution), image)
        return with_numbers(result, with_weights(layer, image, convolution))


def with_numbers(result: Tensor, numbers: Tensor) -> Tensor:
    """A result with other numbers in its memory.

    Raises:
        TypeError: they are of another shape or dtype.
    """
    if numbers.shape != result.shape or numbers.dtype != result.dtype:
        theirs, ours = (f"{tuple(each.shape)} of {each.dtype}" for each in (numbers, result))
        raise TypeError(f"a layer returns {theirs}, not {ours}")
    result.data.copy_(numbers.detach())
    return result


def difference(first: Returned, second: Returned) -> str:
    """The first difference that code can see between two results, in words; empty if there is none."""
    if first.failure or second.failure:
        if first.failure == second.failure:
            return ""
        theirs, ours = (f"raises {each.failure}" if each.failure else "runs" for each in (second, first))
        return f"the second {theirs}, and the first with its layers {ours}"
    for what, ours, theirs in (("output", first.output, second.output), ("input", first.image, second.image)):
        if sentence := difference_in(what, ours, theirs):
            return sentence
    return ""


def difference_in(where: str, first: Any, second: Any) -> str:
    """The first difference between two parts of results, in words."""
    if type(first) is not type(second):
        return f"{where} is a {type(second).__name__}, not a {type(first).__name__}"
    if isinstance(first, Tensor):
        for key in ("shape", "dtype", "device", "layout", "requires_grad"):
            if getattr(first, key) != getattr(second, key):
                return f"{where} has {key} {getattr(second, key)}, not {getattr(first, key)}"
        if first.layout == torch.strided and first.numel() and first.stride() != second.stride():
            return f"{where} has strides {second.stride()}, not {first.stride()}"
        return "" if same_numbers(first, second) else f"{where} has other numbers"
    if isinstance(first, Mapping):
        if list(first) != list(second):
            return f"{where} has the keys {list(second)}, not {list(first)}"
        pairs = ((f"{where}[{key!r}]", first[key], second[key]) for key in first)
    elif isinstance(first, (list, tuple)):
        if len(first) != len(second):
            return f"{where} has {len(second)} parts, not {len(first)}"
        pairs = ((f"{where}[{at}]", *both) for at, both in enumerate(zip(first, second, strict=True)))
    elif hasattr(first, "__dict__") and not isinstance(first, (nn.Module, type)):
        return difference_in(where, vars(first), vars(second))
    else:
        return "" if repr(first) == repr(second) or isinstance(first, nn.Module) else f"{where} is {second!r}"
    return next(filter(None, (difference_in(*each) for each in pairs)), "")


def same_numbers(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same numbers, the sign of zero included; any NaN is any other."""
    if first.layout != torch.strided or first.is_quantized or first.is_nested:
        return False
    if not (first.is_floating_point() or first.is_complex()):
        return torch.equal(first, second)
    known = ~first.isnan() if not first.is_complex() else torch.ones_like(first, dtype=torch.bool)
    return torch.equal(first.isnan(), second.isnan()) and same_bits(first[known], second[known])


def has_attention(network: nn.Module) -> bool:
    """Whether a network holds attention of this package."""
    return any(isinstance(module, MultiHeadSelfAttention) or attending(module) for module in network.modules())
