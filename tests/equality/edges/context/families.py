"""Families of calls of one operator: two are one term exactly where they compute the same numbers, bit for bit."""

from itertools import combinations, permutations, product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn.equality.context.graph import graph_of
from conv2attn.equality.context.normal_form import normal_form
from conv2attn.equality.context.terms import Terms

SHAPE = (2, 3, 4, 5)
PIXELS = torch.arange(-60.0, 60.0).reshape(SHAPE) / 16
SIGNS = torch.tensor([-0.0, 0.0]).repeat(60).reshape(SHAPE)
LIMITS = (None, -1.0, 0.0, 2)
AMOUNTS = ((0, 0), (1, 0), (0, 1), (1, 0, 0, 0), (0, 0, 1, 0), (0, 0, 1, 0, 0, 0), (1, 1, 0, 0, 0, 1))
AXES = [axes for count in (1, 2, 4) for axes in combinations((0, 1, -2, -1), count)]
NUMBERS = (0.0, -0.0, 1, 1.0, -1, 2, 2.0, 0.5, 0.25, 4)


def clamped(*limits):
    def function(x):
        for low, high in limits:
            x = x.clamp(low, high)
        return x

    return function


CLAMPS = [(low, high) for low, high in product(LIMITS, LIMITS) if None in (low, high) or low <= high][1:]
OVERLAPPING = [
    (a, b)
    for a, b in product(CLAMPS, CLAMPS)
    if all(low is None or high is None or low <= high for low, high in ((a[0], b[1]), (b[0], a[1])))
]
FAMILIES = {
    "clamps": [*map(clamped, CLAMPS), *(clamped(*pair) for pair in OVERLAPPING)],
    "permutations": [
        *(lambda x, order=order: x.permute(order) for order in permutations(range(4))),
        *(
            lambda x, a=a, b=b: x.transpose(*a).transpose(*b)
            for a, b in product(combinations((0, 1, 2, -1), 2), repeat=2)
        ),
        *(lambda x, a=a, b=b: x.movedim(a, b) for a, b in product((0, 1, -1), repeat=2)),
    ],
    "constants around": [
        lambda x, amounts=amounts, number=number: F.pad(x, amounts, value=number)
        for amounts, number in product(AMOUNTS, (None, 0, 0.0, -0.0, 1, 1.0, -1.0))
    ],
    "pixels around": [
        lambda x, amounts=amounts, mode=mode: F.pad(x, amounts, mode=mode)
        for amounts, mode in product(((0, 1, 0, 0), (1, 1, 0, 1), (0, 2, 2, 0)), ("reflect", "replicate", "circular"))
    ],
    "parts": [
        *(
            lambda x, a=a, b=b: x[:, :, a:b]
            for a, b in product((None, 0, 1, -3, -1), (2, 3, 4, -1, None))
            if (a, b) != (-1, 2)
        ),
        *(lambda x, at=at: x.narrow(2, at, 2) for at in (0, 1, 2, -2)),
        *(lambda x, number=number: x.split(2, -2)[number] for number in range(2)),
        *(lambda x, number=number: x.split([1, 2, 1], 2)[number] for number in range(3)),
        *(lambda x, number=number: x.chunk(4, 2)[number] for number in range(4)),
    ],
    "places": [
        *(lambda x, axis=axis, at=at: x.select(axis, at) for axis, at in product((1, -2), (0, 1, 2, -1))),
        *(lambda x, axis=axis, at=at: x.unbind(axis)[at] for axis, at in product((1, 2, -2), (0, 2))),
        *(lambda x, at=at: x[:, at] for at in range(3)),
    ],
    "means and sums": [
        lambda x, name=name, axes=axes, kept=kept: getattr(x, name)(axes, keepdim=kept)
        for name, axes, kept in product(("mean", "sum", "amax", "amin"), AXES, (False, True))
    ],
    "maxima with a number": [
        *(
            lambda x, name=name, part=part, shape=shape, dtype=dtype: getattr(torch, name)(
                x[:part], torch.full(shape, 0.5, dtype=dtype)
            )
            for name, part in product(("maximum", "minimum"), (1, 2))
            for shape, dtype in (*((shape, torch.float32) for shape in ((1,), (3, 1, 1), SHAPE)), ((1,), torch.float64))
        ),
        *(
            lambda x, name=name: getattr(torch, name)(x, torch.full((2, *SHAPE), 0.5))
            for name in ("maximum", "minimum")
        ),
        *(lambda x, part=part: x[:part].clamp(min=0.5) for part in (1, 2)),
        *(lambda x, part=part: x[:part].clamp(max=0.5) for part in (1, 2)),
    ],
    "softmaxes": [lambda x, axis=axis: x.softmax(axis) for axis in range(-4, 4)],
    "joined": [
        *(lambda x, axis=axis: torch.cat([x, x + 1], axis) for axis in range(-4, 4)),
        *(lambda x, axis=axis: torch.stack([x, x + 1], axis) for axis in range(-5, 5)),
        *(lambda x, axis=axis: torch.cat([x.unsqueeze(axis), (x + 1).unsqueeze(axis)], axis) for axis in range(5)),
        *(lambda x, axis=axis: torch.cat([x], axis) for axis in range(2)),
        *(lambda x, axis=axis: torch.stack([x], axis) for axis in (1, 4)),
        *(lambda x, axis=axis: x.unsqueeze(axis) for axis in (1, 4, -1)),
    ],
    "sums with a number": [
        *(lambda x, number=number: x + number for number in NUMBERS[2:]),
        *(lambda x, number=number: x - number for number in NUMBERS),
        *(lambda x, number=number: torch.add(x, number, alpha=1) for number in NUMBERS[2:]),
        lambda x: x,
    ],
    "products with a number": [
        *(lambda x, number=number: x * number for number in NUMBERS),
        *(lambda x, number=number: number * x for number in NUMBERS),
        *(lambda x, number=number: x / number for number in NUMBERS[2:]),
        *(torch.neg, lambda x: x),
    ],
    "powers": [
        *(lambda x, number=number: x**number for number in (1, 1.0, 2, 2.0)),
        *(torch.square, lambda x: x * x, lambda x: x, lambda x: x * -1 * x),
    ],
    "pools": [
        *(lambda x, kernel=kernel: F.max_pool2d(x, kernel) for kernel in (2, (2, 2), (1, 2), (2, 1))),
        *(lambda x, stride=stride: F.max_pool2d(x, 2, stride) for stride in (1, (1, 1), 2, (2, 1), (1, 2))),
        *(lambda x, stride=stride: F.avg_pool2d(x, 2, stride) for stride in (1, (1, 1), 2, (2, 1), (1, 2))),
        *(lambda x, padding=padding: F.avg_pool2d(x, 2, 1, padding) for padding in (0, 1, (0, 1), (1, 0))),
    ],
    "pools of grids": [
        *(lambda x, sides=sides: F.adaptive_avg_pool2d(x, sides) for sides in (1, (1, 1), 2, (2, 2), (1, 2), (2, 1))),
        *(lambda x, kept=kept: x.mean((2, 3), keepdim=kept) for kept in (False, True)),
        *(lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), lambda x: F.adaptive_avg_pool2d(x, 1)[:, :, 0, 0]),
        *(lambda x: F.adaptive_avg_pool1d(x.flatten(2), 1), lambda x: x.flatten(2).mean(2, keepdim=True)),
        *(lambda x: F.adaptive_avg_pool3d(x, 1), lambda x: x.mean((1, 2, 3), keepdim=True)),
    ],
}


