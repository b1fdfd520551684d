"""Wrong functions, generated from a licensed one and its domain: each differs somewhere, and one must see where."""

import inspect
import math
from dataclasses import is_dataclass, replace

from licences.domains import INSIDE

from proofs.domain import Each, Floats, Integers, Many

SHARES = (0.15, 0.85)


def quantile(part, share):
    """The value of a part that is above this share of it, by exponent or by bits."""
    low, high = max(part.low, 1 if isinstance(part, Integers) else 0.0), part.high
    value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    if not isinstance(part, Integers):
        return value
    return min(max(round(value), part.low + (share < 0.5)), part.high - (share > 0.5))


def changed(value, to):
    """A value, or each of several, changed in size; the sign is kept."""
    if is_dataclass(value):
        return replace(value, **{name: changed(each, to) for name, each in vars(value).items()})
    if isinstance(value, tuple | list):
        return type(value)(changed(each, to) for each in value)
    return to(value) if value >= 0 else -to(-value)


def changes(part):
    """Ways to misread an argument, by name."""
    if isinstance(part, Each):
        return {f"taken for {one}": lambda value, one=one: one for one in part.values}
    item = part.item if isinstance(part, Many) else part
    low, high = (quantile(item, share) for share in SHARES)
    inside = INSIDE[type(item)](item)
    return {
        f"ignored beyond {high:.3g}": lambda value: changed(value, lambda x: min(x, high)),
        f"ignored below {low:.3g}": lambda value: changed(value, lambda x: max(x, low)),
        "ignored": lambda value: changed(value, lambda x: inside),
        "half as large": lambda value: changed(
            value, lambda x: x / 2 if isinstance(item, Floats) else max(x // 2, item.low)
        ),
    }  # fmt: skip


def misread(function, at, change):
    """`function` that changes one of its arguments."""
    signature = inspect.signature(function)
    names = list(signature.parameters)

    def wrong(*args, **given):
        bound = signature.bind(*args, **given)
        if bound.arguments.get(names[at]) is not None:
            bound.arguments[names[at]] = change(bound.arguments[names[at]])
        return function(*bound.args, **bound.kwargs)

    return wrong


def miscounted(function, at, part, field):
    """`function` that gives a hundredth less once an argument is beyond most of its domain."""
    signature = inspect.signature(function)
    name, limit = list(signature.parameters)[at], quantile(part, SHARES[1])

    def wrong(*args, **given):
        found = function(*args, **given)
        value = signature.bind(*args, **given).arguments.get(name, 0)
        if not abs(value) > limit:
            return found
        if field is None:
            return changed(found, lambda x: x * 0.99)
        return replace(found, **{field: getattr(found, field) * 0.99})

    return wrong


def plants(function, domain, fields):
    """All wrong functions, by name; `fields` of the result may be too small, or None where it is a number."""
    found = {}
    for at, (name, part) in enumerate(domain.parts.items()):
        if "," in name:  # no argument of the function itself
            continue
        for what, change in changes(part).items():
            found[f"{name} {what}"] = misread(function, at, change)
        if isinstance(part, Floats | Integers):
            for field in fields:
                found[f"{field or 'result'} less beyond most of {name}"] = miscounted(function, at, part, field)
    return found
