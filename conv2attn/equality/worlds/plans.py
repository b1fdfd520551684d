"""The plan of a call: its operators and constants, which must be the same for other numbers of the input.

Three calls are compared: on random numbers times -1000 and times 1000, and the followed call, on the caller's numbers.
The two factors differ in every sign, so any decision by a sum, a maximum or an order differs between them; the caller's
numbers differ from both in size.
"""

import cmath
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.call_state import as_before, own_inputs
from conv2attn.equality.worlds.shadows import Unfollowed, is_number
from conv2attn.generators import generators_kept
from conv2attn.torch_internals import TorchDispatchMode, tree_leaves

OTHERS = -1e3, 1e3
SMALLER, LARGE = 1e-3, 10.0
"""A further factor, used if the caller's numbers are LARGE or the network refuses the factors OTHERS."""
MOST = 10**5  # most numbers of a tensor in its checksum
FEWER = 10**4  # most numbers of an operator's result in its checksum
ROOTS = torch.arange(1, MOST + 1, dtype=torch.float64).sqrt()
Plan = list[tuple[str, list[Any], list[str]]]


def common_plan(network: Any, args: Any, kwargs: Any, seed: int) -> Plan:
    """The plan of a network, which must not depend on the numbers of its input.

    Raises:
        Unfollowed: the plan depends on them.
    """
    large = any(is_number(t) and bool((t.abs() > LARGE).any()) for t in tree_leaves((args, kwargs)))
    plans = dict[float, Plan]()
    # The caller's numbers come last: refusing the others proves nothing about a network.
    for factor in (*OTHERS, SMALLER, 0.0):
        if len(plans) < len(OTHERS) or (large and factor == SMALLER):
            plan = call_plan(network, args, kwargs, factor, seed, factor == OTHERS[-1])
            plans.update({} if plan is None else {factor: plan})
    first, *_, last = *plans, *plans
    if first == last or plans[first] != plans[last]:  # the first call may have filled caches
        plans[first] = call_plan(network, args, kwargs, first, seed) or []
    refuse_other(*plans.values())
    return plans[last]


def refuse_other(*plans: Plan) -> None:
    """Refuses plans that differ."""
    if any(plan != plans[0] for plan in plans):
        raise Unfollowed("the operators or constants of a call depend on the numbers of its input, or are random")


class Planning(TorchDispatchMode):
    """Records the operators of a call, and a checksum of each tensor that no operator created.

    If `outside`, results are compared again when they are used, since code outside torch may have written into them.
    """

    def __init__(self, outside: bool):
        super().__init__()
        self.plan, self.outside, self.inner = Plan(), outside, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Records one operator, but not those that compute it."""
        kwargs = kwargs or {}
        if self.inner:
            return self.computed(func, args, kwargs)
        leaves = tree_leaves((args, kwargs))
        tensors = [t for t in leaves if isinstance(t, Tensor)]
        if self.outside and any(map(is_overwritten, tensors)):
            raise Unfollowed("code outside torch writes into a tensor")
        loose = [(tuple(t.shape), checksum(t)) for t in tensors if not hasattr(t, "_made")]
        self.plan.append((str(func), loose, [repr(v) for v in leaves if isinstance(v, (int, float, complex))]))
        self.inner = True
        try:
            out = self.computed(func, args, kwargs)
        finally:
            self.inner = False
        for t in tree_leaves(out):
            if isinstance(t, Tensor):
                summed = self.outside and not t.is_inference() and not func._schema.is_mutable
                t._made = (t._version, checksum(t, FEWER)) if summed else True  # type: ignore[attr-defined]
        return out

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the operator."""
        return func(*args, **kwargs)


def is_overwritten(t: Tensor) -> bool:
    """Whether a result changed although no operator wrote into it."""
    made = getattr(t, "_made", None)
    return isinstance(made, tuple) and made[0] == t._version and made[1] != checksum(t, FEWER)


def checksum(t: Tensor, most: int = MOST) -> complex:
    """A checksum of a tensor's numbers that depends on their order and signs."""
    t = (t.to_dense() if t.layout is not torch.strided else t).detach()
    # In memory order, which needs no copy.
    t = t.permute(sorted(range(t.dim()), key=t.stride, reverse=True)).flatten()
    # Always a copy, since the last place of a sum of products may depend on the memory address.
    t = t[:: 1 + t.numel() // most].to(torch.complex128 if t.is_complex() else torch.float64, copy=True)
    weights = ROOTS[: len(t)].to(t.dtype)
    total = complex(t.dot(weights))
    # Only then are there numbers to exclude, or numbers too large to be summed.
    return total if cmath.isfinite(total) else complex(t.nan_to_num(0.0, 0.0, 0.0).dot(weights))


def call_plan(network: Any, args: Any, kwargs: Any, factor: float, seed: int, outside: bool = False) -> Plan | None:
    """The plan on the caller's inputs (0), or on random ones times a factor; None if the network refuses them."""
    generator = torch.Generator().manual_seed(seed + 1)

    def other(t: Tensor) -> Tensor:
        dtype = t.dtype if t.is_complex() else torch.float32
        drawn = torch.randn(t.shape, generator=generator, device="cpu", dtype=dtype)
        return factor * drawn.to(t) if factor else t

    args, kwargs = own_inputs(args, kwargs, other)
    # Another seed than in the followed call: numbers that code draws with NumPy or Python then differ, and are refused.
    with as_before(network, []), generators_kept(seed=seed + 1 + abs(round(factor))), Planning(outside) as planning:
        try:
            network(*args, **kwargs)
        except Exception as error:
            if not factor or isinstance(error, Unfollowed):
                raise
            return None
    return planning.plan
