"""Stochastic arithmetic: calls a network with every number rounded at random, which measures its rounding.

Each operator is computed in float64 and each of its numbers is rounded up or down by chance (CESTAC, Verificarlo), so
shaken calls scatter around the exact result. Exact steps stay exact: copies, masks, ties and indices. Sources: Vignes
1993, "A stochastic arithmetic for reliable scientific computation"; Denis et al. 2016, "Verificarlo".
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equality.calls import Returned, call, eagerly
from conv2attn.networks.copies import copy_network
from conv2attn.networks.specimens import Inputs, map_tensors
from conv2attn.torch_internals import TorchDispatchMode, tree_leaves, tree_map

WIDE = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64)
WIDE |= dict.fromkeys((torch.complex64, torch.complex128), torch.complex128)
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their bytes."""
BLOCK = 2**16
"""Numbers moved at a time, so that they stay in the cache."""
COUNTS = 2**11
"""Integers below this are exact in every format. They may be counts or indices, and stay."""

PRODUCTS = tuple(getattr(torch.ops.aten, name).default for name in ("convolution", "mm", "bmm", "addmm", "baddbmm"))
"""Operators whose result has the dtype of each operand."""


def shaken_call(network: nn.Module, inputs: Inputs, seed: int) -> Returned:
    """The output of a copy in stochastic arithmetic. First each number of inputs and weights moves to a neighbour.

    The network's random numbers are drawn from `seed`.
    """
    generator = torch.Generator().manual_seed(seed)
    copy = copy_network(network)
    with torch.no_grad():
        for stored in filter(is_rounded, (*copy.parameters(), *copy.buffers())):
            each_once = stored[tuple(slice(0, 1) if step == 0 else slice(None) for step in stored.stride())]
            each_once.copy_(neighbour(each_once, generator))
        shaken = map_tensors(lambda each: neighbour(each.detach(), generator), inputs)
    with StochasticRounding(generator), eagerly():
        return call(copy, shaken, seed=seed)


@final
class StochasticRounding(TorchDispatchMode):
    """Computes each operator in float64, and rounds its numbers up or down at random.

    If there is no float64 kernel, the numbers move to a neighbour instead.
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
            with suppress(Exception):  # there may be no float64 kernel
                wider_args, wider_kwargs = tree_map(widened, (args, kwargs))
                exact = func(*wider_args, **wider_kwargs)
        # A product costs most of a call and has the dtype of its factors, so it is computed only in float64.
        if isinstance(exact, Tensor) and func in PRODUCTS and exact.dtype != args[0].dtype and is_rounded(exact):
            return neighbour(exact.to(args[0].dtype), self.generator, exact)
        out = func(*args, **kwargs)
        for rounded, wider in zip(tree_leaves(out), wide_leaves(exact), strict=False):
            if isinstance(rounded, Tensor) and is_rounded(rounded):
                rounded.copy_(neighbour(rounded, self.generator, wider if is_wider(wider, rounded) else None))
        return out


def wide_leaves(exact: Any) -> Iterator[Any]:
    """The leaves of a result in float64, or None for each if there is no float64 result."""
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
    """Whether a tensor has rounded numbers that can be moved."""
    return tensor.dtype in WIDE and tensor.layout is torch.strided and tensor.numel() > 0 and not tensor.is_meta


def neighbour(tensor: Tensor, generator: torch.Generator, exact: Tensor | None = None) -> Tensor:
    """`exact` rounded up or down at random; without it, each number moves to the next larger or smaller one.

    Without `exact`, small integers stay, since they may be counts. Numbers that are not finite always stay.
    """
    if not is_rounded(tensor):
        return tensor
    if tensor.is_complex():
        wider = None if exact is None else torch.view_as_real(exact.resolve_conj())
        pairs = neighbour(torch.view_as_real(tensor.resolve_conj()), generator, wider)
        return torch.view_as_complex(pairs.contiguous())
    # `moved` is a copy of the numbers, or the exact numbers rounded to nearest. It changes in place, block by block.
    source = tensor if exact is None else exact
    moved = source.to(tensor.dtype, copy=True, memory_format=torch.contiguous_format)
    words = torch.empty(-(-moved.numel() // 8), dtype=torch.int64, device="cpu")
    coins = words.random_(-(2**63), None, generator=generator).view(torch.int8).to(tensor.device)
    numbers, wide = moved.view(-1), source.reshape(-1)
    for start in range(0, len(numbers), BLOCK):
        block = numbers[start : start + BLOCK]
        wider = None if exact is None else wide[start : start + BLOCK]
        steps = steps_of(block, wider, coins[start : start + len(block)] >> 7)
        # The next larger number has the next bit pattern, read as an integer: IEEE 754-2019, section 3.4.
        block.view(BITS[tensor.dtype.itemsize]).add_(steps)
    # A sum is finite only if all of its numbers are.
    if math.isfinite(tensor.sum() + moved.sum()):
        return moved
    return torch.where(tensor.isfinite() & moved.isfinite(), moved, tensor)


def steps_of(block: Tensor, wide: Tensor | None, signs: Tensor) -> Tensor:
    """The change of each number's magnitude, in units of its last place: -1, 0 or 1.

    Args:
        wide: the exact numbers. A rounded number may move to the float on the other side of its exact number; one that
            is exact stays.
        signs: 0 or -1, at random.
    """
    if wide is not None:
        apart = wide.abs().sub_(block.to(wide.dtype).abs_())
        return apart.sign_().to(torch.int8).bitwise_and_(signs)
    steps = signs.bitwise_or_(1)
    if int(block.frac().count_nonzero()) < len(block):
        steps.masked_fill_((block.frac() == 0) & (block.abs() < COUNTS), 0)
    return steps
