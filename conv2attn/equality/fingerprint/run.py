"""One call of a network over a field: how each operator runs depends on its kind.

An example: the operators of `torch.exp(x.T @ w) + torch.ones(3)`, where x is the input.

    t     a view: another size and stride of the store of x
    mm    a rule: sums of products of residues, modulo each prime
    exp   an oracle: a hash of the name and of all residues of each number
    ones  a constant, made with real numbers
    add   a rule

Operators that only move numbers run on their indices; see `moves`. An operator of higher order, random numbers, or a
write to a weight leave the answer undecided.
"""

import math
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.failures import network_line
from conv2attn.equality.fingerprint.families import TEMPLATES, VIEWS
from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.numbers import Numbers
from conv2attn.equality.fingerprint.operand_checks import (
    check_apart,
    check_bits,
    refuse_unsound,
    scramble,
)
from conv2attn.equality.fingerprint.operators import compute, written_tensors
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules import RULES
from conv2attn.equality.fingerprint.rules.call import Call
from conv2attn.equality.fingerprint.tensors import FieldTensor, laid, without_numbers
from conv2attn.equality.fingerprint.trace import Trace, spoken
from conv2attn.equality.schemas import base_name, named_arguments
from conv2attn.torch_internals import (
    DisableTorchDispatch,
    DisableTorchFunctionSubclass,
    OpOverload,
    TorchDispatchMode,
    tree_leaves,
    tree_map,
    view_in_place,
)

aten = torch.ops.aten
FUSED = "_scaled_dot_product_flash_attention_for_cpu"
"""The operator whose rule is the formula of attention in torch's documentation."""


