"""One call of a network with shadows: random numbers in place of the inputs, and the caller's state as before."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from conv2attn.equality.output_parts import output_parts
from conv2attn.equality.worlds.drawn_inputs import with_random_numbers
from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.output_shadows import is_blind
from conv2attn.equality.worlds.shadows import SHAKES, Shadow, Unfollowed
from conv2attn.equality.worlds.watch import Watch
from conv2attn.generators import generators_kept
from conv2attn.networks.fast_path import without_fast_path
from conv2attn.torch_internals import enable_mkldnn, mkldnn_enabled, tree_leaves

MARKS = {"_shadow", "_made", "_ids"}


@dataclass(frozen=True)
class FollowedCall:
    """The watch, the tensors of the output by name, and its plain Python values."""

    watch: Watch
    tensors: dict[str, Tensor]
    values: list[Any]

    @property
    def shadows(self) -> list[Shadow]:
        """The shadows of the tensors."""
        shadows = [s for t in self.tensors.values() if isinstance(s := getattr(t, "_shadow", None), Shadow)]
        if len(shadows) < len(self.tensors):
            raise Unfollowed("outputs of whole numbers or booleans")
        return shadows


def followed_call(network: Any, args: Any, kwargs: Any, oracles: Oracles, second: bool, seed: int) -> FollowedCall:
    """Calls a network with shadows."""
    path = list[str]()
    watch = Watch(oracles, second, path)
    args, kwargs = with_random_numbers(args, kwargs, seed, oracles)
    for t in tree_leaves((args, kwargs)):
        if isinstance(shadow := getattr(t, "_shadow", None), Shadow):
            watch.keep(t, shadow)
    with as_before(network, path, oracles.quick), generators_kept(seed=seed), watch:
        out = network(*args, **kwargs)
    parts = dict(output_parts(out))
    values = [v for v in parts.values() if isinstance(v, (int, float, complex, str))]
    return FollowedCall(watch, {path: t for path, t in parts.items() if isinstance(t, Tensor)}, values)


def both_calls(
    first: Any, second: Any, args: Any, kwargs: Any, seed: int, oracles: Oracles
) -> tuple[FollowedCall, FollowedCall]:
    """Runs the two networks with one table; the second's outputs in the order of the first's names."""
    one = followed_call(first, args, kwargs, oracles, False, seed)
    # Units of rounding are at least those that the first network shows, so the second of a quick run is not shaken at
    # first: that costs its true copies alone, and the units are narrower. What they leave open is asked with two shakes
    # beside the four of the first.
    matches = dict(oracles.unmatched), oracles.arguments
    for shakes in (0, 2) if oracles.quick else (SHAKES,):
        oracles.shakes = shakes
        try:
            two = followed_call(second, args, kwargs, oracles, True, seed)
            break
        except Unfollowed:
            if shakes:
                raise
        (oracles.unmatched, oracles.arguments), oracles.turn, oracles.worst = matches, {}, 0.0
    if set(one.tensors) == set(two.tensors):
        two = FollowedCall(two.watch, {name: two.tensors[name] for name in one.tensors}, two.values)
    for call in (one, two):
        for plain, shadow in zip(call.tensors.values(), call.shadows, strict=True):
            if is_blind(plain, shadow):
                raise Unfollowed("numbers that are finite in the network are not so in its shadow")
    return one, two


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
