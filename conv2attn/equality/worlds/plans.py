"""The plan of a call: its operators and constants, which must be the same for other numbers of the input.

Three calls tell: on random numbers times -1000 and times 1000, and the followed call, on the caller's. The two factors
of the same numbers differ in every sign, so whatever a sum, a maximum or an order decides is decided otherwise in one
of them; the caller's numbers differ from both in size.
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
"""One more factor, where the caller's numbers are large themselves or the network refuses those of OTHERS."""
MOST = 10**5  # numbers of a tensor that enter its sum
FEWER = 10**4  # the same for results of operators
ROOTS = torch.arange(1, MOST + 1, dtype=torch.float64).sqrt()
Plan = list[tuple[str, list[Any], list[str]]]


def common_plan(network: Any, args: Any, kwargs: Any, seed: int) -> Plan:
    """The plan of a network, whatever the numbers of its input.

    Raises:
        Unfollowed: it depends on them.
    """
    large = any(is_number(t) and bool((t.abs() > LARGE).any()) for t in tree_leaves((args, kwargs)))
    plans = dict[float, Plan]()
    # The caller's own numbers come last: a network that refuses the others says nothing by that.
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
    """Writes down the operators of a call, and a sum of each tensor that no operator made.

    Where `outside`, results are compared again when they are used: code outside torch may have written into them.
    """

    def __init__(self, outside: bool):
        super().__init__()
        self.plan, self.outside, self.inner = Plan(), outside, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Writes down one operator, but not those that it is computed by."""
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
        """What the operator returns."""
        return func(*args, **kwargs)


def is_overwritten(t: Tensor) -> bool:
    """Whether a result has other numbers than when it was made, though no operator wrote them."""
    made = getattr(t, "_made", None)
    return isinstance(made, tuple) and made[0] == t._version and made[1] != checksum(t, FEWER)


def checksum(t: Tensor, most: int = MOST) -> complex:
    """A sum of a tensor's numbers that their order and signs change."""
    t = (t.to_dense() if t.layout is not torch.strided else t).detach()
    # In the order of memory, in which no copy is made.
    t = t.permute(sorted(range(t.dim()), key=t.stride, reverse=True)).flatten()
    # A copy always, since the sum of a product may differ in its last place with where in memory the numbers lie.
    t = t[:: 1 + t.numel() // most].to(torch.complex128 if t.is_complex() else torch.float64, copy=True)
    weights = ROOTS[: len(t)].to(t.dtype)
    total = complex(t.dot(weights))
    # Only then are there numbers to leave out, or so large ones that their sum is none.
    return total if cmath.isfinite(total) else complex(t.nan_to_num(0.0, 0.0, 0.0).dot(weights))


def call_plan(network: Any, args: Any, kwargs: Any, factor: float, seed: int, outside: bool = False) -> Plan | None:
    """The plan on the caller's inputs (0), or on random ones times a factor; None if the network refuses these."""
    generator = torch.Generator().manual_seed(seed + 1)

    def other(t: Tensor) -> Tensor:
        dtype = t.dtype if t.is_complex() else torch.float32
        drawn = torch.randn(t.shape, generator=generator, device="cpu", dtype=dtype)
        return factor * drawn.to(t) if factor else t

    args, kwargs = own_inputs(args, kwargs, other)
    # Another seed than the followed call's: numbers that code draws itself, with NumPy or Python, differ and so refuse.
    with as_before(network, []), generators_kept(seed=seed + 1 + abs(round(factor))), Planning(outside) as planning:
        try:
            network(*args, **kwargs)
        except Exception as error:
            if not factor or isinstance(error, Unfollowed):
                raise
            return None
    return planning.plan
