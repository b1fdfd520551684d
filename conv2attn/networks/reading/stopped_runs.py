"""Runs of a network that end behind the last attention that is wanted: the rest would cost time and memory.

A network may catch what ends a run, and go on: then the run is whole, and nothing that comes is passed on. Attributes
and settings of torch that the rest of a run would have reset are put back. Networks with hooks of the caller run as a
whole, since hooks may come in pairs; so do those that write into their tensors, and compiled code.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.networks.reading.attended import Attended, Running
from conv2attn.networks.reading.watch import Marked, Watch

CONTAINERS = (dict, OrderedDict, list, set)
SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    *((partial(torch.is_autocast_enabled, on), partial(torch.set_autocast_enabled, on)) for on in ("cpu", "cuda")),
    *((partial(torch.get_autocast_dtype, on), partial(torch.set_autocast_dtype, on)) for on in ("cpu", "cuda")),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
)
"""Settings of torch for the whole process that a forward may change: what reads each, and what sets it.

Gradients are not among them: `Watch.run` puts their mode back.
"""


@final
class Enough(BaseException):
    """Ends a run. It is no Exception, which networks catch where one kernel fails and another is there."""


def may_end(network: nn.Module) -> bool:
    """Whether no hook of the caller would miss the rest of a run."""
    return not any(each._forward_hooks or each._forward_pre_hooks for each in network.modules())


def versions(network: nn.Module) -> list[tuple[Tensor, int]]:
    """The tensors of a network, and how often each was written to."""
    attributes = (each for module in network.modules() for each in vars(module).values() if isinstance(each, Tensor))
    tensors = (*network.parameters(), *network.buffers(), *attributes)
    return [(each, each._version) for each in tensors if not each.is_inference()]


def run_until(
    enough: Callable[[], bool],
    network: nn.Module,
    see: Callable[[Attended, Running], None],
    run: Callable[[Watch], Any],
    marked: Marked | None = None,
) -> None:
    """Passes each attention of a run to `see`; the run ends as soon as that is `enough`."""
    own, ended, ends = threading.get_ident(), False, may_end(network)

    def see_until(attended: Attended, running: Running) -> None:
        nonlocal ended
        if ended:
            return
        see(attended, running)
        if ends and enough() and threading.get_ident() == own and not torch.compiler.is_compiling():
            ended = True
            raise Enough

    with attributes_kept(network, lambda: ended), settings_kept(lambda: ended):
        try:
            run(Watch(network, see_until, marked=marked))
        except (Enough, Exception):  # a network may catch what ends the run, and raise an error of its own
            if not ended:
                raise


@contextmanager
def attributes_kept(network: nn.Module, ended: Callable[[], bool]) -> Iterator[None]:
    """Puts back the attributes of all modules, and what their containers hold, if the run was `ended`."""
    before = [(module, dict(vars(module))) for module in network.modules()]
    held = [each for _, attributes in before for each in attributes.values() if type(each) in CONTAINERS]
    contents = [(each, copy(each)) for each in held]
    yield
    if not ended():
        return
    for module, attributes in before:
        vars(module).clear()
        vars(module).update(attributes)
    for container, content in contents:
        container.clear()
        container.extend(content) if isinstance(container, list) else container.update(content)


@contextmanager
def settings_kept(ended: Callable[[], bool]) -> Iterator[None]:
    """Puts back the settings of torch that have changed, if the run was `ended`."""
    before = [setting(read) for read, _ in SETTINGS]
    yield
    for (read, put), value in zip(SETTINGS, before, strict=True):
        if ended() and value is not None and setting(read) != value:
            put(value)


def setting(read: Callable[[], Any]) -> Any:
    """A setting; None of the matmul precision where the caller has set that of one backend, and torch names none."""
    try:
        return read()
    except RuntimeError:
        return None
