"""The mode that runs shadows beside one network, operator by operator."""

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

# What torch raises for arguments of other kinds.
ERRORS = RuntimeError, TypeError, AttributeError, LookupError, ValueError


@final
class Watch(Planning):
    """Runs shadows beside one network. They are attributes of the plain tensors, so they are freed with them."""

    def __init__(self, oracles: Oracles, second: bool, path: list[str]):
        super().__init__(outside=True)
        self.oracles, self.second, self.path = oracles, second, path
        self.numbers = StoredNumbers(oracles, second)
        self.composed = ""  # the operator in whose place code is called
        # Tensors are recorded in a full run, which is to name the place where two networks part.
        self.records: list[Record] = []
        self.behind: list[int] = []  # the records of what the current operator reads
        self.ends: list[int] = []  # those of what the first new question asks; inside a fused operator what it reads

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes the operator as the network does, then beside it."""
        # In inference mode, and in code that is called here, operators come before torch takes them apart.
        if has_kernel(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func.decompose(*args, **kwargs)
        if (composed := written_out(func)) is not None:
            # A place names the operator that the code calls, and not those that it is made of.
            outermost, self.composed = self.composed, self.composed or base_name(func)
            with self:
                made = composed(*args, **kwargs)
                made = args[0].copy_(made) if func._schema.is_mutable else made
            self.composed = outermost
            # The network goes on with its own tensors: those of the code may lie otherwise in memory, and what comes
            # next would be a copy in place of a view, which is another plan.
            out = made if func._schema.is_mutable else func(*args, **kwargs)
            for t, other in zip(tree_leaves(out), tree_leaves(made), strict=True):
                if (shadow := getattr(other, "_shadow", None)) is not None:
                    if shadow.centring is not None:  # what is known of scores ends where the network writes to its own
                        shadow.centring[2].append((t, t._version))
                    t._shadow = shadow
            return out
        bound = named_arguments(func, args, kwargs)
        # Fused attention may draw, and draws nothing without dropout.
        if torch.Tag.nondeterministic_seeded in func.tags and bound.get("dropout_p") != 0:
            # Two draws of one generator agree, and say nothing of the next two.
            raise Unfollowed("the network draws random numbers")
        before = [(t, self.shadow_of(t)) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        out = func(*args, **kwargs)
        # Of `y.transpose_(0, 1)` the shadow is that of `y.transpose(0, 1)`: no number is written.
        func = view_in_place(func) or func
        with without_modes():
            self.follow(Step(self, func, base_name(func), args, kwargs, bound, out, args), before)
        return out

    def shadow_of(self, t: Tensor) -> Shadow | None:
        """The shadow of a tensor; one that no operator made is a constant."""
        shadow: Shadow | None = getattr(t, "_shadow", None)
        return shadow if shadow is not None or not is_number(t) else self.numbers.shadow(t)

    def keep(self, plain: Any, shadow: Shadow | None, step: Step | None = None, before: Sequence[Shadow] = ()) -> None:
        """Gives a tensor its shadow, and records it where tensors are recorded."""
        if not isinstance(plain, Tensor) or (shadow is None and not is_number(plain)):
            return
        plain._shadow = Shadow(()) if shadow is None else shadow  # type: ignore[attr-defined]
        if not self.oracles.quick and is_number(plain) and shadow is not None and not shadow.constant:
            # Of an operator in place, what the tensor was before is among them.
            inputs = [s.record for s in before if s.record is not None]
            shadow.record = len(self.records)
            name, fixed = (self.composed or step.name, step.fixed_arguments) if step else ("input", {})
            self.records.append(Record.of(shadow, self.oracles.dtype, name, self.here(), inputs, fixed))

    def here(self) -> str:
        """The module that is called and the source line of the network's code."""
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
        """The operator beside the network's: in place if it is, of constants if no input enters."""
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
                if is_seen_elsewhere(target):  # the others would not see what is written
                    raise Unfollowed("numbers of the input are written into a constant, or a maximum into a part")
                if name not in OPERATORS:  # which are computed beside their target, and large where a maximum is added
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
