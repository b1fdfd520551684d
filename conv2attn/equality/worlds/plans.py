"""The plan of a call: its operators and constants, which must be the same for other numbers of the input."""

from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.followed_calls import as_before
from conv2attn.equality.worlds.shadows import Unfollowed, is_number
from conv2attn.generators import generators_kept
from conv2attn.networks.specimens import masks_among
from conv2attn.torch_internals import TorchDispatchMode, tree_leaves, tree_map

OTHERS = -1e3, 1e3
"""Factors of the same random numbers: they differ in every sign, and from the caller's numbers in size."""
SMALLER, LARGE = 1e-3, 10.0
"""One more factor, where the caller's numbers are large themselves or the network refuses those of OTHERS."""
MOST = 10**5  # numbers of a tensor that enter its sum
FEWER = 10**4  # the same for results of operators
ROOTS = torch.arange(1, MOST + 1, dtype=torch.float64).sqrt()
Plan = list[tuple[str, list[Any], list[str]]]


def check_plans(network: Any, args: Any, kwargs: Any, seed: int) -> None:
    """Checks that a network does the same operators with the same constants whatever the numbers of its input.

    Raises:
        Unfollowed: it does not.
    """
    plan = call_plan(network, args, kwargs, 0, seed, outside=True)
    large = any(is_number(t) and bool((t.abs() > LARGE).any()) for t in tree_leaves((args, kwargs)))
    compared = False
    for factor in (*OTHERS, SMALLER):
        if factor == SMALLER and compared and not large:
            break
        again = call_plan(network, args, kwargs, factor, seed, factor == OTHERS[-1])
        if again is None:  # the network refuses such numbers, which says nothing
            continue
        if again != plan and not compared:  # the first call may have filled caches
            plan = call_plan(network, args, kwargs, 0, seed)
        if again != plan:
            raise Unfollowed("the operators or constants of a call depend on the numbers of its input, or are drawn")
        compared = True


class Planning(TorchDispatchMode):
    """Writes down the operators of a plain call, and a sum of each tensor that no operator made.

    Where `outside`, results are compared again when they are used: code outside torch may have written into them.
    """

    def __init__(self, outside: bool):
        super().__init__()
        self.plan, self.outside = Plan(), outside

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Writes down one operator."""
        leaves = tree_leaves((args, kwargs))
        tensors = [t for t in leaves if isinstance(t, Tensor)]
        if self.outside and any(map(is_overwritten, tensors)):
            raise Unfollowed("code outside torch writes into a tensor")
        loose = [(tuple(t.shape), checksum(t)) for t in tensors if not hasattr(t, "_made")]
        self.plan.append((str(func), loose, [repr(v) for v in leaves if isinstance(v, (int, float, complex))]))
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor):
                summed = self.outside and not t.is_inference() and not func._schema.is_mutable
                t._made = (t._version, checksum(t, FEWER)) if summed else True  # type: ignore[attr-defined]
        return out


def is_overwritten(t: Tensor) -> bool:
    """Whether a result has other numbers than when it was made, though no operator wrote them."""
    made = getattr(t, "_made", None)
    return isinstance(made, tuple) and made[0] == t._version and made[1] != checksum(t, FEWER)


def checksum(t: Tensor, most: int = MOST) -> complex:
    """A sum of a tensor's numbers that their order and signs change."""
    t = (t.to_dense() if t.layout is not torch.strided else t).detach()
    # In the order of memory, in which no copy is made.
    t = t.permute(sorted(range(t.dim()), key=t.stride, reverse=True)).flatten()
    t = t[:: 1 + t.numel() // most].to(torch.complex128 if t.is_complex() else torch.float64)
    return complex((t.nan_to_num(0.0, 0.0, 0.0) * ROOTS[: len(t)]).sum())


def call_plan(network: Any, args: Any, kwargs: Any, factor: float, seed: int, outside: bool = False) -> Plan | None:
    """The plan on the caller's inputs (0), or on random ones times a factor; None if the network refuses these."""
    generator, masks = torch.Generator().manual_seed(seed + 1), masks_among((args, kwargs))

    def marked(t: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        if factor and is_number(t) and id(t) not in masks:
            drawn = torch.randn(
                t.shape, generator=generator, device="cpu", dtype=t.dtype if t.is_complex() else torch.float32
            )
            t = factor * drawn.to(t)
        else:
            t = t.detach().clone()
        t._made = True
        return t

    args, kwargs = tree_map(marked, (args, kwargs))
    # Other seeds: numbers that the code draws itself, with NumPy or Python, differ between calls and so refuse.
    with as_before(network, []), generators_kept(seed=seed + abs(round(factor))), Planning(outside) as planning:
        try:
            network(*args, **kwargs)
        except Exception as error:
            if not factor or isinstance(error, Unfollowed):
                raise
            return None
    return planning.plan
