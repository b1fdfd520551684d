"""Random programs of swept operators, and programs that differ in one place.

    [Step("softmax", (0,), (1,)), Step("add", (1, 0), ())]    softmax over axis 1 of the image, plus the image

Value 0 is the image, value n the result of step n. Operators of one value are those of `sweeps`, and the ones below.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from equality.fingerprint.sweeps import AXES, FLAGS, GEOMETRY, IMAGES, LOWER, MATRIX, SHAPE, written

from conv2attn.equality.fingerprint import Field, Undecided, fingerprint
from conv2attn.torch_internals import tree_leaves

MATRICES = [MATRIX, torch.eye(6), torch.zeros(6, 6), torch.ones(6, 6), MATRIX.abs() + 0.5, -MATRIX.abs()]
MASKS = [torch.eye(6).bool(), LOWER, torch.zeros(6, 6).bool(), torch.arange(6) % 2 > 0]
A_MATRIX, A_MASK = range(len(MATRICES)), range(len(MASKS))
NUMBERS = [0.0, 1.0, -1.0, 2.0, 0.5, 0.1, 3, 0, 1, 2, -2, 1e-46, 16777217, 1e-3, -0.0]
DTYPES = [torch.half, torch.bfloat16, torch.double, torch.float, torch.int, torch.long, torch.int8, torch.bool]
SLICES = [slice(None), slice(1, None), slice(None, None, 2), slice(-2, None), slice(0, 3)]


def matrix(number, a):
    return MATRICES[number].to(a)


UNARY = {
    **GEOMETRY,
    **{
        name: (function,)
        for name, function in {
            "relu": F.relu,
            "abs": torch.abs,
            "tanh": torch.tanh,
            "sigmoid": torch.sigmoid,
            "gelu": F.gelu,
            "silu": F.silu,
            "square": torch.square,
            "itself squared": lambda a: a * a,
            "sqrt": torch.sqrt,
            "log": torch.log,
            "reciprocal": lambda a: 1 / (a.abs() + 1),
            "rsqrt": lambda a: (a * a + 1).rsqrt(),
            "hardswish": F.hardswish,
            "relu6": F.relu6,
            "mish": F.mish,
            "erf": torch.erf,
            "sign": torch.sign,
            "round": torch.round,
            "floor": torch.floor,
            "isnan": torch.isnan,
            "not": torch.logical_not,
            "nan to num": torch.nan_to_num,
            "softplus": F.softplus,
            "clone": torch.clone,
            "turned": lambda a: a.mT,
            "turned copy": lambda a: a.mT.contiguous(),
            "in place relu": lambda a: a.clone().relu_(),
            "zero": lambda a: a * 0,
            "pole": lambda a: 1 / a,
        }.items()
    },
    "plus": (lambda a, s: a + s, NUMBERS),
    "times": (lambda a, s: a * s, NUMBERS),
    "from": (lambda a, s: s - a, NUMBERS),
    "over": (lambda a, s: a / s, NUMBERS),
    "plus matrix": (lambda a, m: a + matrix(m, a), A_MATRIX),
    "times matrix": (lambda a, m: a @ matrix(m, a), A_MATRIX),
    "matrix times": (lambda a, m: matrix(m, a) @ a, A_MATRIX),
    "each times": (lambda a, m: a * matrix(m, a), A_MATRIX),
    "each over": (lambda a, m: a / matrix(m, a), A_MATRIX),
    "maximum": (lambda a, m: torch.maximum(a, matrix(m, a)), A_MATRIX),
    "minimum": (lambda a, m: torch.minimum(matrix(m, a), a), A_MATRIX),
    "masked softmax": (lambda a, m, d: a.masked_fill(MASKS[m], -math.inf).softmax(d), A_MASK, AXES),
    "causal attention": (lambda a, c: F.scaled_dot_product_attention(a, a, a, is_causal=c), FLAGS),
    "leaky relu": (F.leaky_relu, NUMBERS),
    "elu": (F.elu, NUMBERS),
    "clamp": (torch.clamp, NUMBERS, NUMBERS),
    "clamp min": (lambda a, s: a.clamp(min=s), NUMBERS),
    "remainder": (torch.remainder, NUMBERS),
    "power": (torch.pow, [1, 2, 3, 4, 0.5, 2.0, -1, 0, 1.5, 17, -0.5]),
    "greater": (torch.gt, NUMBERS),
    "equal": (torch.eq, NUMBERS),
    "mask filled": (lambda a, m, s: a.masked_fill(MASKS[m], s), A_MASK, NUMBERS),
    "where": (lambda a, s, r: torch.where(a > s, a, r), NUMBERS, NUMBERS),
    "cast": (torch.Tensor.to, DTYPES),
    "cast twice": (lambda a, t, r: a.to(t).to(r), DTYPES, DTYPES),
    "cast plus": (lambda a, t, s: a.to(t) + s, DTYPES, NUMBERS),
    "cast compared": (lambda a, t, s: a.to(t) > s, DTYPES, NUMBERS),
    "copied into": (lambda a, t: torch.empty(SHAPE, dtype=t).copy_(a), DTYPES),
    "rows set": (lambda a, i, s: written(a, lambda b: b.__setitem__(i, s)), SLICES, NUMBERS),
    "rows less one": (lambda a, i, s: written(a, lambda b: b[i].sub_(a[s])), SLICES, [-2, -1, 0, 1]),
    "addmm": (
        lambda a, m, s, r: torch.addmm(matrix(m, a), a[0, 0], a[1, 1], beta=s, alpha=r),
        A_MATRIX,
        NUMBERS,
        NUMBERS,
    ),
    "lerp": (lambda a, m, s: torch.lerp(a, matrix(m, a), s), A_MATRIX, NUMBERS),
    "add alpha": (lambda a, m, s: torch.add(a, matrix(m, a), alpha=s), A_MATRIX, NUMBERS),
}

BINARY = {
    **{
        name: (function,)
        for name, function in {
            "add": torch.add,
            "sub": torch.sub,
            "mul": torch.mul,
            "matmul": torch.matmul,
            "maximum": torch.maximum,
            "minimum": torch.minimum,
            "safe div": lambda a, b: a / (b.abs() + 1),
            "div": torch.div,
            "stacked max": lambda a, b: torch.stack([a, b]).amax(0),
            "in place": lambda a, b: a.clone().add_(b),
            "equal": torch.eq,
            "less": torch.lt,
            "and": torch.logical_and,
            "hypot": torch.hypot,
            "outer": lambda a, b: torch.outer(a[0, 0, 0], b[1, 1, :, 0]),
            "conv": lambda a, b: F.conv2d(a, b[:, :, :2, :2]),
        }.items()
    },
    "where": (lambda a, b, s: torch.where(a > s, a, b), NUMBERS),
    "cat": (lambda a, b, d: torch.cat([a, b], d), AXES),
    "rows": (lambda a, b, i: written(a, lambda c: c.__setitem__(i, b[i])), SLICES),
    "lerp": (torch.lerp, NUMBERS),
    "rsub": (lambda a, b, s: torch.rsub(a, b, alpha=s), NUMBERS),
    "mixed": (lambda a, b, t: a * b.to(t), DTYPES),
    "softmax times": (lambda a, b, d: a.softmax(d) @ b, AXES),
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
