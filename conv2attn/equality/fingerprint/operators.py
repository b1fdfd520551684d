"""Computes the result of an operator: by a rule, as a move, by an oracle, or by its decomposition."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.families import COMMUTATIVE, DECOMPOSED, MOVES, POLES, REFUSED, TOTAL, WHOLE
from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.formulas import MOST_COMPARED, keyed_hashes, oracle
from conv2attn.equality.fingerprint.moves import move_numbers
from conv2attn.equality.fingerprint.numbers import is_whole
from conv2attn.equality.fingerprint.residues import Residues, unusable
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules import RULES
from conv2attn.equality.fingerprint.rules.call import NOTHING, Call
from conv2attn.equality.fingerprint.tensors import without_numbers
from conv2attn.equality.schemas import named_arguments
from conv2attn.torch_internals import decomposition_table, has_kernel, tree_leaves, tree_map

Bound = dict[str, Any]
PLAIN_ARGUMENTS = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout)
BROADCAST = {"div", "maximum", "clamp", "clamp_min"}
"""Rules whose numbers may broadcast to the result."""


def written_tensors(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operator writes to."""
    bound = named_arguments(func, args, kwargs)
    names = [each.name for each in func._schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    return [leaf for name in names for leaf in tree_leaves(bound[name]) if isinstance(leaf, Tensor)]


def compute(run: Any, func: Any, base: str, args: Any, kwargs: Any) -> Any:
    """The result of an operator of torch that returns new tensors.

    Raises:
        Undecided: the operator has no sound rule.
    """
    bound = named_arguments(func, args, kwargs)
    if "scale" in bound and "query" in bound:  # the default scale of attention as a number: one cache key
        scale = 1 / math.sqrt(bound["query"].shape[-1]) if bound["scale"] is None else bound["scale"]
        bound["scale"] = torch.tensor(scale, dtype=bound["query"].dtype).item()
    returns = func._schema.returns
    if not returns or any("Tensor" not in str(each.type) for each in returns):
        raise Undecided("numbers that depend on the input are read")

    def answered(anew: Callable[[], Any]) -> Any:
        form = partial(form_of, func, args, kwargs)
        return run.field.answers.answer(run, base, str(func), bound, form, anew)

    if base in MOVES:
        constants = [leaf for name, value in bound.items() if name not in MOVES[base] for leaf in tree_leaves(value)]
        if not any(map(run.numbers.depends, constants)):
            return answered(lambda: move_numbers(run.numbers, func, base, bound))
    rule = RULES.get(base)
    single = len(returns) == 1 and str(returns[0].type) == "Tensor"
    function = torch.Tag.pointwise in func.tags and single and base not in REFUSED and not base.startswith("_foreach")

    # The form of the result also follows from the cache key, so a cached result makes computing it unnecessary.
    def anew() -> Any:
        form = form_of(func, args, kwargs)
        dtype = tree_leaves(form)[0].dtype
        if rule is not None and (run.numbers.wide(dtype) or base == "_to_copy"):
            return by_rule(run, func, base, bound, form)
        if function or base in WHOLE:
            first, *others = tree_leaves(form)
            made = [run.numbers.fresh(first, pointwise(run, func, base, bound, first))]
            made += [run.numbers.fresh(each, None) for each in others]
            return made[0] if isinstance(form, Tensor) else tuple(made)
        raise Undecided("no rule" if rule is None else f"no rule with the result {dtype}")

    # Weights and other constants must not be combined in floats, which would round: in the formula they are exact.
    def of_the_formula(value: Any) -> Any:
        if not isinstance(value, Tensor) or run.numbers.depends(value) or not run.numbers.wide(value.dtype):
            return value
        like = torch.empty(value.size(), dtype=value.dtype, device="meta")
        return run.numbers.fresh(like, run.numbers.operand(value, value.dtype))

    parts: Callable[..., Any] | None = None
    if base in DECOMPOSED:
        parts, (args, kwargs) = decomposition_table.get(func), tree_map(of_the_formula, (args, kwargs))
    elif not function and has_kernel(func.name(), "CompositeImplicitAutograd"):
        parts = func.decompose
    if parts is None:
        return answered(anew)

    def of_parts() -> Any:
        form_of(func, args, kwargs)
        run.depth += 1
        try:
            with run:
                out = parts(*args, **kwargs)
                return tuple(out) if isinstance(out, tuple) else out  # operators do not return named tuples
        finally:
            run.depth -= 1

    # Other overloads are Python functions whose results may be views of their operands.
    return answered(of_parts) if base in DECOMPOSED else of_parts()


def form_of(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operator without its numbers.

    Raises:
        Undecided: the result is not a real tensor.
    """
    form = func(*tree_map(without_numbers, args), **tree_map(without_numbers, kwargs))
    outs = tree_leaves(form)
    if not outs or not all(isinstance(each, Tensor) for each in outs):
        raise Undecided("numbers that depend on the input are read")
    if outs[0].dtype.is_complex:
        raise Undecided("complex numbers")
    return form


def by_rule(run: Any, func: Any, base: str, bound: Bound, form: Any) -> Any:
    """The result of an operator that has a rule; an argument that the rule does not name must have its default.

    Raises:
        Undecided: an argument has another value.
    """
    rule, outs = RULES[base], tree_leaves(form)
    code = rule.__code__
    names = code.co_varnames[1 : code.co_argcount]
    defaults = {each.name: each.default_value for each in func._schema.arguments if each.has_default_value()}
    for name, value in bound.items():
        if name in names:
            continue
        default = defaults.get(name, NOTHING)
        if value is not default and (isinstance(value, Tensor) or value != default):
            raise Undecided(f"the argument {name}")
    call = Call(run.numbers, func, base, outs[0].dtype, outs)
    values = rule(call, **{name: value for name, value in bound.items() if name in names})
    values = values if isinstance(values, tuple) else (values,)
    made = []
    for out, value in zip(outs, (*values, *[None] * (len(outs) - len(values))), strict=True):
        if isinstance(value, Residues) and value.shape != tuple(out.shape) and base not in BROADCAST:
            raise Undecided(f"a result of shape {tuple(out.shape)}, not {value.shape}")
        like = torch.empty(0, dtype=out.dtype, device="meta") if value is NOTHING else out
        made.append(run.numbers.fresh(like, None if value is NOTHING else value))
    if isinstance(form, Tensor):
        return made[0]
    return type(form)(made) if isinstance(form, list) else tuple(made)


def pointwise(run: Any, func: Any, base: str, bound: Bound, out: Tensor) -> Residues:
    """Any other known function of single numbers: an oracle of the operator, its arguments and dtypes.

    For a function of whole tensors, each number of the result depends on all their numbers and on its own index.

    Raises:
        Undecided: an argument is not a number, or there may be a pole, where the sign of a zero matters.
    """
    words, operands = [], []
    for name, value in bound.items():
        if isinstance(value, Tensor):
            words.append(f"{name}: {value.dtype}")
            operands.append(run.numbers.operand(value, value.dtype))
        elif isinstance(value, float) and is_whole(value):
            words.append(f"{name} = {int(value)}")
        elif base in WHOLE or isinstance(value, PLAIN_ARGUMENTS):
            words.append(f"{name} = {value!r}")
        else:
            raise Undecided(f"the argument {name}")
    pair = [bound.get(name) for name in ("self", "other")]
    if all(isinstance(each, bool | int | float | Tensor) for each in pair):  # Python numbers promote differently
        words.append(f"as {torch.result_type(*map(without_numbers, pair))}")
    divisor = bound.get("exponent" if base == "pow" else "other")
    by_positive = base in ("div", "pow") and isinstance(divisor, int | float) and divisor > 0
    if base in POLES and out.dtype.is_floating_point and not by_positive:
        raise Undecided("a pole, where the sign of a zero counts")
    scalars = [each for each in bound.values() if isinstance(each, int | float)]
    plain = bound.get("alpha", 1) != 0 and not bound.get("decimals")
    if base in WHOLE:
        places = torch.arange(out.numel()).reshape(out.size())
        # Each number of the result is a function of all numbers, their indices, and its own index.
        operands = [*(in_order(run.field, base, each) for each in operands), run.field.encode(places)]
    finite = (base in TOTAL or base in WHOLE) and all(map(math.isfinite, scalars)) and plain
    if base in COMMUTATIVE and len(operands) == 2 and bound["self"].dtype == bound["other"].dtype:
        # A sum of two hashes does not depend on their order, and neither does the operator.
        name = f"{base} operand {bound['self'].dtype}"
        hashes = [keyed_hashes(run.field, name, each.with_axes(out.dim())) for each in operands]
        mark, sound = unusable(tuple(out.size()), *operands), all(each.finite for each in operands)
        operands, words = [Residues(hashes[0] + hashes[1], mark, sound)], ["both"]
    name = f"{func._schema.name.removesuffix('_')}.{func._overloadname}({', '.join(words)}) -> {out.dtype}"
    exact = run.numbers.wide(out.dtype) or not out.dtype.is_floating_point
    result = oracle(run.field, name, *operands, finite=finite and exact)
    return result if out.dtype.is_floating_point else result.but(finite=True)


def in_order(field: Field, name: str, numbers: Residues) -> Residues:
    """One hash of all numbers and their indices.

    Raises:
        Undecided: some are not finite, or there are too many.
    """
    field.usable(numbers, name)
    if math.prod(numbers.shape) > MOST_COMPARED:
        raise Undecided(f"{name} of too many numbers")
    places = field.encode(torch.arange(math.prod(numbers.shape)).reshape(numbers.shape))
    hashes = keyed_hashes(field, f"in order, of sides {numbers.shape}", numbers, places)
    return Residues(hashes.flatten(1).sum(1))
