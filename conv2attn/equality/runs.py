"""Both networks run by a plain call, and beside the second a copy of the first that returns the second's numbers.

A layer of that copy is still the convolution that it was to any code that looks: its class, its attributes, and the
form of what it returns (strides, fresh memory, requires_grad). Its numbers are those of the second's layer. So the
layers are equal by construction, and twins return equal bits unless the code between the layers sees a difference.

All else that is said of a network is found out on copies. So each network must return what its copy returns: code that
looks itself up by its identity may not.
"""

import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import tensors_in
from conv2attn.equality.failures import blame, reason, without_memory
from conv2attn.equality.kept import CannotBeKept, Kept
from conv2attn.equality.layers import own, softened_module, with_weights
from conv2attn.equality.results import in_mode
from conv2attn.equality.rows import LayerPair
from conv2attn.equality.twins import Lockstep, attending, is_layer, modules_outside_layers, same_bits
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.generators import generators_kept
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import Convolution
from conv2attn.networks.conversion.functional import FUNCTIONS, convolution_of_call, geometry_of
from conv2attn.networks.conversion.redirection import AttendedForward
from conv2attn.networks.copies import copy_network
from conv2attn.networks.specimens import Inputs
from conv2attn.torch_internals import tree_map_only

LOCK = threading.RLock()
"""Held while both networks run: torch's generators are one for the process."""
WHICH = ("first", "second")
BESIDE = ("the first network with its layers", "the second network")
FEW = 2  # images on which other modes of gradients are tried, as many as batch normalisation in training mode needs
MODES = {"no gradients": torch.no_grad, "gradients": torch.enable_grad, "inference": torch.inference_mode}
"""The modes of gradients in which networks are called."""


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
        first, second: as they are; the layers were measured while a copy of the first ran.
        seen: what code between the layers sees of the second's layers, in words; empty if nothing.
        itself: how one of the networks is not its copy, in words; empty if neither is known to be.
        elsewhere: how one of the networks returns other numbers in another mode of gradients, in words.
        gradients: the modes of gradients in which both ran.
    """

    first: Any
    second: Returned
    seen: str = ""
    itself: str = ""
    elsewhere: str = ""
    gradients: tuple[str, ...] = ("no gradients",)


def copied(network: nn.Module, which: str) -> nn.Module:
    """A copy to run, so that the caller's network stays as it is.

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
def seeded(images: Inputs) -> Iterator[None]:
    """While active, random numbers of the CPU and of the device of `images` are the same each time."""
    with LOCK, generators_kept([each.device for each in tensors_in(images)], seed=0):
        yield


def call(network: Callable[..., Any], images: Inputs, *, mode: str = "no gradients") -> Returned:
    """What a network returns, and what it leaves in the images, or named inputs, that it was given.

    Raises:
        UsageError: there is not enough memory (C2A202).
    """
    given = tree_map_only(Tensor, Tensor.clone, images)
    try:
        with seeded(images), MODES[mode]():
            return Returned(network(**given) if isinstance(given, Mapping) else network(given), given)
    except Exception as error:  # the code of a network may raise anything
        if without_memory(error):
            sentence = "the networks need more memory than there is"
            raise UsageError("C2A202", sentence, "Pass smaller images.") from error
        return Returned(failure=f"{type(error).__name__}: {reason(error)}", fault=blame(error))


def call_itself(network: nn.Module, images: Inputs) -> Returned | str:
    """What the caller's own network returns, which is put back as it was; or why it cannot be called.

    Raises:
        UsageError: there is not enough memory (C2A202).
    """
    with LOCK:
        try:
            kept = Kept(network)
        except CannotBeKept as error:
            return f"holds {error}, which could not be put back as it was, and so only its copy runs"
        try:
            return call(network, images)
        finally:
            kept.put_back()


