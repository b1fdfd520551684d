"""One call of a network with shadows: random numbers in place of the inputs, and the caller's state as before."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.records import Record
from conv2attn.equality.worlds.shadows import Shadow, cast, is_number
from conv2attn.equality.worlds.watch import Watch
from conv2attn.generators import generators_kept
from conv2attn.networks.fast_path import without_fast_path
from conv2attn.networks.specimens import Arguments, map_tensors, masks_among
from conv2attn.torch_internals import (
    enable_mkldnn,
    key_string,
    mkldnn_enabled,
    tree_flatten_with_path,
    tree_leaves,
)

MARKS = {"_shadow", "_made", "_ids"}


@dataclass(frozen=True)
class FollowedCall:
    """The watch, the tensors of the output by name, and its plain Python values."""

    watch: Watch
    tensors: dict[str, Tensor]
    values: list[Any]

    @property
    def shadows(self) -> list[Shadow | None]:
        """The shadows of the tensors."""
        return [getattr(t, "_shadow", None) for t in self.tensors.values()]


def followed_call(
    network: Any, args: Any, kwargs: Any, oracles: Oracles, second: bool, seed: int, records: list[Record] | None = None
) -> FollowedCall:
    """Calls a network with shadows."""
    path = list[str]()
    watch = Watch(oracles, second, path, records)
    args, kwargs = with_random_numbers(args, kwargs, seed, oracles)
    for t in tree_leaves((args, kwargs)) if records is not None else ():
        if isinstance(shadow := getattr(t, "_shadow", None), Shadow):
            watch.keep(t, shadow)
    with as_before(network, path, oracles.quick), generators_kept(seed=seed), watch:
        out = network(*args, **kwargs)
    values = [v for v in tree_leaves(out) if isinstance(v, (int, float, complex, str))]
    return FollowedCall(watch, output_tensors(out), values)


@contextmanager
def as_before(network: Any, path: list[str], quick: bool = True) -> Iterator[None]:
    """Keeps the path of modules while a network runs, and puts back its buffers.

    It runs without torch's fused encoder kernel, for which there is no rule.
    """
    modules = isinstance(network, nn.Module)
    names = {m: f"{n or 'the network'} ({type(m).__name__})" for n, m in network.named_modules()} if modules else {}
    # oneDNN has an LSTM of its own; without it the LSTM is computed cell by cell.
    onednn = quick and modules and not any(isinstance(m, nn.RNNBase) for m in names)

    def enter(module: nn.Module, args: Any) -> None:
        path.append(names.get(module) or type(module).__name__)

    def leave(module: nn.Module, args: Any, out: Any) -> None:
        path.pop()

    buffers = [(b, b.clone()) for b in network.buffers()] if modules else []
    # `flags` would set TF32 too, and warn where there is none; programs may have frozen the attributes of backends.
    enabled, handles = mkldnn_enabled(), []
    # Hooks on all modules are of the process: nothing stands between them and the `finally` that takes them back.
    try:
        enable_mkldnn(onednn)
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
        enable_mkldnn(enabled)


def with_random_numbers(args: Any, kwargs: Any, seed: int, oracles: Oracles) -> tuple[Any, Any]:
    """Inputs with shadows: numbers become random in each world, ids are marked, masks and other values stay."""
    generator = torch.Generator().manual_seed(seed + 1)
    masks = masks_among((args, dict(kwargs)))

    def with_marks(given: Tensor) -> Tensor:
        t = given.detach().clone()
        if is_number(t) and id(given) not in masks:
            t._shadow = random_input(t, generator, oracles)  # type: ignore[attr-defined]
        elif not is_number(t) and t.dtype != torch.bool:
            t._ids = True  # type: ignore[attr-defined]
        return t

    mended: tuple[Any, Any] = map_tensors(with_marks, Arguments(tuple(args), dict(kwargs)))
    return mended


def random_input(t: Tensor, generator: torch.Generator, oracles: Oracles) -> Shadow:
    """Random numbers of the size of the input's, exact in float32."""
    size = t.abs().double().nan_to_num(1.0, 1.0).clamp(min=1.0)
    dtype = torch.complex128 if t.is_complex() else torch.float64
    stored = torch.complex64 if t.is_complex() else torch.float32
    drawn = [s * size * torch.randn(t.shape, generator=generator, device="cpu", dtype=dtype) for s in oracles.scales]
    worlds = [world.to(stored) for world in drawn]
    return Shadow(cast(worlds[w], i, oracles.dtype) for w, i in oracles.copies)


def output_tensors(output: Any) -> dict[str, Tensor]:
    """The tensors of an output by name."""
    output = dict(output) if hasattr(output, "items") else output
    if hasattr(output, "__dataclass_fields__"):
        output = {name: getattr(output, name) for name in output.__dataclass_fields__}
    return {key_string(path): t for path, t in tree_flatten_with_path(output)[0] if isinstance(t, Tensor)}