class Family(nn.Module):
    """Functions of what a convolution returns, and of nothing else."""

    def __init__(self, functions):
        super().__init__()
        self.layer, self.functions = nn.Conv2d(3, 3, 1), functions

    def forward(self, image):
        hidden = self.layer(image)
        return [each(hidden) for each in self.functions]


@pytest.fixture(scope="module")
def terms():
    """The terms of each family."""
    every = [function for functions in FAMILIES.values() for function in functions]
    graph = graph_of(Family(every).eval(), PIXELS, every_size=False)
    form = normal_form(graph, table := Terms(), lambda number, layer, read: table("layer", read))
    returned = iter(form.returned)
    return {name: [next(returned) for _ in functions] for name, functions in FAMILIES.items()}


def bits(function):
    """Shapes and bits of what a function returns."""
    values = [function(x).contiguous() for x in (PIXELS, SIGNS)]
    return [(tuple(each.shape), each.flatten().view(torch.int32).tolist()) for each in values]


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_are_one_term_exactly_where_they_compute_the_same_bits(terms, name):
    computed = [bits(function) for function in FAMILIES[name]]
    for first, second in combinations(range(len(computed)), 2):
        same = computed[first] == computed[second]
        assert (terms[name][first] is terms[name][second]) is same, (first, second)