def run_both(
    networks: tuple[nn.Module, nn.Module],
    pairs: Mapping[str, list[LayerPair]],
    images: Inputs,
    described: str,
    *,
    twins: bool,
    modes: Sequence[str] = (),
) -> Runs:
    """Runs both networks without gradients, copies on a few images in other modes, and measures the layers.

    Args:
        pairs: of the layers, by the names of their modules; of functions by the name of their owner.
        twins: whether both are the same code, so that the copy which is run beside the second stands for both copies.
        modes: of gradients in which both run beside the usual ones.
    Raises:
        UsageError: the first does not run (C2A009), or there is not enough memory (C2A202).
        UnsupportedError: a copy is not the network (C2A106).
    """
    copies = copied(networks[0], "first"), copied(networks[1], "second")
    called = [call_itself(network, images) for network in networks]
    ours, theirs = (
        call(copy_network(network), images) if isinstance(each, str) else each
        for network, each in zip(networks, called, strict=True)
    )
    if ours.failure:
        reason_why = ours.failure.partition(": ")[2]
        remedy = "Pass images that the network takes: their size with --input-size, or --inputs."
        raise UsageError("C2A009", f"the first network does not run on {described}: {reason_why}", remedy)
    same = all(pair.same for each in pairs.values() for pair in each)
    if not same:  # measured beside each other, so that what follows a layer reads the first's numbers
        call(Exchanged(copy_network(networks[0]), copies[1], pairs, carrying=False), images)
    exchanged = Exchanged(copies[0], copies[1], pairs if same else {})
    carrying = call(exchanged, images)
    itself = next(
        (f"the {which} network {why}" for which, why in zip(WHICH, called, strict=True) if isinstance(why, str)), ""
    )
    seen = difference(carrying, theirs)
    for which, network, result in zip(WHICH, networks, (ours, theirs), strict=True):
        if itself or (twins and same and not difference(carrying, result)):
            continue
        if found := difference(call(copy_network(network), images), result, ("its copy", "it")):
            itself = (
                f"the {which} network does something else than its copy, as code does that looks itself up: {found}"
            )
    asked = tuple(mode for mode in MODES if mode in modes)
    few: Inputs = tree_map_only(Tensor, itemgetter(slice(FEW)), images)
    tried, elsewhere = tuple[str, ...](), ""
    if twins and not seen and not itself and not theirs.failure:
        tried = tuple(mode for mode in MODES if mode in ("gradients", *asked))
        changed = ((mode, difference_in_mode(mode, networks, (exchanged, copies[1]), few)) for mode in tried)
        seen = next((f"{in_mode(mode)}, {found}" for mode, found in changed if found), "")
    if (seen or not twins) and not itself and not theirs.failure:
        tried, elsewhere = asked, changes_with_modes(networks, few, asked)
    output = tree_map_only(Tensor, Tensor.detach, ours.output)
    theirs = replace(theirs, output=tree_map_only(Tensor, Tensor.detach, theirs.output))
    return Runs(output, theirs, seen, itself, elsewhere, ("no gradients", *tried))


def difference_in_mode(
    mode: str, networks: tuple[nn.Module, nn.Module], called: tuple["Exchanged", nn.Module], images: Inputs
) -> str:
    """The difference that code sees in a mode of gradients; new copies are run where those called before differ."""
    if not difference(call(called[0], images, mode=mode), call(called[1], images, mode=mode)):
        return ""
    second = copy_network(networks[1])
    first = Exchanged(copy_network(networks[0]), second, {})
    return difference(call(first, images, mode=mode), call(second, images, mode=mode))


def changes_with_modes(networks: Sequence[nn.Module], images: Inputs, modes: Sequence[str]) -> str:
    """How a copy of one of the networks returns other numbers in one of the modes than without gradients, in words."""
    for which, network in zip(WHICH, networks, strict=True) if modes else ():
        plain = numbers_of(call(copy_network(network), images))
        for mode in modes:
            there = numbers_of(call(copy_network(network), images, mode=mode))
            if found := difference(plain, there, ("without gradients it", f"the {which} network")):
                return f"{in_mode(mode)}, the {which} returns something else than without: {found}"
    return ""


def numbers_of(returned: Returned) -> Returned:
    """What was returned, without what gradients need."""
    return replace(returned, output=tree_map_only(Tensor, Tensor.detach, returned.output), image=None)


def with_layers_of_the_first(
    networks: tuple[nn.Module, nn.Module], same: Collection[str]
) -> tuple[nn.Module, nn.Module]:
    """Copies of both networks, of which the second computes with the first's layers where these are the same maps.

    Args:
        same: the names of layers, and of owners of functional convolutions, that are the same maps.
    """
    first, second = (copy_network(network) for network in networks)
    ours = modules_outside_layers(first)
    for name, module in modules_outside_layers(second).items():
        forward = vars(module).get("forward")
        if attending(module) is not None and name in same and isinstance(forward, AttendedForward):
            vars(module).pop("forward")
            if forward.replaced is not None:
                vars(module)["forward"] = forward.replaced
        elif is_layer(module) and name in same:
            vars(module)["forward"] = partial(own, ours[name])
    return first, second


