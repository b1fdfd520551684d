"""Whether a convolution is a direct sum is asked on every shape that it met, each with its own middle."""

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.equivalence.computed.arithmetic import spread_of
from conv2attn.equivalence.computed.measure import Measured, measure
from conv2attn.equivalence.readings.reading import reading_of


class Twice(nn.Module):
    """One layer called on an image and on a corner of it, in either order."""

    def __init__(self, layer, corner, last):
        super().__init__()
        self.conv, self.corner, self.last = layer, corner, last

    def forward(self, image):
        small = image[(Ellipsis, *map(slice, self.corner))]
        first, second = (image, small) if self.last else (small, image)
        return self.conv(first).mean((2, 3)) + self.conv(second).mean((2, 3))


CIRCULAR = {"padding": 3, "padding_mode": "circular"}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("kernel", "settings", "size", "corner"),
    [
        (3, {"padding": 1}, (16, 16), (4, 5)),
        (3, {"stride": 2}, (9, 12), (9, 3)),
        (7, CIRCULAR, (16, 16), (4, 4)),
        (7, CIRCULAR, (16, 5), (5, 16)),
        (7, CIRCULAR, (9, 9), (8, 9)),
        (5, {"padding": 2, "padding_mode": "reflect"}, (12, 9), (3, 7)),
    ],
)
def test_a_direct_sum_is_one_on_images_of_several_sizes(kernel, settings, size, corner, last):
    """The outputs that see the middle of one image are not those that see the middle of another."""
    made = nn.Conv2d(2, 2, kernel, **settings)
    seen, _ = measure(Twice(made, corner, last), {"conv": conv2attn.convert(made)}, torch.rand(1, 2, *size))
    assert len({*seen["conv"].earlier, seen["conv"].shape}) == 2
    assert spread_of(made, reading_of(made), seen["conv"]) == 0.0


def met(*shapes):
    seen = Measured()
    for shape in shapes:
        seen.add(0.0, torch.zeros(shape), torch.zeros(shape), 2)
    return seen


def test_every_shape_that_was_met_is_asked_once(monkeypatch):
    asked, made = [], nn.Conv2d(2, 2, 3)

    def spike(layer, shape, *_):
        asked.append(tuple(shape))
        return {5: 0.25, 6: 0.5, 7: float("nan"), 8: 0.0}[shape[2]]

    monkeypatch.setattr("conv2attn.equivalence.computed.arithmetic.spread_of_spike", spike)
    shapes = [(1, 2, 5, 5), (1, 2, 6, 5), (1, 2, 5, 5), (2, 5, 5), (1, 2, 7, 5)]
    assert spread_of(made, reading_of(made), met(*shapes)) == 0.5
    assert asked == [(1, 2, 5, 5), (1, 2, 6, 5), (1, 2, 7, 5)]
    assert met(*shapes).earlier == ((1, 2, 5, 5), (1, 2, 6, 5), (2, 5, 5))
    for quiet in (met((1, 2, 7, 5)), met((1, 2, 8, 5)), met((2, 5, 5)), Measured()):
        assert spread_of(made, reading_of(made), quiet) == 0.0


def test_an_image_too_small_for_its_padding_is_not_asked_among_others(monkeypatch):
    asked, made = [], nn.Conv2d(2, 2, 7, **CIRCULAR)
    monkeypatch.setattr(
        "conv2attn.equivalence.computed.arithmetic.spread_of_spike", lambda *given: asked.append(given[1]) or 0.0
    )
    spread_of(made, reading_of(made), met((1, 2, 9, 9), (1, 2, 4, 9), (1, 2, 9, 8)))
    assert asked == [(1, 2, 9, 9)]
