"""Rules of the softmax and of attention."""

import math
from typing import Any

import torch

from conv2attn.equality.fingerprint.formulas import (
    add,
    exponential,
    exponentials,
    logarithm,
    matmul,
    mul,
    softmax,
    sub,
    total,
)
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, axes_of, rule


@rule("_softmax")
def _(c: Call, self: Any, dim: int, half_to_float: bool) -> Residues:
    return softmax(c.field, c.operand(self), dim)


@rule("_safe_softmax")
def _(c: Call, self: Any, dim: int, dtype: Any = None) -> Residues:
    return softmax(c.field, c.operand(self), dim)


@rule("_log_softmax")
def _(c: Call, self: Any, dim: int, half_to_float: bool) -> Residues:
    numbers = c.operand(self)
    c.field.usable(numbers, "log softmax")
    if not numbers.shape:
        return c.operand(0)
    weights = exponential(c.field, numbers)
    return sub(c.field, numbers, logarithm(c.field, total(c.field, weights, [dim], True), finite=True))


@rule("logsumexp")
def _(c: Call, self: Any, dim: Any, keepdim: bool = False) -> Residues:
    numbers = c.operand(self)
    if 0 in numbers.shape:
        raise Undecided("the logarithm of an empty sum")
    return logarithm(c.field, exponentials(c.field, numbers, axes_of(numbers, dim), keepdim)[1], finite=True)


def shared(numbers: Residues, queries: Residues) -> Residues:
    """Keys or values, with each head repeated for the query heads that share it."""
    if min(len(numbers.shape), len(queries.shape)) < 3:
        return numbers
    times = queries.shape[-3] // numbers.shape[-3]
    return numbers if times <= 1 else numbers.but(values=numbers.values.repeat_interleave(times, -3))


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _(
    c: Call,
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Residues, None]:
    if dropout_p != 0:
        raise Undecided("dropout")
    queries = c.operand(query)
    keys, values = (shared(c.operand(each), queries) for each in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = mul(
        c.field, matmul(c.field, c.field.as_factor(queries), c.field.as_factor(keys).turned), c.operand(factor)
    )
    if is_causal:
        if not c.constant(factor).item() > 0:
            raise Undecided("a causal mask scaled by a number that is not positive")
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        mask = torch.zeros(scores.shape[-2:]).masked_fill(~allowed, -math.inf)
        scores = add(c.field, scores, c.field.encode(mask))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            raise Undecided("a boolean mask here")
        scores = add(c.field, scores, c.summand(attn_mask))
    return matmul(c.field, c.field.as_factor(softmax(c.field, scores, -1)), c.field.as_factor(values)), None
