"""Rules of sorting: which number comes first is an oracle, so that every number that is compared counts."""

from typing import Any

from conv2attn.equality.worlds.all_copies import wide
from conv2attn.equality.worlds.shadows import Shadow
from conv2attn.equality.worlds.steps import Step, shadow_rule


@shadow_rule("sort", "topk", "argmax", "argmin")
def order(step: Step) -> Any:
    """The order of the oracle's results, in place of that of the numbers, and the numbers in it.

    Of the numbers themselves only those that come first would count, and rounding would decide between neighbours. All
    copies of a world have the same results, and so the same order.
    """
    results = step.oracle("order", step.x)
    chosen = step.across(wide(step.func), results, *step.args[1:], **step.kwargs)
    if isinstance(chosen, Shadow):
        return chosen
    places, axis = chosen[1], int(step.bound["dim"])
    values = step.across(lambda t, at: t.gather(axis, at) if t.dim() else t, step.x, places)
    return [values, places]
