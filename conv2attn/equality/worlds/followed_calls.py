"""Calls two networks on random inputs, and follows each tensor by its shadow; see `shadows`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.output_parts import output_parts
from conv2attn.equality.worlds.call_state import as_before, own_inputs
from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.output_shadows import is_blind
from conv2attn.equality.worlds.plans import Plan, refuse_other
from conv2attn.equality.worlds.shadows import SHAKES, Shadow, Unfollowed
from conv2attn.equality.worlds.watch import Watch
from conv2attn.generators import generators_kept
from conv2attn.torch_internals import tree_leaves


@dataclass(frozen=True)
class FollowedCall:
    """The watch, the tensors of the output by name, and its plain Python values."""

    watch: Watch
    tensors: dict[str, Tensor]
    values: list[Any]

    @property
    def shadows(self) -> list[Shadow]:
        """The shadows of the output tensors."""
        shadows = [s for t in self.tensors.values() if isinstance(s := getattr(t, "_shadow", None), Shadow)]
        if len(shadows) < len(self.tensors):
            raise Unfollowed("outputs of whole numbers or booleans")
        return shadows


@dataclass(frozen=True)
class Calls:
    """Two networks, the plans of their calls, and the arguments of the calls."""

    networks: Sequence[Any]
    plans: Sequence[Plan]
    args: Any
    kwargs: Any
    seed: int

    def followed_call(self, oracles: Oracles, second: bool) -> FollowedCall:
        """One call of a network with shadows."""
        path = list[str]()
        watch = Watch(oracles, second, path)
        generator = torch.Generator().manual_seed(self.seed + 1)

        def drawn(t: Tensor) -> Tensor:
            t._shadow = random_input(t, generator, oracles)  # type: ignore[attr-defined]
            return t

        args, kwargs = own_inputs(self.args, self.kwargs, drawn)
        for t in tree_leaves((args, kwargs)):
            if isinstance(shadow := getattr(t, "_shadow", None), Shadow):
                watch.keep(t, shadow)
        network = self.networks[second]
        with as_before(network, path), generators_kept(seed=self.seed), watch:
            out = network(*args, **kwargs)
        refuse_other(watch.plan, self.plans[second])
        parts = dict(output_parts(out))
        values = [v for v in parts.values() if isinstance(v, (int, float, complex, str))]
        return FollowedCall(watch, {path: t for path, t in parts.items() if isinstance(t, Tensor)}, values)

    def both(self, oracles: Oracles) -> tuple[FollowedCall, FollowedCall]:
        """Runs both networks with the same oracles; the second's outputs are in the order of the first's names."""
        one = self.followed_call(oracles, False)
        # Shaken copies serve only to measure rounding: without them the tolerance is smaller, never larger. So in a
        # quick run the second network begins with true copies alone, which is cheaper. If a difference then exceeds
        # the tolerance, it runs again with two shaken copies; the first network has four.
        for shakes in (0, 2) if oracles.quick else (SHAKES,):
            oracles.begin_second(shakes)
            try:
                two = self.followed_call(oracles, True)
                break
            except Unfollowed:
                if shakes:
                    raise
        if set(one.tensors) == set(two.tensors):
            two = FollowedCall(two.watch, {name: two.tensors[name] for name in one.tensors}, two.values)
        for call in (one, two):
            for plain, shadow in zip(call.tensors.values(), call.shadows, strict=True):
                if is_blind(plain, shadow):
                    raise Unfollowed("numbers that are finite in the network are infinite or NaN in its shadow")
        return one, two


def random_input(t: Tensor, generator: torch.Generator, oracles: Oracles) -> Shadow:
    """Random numbers in the shape and scale of the input, exact in float32."""
    size = t.abs().double().nan_to_num(1.0, 1.0).clamp(min=1.0)
    dtype = torch.complex128 if t.is_complex() else torch.float64
    stored = torch.complex64 if t.is_complex() else torch.float32
    drawn = [s * size * torch.randn(t.shape, generator=generator, device="cpu", dtype=dtype) for s in oracles.scales]
    # In float32 first, so that copies of both dtypes hold the same input, without rounding.
    return oracles.spread([world.to(stored) for world in drawn])
