"""Saves and restores random generators, so that a network that draws in our runs does not advance the user's."""

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.torch_internals import DisableTorchFunction

CPU = torch.device("cpu")


@contextmanager
def generators_kept(devices: Iterable[torch.device] = (), seed: int | None = None) -> Iterator[None]:
    """Restores all generators after the block; with a seed, they start at it inside.

    They are torch's, of the CPU and of `devices`, Python's `random`, and `numpy.random` if it was imported.
    `torch.manual_seed` seeds every device of the process, and `torch.random.fork_rng` reads every GPU.

    Examples:
        >>> before = torch.get_rng_state()
        >>> with generators_kept(seed=0):
        ...     drawn = torch.rand(2)
        >>> torch.equal(before, torch.get_rng_state())
        True
    """
    used = [CPU, *{device for device in devices if device.type not in ("cpu", "meta")}]
    before = [generator_state(device) for device in used]
    python, numpy = random.getstate(), getattr(sys.modules.get("numpy"), "random", None)
    arrays = numpy.get_state() if numpy else None
    try:
        if seed is not None:
            random.seed(seed)
            if numpy:
                numpy.seed(seed)
            for device in used:
                seed_generator(device, seed)
        yield
    finally:
        random.setstate(python)
        if numpy:
            numpy.set_state(arrays)
        for device, state in zip(used, before, strict=True):
            set_state_of(device, state)


def devices_of(network: nn.Module, *inputs: Any) -> set[torch.device]:
    """The devices of a network's tensors and of the tensors in `inputs`."""
    tensors = [*network.parameters(), *network.buffers(), *(each for each in inputs if isinstance(each, Tensor))]
    # Under a watch each of these attributes would be observed, which took half of the time of a run.
    with DisableTorchFunction():
        return {tensor.device for tensor in tensors}


def generator_state(device: torch.device) -> Tensor:
    """The state of a device's own generator."""
    if device.type == "cpu":
        return torch.default_generator.get_state()
    module: Any = torch.get_device_module(device)
    return module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)


def set_state_of(device: torch.device, state: Tensor) -> None:
    """Sets the state of a device's own generator."""
    if device.type == "cpu":
        torch.default_generator.set_state(state)
        return
    module: Any = torch.get_device_module(device)
    module.set_rng_state(state) if device.type == "mps" else module.set_rng_state(state, device)


def seed_generator(device: torch.device, seed: int) -> None:
    """Seeds only the device's own generator."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
        return
    module: Any = torch.get_device_module(device)
    with module.device(device) if hasattr(module, "device") else nullcontext():
        module.manual_seed(seed)
