"""Rules of arithmetic: sums, products, roots, norms and casts."""

from collections.abc import Callable
from typing import Any

import torch

from conv2attn.equality.worlds.all_copies import wide
from conv2attn.equality.worlds.shadows import CENTRES, Shadow, Unfollowed, is_number
from conv2attn.equality.worlds.shaking import UNITS
from conv2attn.equality.worlds.steps import Step, shadow_rule

OPERATORS: dict[str, Callable[..., Any]] = {
    "mul": torch.mul,
    "div": torch.div,
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
}


@shadow_rule(
    "native_layer_norm", "native_group_norm", "_fused_rms_norm", "native_batch_norm", "_native_batch_norm_legit"
)
def norm(step: Step) -> Any:
    """A norm with the input's own statistics: its epsilon counts as a number of the section."""
    if step.bound.get("training", step.bound.get("train")) is False:
        return NotImplemented
    eps = torch.finfo(step.out[0].dtype).eps if step.bound["eps"] is None else step.bound["eps"]

    def normed(e: Any, **bound: Any) -> Any:
        return wide(step.func)(**{**bound, "eps": float(e)})

    return step.across(normed, step.loud(float(eps)), **step.bound)


# The root of a negative number -t is computed as that of NEGATIVE t, not of t. In the network it is NaN, so it must not
# look like the root in code that avoids negative numbers, such as sqrt(x * x).
NEGATIVE = 3.0


@shadow_rule("sqrt", "rsqrt", "pow")
def power_of(step: Step) -> Any:
    """A root or power, also of negative numbers: oracles return both signs although the network's are positive."""
    if not isinstance(step.x, Shadow) or step.x.of(0).is_complex():
        return NotImplemented
    if bool(step.out.isnan().any()):
        raise Unfollowed("a root of a negative number")
    exponent = {"sqrt": 0.5, "rsqrt": -0.5}.get(step.name) or step.args[1]

    def power(t: torch.Tensor, e: Any) -> torch.Tensor:
        # Both networks take the same positive number, so sections that agree still agree. Integer powers of negative
        # numbers are computed as they are.
        return torch.where(torch.as_tensor((e % 1 == 0) | (t >= 0)), t, -NEGATIVE * t) ** e

    return step.across(power, step.x, exponent)


@shadow_rule("square")
def square(step: Step) -> Any:
    """A square; its copies are new even where the network squares in place."""
    return step.across(torch.square, step.x)


@shadow_rule("_to_copy")
def to_copy(step: Step) -> Any:
    """A cast: to half precision it rounds, to integers it is refused."""
    if is_number(step.plain[0]) and not is_number(step.out):
        raise Unfollowed(f"numbers of the input are cast to {step.out.dtype}")
    if step.out.dtype.itemsize < 4:
        return step.watch.numbers.rounded(step.x, step.out.dtype)
    if step.out.dtype.itemsize < step.plain[0].dtype.itemsize:  # float32 in a network of float64
        step.watch.numbers.coarsest = max(step.watch.numbers.coarsest, UNITS[step.out.dtype.to_real()])
    if is_number(step.out) and step.out.is_complex():
        return step.across(lambda t: t.to(t.dtype.to_complex()), step.x)
    return step.across(lambda t: t.clone(), step.x)


@shadow_rule(*OPERATORS)
def binary(step: Step) -> Any:
    """Sums, products and quotients; a small summand counts as an epsilon."""
    if step.bound.get("rounding_mode") is not None:
        return rounds(step)
    args = [step.loud(t) for t in step.args] if step.name == "add" else step.args
    args = [step.shadow(t) if isinstance(t, float) else t for t in args]
    result = step.across(OPERATORS[step.name], *args, **step.kwargs)
    for by in CENTRES[:2] if step.name == "sub" and isinstance(args[1], Shadow) else ():
        if (centre := args[1].centred_scores(by)) is not None and centre[0] is step.x:
            result.centre(*centre, *step.plain[:2], step.out, by=by)  # scores minus their maximum
    return result


@shadow_rule("floor_divide", "remainder", "fmod")
def rounds(step: Step) -> Any:
    """Refuses rounding of numbers that depend on the input."""
    raise Unfollowed(f"{step.name} rounds numbers of the input")
