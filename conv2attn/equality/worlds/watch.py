"""The mode that runs shadows in parallel with one network, operator by operator."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equality.failures import network_line
from conv2attn.equality.schemas import base_name, named_arguments
from conv2attn.equality.worlds.all_copies import every_copy, is_seen_elsewhere, write
from conv2attn.equality.worlds.arithmetic import OPERATORS
from conv2attn.equality.worlds.constants import MADE, constant_step
from conv2attn.equality.worlds.functions import written_out
from conv2attn.equality.worlds.general_rules import is_followed, result_of
from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.plans import Planning
from conv2attn.equality.worlds.records import Record
from conv2attn.equality.worlds.shadows import Shadow, Unfollowed, is_number
from conv2attn.equality.worlds.steps import Step
from conv2attn.equality.worlds.stored_numbers import StoredNumbers
from conv2attn.torch_internals import has_kernel, tree_leaves, tree_map, view_in_place, without_modes

# The errors that torch raises for arguments of a wrong kind.
ERRORS = RuntimeError, TypeError, AttributeError, LookupError, ValueError


@final
class Watch(Planning):
    """Runs shadows in parallel with one network, as attributes of the plain tensors, with which they are freed."""

    def __init__(self, oracles: Oracles, second: bool, path: list[str]):
        super().__init__(outside=True)
        self.oracles, self.second, self.path = oracles, second, path
        self.numbers = StoredNumbers(oracles, second)
        self.composed = ""  # the operator that is replaced by code
        # Tensors are recorded in a full run, which has to name the place where two networks differ.
        self.records: list[Record] = []
        self.behind: list[int] = []  # the records of the current operator's inputs
        self.ends: list[int] = []  # records of the first new oracle arguments, or a fused operator's inputs

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes the operator as the network does, then on its shadows."""
        # In inference mode, and in code called here, operators arrive before torch decomposes them.
        if has_kernel(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func.decompose(*args, **kwargs)
        if (composed := written_out(func)) is not None:
            # A place names the operator that the code calls, not its parts.
            outermost, self.composed = self.composed, self.composed or base_name(func)
            with self:
                made = composed(*args, **kwargs)
                made = args[0].copy_(made) if func._schema.is_mutable else made
            self.composed = outermost
            # The network continues with its own tensors. Those of the code may have another memory layout, so that a
            # later view would become a copy, which is another plan.
            out = made if func._schema.is_mutable else func(*args, **kwargs)
            for t, other in zip(tree_leaves(out), tree_leaves(made), strict=True):
                if (shadow := getattr(other, "_shadow", None)) is not None:
                    if shadow.centring is not None:  # noted origins of scores end when the network writes to them
                        shadow.centring[2].append((t, t._version))
                    t._shadow = shadow
            return out
        bound = named_arguments(func, args, kwargs)
        # Fused attention may draw random numbers, but draws none without dropout.
        if torch.Tag.nondeterministic_seeded in func.tags and bound.get("dropout_p") != 0:
            # Two draws of one generator agree, which proves nothing about the next two.
            raise Unfollowed("the network draws random numbers")
        before = [(t, self.shadow_of(t)) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        out = func(*args, **kwargs)
        # The shadow of `y.transpose_(0, 1)` is that of `y.transpose(0, 1)`: no number is written.
        func = view_in_place(func) or func
        with without_modes():
            self.follow(Step(self, func, base_name(func), args, kwargs, bound, out, args), before)
        return out

    def shadow_of(self, t: Tensor) -> Shadow | None:
        """The shadow of a tensor; a tensor that no operator created is a constant."""
        shadow: Shadow | None = getattr(t, "_shadow", None)
        return shadow if shadow is not None or not is_number(t) else self.numbers.shadow(t)

    def keep(self, plain: Any, shadow: Shadow | None, step: Step | None = None, before: Sequence[Shadow] = ()) -> None:
        """Gives a tensor its shadow, and records it if tensors are recorded."""
        if not isinstance(plain, Tensor) or (shadow is None and not is_number(plain)):
            return
        plain._shadow = Shadow(()) if shadow is None else shadow  # type: ignore[attr-defined]
        if not self.oracles.quick and is_number(plain) and shadow is not None and not shadow.constant:
            # For an in-place operator, the tensor's old record is among them.
            inputs = [s.record for s in before if s.record is not None]
            shadow.record = len(self.records)
            name, fixed = (self.composed or step.name, step.fixed_arguments) if step else ("input", {})
            self.records.append(Record.of(shadow, self.oracles.dtype, name, self.here(), inputs, fixed))

    def here(self) -> str:
        """The running module, and the source line of the network's code."""
        return ", ".join(filter(None, [self.path[-1] if self.path else "the network", network_line()]))

    def oracle(self, name: str, shadow: Shadow, positive: float | None = None) -> Shadow:
        """A random function that both networks share."""
        if shadow.of(0).is_complex():
            raise Unfollowed(f"{name} of complex numbers")
        before = self.oracles.parting
        result = self.oracles.ask(name, shadow, self.here(), self.second, positive)
        if self.oracles.parting is not before:
            self.ends = [shadow.record] if shadow.record is not None else self.behind
        return result

    def follow(self, plain: Step, before: Sequence[tuple[Tensor, Shadow | None]]) -> None:
        """Runs the operator on shadows: in place like itself, or as a constant if no argument depends on the input."""
        shadows = {id(t): s for t, s in before}
        entering = [s for s in shadows.values() if s is not None]
        lively = [s for s in entering if not s.constant]

        def swapped(tree: Any) -> Any:
            return tree_map(lambda t: (shadows.get(id(t)) or t) if isinstance(t, Tensor) else t, tree)

        step = replace(plain, args=swapped(plain.args), kwargs=swapped(plain.kwargs), bound=swapped(plain.bound))
        name, out = step.name, step.out
        try:
            if not lively or name in MADE:
                constant_step(step, [t for t, _ in before])
                return
            if not is_followed(step.func, name):
                return
            target = step.x if step.func._schema.is_mutable else None
            if isinstance(target, Shadow) and len(target.copies) < (most := max(len(s.copies) for s in entering)):
                if is_seen_elsewhere(target):  # the other tensors would miss the write
                    raise Unfollowed("numbers of the input are written into a constant, or a maximum into a part")
                if name not in OPERATORS:  # these are computed next to their target, and large if a maximum is added
                    target.copies = every_copy(target, most, self.oracles.shakes)
            self.behind = [s.record for s in entering if s.record is not None]
            result = result_of(step)
        except ERRORS as error:
            raise Unfollowed(f"{name} beside the network: {error}") from error
        if isinstance(target, Shadow):
            write(target, result)
            result = target
        outs = [out] if isinstance(out, Tensor) else out
        for each, shadow in zip(outs, [result] if isinstance(result, Shadow) else result, strict=False):
            self.keep(each, shadow, step, lively)
