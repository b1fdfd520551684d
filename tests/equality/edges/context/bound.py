"""The rule of each operator for bounds: no numbers beside others break what it says, and some nearly do."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn.equality.context.bound import BOUND_RULES, BoundWalk, Carried
from conv2attn.equality.context.graph import graph_of
from conv2attn.equality.context.walk import own

SIZE, ERROR = 3.0, 0.25
SHAPE = (2, 4, 6, 8)
MATRIX = torch.tensor([[1.0, -2.0, 0.5, 3.0], [-1.0, 0.25, 4.0, -0.5]])
SUMMANDS = torch.tensor([-1.0, 0.5])
MEANS, VARIANCES = torch.tensor([1.0, -3.0, 0.5, -1.0]), torch.tensor([4.0, 0.25, 1.0, 1.0])
FACTORS, OFFSETS = torch.tensor([-2.0, 1.0, 0.5, -1.0]), torch.tensor([-1.0, 2.0, 0.5, 0.0])

ATTAINED = {
    "flatten": lambda y: y.flatten(1),
    "reshape": lambda y: y.reshape(len(y), -1, 2),
    "_unsafe_view": lambda y: torch.ops.aten._unsafe_view(y, [len(y), 4, -1]),
    "view": lambda y: y.view(len(y), 2, -1),
    "unflatten": lambda y: y.unflatten(1, (2, 2)),
    "squeeze and unsqueeze": lambda y: y.unsqueeze(1).squeeze(1),
    "permute": lambda y: y.permute(0, 2, 3, 1),
    "transpose and contiguous": lambda y: y.transpose(2, 3).contiguous(),
    "t": lambda y: y.mean((2, 3)).t(),
    "clone": lambda y: y.clone(),
    "detach and alias": lambda y: torch.ops.aten.alias(y.detach()),
    "narrow": lambda y: y.narrow(1, 1, 2),
    "select": lambda y: y.select(1, -1),
    "slice": lambda y: y[:, 1:3, ::2],
    "expand": lambda y: y[:, :1].expand(-1, 5, -1, -1),
    "flip": lambda y: y.flip(2),
    "roll": lambda y: y.roll(1, 3),
    "pixel_shuffle": lambda y: F.pixel_shuffle(y, 2),
    "chunk": lambda y: y.chunk(2, 1)[1],
    "split": lambda y: y.split(3, 1)[0],
    "split_with_sizes": lambda y: y.split([1, 3], 1)[1],
    "unbind": lambda y: y.unbind(1)[2],
    "cat": lambda y: torch.cat([y, y + 5], 1),
    "stack": lambda y: torch.stack([y - 5, y], 1),
    "dropout": lambda y: F.dropout(y, 0.5, training=False),
    "dropout of nothing": lambda y: F.dropout(y, 0.0, training=True),
    "feature_dropout": lambda y: torch.feature_dropout(y, 0.5, False),
    "add a number": lambda y: y + 4.0,
    "add numbers": lambda y: y + MEANS[:, None, None],
    "add itself": lambda y: y + y,
    "add many times": lambda y: torch.add(y, y, alpha=2.5),
    "sub": lambda y: y - y.flip(3),
    "sub many times": lambda y: torch.sub(y.flip(3), y, alpha=3),
    "sub a number many times": lambda y: torch.sub(y, 4.0, alpha=-2),
    "linear": lambda y: F.linear(y.permute(0, 2, 3, 1), MATRIX, SUMMANDS),
    "linear without a bias": lambda y: F.linear(y.permute(0, 2, 3, 1), MATRIX),
    "batch_norm": lambda y: F.batch_norm(y, MEANS, VARIANCES, FACTORS, OFFSETS),
    "batch_norm without factors": lambda y: F.batch_norm(y, MEANS, VARIANCES),
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda y: F.leaky_relu(y, 0.1),
    "leaky_relu that grows": lambda y: F.leaky_relu(y, -2.0),
    "max_pool1d": lambda y: F.max_pool1d(y.flatten(2), 2),
    "max_pool2d": lambda y: F.max_pool2d(y, 2, padding=1),
    "max_pool3d": lambda y: F.max_pool3d(y, 2),
    "max_pool2d_with_indices": lambda y: F.max_pool2d(y, 2, return_indices=True)[0],
    "adaptive_max_pool2d": lambda y: F.adaptive_max_pool2d(y, 2),
    "avg_pool1d": lambda y: F.avg_pool1d(y.flatten(2), 2),
    "avg_pool2d": lambda y: F.avg_pool2d(y, 3, 1, 1),
    "avg_pool3d": lambda y: F.avg_pool3d(y, 2),
    "adaptive_avg_pool2d": lambda y: F.adaptive_avg_pool2d(y, (2, 3)),
    "mean": lambda y: y.mean((1, 3)),
    "mean over one axis": lambda y: y.mean(2),
    "pad with zeros": lambda y: F.pad(y, (1, 0, 0, 2)),
    "pad with a number": lambda y: F.pad(y, (1, 0), value=7.0),
    "pad with a negative number": lambda y: F.pad(y, (1, 0), value=-8.0),
    "pad with pixels": lambda y: F.pad(y, (1, 2, 0, 1), mode="reflect"),
    "crop": lambda y: F.pad(y, (-1, -1)),
}
LIMITED = {
    "clamp": lambda y: y.clamp(4, 5),
    "clamp from below": lambda y: y.clamp(-4, 2),
    "clamp_min": lambda y: y.clamp_min(5.0),
    "clamp_max": lambda y: y.clamp_max(-6.0),
    "hardtanh": lambda y: F.hardtanh(y, 4.0, 8.0),
    "hardtanh from above": lambda y: F.hardtanh(y, -8.0, -7.0),
}
"""Operators whose bounds no numbers attain here."""
FUNCTIONS = ATTAINED | LIMITED


class Functions(nn.Module):
    """Functions of what a convolution returns."""

    def __init__(self, *functions):
        super().__init__()
        self.layer, self.functions = nn.Conv2d(3, 4, 1), functions

    def forward(self, image):
        return [each(self.layer(image)) for each in self.functions]


def walk_of(*functions):
    """The walk that carries the bounds of these functions of numbers up to SIZE that are apart by up to ERROR."""
    images = torch.zeros(2, 3, *SHAPE[2:])
    graph = graph_of(Functions(*functions).eval(), images)
    walk = BoundWalk(graph, own, lambda layer: lambda read: Carried(SIZE, ERROR), 1.0)
    walk.run(*(images if node.name == graph.image else graph.constants[node.name][0] for node in places(graph)))
    return walk


@pytest.fixture(scope="module")
def carried():
    """The bounds of each function of numbers up to SIZE that are apart by up to ERROR, and the rules that gave them."""
    rules, asked = set(BOUND_RULES.values()), set()
    with pytest.MonkeyPatch.context() as patch:
        for name, rule in BOUND_RULES.copy().items():
            patch.setitem(BOUND_RULES, name, lambda step, rule=rule: (asked.add(rule), rule(step))[1])
        walk = walk_of(*FUNCTIONS.values())
    return {name: walk.bounds[node] for name, node in zip(FUNCTIONS, walk.source.returned, strict=True)}, rules - asked


def places(graph):
    return [node for node in graph.module.graph.nodes if node.op == "placeholder"]


@pytest.fixture(scope="module")
def attained():
    """The largest numbers of each function, and how far those of two inputs are apart."""
    random = torch.Generator().manual_seed(0)
    ones = torch.ones(SHAPE)
    signs = [(ones, ones), (ones, -ones), (-ones, ones), (-ones, -ones)]
    signs += [tuple(torch.randint(0, 2, (2, *SHAPE), generator=random) * 2.0 - 1) for _ in range(12)]
    pairs = [(SIZE * share * at, ERROR * off) for at, off in signs for share in (0.0, 0.5, 1.0)]
    found = {}
    for name, function in FUNCTIONS.items():
        values = [(function(at), function(at + off)) for at, off in pairs]
        sizes = [first.abs().max().item() for first, _ in values]
        found[name] = max(sizes), max((second - first).abs().max().item() for first, second in values)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_numbers_exceed_the_bounds_of_an_operator_and_some_nearly_attain_them(carried, attained, name):
    bounds, (size, error) = carried[0][name], attained[name]
    assert size <= bounds.size
    assert error <= bounds.error
    if name in ATTAINED:
        assert bounds.size <= 1.01 * size
        assert bounds.error <= 1.01 * error


def test_every_rule_for_bounds_has_a_function(carried):
    assert carried[1] == set()


JOINED = {
    "pad": lambda y: F.pad(y, (0, 0, 0, 0, 0, 0, 1, 0)),
    "mean": lambda y: y.mean(0),
}


@pytest.mark.parametrize("name", JOINED)
def test_no_bound_of_an_image_is_carried_on_over_the_images(name):
    assert walk_of(JOINED[name]).stopped == f"{name} over the images"
