"""Wrong functions, generated from the domain of a licence: results for other arguments, or too small a result.

A plant is a law of the parts of a case: whether the licence still agrees. The function runs on the changed arguments,
and what it returns is judged on those of the case.
"""

import math
from dataclasses import is_dataclass, replace

from licences.domains import Entries, middle

from proofs.domain import Array, Each, Floats, Integers, Many

SHARES = (0.15, 0.85)


def quantile(part, share):
    """The value of a part that is above this share of it, by exponent or by bits."""
    low, high = max(part.low, 1 if isinstance(part, Integers) else 0.0), part.high
    value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    if not isinstance(part, Integers):
        return value
    n = min(max(round(value), part.low + (share < 0.5)), part.high - (share > 0.5))
    return n if part.over == 1 else n / part.over


def changed(value, to):
    """A value, or each of several, changed in size; the sign is kept."""
    if isinstance(value, Entries):
        return value._replace(size=to(value.size))
    if is_dataclass(value):
        return replace(value, **{name: changed(each, to) for name, each in vars(value).items()})
    if isinstance(value, tuple | list):
        return type(value)(changed(each, to) for each in value)
    return to(value) if value >= 0 else -to(-value)


def leaf(part):
    """What a part is made of."""
    while isinstance(part, Many | Array):
        part = part.item if isinstance(part, Many) else part.size
    return part


def halved(item):
    if isinstance(item, Floats):
        return lambda x: x / 2
    return lambda x: max(x * item.over // 2, item.low, 0) / item.over if item.over > 1 else max(x // 2, item.low, 0)


def changes(part):
    """Ways to misread an argument, by name."""
    item, found = leaf(part), {}
    if isinstance(part, Many) and part.most > 1:
        found |= {"reversed": lambda value: value[::-1], "the first for all": lambda value: value[:1] * len(value)}
    if isinstance(item, Each):
        alike = {f"taken for {one}": lambda value, one=one: one for one in item.values}
        return found | (alike if item is part else {})
    low, high = (quantile(item, share) for share in SHARES)
    inside, half = middle(item, {}), halved(item)
    return found | {
        f"ignored beyond {high:.3g}": lambda value: changed(value, lambda x: min(x, high)),
        f"ignored below {low:.3g}": lambda value: changed(value, lambda x: max(x, low)),
        "ignored": lambda value: changed(value, lambda x: inside),
        "half as large": lambda value: changed(value, half),
    }


def answers(licence, function, case):
    """What the function returns, or raises, while the licence compares it on this case."""
    found = []

    def noting(*arguments, **options):
        try:
            found.append((function(*arguments, **options), None))
        except Exception as error:
            found.append((None, error))
            raise
        return found[-1][0]

    licence.agrees(noting, licence.shape(*case))
    return found


def answering(licence, found, case):
    """Whether the licence agrees on this case with a function that returns, or raises, what was noted."""
    noted = iter(found)

    def again(*arguments, **options):
        result, error = next(noted, (None, AssertionError("called more often")))
        if error:
            raise error
        return result

    return licence.agrees(again, licence.shape(*case))


def misread(licence, function, domain, at, change):
    """The function that misreads a part of its arguments, where the misread ones are in its domain."""

    def agrees(case):
        wrong = (*case[:at], change(case[at]), *case[at + 1 :])
        if wrong == case or not domain.where[1](*wrong):
            return True
        return answering(licence, answers(licence, function, wrong), case)

    return agrees


def miscounted(licence, function, at, limit, field):
    """The function that gives a hundredth less once a part is beyond most of its domain."""

    def less(found):
        if field is None:
            return changed(found, lambda x: x * 0.99)
        return replace(found, **{field: getattr(found, field) * 0.99})

    def agrees(case):
        found = answers(licence, function, case)
        return not abs(case[at]) > limit or answering(licence, [(less(result), _) for result, _ in found], case)

    return agrees


def plants(licence, function, domain, fields):
    """All wrong functions, by name; `fields` of the result may be too small, none where it is no bound."""
    found = {}
    for at, (name, part) in enumerate(domain.parts.items()):
        for what, change in changes(part).items():
            found[f"{name} {what}"] = misread(licence, function, domain, at, change)
        if isinstance(part, Floats | Integers):
            limit = quantile(part, SHARES[1])
            for field in fields:
                what = f"{field or 'result'} less beyond most of {name}"
                found[what] = miscounted(licence, function, at, limit, field)
    return found
