"""The mode that runs shadows beside one network, operator by operator."""

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equality.worlds.constants import constant_step
from conv2attn.equality.worlds.general_rules import result_of
from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.records import Parted, Record
from conv2attn.equality.worlds.shadows import COPIES, Shadow, Unfollowed, is_number, is_shadow
from conv2attn.equality.worlds.shaking import HALF, UNITS, are_exact, shaken, shaken_again, unit_of
from conv2attn.equality.worlds.source_lines import source_of
from conv2attn.equality.worlds.steps import Step, has_large_numbers
from conv2attn.torch_internals import (
    TorchDispatchMode,
    has_kernel,
    storage_users,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
    without_modes,
)

KEPT = 10**5  # numbers of a constant, up to which its copies are kept and not drawn again at each use
SECOND = 10**6  # added to seeds of the second network: its constants move by themselves
ASKING = {"_local_scalar_dense", "equal", "is_nonzero", "allclose", "item", "nonzero"}
ERRORS = (
    RuntimeError,
    TypeError,
    AttributeError,
    LookupError,
    ValueError,
)  # what torch raises for arguments of other kinds


@final
class Watch(TorchDispatchMode):
    """Runs shadows beside one network. Constants are shaken; inputs already have their shadows.

    Shadows are attributes of the plain tensors, so they are freed with them; stored tensors keep theirs by identity.
    """

    def __init__(self, oracles: Oracles, second: bool, path: list[str], records: list[Record] | None = None):
        super().__init__()
        self.oracles, self.second, self.path, self.records = oracles, second, path, records
        self.stored: dict[int, tuple[Tensor, int, Shadow | None, int]] = {}
        self.scalars: dict[float, Shadow] = {}
        self.slopes: set[float] = set()  # Python numbers that are compared as they are
        self.seeds, self.coarsest = 0, 0.0
        self.behind: list[int] = []  # the records of what the current operator reads

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Computes the operator as the network does, then beside it."""
        kwargs = kwargs or {}
        composite = has_kernel(func.name(), "CompositeImplicitAutograd")
        if torch.is_inference_mode_enabled() and composite:
            with self:
                return func.decompose(*args, **kwargs)
        before = [(t, self.shadow_of(t)) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if draws_numbers(func, args, kwargs):
            # Two draws of one generator agree, and say nothing of the next two.
            raise Unfollowed("the network draws random numbers")
        out = func(*args, **kwargs)
        with without_modes():
            self.follow(func, args, kwargs, out, before)
        return out

    def seed(self) -> int:
        """A seed for the moves of one more constant."""
        self.seeds += 1
        return self.seeds + SECOND * self.second

    def shadow_of(self, t: Tensor) -> Shadow | None:
        """The shadow of a tensor; one that no operator made is a constant."""
        shadow: Shadow | None = getattr(t, "_shadow", None)
        if shadow is not None or not is_number(t):
            return shadow
        if t.layout is not torch.strided:
            raise Unfollowed(f"numbers of layout {t.layout}")
        if id(t) not in self.stored or self.stored[id(t)][3] != t.data_ptr():  # new, or replaced through .data
            self.stored[id(t)] = (t, self.seed(), None, t.data_ptr())
        _, seed, shadow, _ = self.stored[id(t)]
        if shadow is not None:
            return shadow
        unit = unit_of(t.dtype)
        if unit is None:
            raise Unfollowed(f"numbers of type {t.dtype}")
        self.coarsest = max(self.coarsest, unit)
        if unit > HALF or (self.oracles.dtype == torch.float32 and unit < UNITS[torch.float32]):
            self.refuse_quick(f"numbers of type {t.dtype}")
        if has_large_numbers(t.detach()):
            self.refuse_quick("large numbers that may be exact")
        shadow = Shadow(shaken(t, unit, seed, self.oracles.dtype), constant=True)
        if t.numel() < KEPT:
            self.stored[id(t)] = (t, seed, shadow, t.data_ptr())
        return shadow

    def scalar(self, value: float) -> Shadow:
        """A Python number with shaken copies, as exported files store it: in float32."""
        value = float(value)
        if value not in self.scalars:
            number, unit = torch.tensor(value, dtype=torch.float64), UNITS[torch.float32]
            if not bool(are_exact(number, 0.0)):
                self.coarsest = max(self.coarsest, unit)
            self.scalars[value] = Shadow(shaken(number, unit, self.seed(), self.oracles.dtype), constant=True)
        return self.scalars[value]

    def keep(self, plain: Any, shadow: Shadow | None, step: Step | None = None, before: Sequence[Shadow] = ()) -> None:
        """Gives a tensor its shadow, and records it where tensors are recorded."""
        if not isinstance(plain, Tensor) or (shadow is None and not is_number(plain)):
            return
        plain._shadow = Shadow(()) if shadow is None else shadow  # type: ignore[attr-defined]
        if self.records is not None and is_number(plain) and shadow is not None and not shadow.constant:
            # Of an operator in place, what the tensor was before is among them.
            inputs = [s.record for s in before if s.record is not None]
            shadow.record = len(self.records)
            self.records.append(Record.of(shadow, self.oracles.dtype, step, self.here(), inputs))

    def here(self) -> str:
        """The module that is called and the source line of the network's code."""
        return ", ".join(filter(None, [self.path[-1] if self.path else "the network", source_of()]))

    def across(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function in all copies: once per constant copy where every shadow is constant, else in every world."""
        leaves, spec = tree_flatten((args, kwargs), is_leaf=is_shadow)
        shadows, outs = [t for t in leaves if isinstance(t, Shadow)], []
        constant = all(s.constant for s in shadows)
        # A maximum has more worlds than its neighbours, up to the next oracle.
        most = max(len(self.oracles.copies), *(len(s.copies) for s in shadows)) if shadows else COPIES
        for i in range(COPIES if constant else most):
            a, k = tree_unflatten([t.of(i) if isinstance(t, Shadow) else t for t in leaves], spec)
            outs.append(function(*a, **k))
        if not isinstance(outs[0], (tuple, list)):
            return Shadow(outs, constant)
        parts = zip(*outs, strict=True)
        return [Shadow(part, constant) if isinstance(part[0], Tensor) else None for part in parts]

    def oracle(self, name: str, shadow: Shadow, positive: float | None = None) -> Shadow:
        """A random function that both networks share.

        Raises:
            Parted: tensors are recorded, and these arguments are new.
        """
        if shadow.of(0).is_complex():
            raise Unfollowed(f"{name} of complex numbers")
        place = self.here()
        result = self.oracles.ask(name, shadow, place, self.second, positive)
        if self.records is not None and self.oracles.parting:
            raise Parted(name, place, [shadow.record] if shadow.record is not None else self.behind)
        return result

    def refuse_quick(self, reason: str) -> None:
        """Leaves to the full run what the fewer numbers of a quick run might not show."""
        if self.oracles.quick:
            raise Unfollowed(reason)

    def rounded(self, shadow: Shadow, dtype: torch.dtype) -> Shadow:
        """Numbers of the input stored in fewer bits: the shaken copies move by a unit of theirs."""
        self.refuse_quick("numbers of half precision")
        unit, seed, out = UNITS[dtype], self.seed(), list[Tensor]()
        self.coarsest = max(self.coarsest, unit)
        for w in range(self.oracles.worlds):
            copies = [shadow.of(w * COPIES + i).clone() for i in range(COPIES)]
            out += shaken_again(copies, unit, seed + 10**5 * w, self.oracles.dtype)
        return Shadow(out)

    def follow(
        self, func: Any, args: Any, kwargs: Any, out: Any, before: Sequence[tuple[Tensor, Shadow | None]]
    ) -> None:
        """The operator beside the network's: in place if it is, of constants if no input enters."""
        shadows = {id(t): s for t, s in before}
        entering = [s for s in shadows.values() if s is not None]
        name = func._schema.name.split("::")[1]
        name = name[:-1] if name.endswith("_") and not name.startswith("__") else name

        def swapped(tree: Any) -> Any:
            return tree_map(lambda t: (shadows.get(id(t)) or t) if isinstance(t, Tensor) else t, tree)

        bound = {
            p.name: args[i] if i < len(args) else kwargs.get(p.name, p.default_value if p.has_default_value() else None)
            for i, p in enumerate(func._schema.arguments)
        }
        lively = [s for s in entering if not s.constant]
        try:
            if not lively:
                step = Step(self, func, name, swapped(args), swapped(kwargs), bound, out, args)
                constant_step(step, [t for t, _ in before])
                return
            if not self.is_followed(func, name):
                return
            inplace = func._schema.is_mutable
            target = swapped(args[0]) if inplace else None
            if any(s.state.get("stale") and len(s.copies) == COPIES for s in entering):
                raise Unfollowed("numbers of the input were written into a constant through another view")
            if isinstance(target, Shadow):
                self.widened(target, max(len(s.copies) for s in entering))
            self.behind = [s.record for s in entering if s.record is not None]
            step = Step(self, func, name, swapped(args), swapped(kwargs), swapped(bound), out, args)
            result = result_of(step)
        except ERRORS as error:
            raise Unfollowed(f"{name} beside the network: {error}") from error
        if isinstance(target, Shadow):
            self.write(target, result)
            result = target
        outs = [out] if isinstance(out, Tensor) else out
        for plain, shadow in zip(outs, [result] if isinstance(result, Shadow) else result, strict=False):
            self.keep(plain, shadow, step, lively)

    def is_followed(self, func: Any, name: str) -> bool:
        """Whether there is anything to follow; an assertion returns nothing."""
        library = func._schema.name.split("::")[0]
        if library != "aten":
            raise Unfollowed(f"no rule for {library}::{name}")
        inplace = func._schema.is_mutable
        if not func._schema.returns and not inplace:
            return False
        if func._overloadname.endswith("out") or (inplace and not func._schema.arguments[0].alias_info):
            raise Unfollowed(f"{name} writes into another tensor than its first")
        if name in ASKING:
            raise Unfollowed("the code asks for a number of the input (control flow, a scalar)")
        return True

    def widened(self, target: Shadow, most: int) -> None:
        """Gives what is written into as many worlds as what is written."""
        if len(target.copies) == COPIES:
            target.copies = [target.of(i).clone() for _, i in self.oracles.copies]
            target.state["stale"] = True
        if len(target.copies) < most:
            if is_seen_elsewhere(target):
                raise Unfollowed("a maximum is written into a part of a tensor")
            target.copies = [target.of(i).clone() for i in range(most)]

    def write(self, target: Shadow, result: Any) -> None:
        """Writes the result into the copies of the target, so that views see it."""
        if isinstance(result, Shadow) and result.copies[0] is not target.copies[0]:
            if len(result.copies) > len(target.copies):
                raise Unfollowed("a maximum is written into a tensor")
            if not is_seen_elsewhere(target):
                target.copies = target.copies[: max(len(result.copies), len(self.oracles.copies))]
            for i, mine in enumerate(target.copies):
                mine.copy_(result.of(i))
        target.state["constant"] = False


def is_seen_elsewhere(shadow: Shadow) -> bool:
    """Whether other tensors share the memory of its copies."""
    return storage_users(shadow.copies[0].untyped_storage()._cdata) > 2


def draws_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator draws random numbers here: fused attention may, and draws none without dropout."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [argument.name for argument in func._schema.arguments]
    passed = {**dict(zip(names, args, strict=False)), **kwargs}
    return "dropout_p" not in names or passed.get("dropout_p", 0.0) != 0
