"""Rules of operators that change layouts, choose by masks, or compare numbers."""

import math
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import CENTRES, MASKED, Shadow, Unfollowed
from conv2attn.equality.worlds.steps import Step, shadow_rule


@shadow_rule("view", "_unsafe_view", "_reshape_alias")
def view(step: Step) -> Any:
    """A view of every copy."""
    # If a copy has other strides than the plain tensor, the operator is not a view there.
    return step.across(torch.reshape, step.x, step.bound["size"])


@shadow_rule("as_strided")
def as_strided(step: Step) -> Any:
    """Strides refer to the plain tensor, so the copies must have its layout."""
    if not all(t.is_contiguous() for t in step.x.copies):
        raise Unfollowed("as_strided of a tensor that is not contiguous")
    return step.across(step.func, *step.args, **step.kwargs)


@shadow_rule("detach", "alias")
def detach(step: Step) -> Any:
    """The result keeps what `Shadow.centre` recorded for the operand, of every kind in `CENTRES`."""
    result = step.computed()
    for by in CENTRES:
        if (centre := step.x.centred_scores(by)) is not None:
            result.centre(*centre, step.plain[0], step.out, by=by)
    return result


@shadow_rule("isnan", "isinf", "isfinite", "eq", "ne")
def test_of_kind(step: Step) -> Any:
    """Tests whether numbers are finite; any other decision by numbers is refused."""
    if step.name in ("eq", "ne"):
        other = step.args[1]
        if other is not step.x and not (isinstance(other, float) and not math.isfinite(other)):
            return NotImplemented
    if any(not torch.equal(t, step.out) for t in step.across(step.func, *step.args).copies):
        raise Unfollowed(f"{step.name} depends on the numbers of the input")
    return [None]


@shadow_rule("gt", "ge", "lt", "le")
def step_function(step: Step) -> Any:
    """A comparison of two numbers: a function of their difference."""

    def difference(s: Any, t: Any) -> Any:
        return s - t if step.name[0] == "g" else t - s

    return step.oracle(f"step {step.name[1]}", step.across(difference, step.x, step.args[1]))


@shadow_rule("where")
def choice(step: Step) -> Any:
    """A choice by a mask."""
    return either(step, step.bound["condition"], step.bound["self"], step.bound["other"])


@shadow_rule("masked_fill")
def masked_fill(step: Step) -> Any:
    """A choice by a mask that depends on the input."""
    if not isinstance(step.bound["mask"], Shadow):
        return NotImplemented
    return either(step, step.bound["mask"], step.bound["value"], step.x)


def either(step: Step, mask: Any, p: Any, q: Any) -> Any:
    """`m p + (1 - m) q` for the number m in place of the mask; if p or q masks or is infinite, p at m > 0, else q."""

    def mixed(m: Tensor, p: Tensor, q: Tensor) -> Tensor:
        if not m.is_floating_point():
            return torch.where(m, p, q)
        far = ~(torch.maximum(p.abs(), q.abs()) < -MASKED)
        return torch.where(far, torch.where(m > 0, p, q), m * p + (1 - m) * q)

    return step.across(mixed, *map(step.shadow, (mask, p, q)))