class Run(TorchDispatchMode):
    """While active, operators on field tensors are evaluated over the field; the first failure is kept.

    Args:
        base: the narrowest float dtype whose arithmetic counts as exact.
        plan: the trace of a plain call, which this run must repeat.
    """

    def __init__(self, field: Field, base: torch.dtype, plan: list[tuple[Any, ...]]):
        super().__init__()
        self.field, self.plan, self.trace = field, plan, Trace(field.digest)
        self.numbers = Numbers(self, field, base)
        self.failures: list[str] = []
        self.depth = 0

    def fail(self, error: BaseException, what: Any) -> None:
        """Keeps the first failure, with the line of the network's code."""
        # The network may catch an error and continue, so only the first failure counts.
        if self.failures:
            return
        words = str(error) if isinstance(error, Undecided) else f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, NotImplementedError):
            words = "torch needs the numbers to determine the shape of its result"
        line = network_line()
        self.failures.append(f"{spoken(what)}: {words}{f' at {line}' if line else ''}")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.guarded(func, args, kwargs or {}, main=True)

    def guarded(self, func: Any, args: Any, kwargs: Any, main: bool) -> Any:
        """Runs an operator; if the network called it directly, it must follow the plan."""
        try:
            with DisableTorchFunctionSubclass():
                # Hashes are cached by memory address, and the network may have written there since the last operator.
                self.field.forget()
                return self.handle(func, args, kwargs) if not main or self.depth else self.planned(func, args, kwargs)
        except BaseException as error:
            self.fail(error, func)
            raise

    def planned(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator that must be the next in the plan.

        Raises:
            Undecided: it is not the next in the plan.
        """
        place = len(self.trace.log)
        self.field.tell(place + 1, len(self.plan))
        inputs, sources = self.trace.entry(func, args, kwargs), self.trace.sources(args, kwargs)
        plan = self.plan[place] if place < len(self.plan) else None
        if plan is None or plan[:2] != inputs:
            there = "nothing" if plan is None else spoken(plan[0])
            other = "the same with other arguments" if plan and plan[0] == inputs[0] else spoken(inputs[0])
            raise Undecided(f"the network calls other functions than in a plain run: there {there}, here {other}")
        out = self.relaid(self.handle(func, args, kwargs), plan[2])
        self.field.forget()
        self.trace.result(func, inputs, out, sources)
        if self.trace.log[place] != plan:
            raise Undecided(f"{spoken(func)} returns another shape or dtype than in a plain run")
        return out

    def relaid(self, out: Any, plan: Any) -> Any:
        """New tensors in the layout of the plain call."""
        if isinstance(out, list | tuple) and isinstance(plan, list | tuple) and len(out) == len(plan):
            return type(out)(self.relaid(each, its) for each, its in zip(out, plan, strict=True))
        final = not self.numbers.depends(out) or self.trace.owner(out) in self.trace.made
        if final or not isinstance(plan, tuple) or len(plan) != 5:
            return out
        size, stride = out.field_view[0], plan[2]
        if plan[1] != size or laid(size, out.field_view[1]) == stride:
            return out
        like = torch.empty_strided(size, stride, dtype=out.dtype, device="meta")
        return self.numbers.fresh(like, self.numbers.residues(out))

    def attention(self, out: FieldTensor, *args: Any, **kwargs: Any) -> FieldTensor:
        """The result `out` of fused attention, with the numbers of the formula in torch's documentation.

        Torch multiplies queries and keys each by a rounded root of the scale; the formula has the scale itself.
        If the operator traced last is the fused one, its rule has given these numbers already.
        """
        if self.trace.log and self.trace.log[-1][0].split(".")[1] == FUSED:
            return out
        with DisableTorchDispatch():
            return self.documented_attention(out, *args, **kwargs)

    def documented_attention(
        self,
        out: FieldTensor,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> FieldTensor:
        """`out` with the numbers of the formula, if there is no dropout and the mask is a constant."""
        numbers = self.numbers
        plain = not dropout_p and numbers.wide(out.dtype) and numbers.depends(out)
        if not plain or numbers.depends(attn_mask):
            return out
        mask = None if attn_mask is None else numbers.real(attn_mask)
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=out.dtype).masked_fill(~mask, -math.inf)
        call = Call(numbers, None, "attention", out.dtype, [out])
        rule = RULES[FUSED]
        residues = rule(call, query, key, value, 0.0, is_causal, mask, scale)[0]
        if residues.shape != out.field_view[0]:
            raise Undecided("attention of another shape")
        numbers.write(out, residues, out.dtype)
        return out

    def handle(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator according to its family.

        Raises:
            Undecided: it is in no family, or unsound on its operands.
        """
        if not isinstance(func, OpOverload):
            raise Undecided("an operator of higher order")
        name = func._schema.name.split("::")[1]
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        targets = written_tensors(func, args, kwargs)
        base = base_name(func)
        if (view := view_in_place(func)) is not None and type(args[0]) is FieldTensor:
            return self.turn(view, args, kwargs)
        refuse_unsound(func, kwargs, tensors, targets)
        if not any(map(self.numbers.depends, tensors)) or (name in TEMPLATES and not targets):
            return self.constants(func, name, args, kwargs, targets)
        if name == "is_same_size":  # the only question about a tensor's form that is an operator
            return func(*tree_map(without_numbers, args), **kwargs)
        if name in VIEWS and not targets:
            return self.view(func, args, kwargs)
        if not targets:
            return compute(self, func, base, args, kwargs)
        if base == name or len(targets) != 1 or targets[0] is not args[0] or len(func._schema.returns) != 1:
            raise Undecided("writes to another argument than its first")
        return self.in_place(func, base, args, kwargs, tensors)

    def in_place(self, func: Any, base: str, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """An operator that writes to its first argument."""
        target, numbers = args[0], self.numbers
        check_apart(target, tensors)
        if base in ("copy", "fill", "zero"):
            bound = named_arguments(func, args, kwargs)
            source = bound.get("src", bound.get("value", 0))
            source = source if isinstance(source, Tensor) else torch.tensor(source, dtype=target.dtype)
            dtype = source.dtype if numbers.depends(source) else target.dtype
            numbers.write(target, numbers.operand(source, dtype), dtype)
            return target
        pure = getattr(getattr(aten, base, None), func._overloadname, None)
        if pure is None:
            raise Undecided(f"no operator {base}.{func._overloadname}")
        out = compute(self, pure, base, args, kwargs)
        if tuple(out.size()) != target.field_view[0]:
            raise Undecided("a write of another shape")
        numbers.write(target, numbers.residues(out), out.dtype)
        return target

    def constants(self, func: Any, name: str, args: Any, kwargs: Any, targets: list[Any]) -> Any:
        """Runs an operator of constants with real numbers; it may read shapes of tensors that depend on the input."""
        numbers = self.numbers

        def real(value: Any) -> Any:
            if not isinstance(value, FieldTensor):
                return value
            # Only the form of a tensor that depends on the input is read here, as by `zeros_like`.
            size, stride, _ = value.field_view
            return (
                torch.empty_strided(size, stride, dtype=value.dtype) if numbers.depends(value) else numbers.real(value)
            )

        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        ours = [each.field_store for each in tensors if isinstance(each, FieldTensor) and not numbers.depends(each)]
        owners = {store.real.untyped_storage()._cdata: store for store in ours if store.real is not None}
        plain = {each.untyped_storage()._cdata for each in tensors if not isinstance(each, FieldTensor)}
        out = func(*tree_map(real, args), **tree_map(real, kwargs))
        if targets:
            if not func._schema.returns:
                return None
            if len(targets) == 1 and isinstance(out, Tensor):
                return targets[0]
            raise Undecided("writes several tensors")

        def wrap(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            key = value.untyped_storage()._cdata
            if key in owners:
                check_bits(value, owners[key].dtype)
                return FieldTensor(self, owners[key], value.size(), value.stride(), value.storage_offset())
            if key in plain:
                return numbers.constant(value.clone()) if name == "lift_fresh" else value
            # Unwritten memory must differ between calls here too: equal leftovers would look like a constant.
            if name.startswith(("empty", "new_empty")):
                scramble(value)
            return numbers.constant(value)

        return tree_map(wrap, out)

    def turn(self, func: Any, args: Any, kwargs: Any) -> FieldTensor:
        """Turns the first argument itself into another view of its store, as in `y.transpose_(0, 1)`."""
        turned: FieldTensor = args[0]
        turned.field_view = self.view(func, args, kwargs).field_view
        with DisableTorchDispatch():  # torch keeps its own copy of the shape, which code reads
            turned.as_strided_(*turned.field_view)
        return turned

    def view(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The same view of the same store, with the geometry that torch computes."""
        source = args[0]
        size, stride, offset = source.field_view
        if sum(isinstance(each, Tensor) for each in tree_leaves((args, kwargs))) != 1:
            raise Undecided("a view of several tensors")
        count = source.field_store.numel()
        # Torch itself computes the geometry, on a tensor without numbers, so no view needs a rule.
        whole = torch.empty(count, dtype=source.dtype, device="meta").as_strided(size, stride, offset)
        out = func(whole, *args[1:], **kwargs)

        def wrap(value: Any) -> FieldTensor:
            check_bits(value, source.dtype)
            reach = sum((side - 1) * step for side, step in zip(value.size(), value.stride(), strict=True))
            if value.numel() and value.storage_offset() + reach >= count:
                raise Undecided("a view beyond the numbers")
            return FieldTensor(self, source.field_store, value.size(), value.stride(), value.storage_offset())

        return tree_map(wrap, out)


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0] if str(error) else ""
