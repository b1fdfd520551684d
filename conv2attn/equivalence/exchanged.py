"""Two networks run with the layers of the first in both, so that nothing is left that could round differently."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.equivalence.differential import alone, run, run_second
from conv2attn.equivalence.outputs import leaves
from conv2attn.models.conversion.discovery import copy_network
from conv2attn.models.conversion.functional import FUNCTIONS
from conv2attn.models.conversion.redirection import stop_attending

OTHER = "the outputs are other numbers"
IMAGES = 2  # as many as batch normalisation in training mode needs
Modules = Mapping[str, tuple[nn.Module, nn.Module]]


def departure(original: nn.Module, network: nn.Module, pairs: Modules, images: Tensor) -> str:
    """The difference between `original` and `network` with its layers, on these images or on images one pixel larger.

    Empty where none is seen, and where `network` has no parameters and `original` has some, as an ONNX model: its order
    of rounding is its own. On larger images only numbers count: a network may refuse them.
    """
    if next(original.parameters(), None) is not None and next(network.parameters(), None) is None:
        return ""
    few = images[:IMAGES]
    if shown := departure_on(few, original, network, pairs):
        return shown
    for axis in range(2, few.ndim):  # an even side may hide how a window is rounded or padded
        few = torch.cat([few, few.narrow(axis, 0, 1)], axis)
    return f"{OTHER} on images one pixel larger" if departure_on(few, original, network, pairs) == OTHER else ""


def departure_on(images: Tensor, original: nn.Module, network: nn.Module, pairs: Modules) -> str:
    """How `network` with the layers of `original` differs from it on these images; empty if no difference is seen."""
    if (found := run_exchanged(images, original, network, pairs)) is None:
        return ""
    first, second, failure = found
    if failure:
        return f"the second fails: {failure}"
    return "" if all_same(copies(first), copies(second)) else OTHER


def run_exchanged(
    images: Tensor, original: nn.Module, network: nn.Module, pairs: Modules
) -> tuple[Any, Any, str] | None:
    """The outputs of `original`, and of `network` with its layers, or why that one fails.

    None where nothing follows from them: `original` does not run or does not repeat itself, or a layer of `network` is
    in the place of two.
    """
    try:
        with PlainLayouts():
            first, again = (run(copy_network(original), images.clone()) for _ in range(2))
    except Exception:  # the network's own code may raise anything on so few images, or on larger ones
        return None
    trial = with_layers_of(original, network, pairs)
    if trial is None or not all_same(copies(first), copies(again)):
        return None
    with PlainLayouts():
        return first, *run_second(trial, images.clone())


def with_layers_of(original: nn.Module, network: nn.Module, pairs: Modules) -> nn.Module | None:
    """A copy of `network` whose layers and functional convolutions are those of `original`; None if one is two."""
    ours, trial = copy_network(original), copy_network(network)
    named = dict(trial.named_modules(remove_duplicate=False))
    compared = {id(layer) for name, layer in ours.named_modules(remove_duplicate=False) if name in pairs}
    stands: dict[nn.Module, nn.Module] = {}
    for name, taken in ours.named_modules(remove_duplicate=False):
        if id(taken) in compared and name in named and stands.setdefault(named[name], taken) is not taken:
            return None
    for standing, taken in stands.items():
        vars(standing)["forward"] = functools.partial(alone, taken)
    stop_attending(trial)
    return trial


class PlainLayouts(TorchFunctionMode):
    """While active, convolutions get their tensors in the plain layout: of others some kernels read what is not theirs.

    In bfloat16 with channels innermost oneDNN, as of torch 2.13, returns other numbers each time.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`."""
        kwargs = kwargs or {}
        if func in FUNCTIONS:
            args = tuple(map(plain, args))
            kwargs = {name: plain(item) for name, item in kwargs.items()}
        return func(*args, **kwargs)


def plain(item: Any) -> Any:
    """A tensor in the plain layout, anything else as it is."""
    return item.contiguous() if isinstance(item, Tensor) else item


def copies(item: Any) -> list[Tensor]:
    """Copies of the tensors in nested tuples, lists and mappings."""
    return [tensor.detach().clone() for _, tensor in leaves(item)]


def all_same(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """Whether two lists of tensors are the same, bit for bit."""
    return len(ours) == len(theirs) and all(map(same_bits, ours, theirs))


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and values, bit for bit, NaN and the sign of zero included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (each.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format) for each in (a, b))
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))
