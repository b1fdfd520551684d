"""One layer of a stored certificate looked at again: short code that shares nothing with what wrote it.

It refutes only what the certificate's own code would refute, and leaves undecided what takes more than this to decide.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from secrets import token_bytes
from typing import Any

import torch
from torch import Tensor

from conv2attn.equivalence.evidence.recheck_forms import Form, Objection, Pixel, misfit, of_attention, of_convolution

Exact = Fraction | int
ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SMALLEST = {torch.float64: -1074, torch.float32: -149, torch.bfloat16: -133, torch.float16: -24}
DOUBT = 2.0**-19  # relative, of scores whose centre is no pixel or no key: they are rounded fewer than 16 times


def of_layers(
    name: str,
    plans: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    states: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    told: Mapping[str, Any],
    *,
    proved: bool = True,
) -> Iterator[Objection]:
    """What speaks against the second layer being the first, and against its leak; a convolution has no plan.

    Args:
        told: the form that the certificate has for a convolution.
    """
    called, forms = name.rstrip(".") or "the layer", []
    numbers = [state[key] for state in states for key in state if key.startswith(name)]
    if not all(bool(tensor.isfinite().all()) for tensor in numbers):
        yield Objection(f"{called}: a number is not finite")
        return
    for plan, tensors in zip(plans, states, strict=True):
        if plan is None:
            forms.append(of_convolution(name, tensors, told))
            continue
        if wrong := misfit(plan, name, tensors):
            yield Objection(f"{called}: {wrong} in its plan is not what its tensors have")
            return
        if plan["encoding"] not in ("quadratic", "enumerated"):
            yield Objection(f"{called}: an encoding that is {plan['encoding']} is not looked at again", sure=False)
            return
        forms.append(of_attention(plan, name, tensors))
    yield from (Objection(f"{called}: {each.sentence}", each.sure) for each in of_forms(*forms))
    sides = zip(plans, forms, states, strict=True)
    soft = [each for plan, form, state in sides if plan for each in of_alpha(name, form, state, proved=proved)]
    if soft and not (None not in plans and attend_alike(name, forms, states)):
        yield from dict.fromkeys(soft)


def attend_alike(name: str, forms: list[Form], states: tuple[Mapping[str, Tensor], Mapping[str, Tensor]]) -> bool:
    """Whether heads of two attentions that have the same scores do the same together: one map, soft or not."""
    keyed = []
    for form, state in zip(forms, states, strict=True):
        scored = torch.promote_types(form.dtype, torch.float32)
        center, alpha = state[f"{name}encoding.center"].to(scored), state[f"{name}encoding.alpha"]
        heads: Any = zip(form.starts, map(tuple, center.tolist()), alpha.tolist(), strict=True)
        keyed.append(replace(form, starts=tuple(heads)))
    first, second = keyed
    same = first.padding == second.padding and first.by_enumeration == second.by_enumeration
    return same and all(same_at(head, first, second) for head in dict.fromkeys((*first.starts, *second.starts)))


def of_forms(first: Form, second: Form) -> Iterator[Objection]:
    """What of the second is not the first."""
    if first.channels != second.channels:
        yield Objection(f"channels are {second.channels}, not {first.channels}")
        return
    for what in ("spacing", "stride", "room"):
        ours, theirs = (getattr(form, what) for form in (first, second))
        if ours != theirs:
            same = what == "spacing" and ratios(first) == ratios(second)
            yield Objection(f"{what} is {theirs}, not {ours}", sure=not same)
            return
    dtypes = [{tensor.dtype for tensor in form.weights} for form in (first, second)]
    if dtypes[0] != dtypes[1]:
        yield Objection("its numbers are of another dtype")
        return
    ours, theirs = (biased(form) for form in (first, second))
    if not identical(ours, theirs):
        yield Objection("bias differs")
    for start in dict.fromkeys((*first.starts, *second.starts)):
        if not same_at(start, first, second):
            yield Objection(f"heads {heads_at(second, start)} that start at {start} do something else")
            return
    yield from of_borders(first, second)


def ratios(form: Form) -> list[Fraction]:
    """By how many pixels an output is apart from the next along each axis, the other way round."""
    return [Fraction(p, s) for p, s in zip(form.spacing, form.stride, strict=True)]


def of_borders(first: Form, second: Form) -> Iterator[Objection]:
    """What the two read beyond the pixels that may be different: both do the same at every start."""
    if first.padding == second.padding and not first.by_enumeration and not second.by_enumeration:
        return
    for form in (first, second):
        for head, beyond in enumerate(form.beyond):
            if any(beyond) and uses(first, form.starts[head]):
                told = f"head {head} attends to what can lie off the padded grid, which is not looked at again"
                yield Objection(told, sure=False)
                return
    modes = [form.padding[2] for form in (first, second)]
    out = [start for start in first.starts if first.reaches_out(start)]
    if modes[0] != modes[1] and any(uses(first, start) for start in out):
        yield Objection(f"padding is {modes[1]}, not {modes[0]}")
    elif out and modes != ["zeros", "zeros"] and first.padding != second.padding:
        yield Objection(f"{modes[1]} padding is by other amounts, which is not looked at again", sure=False)


def of_alpha(name: str, form: Form, tensors: Mapping[str, Tensor], *, proved: bool) -> Iterator[Objection]:
    """What is wrong with the sharpness: other keys keep weights, or if not `proved`, more than the roundoff together.

    With q = exp(-alpha) below 1/4 a head of n axes leaves them n (theta - 1) <= n 2 (q + q^4 / (1 - q^5)) < 2.04 n q,
    and at least q / (1 + q), which is what the nearest of them keeps. Heads that add nothing are not asked.
    """
    center, alpha = (tensors[f"{name}encoding.{key}"].double() for key in ("center", "alpha"))
    over, asked = torch.tensor(form.beyond, dtype=torch.float64), form.working
    shift = (center - center.round()).abs().amax(1)
    if form.by_enumeration and bool((shift[asked] > 0).any() or (over > 0).any()):
        yield Objection(f"{name}encoding.center of an enumeration is no key, which is not looked at again", sure=False)
        return
    if not asked.any():
        return
    alpha, shift, over = (each[asked] for each in (alpha, shift, over))
    told = f"{name}encoding.alpha is {alpha.min().item():g}"
    apart = (shift > 0) | (over > 0).any(1)
    doubt = torch.where(apart, DOUBT * (over + 1).square().sum(1), 0)
    gaps = 1 - 2 * shift  # from the nearest pixel to the next, in pixels squared
    sure, most = (alpha * (gaps - doubt)).min().item(), (alpha * gaps).min().item()
    axes = 1 if form.by_enumeration else len(form.stride)
    vanish, roundoff = (1 - SMALLEST[form.dtype]) * math.log(2), ROUNDOFF[form.dtype]
    enough = vanish if proved else math.log(2.04 * axes / roundoff)
    least = vanish if proved else math.log((1 - roundoff) / roundoff)
    if sure < enough:
        yield Objection(told, sure=most < least * (1 - DOUBT))


def heads_at(form: Form, start: Pixel) -> list[int]:
    """The heads or taps that start at a pixel."""
    return [head for head, each in enumerate(form.starts) if each == start]


def biased(form: Form) -> Tensor:
    """The bias, or zeros."""
    return torch.zeros(form.channels[1], dtype=form.dtype) if form.bias is None else form.bias


def same_at(start: Pixel, first: Form, second: Form) -> bool:
    """Whether what heads that start at a pixel do together is the same in both.

    One head a side with a plain factor is compared number for number. Otherwise both are applied to a vector of random
    256-bit integers, in exact arithmetic: two different matrices agree on it with a chance of 2^-256 at most.
    """
    sides = [(form, heads_at(form, start)) for form in (first, second)]
    if all(len(heads) == 1 and len(form.weights) == 1 for form, heads in sides) and first.groups == second.groups:
        return identical(*(factor[heads] for form, heads in sides for factor in form.weights))
    vector = [int.from_bytes(token_bytes()) for _ in range(first.channels[0])]
    ours, theirs = (applied(form, heads, vector) for form, heads in sides)
    return ours == theirs


def uses(form: Form, start: Pixel) -> bool:
    """Whether what heads that start at a pixel do together is anything at all."""
    return not same_at(start, form, replace(form, starts=()))


def applied(form: Form, heads: list[int], vector: Sequence[Exact]) -> Sequence[Exact]:
    """The exact sum of what some heads make of a vector of rational numbers."""
    total: Sequence[Exact] = [0] * form.channels[1]
    for head in heads:
        passed = vector
        for factor in form.weights:
            passed = in_groups(factor[head], passed, form.groups)
        total = [a + b for a, b in zip(total, passed, strict=True)]
    return total


def in_groups(matrix: Tensor, vector: Sequence[Exact], groups: int) -> Sequence[Exact]:
    """The exact product of the diagonal blocks of a matrix of floats and a vector of rational numbers."""
    rows, width = [[Fraction(x) for x in row] for row in matrix.tolist()], matrix.shape[1]
    parts = [vector[width * (place * groups // len(rows)) :][:width] for place in range(len(rows))]
    return [sum(a * b for a, b in zip(*pair, strict=True)) for pair in zip(rows, parts, strict=True)]


def identical(a: Tensor, b: Tensor) -> bool:
    """Same dtype, shape and numbers."""
    return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
