"""Stochastic arithmetic: a network is called with every number rounded at random, so that its rounding can be measured.

Each operator is computed in float64 and each of its numbers is rounded up or down by chance (CESTAC, Verificarlo), so
shaken calls lie around the exact result. What is exact stays: copies, masks, ties and indices. Sources: Vignes 1993, "A
stochastic arithmetic for reliable scientific computation"; Denis et al. 2016, "Verificarlo".
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equality.calls import Returned, call
from conv2attn.networks.copies import copy_network
from conv2attn.networks.specimens import Inputs, map_tensors
from conv2attn.torch_internals import TorchDispatchMode, tree_leaves, tree_map

WIDE = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64)
WIDE |= dict.fromkeys((torch.complex64, torch.complex128), torch.complex128)
COUNTS = 2**11
"""Whole numbers below it are exact in every format: they may count or index, and stay."""


def shaken_call(network: nn.Module, inputs: Inputs, seed: int) -> Returned:
    """What a copy of the network returns in stochastic arithmetic; inputs and stored numbers move to a neighbour first.

    Random numbers of the network are drawn anew, from `seed`.
    """
    generator = torch.Generator().manual_seed(seed)
    copy = copy_network(network)
    with torch.no_grad():
        for stored in filter(is_rounded, (*copy.parameters(), *copy.buffers())):
            each_once = stored[tuple(slice(0, 1) if step == 0 else slice(None) for step in stored.stride())]
            each_once.copy_(neighbour(each_once, generator))
        shaken = map_tensors(lambda each: neighbour(each.detach(), generator), inputs)
    # torch.cond compiles its branches at each call; what it compiled under a mode would be served to the caller later.
    with StochasticRounding(generator), torch.compiler.set_stance("force_eager"):
        return call(copy, shaken, seed=seed)


@final
class StochasticRounding(TorchDispatchMode):
    """Computes each operator in float64, and rounds its numbers up or down by chance.

    Where float64 has no kernel, the numbers move to a neighbour instead.
    """

    supports_higher_order_operators = True

    def __init__(self, generator: torch.Generator):
        super().__init__()
        self.generator = generator

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs, schema, exact = kwargs or {}, getattr(func, "_schema", None), None
        if schema and not schema.is_mutable and any(each.alias_info is not None for each in schema.returns):
            return func(*args, **kwargs)  # a view has the numbers of its base
        # Random operators draw other numbers in float64, so their results have no wider counterpart.
        if schema and torch.Tag.nondeterministic_seeded not in func.tags:
            with suppress(Exception):  # no kernel for float64
                exact = func(*tree_map(widened, args), **tree_map(widened, kwargs))
        out = func(*args, **kwargs)
        for rounded, wider in zip(tree_leaves(out), wide_leaves(exact), strict=False):
            if isinstance(rounded, Tensor) and is_rounded(rounded):
                rounded.copy_(neighbour(rounded, self.generator, wider if is_wider(wider, rounded) else None))
        return out


def wide_leaves(exact: Any) -> Iterator[Any]:
    """The leaves of a result in float64, or None for each where there is none."""
    return repeat(None) if exact is None else iter(tree_leaves(exact))


def widened(leaf: Any) -> Any:
    """A tensor or a dtype in float64; a copy, since the operator may write into it."""
    if isinstance(leaf, Tensor):
        return leaf.to(WIDE.get(leaf.dtype, leaf.dtype), copy=True)
    return WIDE.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf


def is_wider(wider: Any, rounded: Tensor) -> bool:
    """Whether `wider` holds the same numbers with more digits."""
    if not isinstance(wider, Tensor) or wider.shape != rounded.shape:
        return False
    return rounded.dtype != wider.dtype == WIDE[rounded.dtype]


def is_rounded(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor are rounded ones that can be moved."""
    return tensor.dtype in WIDE and tensor.layout is torch.strided and tensor.numel() > 0 and not tensor.is_meta


def neighbour(tensor: Tensor, generator: torch.Generator, exact: Tensor | None = None) -> Tensor:
    """`exact` rounded up or down by chance; without it, each number moved to the next larger or smaller one.

    Without it small whole numbers stay, since they may count; numbers that are not finite always stay.
    """
    if not is_rounded(tensor):
        return tensor
    if tensor.is_complex():
        wider = None if exact is None else torch.view_as_real(exact.resolve_conj())
        pairs = neighbour(torch.view_as_real(tensor.resolve_conj()), generator, wider)
        return torch.view_as_complex(pairs.contiguous())
    up = torch.rand(tensor.shape, generator=generator, device="cpu").to(tensor.device) < 0.5
    if exact is None:
        moved = torch.nextafter(tensor, torch.where(up, math.inf, -math.inf).to(tensor.dtype))
        whole = (tensor == tensor.round()) & (tensor.abs() < COUNTS)
        return torch.where(whole | ~tensor.isfinite() | ~moved.isfinite(), tensor, moved)
    # `near` is the rounded value, `other` the number on the other side of the exact one; what is exact has no other.
    near = exact.to(tensor.dtype)
    other = torch.nextafter(near, torch.where(exact > near, math.inf, -math.inf).to(tensor.dtype))
    moved = torch.where(up & (exact != near), other, near)
    return torch.where(tensor.isfinite() & moved.isfinite(), moved, tensor)
