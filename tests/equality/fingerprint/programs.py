"""Random programs of swept operators, and programs that differ in one place.

    [Step("softmax", (0,), (1,)), Step("add", (1, 0), ())]    softmax over axis 1 of the image, plus the image

Value 0 is the image, value n the result of step n. The operators are those of `sweeps` and `pointwise`.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from equality.fingerprint.pointwise import LEFT, OPERATORS, SCALARS
from equality.fingerprint.sweeps import AXES, GEOMETRY, IMAGES

from conv2attn.equality.fingerprint import Field, Undecided, fingerprint
from conv2attn.torch_internals import tree_leaves

ACTIVATIONS = {
    each.__name__: (each,)
    for each in (torch.tanh, torch.sigmoid, F.gelu, F.silu, torch.sqrt, F.mish, torch.round, F.softplus, torch.erf)
}
UNARY = {
    **GEOMETRY,
    **ACTIVATIONS,
    **{name: (function,) for name, function in LEFT.items()},
    **{
        f"{name} of a number": (lambda a, number, f=function: f(a, number), SCALARS)
        for name, function in OPERATORS.items()
    },
}
BINARY = {
    **{name: (function,) for name, function in OPERATORS.items()},
    "matmul": (torch.matmul,),
    "cat": (lambda a, b, axis: torch.cat([a, b], axis), AXES),
    "conv": (lambda a, b: F.conv2d(a, b[:, :, :2, :2]),),
    "softmax times": (lambda a, b, axis: a.softmax(axis) @ b, AXES),
}


class Step(NamedTuple):
    """An operator by name, the values that it takes, and its other arguments."""

    name: str
    values: tuple
    arguments: tuple


def operator(step):
    return (UNARY if len(step.values) == 1 else BINARY)[step.name]


def new_step(source, known):
    """A step that may read so many values, the last of them more often; one that torch takes."""
    table = UNARY if source.random() < 0.7 else BINARY
    count = 1 if table is UNARY else 2
    values = tuple(known - 1 if source.random() < 0.6 else source.randrange(known) for _ in range(count))
    while True:
        name = source.choice(list(table))
        step = Step(name, values, tuple(map(source.choice, table[name][1:])))
        if result_of(network([step._replace(values=(0,) * count)]), IMAGES[0]) is not None:
            return step


def new_program(source, longest=4):
    return [new_step(source, known + 1) for known in range(source.randint(1, longest))]


def mutant(source, program):
    """Another program: with one argument, one value, the order of two values or one operator changed."""
    changed = program
    while changed == program:
        changed = changed_once(source, program)
    return changed


def changed_once(source, program):
    changed, place = list(program), source.randrange(len(program))
    step, choices = changed[place], operator(changed[place])[1:]
    chance = source.random()
    if choices and chance < 0.5:
        which = source.randrange(len(choices))
        arguments = list(step.arguments)
        arguments[which] = source.choice(choices[which])
        changed[place] = step._replace(arguments=tuple(arguments))
    elif chance < 0.65:
        changed[place] = step._replace(values=tuple(source.randrange(place + 1) for _ in step.values))
    elif chance < 0.75:
        changed[place] = step._replace(values=step.values[::-1])
    else:
        changed[place] = new_step(source, place + 1)
    return changed


def fitted(value, image):
    """Any result in the shape and the dtype of the image."""
    flat = value.to(image.dtype).reshape(-1)
    return F.pad(flat[: image.numel()], (0, max(0, image.numel() - flat.numel()))).reshape(image.shape)


def network(program):
    def run(image):
        values = [image * 1]
        for step in program:
            function = operator(step)[0]
            values.append(fitted(function(*(values[n] for n in step.values), *step.arguments), image))
        return values[-1]

    return run


def gap(first, second, dtype=torch.float64, images=IMAGES):
    """The largest relative difference on `images`; None where both raise on all of them.

    It is inf where one alone raises, is NaN or is infinite.
    """
    worst = None
    for image in images:
        a, b = (result_of(each, image.to(dtype)) for each in (first, second))
        if a is None and b is None:
            continue
        if a is None or b is None or not (torch.equal(a.isnan(), b.isnan()) and torch.equal(a.isinf(), b.isinf())):
            return math.inf
        if not torch.equal(a[a.isinf()], b[b.isinf()]):
            return math.inf
        finite = a.isfinite()
        difference = ((a - b).abs() / (1 + a.abs() + b.abs()))[finite]
        worst = max(worst or 0.0, difference.max().item() if difference.numel() else 0.0)
    return worst


def result_of(function, image):
    """What a function returns for an image, in float64, several results one after the other; None if it raises."""
    try:
        result = function(image)
        if isinstance(result, torch.Tensor):
            return result.double()
        return torch.cat([torch.as_tensor(each).double().flatten() for each in tree_leaves(result)])
    except Exception:
        return None


def disagreements(calls, network, images, dtype, tolerance):
    """The pairs of calls with equal residues and different numbers, and how many pairs and groups there are."""
    field, groups, pairs, wrong = Field(2), {}, 0, []
    for call in calls:
        try:
            form, values = fingerprint(network(call), images[0].to(dtype), field)
        except Undecided:
            continue
        if any(each.mark is not None for each in values):
            continue
        key = repr(form), *(each.values.contiguous().numpy().tobytes() for each in values)
        groups.setdefault(key, []).append(call)
    for first, *others in groups.values():
        for other in others:
            difference = gap(network(first), network(other), dtype, images)
            pairs += 1
            if difference is not None and difference > tolerance:
                wrong.append((first, other, difference))
    return wrong, pairs, len(groups)
