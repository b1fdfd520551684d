"""Random programs on 4 x 4 images, and programs that differ in one place.

    [Step("softmax", (0,), (1,)), Step("add", (1, 0), ())]    softmax over axis 1 of the image, plus the image

Value 0 is the image, value n the result of step n.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F

from conv2attn.equality.fingerprint import Field, Undecided, fingerprint
from conv2attn.torch_internals import tree_leaves

GENERATOR = torch.Generator().manual_seed(5)


def drawn(*shape):
    return torch.randn(*shape, generator=GENERATOR)


MATRICES = [drawn(4, 4), torch.eye(4), torch.zeros(4, 4), torch.ones(4, 4), drawn(4, 4).abs() + 0.5, -drawn(4, 4).abs()]
MASKS = [torch.eye(4).bool(), torch.ones(4, 4).tril().bool(), torch.zeros(4, 4).bool(), torch.arange(4) % 2 > 0]
NUMBERS = [0.0, 1.0, -1.0, 2.0, 0.5, 0.1, 3, 0, 1, 2, -2, 1e-46, 16777217, 1e-3, -0.0]
DRAWN = {
    "axis": [0, 1, -1, -2],
    "number": NUMBERS,
    "matrix": range(len(MATRICES)),
    "mask": range(len(MASKS)),
    "flag": [True, False],
    "shift": [-2, -1, 0, 1, 2],
    "eps": [1e-5, 1e-3, 0.1, 0.0, 1.0],
    "correction": [0, 1, 2],
    "dtype": [torch.half, torch.bfloat16, torch.double, torch.float, torch.int, torch.long, torch.int8, torch.bool],
    "window": [1, 2, 3, (1, 2), (2, 1), (2,)],
    "stride": [1, 2, (1,), (1, 2)],
    "padding": [0, 1, (0, 1), (1,)],
    "power": [1, 2, 3, 4, 0.5, 2.0, -1, 0, 1.5, 17, -0.5],
    "index": [(0, 2, 1, 3), (3, 2, 1, 0), (-1, 0, 1, 2), (0, 0, 1, 1), (1, 0, 3, 2)],
    "groups": [1, 2, 4],
    "slice": [slice(None), slice(1, None), slice(None, None, 2), slice(-2, None), slice(0, 3)],
    "mode": ["reflect", "replicate", "circular"],
}


def matrix(index, a):
    return MATRICES[index].to(a.dtype)


def written(a, write):
    b = a.clone()
    write(b)
    return b


def attention(a, scale=None, mask=None, causal=False):
    batch = a[None, None]
    return F.scaled_dot_product_attention(batch, batch, batch, mask, is_causal=causal, scale=scale)[0, 0]


UNARY = {
    **{
        name: (function, ())
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
            "sum": torch.sum,
            "zero": lambda a: a * 0,
            "pole": lambda a: 1 / a,
        }.items()
    },
    "plus": (lambda a, s: a + s, ("number",)),
    "scaled": (lambda a, s: a * s, ("number",)),
    "from": (lambda a, s: s - a, ("number",)),
    "over": (lambda a, s: a / s, ("number",)),
    "plus matrix": (lambda a, m: a + matrix(m, a), ("matrix",)),
    "times matrix": (lambda a, m: a @ matrix(m, a), ("matrix",)),
    "matrix times": (lambda a, m: matrix(m, a) @ a, ("matrix",)),
    "each times": (lambda a, m: a * matrix(m, a), ("matrix",)),
    "each over": (lambda a, m: a / matrix(m, a), ("matrix",)),
    "maximum": (lambda a, m: torch.maximum(a, matrix(m, a)), ("matrix",)),
    "minimum": (lambda a, m: torch.minimum(matrix(m, a), a), ("matrix",)),
    "sum over": (lambda a, d, k: a.sum(d, keepdim=k), ("axis", "flag")),
    "mean over": (lambda a, d, k: a.mean(d, keepdim=k), ("axis", "flag")),
    "var over": (lambda a, d, c: a.var(d, correction=c), ("axis", "correction")),
    "std over": (lambda a, d, c: a.std(d, correction=c), ("axis", "correction")),
    "amax": (lambda a, d: a.amax(d), ("axis",)),
    "amin": (lambda a, d: a.amin(d), ("axis",)),
    "norm": (lambda a, d: a.norm(dim=d), ("axis",)),
    "cumsum": (lambda a, d: a.cumsum(d), ("axis",)),
    "softmax": (lambda a, d: a.softmax(d), ("axis",)),
    "log softmax": (lambda a, d: a.log_softmax(d), ("axis",)),
    "masked softmax": (lambda a, m, d: a.masked_fill(MASKS[m], -math.inf).softmax(d), ("mask", "axis")),
    "flip": (lambda a, d: a.flip(d), ("axis",)),
    "roll": (lambda a, s, d: a.roll(s, d), ("shift", "axis")),
    "rot90": (lambda a, s: a.rot90(s), ("shift",)),
    "tril": (lambda a, s: a.tril(s), ("shift",)),
    "rows": (lambda a, i: a[list(i)], ("index",)),
    "columns": (lambda a, i: a[:, list(i)], ("index",)),
    "select": (lambda a, i, d: a.index_select(d, torch.tensor(i) % 4), ("index", "axis")),
    "cut": (lambda a, s: a[s], ("slice",)),
    "pad": (lambda a, m: F.pad(a[None, None], (1, 0, 0, 1), m)[0, 0], ("mode",)),
    "unfold": (lambda a, k, p: F.unfold(a[None, None], k, 1, p, 2) if k != (2,) else a, ("window", "padding")),
    "avg pool": (
        lambda a, k, p, c: F.avg_pool2d(a[None, None], k, 1, p, count_include_pad=c),
        ("window", "padding", "flag"),
    ),
    "max pool": (lambda a, k, s, p: F.max_pool2d(a[None, None], k, s, p), ("window", "stride", "padding")),
    "conv": (
        lambda a, m, s, p: F.conv2d(a[None, None], matrix(m, a)[None, None, :2, :2], None, s, p),
        ("matrix", "stride", "padding"),
    ),
    "transposed conv": (
        lambda a, m, s: F.conv_transpose2d(a[None, None], matrix(m, a)[None, None, :2, :2], None, s),
        ("matrix", "stride"),
    ),
    "layer norm": (lambda a, m, e: F.layer_norm(a, (4,), matrix(m, a)[0], None, e), ("matrix", "eps")),
    "group norm": (lambda a, g, e: F.group_norm(a[None], g, eps=e), ("groups", "eps")),
    "batch norm": (
        lambda a, m, e: F.batch_norm(a, matrix(0, a)[0], matrix(4, a)[0], matrix(m, a)[0], None, eps=e),
        ("matrix", "eps"),
    ),
    "rms norm": (lambda a, e: F.rms_norm(a, (4,), eps=e), ("eps",)),
    "leaky relu": (F.leaky_relu, ("number",)),
    "elu": (F.elu, ("number",)),
    "clamp": (torch.clamp, ("number", "number")),
    "clamp min": (lambda a, s: a.clamp(min=s), ("number",)),
    "remainder": (torch.remainder, ("number",)),
    "power": (torch.pow, ("power",)),
    "greater": (torch.gt, ("number",)),
    "equal": (torch.eq, ("number",)),
    "filled": (lambda a, m, s: a.masked_fill(MASKS[m], s), ("mask", "number")),
    "where": (lambda a, s, r: torch.where(a > s, a, r), ("number", "number")),
    "cast": (lambda a, t: a.to(t), ("dtype",)),
    "cast twice": (lambda a, t, r: a.to(t).to(r), ("dtype", "dtype")),
    "cast plus": (lambda a, t, s: a.to(t) + s, ("dtype", "number")),
    "cast compared": (lambda a, t, s: a.to(t) > s, ("dtype", "number")),
    "copied into": (lambda a, t: torch.empty(4, 4, dtype=t).copy_(a), ("dtype",)),
    "rows set": (lambda a, i, s: written(a, lambda b: b.__setitem__(i, s)), ("slice", "number")),
    "rows doubled": (lambda a, i: written(a, lambda b: b[i].mul_(2)), ("slice",)),
    "rows minus one": (lambda a, i, s: written(a, lambda b: b[i].sub_(a[s])), ("slice", "shift")),
    "scatter": (lambda a, i, s: a.scatter(1, torch.tensor(i)[:, None] % 4, s), ("index", "number")),
    "attention": (lambda a, s: attention(a, s), ("number",)),
    "causal attention": (lambda a, s, c: attention(a, s, causal=c), ("number", "flag")),
    "masked attention": (lambda a, m: attention(a, mask=MASKS[m].expand(4, 4)), ("mask",)),
    "addmm": (lambda a, m, s, r: torch.addmm(matrix(m, a), a, a, beta=s, alpha=r), ("matrix", "number", "number")),
    "lerp": (lambda a, m, s: torch.lerp(a, matrix(m, a), s), ("matrix", "number")),
    "add alpha": (lambda a, m, s: torch.add(a, matrix(m, a), alpha=s), ("matrix", "number")),
}

BINARY = {
    "add": (torch.add, ()),
    "sub": (torch.sub, ()),
    "mul": (torch.mul, ()),
    "matmul": (torch.matmul, ()),
    "maximum": (torch.maximum, ()),
    "minimum": (torch.minimum, ()),
    "safe div": (lambda a, b: a / (b.abs() + 1), ()),
    "div": (torch.div, ()),
    "where": (lambda a, b, s: torch.where(a > s, a, b), ("number",)),
    "cat": (lambda a, b, d: torch.cat([a, b], d), ("axis",)),
    "stacked max": (lambda a, b: torch.stack([a, b]).amax(0), ()),
    "rows": (lambda a, b, i: written(a, lambda c: c.__setitem__(i, b[i])), ("slice",)),
    "in place": (lambda a, b: a.clone().add_(b), ()),
    "lerp": (lambda a, b, s: torch.lerp(a, b, s), ("number",)),
    "rsub": (lambda a, b, s: torch.rsub(a, b, alpha=s), ("number",)),
    "equal": (torch.eq, ()),
    "less": (torch.lt, ()),
    "and": (torch.logical_and, ()),
    "hypot": (torch.hypot, ()),
    "mixed": (lambda a, b, t: a * b.to(t), ("dtype",)),
    "softmax times": (lambda a, b, d: a.softmax(d) @ b, ("axis",)),
    "outer": (lambda a, b: torch.outer(a[0], b[:, 0]), ()),
    "conv": (lambda a, b: F.conv2d(a[None, None], b[None, None, :2, :2]), ()),
}


class Step(NamedTuple):
    """An operator by name, the values that it takes, and its other arguments."""

    name: str
    values: tuple
    arguments: tuple


def operator(step):
    return (UNARY if len(step.values) == 1 else BINARY)[step.name]


def new_step(source, known):
    """A step that may read so many values, the last of them more often."""
    table = UNARY if source.random() < 0.7 else BINARY
    name = source.choice(list(table))
    count = 1 if table is UNARY else 2
    values = tuple(known - 1 if source.random() < 0.6 else source.randrange(known) for _ in range(count))
    return Step(name, values, tuple(source.choice(list(DRAWN[kind])) for kind in table[name][1]))


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
    step, kinds = changed[place], operator(changed[place])[1]
    chance = source.random()
    if kinds and chance < 0.5:
        which = source.randrange(len(kinds))
        arguments = list(step.arguments)
        arguments[which] = source.choice(list(DRAWN[kinds[which]]))
        changed[place] = step._replace(arguments=tuple(arguments))
    elif chance < 0.65:
        changed[place] = step._replace(values=tuple(source.randrange(place + 1) for _ in step.values))
    elif chance < 0.75:
        changed[place] = step._replace(values=step.values[::-1])
    else:
        changed[place] = new_step(source, place + 1)
    return changed


def fitted(value, image):
    """Any result as 4 x 4 numbers of the image's dtype."""
    value = value.to(image.dtype)
    if value.dim() == 0:
        return value.expand(4, 4)
    if value.shape == (4, 4):
        return value
    flat = value.reshape(-1)
    return flat[:16].reshape(4, 4) if flat.numel() >= 16 else F.pad(flat, (0, 16 - flat.numel())).reshape(4, 4)


def network(program):
    def run(image):
        values = [image * 1]
        for step in program:
            function = operator(step)[0]
            values.append(fitted(function(*(values[n] for n in step.values), *step.arguments), image))
        return values[-1]

    return run


IMAGES = [
    drawn(4, 4),
    drawn(4, 4) * 30,
    drawn(4, 4) * 1e-2,
    torch.randint(-3, 4, (4, 4), generator=GENERATOR).float(),
    torch.zeros(4, 4),
    drawn(4, 4).abs() + 0.1,
    -drawn(4, 4).abs(),
    torch.ones(4, 4),
]
"""Images on which two programs that were identified must agree."""


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