@final
class Exchanged(TorchFunctionMode):
    """A copy of the first network whose layers return the numbers of those of a copy of the second.

    Its modules stay as they are, but for the forward of each layer: a functional convolution is known by the module
    whose forward calls it. The layers are measured as they run; unless `carrying`, they return their own numbers.
    """

    def __init__(
        self, first: nn.Module, second: nn.Module, pairs: Mapping[str, list[LayerPair]], *, carrying: bool = True
    ):
        super().__init__()
        self.network, self.owners = first, dict[int, FunctionNumbers]()
        theirs = modules_outside_layers(second)
        ours = modules_outside_layers(first)
        self.layers = {
            id(module) for name, module in ours.items() if is_layer(module) and attending(theirs.get(name)) is None
        }
        for name, module in ours.items():
            other, measured = theirs.get(name), pairs.get(name, [])
            if other is None:
                continue
            if (calls := attending(other)) is not None:
                self.owners[id(module)] = FunctionNumbers(calls, measured, carrying)
            elif is_layer(module) and is_layer(other):
                vars(module)["forward"] = LayerNumbersOf(module, other, measured, carrying).forward

    def __call__(self, *images: Tensor, **named: Any) -> Any:
        """The outputs of the network."""
        with self if self.owners else nullcontext():
            return self.network(*images, **named)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`; a functional convolution with the numbers of the attention in its place."""
        if func not in FUNCTIONS or (numbers := self.numbers()) is None:
            return func(*args, **(kwargs or {}))
        if FUNCTIONS[func][0] in numbers.untouched:
            return func(*args, **(kwargs or {}))
        try:
            convolution = convolution_of_call(func, args, kwargs or {})
        except UnsupportedError:
            return func(*args, **(kwargs or {}))
        image = args[0] if args else (kwargs or {})["input"]
        return numbers(convolution, image, partial(func, *args, **(kwargs or {})))

    def numbers(self) -> "FunctionNumbers | None":
        """The numbers for the module whose forward runs; None within a layer."""
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if isinstance(owner, (LayerNumbersOf, FunctionNumbers)) or id(owner) in self.layers:
                return None
            if isinstance(owner, nn.Module) and id(owner) in self.owners:
                return self.owners[id(owner)]
            frame = frame.f_back  # type: ignore[assignment]
        return None


@final
class LayerNumbersOf:
    """The forward of a layer whose result has the form of its own and the numbers of another's."""

    def __init__(self, layer: nn.Module, other: nn.Module, pairs: list[LayerPair], carrying: bool):
        self.layer, self.other, self.pairs, self.carrying = layer, other, pairs, carrying

    def forward(self, input: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        """The output; the difference of both layers is counted."""
        result: Tensor = type(self.layer).forward(self.layer, input, *rest, **keywords)
        given = input.detach()
        for pair in self.pairs if measuring() else ():
            softened = softened_module(self.other)
            assert softened is not None
            pair.measure(result.detach(), partial(own, softened, given, *rest, **keywords), given)
        return with_numbers(result, own(self.other, given, *rest, **keywords)) if self.carrying else result


@final
class FunctionNumbers:
    """Computes a functional convolution, and gives its result the numbers of the attention in its place."""

    def __init__(self, calls: Any, pairs: list[LayerPair], carrying: bool):
        self.calls, self.carrying, self.untouched = calls, carrying, calls.untouched
        known = [*calls.geometries, *calls.later_layers]
        self.by_geometry = dict(zip(known, pairs, strict=False))

    def __call__(self, convolution: Convolution, image: Tensor, plain: "partial[Tensor]") -> Tensor:
        """The output of one call."""
        result = plain()
        layer = self.calls.layer_for(convolution)
        pair = self.by_geometry.get(geometry_of(convolution))
        if pair is not None and measuring():
            pair.called_with(convolution)
            softened = softened_module(layer)
            assert softened is not None
            pair.measure(result, partial(with_weights, softened, image, convolution), image)
        return with_numbers(result, with_weights(layer, image, convolution)) if self.carrying else result


def measuring() -> bool:
    """Whether layers are measured: in the mode without gradients alone."""
    return not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


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


def difference(first: Returned, second: Returned, names: tuple[str, str] = BESIDE) -> str:
    """The first difference that code can see between two results, in words; empty if there is none."""
    if first.failure or second.failure:
        if first.failure == second.failure:
            return ""
        ours, theirs = (f"raises {each.failure}" if each.failure else "runs" for each in (first, second))
        return f"{names[1]} {theirs}, and {names[0]} {ours}"
    for what, ours, theirs in (("output", first.output, second.output), ("input", first.image, second.image)):
        if sentence := difference_in(what, ours, theirs):
            return sentence
    return ""


def difference_in(where: str, first: Any, second: Any) -> str:
    """The first difference between two parts of results, in words."""
    if type(first) is not type(second):
        return f"{where} is a {type(second).__name__}, not a {type(first).__name__}"
    if isinstance(first, Tensor):
        if first.is_nested or first.layout != torch.strided or first.is_quantized:
            return "" if first is second else f"{where} is a tensor that is not dense"
        for key in ("shape", "dtype", "device", "layout", "requires_grad"):
            if getattr(first, key) != getattr(second, key):
                return f"{where} has {key} {getattr(second, key)}, not {getattr(first, key)}"
        if first.numel() and first.stride() != second.stride():
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
    if same_bits(first, second):
        return True
    if not (first.is_floating_point() or first.is_complex()):
        return False
    known = ~first.isnan() if not first.is_complex() else torch.ones_like(first, dtype=torch.bool)
    return torch.equal(first.isnan(), second.isnan()) and same_bits(first[known], second[known])


def has_attention(network: nn.Module) -> bool:
    """Whether a network holds attention of this package."""
    return any(isinstance(module, MultiHeadSelfAttention) or attending(module) for module in network.modules())
