"""Calls a copy of a network, seeded and in a mode of gradients, so the caller's network stays unchanged."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import tensors_in
from conv2attn.equality.failures import blame, reason, without_memory
from conv2attn.equality.output_parts import output_parts
from conv2attn.equality.twins.lockstep import Lockstep
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.generators import generators_kept
from conv2attn.networks.copies import copy_network
from conv2attn.networks.specimens import Inputs, arguments, map_tensors
from conv2attn.torch_internals import TorchDispatchMode, tree_map_only

LOCK = threading.RLock()
"""Held while both networks run, since torch's generators and compiler settings are global to the process."""
MODES = {"no gradients": torch.no_grad, "gradients": torch.enable_grad, "inference": torch.inference_mode}
"""The modes of gradients in which networks are called."""


@final
@dataclass(frozen=True)
class Returned:
    """A network's result on some images, or its failure; `fault` names the code at fault if not the network's."""

    output: Any = None
    image: Any = None
    failure: str = ""
    fault: str = ""


def copied(network: nn.Module, which: str) -> nn.Module:
    """A copy to run, so that the caller's network stays unchanged.

    Raises:
        UnsupportedError: the copy differs from the network, since it still holds objects of the original (C2A106).
    """
    try:
        copy = copy_network(network)
        difference = Lockstep(network, copy, copied=True).difference if copy is not network else "it is returned itself"
    except UnsupportedError as error:
        raise UnsupportedError(error.code, f"of the {which}, {error.found}", error.remedy) from error
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
def seeded(devices: Iterable[torch.device], seed: int = 0) -> Iterator[None]:
    """While active, random numbers of the CPU and of these devices are the same each time."""
    with LOCK, generators_kept(devices, seed=seed):
        yield


@contextmanager
def eagerly() -> Iterator[None]:
    """While active, code that compiles itself, as torch.cond does at each call, runs uncompiled.

    Code compiled under a mode would later run for the caller. An error within compiled code, such as that of an
    operator without a rule, would prevent it from ever running again.
    """
    with LOCK, torch.compiler.set_stance("force_eager"):
        yield


def call(network: Callable[..., Any], images: Inputs, *, mode: str = "no gradients", seed: int = 0) -> Returned:
    """The result of a network, and the images or named inputs after the call, into which it may have written.

    Raises:
        UsageError: there is not enough memory (C2A202).
        UnsupportedError: the parts of what is returned cannot be walked; see `output_parts` (C2A407).
    """
    own_inputs = map_tensors(Tensor.clone, images)
    try:
        with seeded([each.device for each in tensors_in(images)], seed), MODES[mode]():
            positional, named = arguments(own_inputs)
            output = network(*positional, **named)
    except (Exception, SystemExit) as error:  # the code of a network may raise anything
        if without_memory(error):
            sentence = "the networks need more memory than there is"
            raise UsageError("C2A202", sentence, "Pass smaller images.") from error
        return Returned(failure=f"{type(error).__name__}: {reason(error)}", fault=blame(error))
    for _ in output_parts(output):
        pass  # the walk ends, so the result can be compared part by part
    return Returned(output, own_inputs)


class Named(TorchDispatchMode):
    """Records the names of the operators that run."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.names = list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def operators_called(network: nn.Module, inputs: Inputs) -> list[str] | None:
    """The names of the operators that a copy of a network calls, in their order; None if it does not run."""
    copy = copy_network(network)
    with Named() as operators, eagerly():
        failed = call(copy, inputs).failure
    return None if failed else operators.names


def numbers_of(returned: Returned) -> Returned:
    """The result, detached from the graph of gradients."""
    return replace(returned, output=tree_map_only(Tensor, detached, returned.output), image=None)


def detached(tensor: Tensor) -> Tensor:
    """A tensor detached from the graph of gradients, or the tensor itself if its class refuses."""
    try:
        return tensor.detach()
    except Exception:  # a subclass may raise anything
        return tensor
