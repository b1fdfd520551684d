"""Whole tensors are found in another order of their numbers only where every number is there once."""

import pytest
import torch
from equality.pairs import Net
from torch import nn

from conv2attn.equality.worlds import compare_sections, questions, shaking

COUNT = 60


def arguments(seed=0):
    """Two worlds of numbers, of which 3 and 4 have the sum of 5 and 6, and what shaking changes in them."""
    keys = torch.randn(2, COUNT, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    keys[:, 6] = keys[:, 3] + keys[:, 4] - keys[:, 5]
    return keys, torch.full_like(keys, 1e-14)


def matched(change, positive=None):
    keys, squares = arguments()
    if positive:
        keys[:, ::4] = positive
    first = questions.Question("relu", keys, squares, positive, 1)
    return questions.match_in_another_order(
        questions.Question("relu", change(keys.clone()), squares, positive), [first]
    )


ORDER = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("positive", [None, -5e3])
def test_every_number_has_its_place(positive):
    match = matched(lambda keys: (keys + 1e-8 * (keys > -100))[:, ORDER], positive)
    lively = torch.ones(COUNT, dtype=torch.bool) if positive is None else ORDER % 4 != 0
    assert torch.equal(match.order[lively], ORDER[lively])
    assert float(match.units.max()) <= 8


def changed(keys, world, number, value):
    keys[world, number] += value
    return keys[:, ORDER]


def repeated(keys):
    """The first network's numbers 3 and 4 are asked no more; the sums do not show it."""
    keys[:, 3:5] = keys[:, 5:7]
    return keys[:, ORDER]


def exchanged_sums(keys):
    """Other numbers with the same sums in each world."""
    return changed(changed(keys, 1, 5, 1e-3), 1, 6, -1e-3)


@pytest.mark.parametrize(
    "change", [lambda keys: changed(keys, 1, 5, 1e-4), repeated, exchanged_sums, lambda keys: arguments(seed=4)[0]]
)
def test_other_numbers_are_no_match(change):
    assert matched(change) is None


def test_channels_last_needs_no_full_run(monkeypatch):
    """Which would answer as well, at ten times the cost."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.GELU(), nn.Conv2d(4, 2, 1))

    def last(net, x):
        x = x.permute(0, 2, 3, 1)
        for part in net.parts:
            linear = isinstance(part, nn.Conv2d)
            x = nn.functional.linear(x, part.weight[..., 0, 0], part.bias) if linear else part(x)
        return (x + net.wrong * x.flip(1)).permute(0, 3, 1, 2)

    right, wrong = Net(last, parts=first, wrong=0.0), Net(last, parts=first, wrong=1e-5)
    images = (torch.randn(2, 3, 6, 5),)
    with monkeypatch.context() as patch:
        patch.setattr("conv2attn.equality.worlds.oracles.Oracles.looked_up", None)  # what a full run calls
        assert compare_sections(first, right, images).equal
        patch.setattr("conv2attn.equality.worlds.oracles.match_in_another_order", lambda *_: None)
        assert compare_sections(first, right, images).equal is None
    assert compare_sections(first, wrong, images).equal is False


def test_moves_of_a_large_weight_repeat_in_no_row():
    weight = torch.full((300, 1000), 1 / 3)
    copies = shaking.shaken([weight.double()] + [weight] * 4, shaking.UNITS[torch.float32], 5, torch.float64)
    moves = [(copy - copies[0]) / (copies[0] * shaking.UNITS[torch.float32]) for copy in copies[1:]]
    for move in moves:
        assert bool(((move.abs() > 0.49) & (move.abs() < 1.51)).all())
        assert len({tuple(row.sign().int().tolist()) for row in move}) == len(weight)
        assert torch.equal(move.flatten()[:1000], move.flatten()[shaking.TILE : shaking.TILE + 1000])
