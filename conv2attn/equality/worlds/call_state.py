"""Prepares a call of a network: its own copies of the inputs, with the caller's state restored afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from conv2attn.equality.worlds.shadows import is_number
from conv2attn.networks.fast_path import without_fast_path
from conv2attn.networks.specimens import Arguments, map_tensors, masks_among
from conv2attn.torch_internals import enable_mkldnn, mkldnn_enabled

MARKS = {"_shadow", "_made", "_ids"}


def own_inputs(args: Any, kwargs: Any, number: Callable[[Tensor], Tensor]) -> tuple[Any, Any]:
    """Copies of the inputs: `number` replaces floating tensors other than masks, and ids are marked."""
    masks = masks_among((args, dict(kwargs)))

    def own(passed: Tensor) -> Tensor:
        t = passed.detach().clone()
        if is_number(t):
            t = t if id(passed) in masks else number(t)
        elif t.dtype != torch.bool:
            t._ids = True  # type: ignore[attr-defined]
        t._made = True  # type: ignore[attr-defined]
        return t

    mended: tuple[Any, Any] = map_tensors(own, Arguments(tuple(args), dict(kwargs)))
    return mended


@contextmanager
def without_onednn() -> Iterator[None]:
    """Within the block, torch computes without oneDNN, process-wide."""
    # Not torch's `flags`: it sets TF32 too, which warns on machines without it. Not the attributes of backends either,
    # which a program may have frozen.
    enabled = mkldnn_enabled()
    enable_mkldnn(False)
    try:
        yield
    finally:
        enable_mkldnn(enabled)


@contextmanager
def as_before(network: Any, path: list[str]) -> Iterator[None]:
    """Records the path of modules while a network runs, and restores its buffers.

    The network runs without torch's fused encoder kernel, for which there is no rule.
    """
    modules = isinstance(network, nn.Module)
    names = {m: f"{n or 'the network'} ({type(m).__name__})" for n, m in network.named_modules()} if modules else {}

    def enter(module: nn.Module, args: Any) -> None:
        path.append(names.get(module) or type(module).__name__)

    def leave(module: nn.Module, args: Any, out: Any) -> None:
        path.pop()

    buffers = [(b, b.clone()) for b in network.buffers()] if modules else []
    handles = []
    # Hooks on all modules are process-wide, so no statement is between them and the `finally` that removes them.
    try:
        handles.append(module_hooks.register_module_forward_pre_hook(enter))
        handles.append(module_hooks.register_module_forward_hook(leave, always_call=True))
        with torch.no_grad(), without_fast_path():
            yield
    finally:
        for handle in handles:
            handle.remove()
        path.clear()
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for t in (*network.parameters(), *network.buffers()) if modules else ():
            for mark in MARKS & set(vars(t)):
                delattr(t, mark)
