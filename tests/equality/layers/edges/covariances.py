"""Heads with full covariances: proved where they are one-hot or both layers attend alike, and else not decided."""

import copy
from fractions import Fraction

import pytest
import torch
from changes import changed, changing
from equality.planted import permuted, split, taps, ulp
from torch import nn

import conv2attn
from conv2attn.equality import soft_heads
from conv2attn.layers.attention import Encoding
from conv2attn.theory.basis import GeneralisedSoftmax, Sites
from conv2attn.verdicts import Strength, Verdict
from tests.equality.reports import decisive


def generalised(conv, sharpness, move=0.0, angle=0.7):
    """The converted convolution, its heads with a turned covariance whose root has these singular values."""
    layer = conv2attn.convert(conv)
    axes = len(sharpness)
    turn = torch.matrix_exp(angle * (torch.ones(axes, axes).triu(1) - torch.ones(axes, axes).tril(-1)))
    root = turn @ torch.diag(torch.tensor(sharpness)) @ turn.T
    layer.encoding = Encoding.of("generalised", layer.positions.center + move, root.to(conv.weight.dtype))
    return layer.prepare()


@pytest.mark.parametrize(
    ("conv", "sharpness", "dtype"),
    [
        (nn.Conv2d(3, 4, 3, padding=1), (16.0, 90.0), torch.float32),
        (nn.Conv2d(4, 2, (2, 3), stride=2, padding=1, groups=2), (20.0, 20.0), torch.float32),
        (nn.Conv1d(2, 3, 3, padding=2, padding_mode="circular"), (45.0,), torch.float64),
        (nn.Conv3d(1, 2, 2), (15.0, 18.0, 25.0), torch.float32),
    ],
)
def test_one_hot_covariances_are_proved(conv, sharpness, dtype):
    torch.manual_seed(0)
    conv = conv.to(dtype)
    layer, sides = generalised(conv, sharpness), (6, 7, 5)[: len(sharpness)]
    certificate = conv2attn.certify(conv, layer, input_size=(conv.in_channels, *sides))
    assert certificate.verdict is Verdict.HOLDS, certificate.to_text()
    assert certificate.rows[0].strength is Strength.PROVED


@pytest.mark.parametrize(
    ("sharpness", "move"),
    [((14.0, 90.0), 0.0), ((3.0, 3.0), 0.0), ((16.0, 1e9), 0.0), ((16.0, 1e30), 0.0), ((16.0, 90.0), 0.25)],
)
def test_covariances_that_are_not_known_to_be_one_hot_have_an_unsupported_row(sharpness, move):
    conv = nn.Conv2d(3, 4, 3, padding=1)
    certificate = conv2attn.certify(conv, generalised(conv, sharpness, move), input_size=(3, 6, 7))
    assert certificate.rows[0].verdict is Verdict.UNSUPPORTED, certificate.to_text()
    # Two plain calls see heads that are wide or between pixels; sharp ones compute the convolution here.
    assert certificate.verdict in (Verdict.UNSUPPORTED, Verdict.REFUTED)


def test_targets_off_the_grid_have_an_unsupported_row():
    conv = nn.Conv2d(3, 4, 3, padding=1)
    certificate = conv2attn.certify(conv, generalised(conv, (16.0, 90.0), 1.0), input_size=(3, 6, 7))
    assert (certificate.rows[0].verdict, certificate.verdict) == (Verdict.UNSUPPORTED, Verdict.REFUTED)
    assert "off the grid" in certificate.to_text()


@pytest.mark.parametrize("planted", ["heads", "tap", "bias"])
def test_planted_errors_of_one_hot_covariances_are_refuted(planted):
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3, padding=1)
    layer = generalised(conv, (16.0, 90.0))
    with torch.no_grad():
        match planted:
            case "heads":
                with changing(layer, "center") as numbers:
                    numbers[[0, 1]] = numbers[[1, 0]]
            case "tap":
                layer.weight[0, 0, 1, 1] += 1e-3
            case "bias":
                layer.bias[1] += 1e-3
    assert conv2attn.certify(conv, layer, input_size=(3, 6, 7)).verdict is Verdict.REFUTED


ALIKE = {"nothing": lambda layer: None, "heads permuted": permuted, "a head in two": split}
PLANTED = {
    "a covariance": lambda layer: changed(layer, "root", lambda numbers: ulp(numbers, (2, 0, 1))),
    "a centre": lambda layer: changed(layer, "center", lambda numbers: ulp(numbers, (2, 0))),
    "two covariances exchanged": lambda layer: changed(
        layer, "root", lambda numbers: numbers[:2].copy_(numbers[:2].flip(0).clone())
    ),
    "a tap": lambda layer: ulp(taps(layer), (1, 0, 0)),
    "no number": lambda layer: changed(layer, "root", lambda numbers: numbers[1, 0, 0].fill_(torch.nan)),
    "infinite": lambda layer: changed(layer, "root", lambda numbers: numbers[1, 0, 0].fill_(torch.inf)),
}


def soft_pair(change, move=0.25):
    """Two soft layers with one covariance for each head, the second changed."""
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 2, (1, 3), padding=(0, 1))
    original = generalised(conv, (1.5, 0.7), move)
    with changing(original, "root") as numbers:
        numbers *= torch.tensor([1.0, 1.25, 1.5])[:, None, None]
    converted = copy.deepcopy(original)
    change(converted)
    return original, converted


@pytest.mark.parametrize("move", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("name", ALIKE)
def test_soft_layers_of_equal_covariances_are_one_map(name, move):
    original, converted = soft_pair(ALIKE[name], move)
    certificate = conv2attn.certify(original, converted, input_size=(2, 6, 7))
    assert certificate.verdict is Verdict.HOLDS, certificate.to_text()
    assert certificate.rows[0].max_error <= certificate.rows[0].bound


@pytest.mark.parametrize("name", PLANTED)
def test_soft_layers_of_other_covariances_or_taps_do_not_hold(name):
    certificate = conv2attn.certify(*soft_pair(PLANTED[name]), input_size=(2, 6, 7))
    assert certificate.verdict not in (Verdict.HOLDS, Verdict.UNDECIDED), certificate.to_text()
    assert name in ("no number", "infinite") or "have different attention" in decisive(certificate.rows[0]).sentence


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_soft_head_is_as_steep_as_the_errors_of_its_scores_ask_for_and_hardly_more(axes):
    """They are off by (3 axes + 4) u |root|^2 |n|^2 / 2, and those of a quadratic head by 4 u alpha |n|^2."""
    root = torch.randn(3, axes, axes, generator=torch.Generator().manual_seed(0))
    heads = GeneralisedSoftmax(torch.zeros(3, axes), root)
    sites = Sites((1,) * axes, (0,) * axes, (0,) * axes)
    for head, numbers in zip(soft_heads(heads, sites), root.tolist(), strict=True):
        needed = Fraction(3 * axes + 4, 8) * sum(Fraction(number) ** 2 for row in numbers for number in row)
        assert needed <= head.alpha <= needed * Fraction(5, 4)
