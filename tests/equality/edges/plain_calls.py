"""Nothing but two plain calls refutes: a plain difference is far above rounding, and equal formulas are near it."""

import copy
import math

import pytest
import torch
from equality.pairs import Net
from equality.reports import at_most_rounded
from torch import nn

from conv2attn.equality import certify, differing_calls
from conv2attn.equality.stochastic_arithmetic import StochasticRounding, neighbour
from conv2attn.verdicts import Strength, Verdict

torch.manual_seed(0)
IMAGES = torch.randn(2, 3, 12, 10)


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Conv2d(4, 5, 3)).eval()


def apart(first, second, images=IMAGES):
    with torch.no_grad():
        outputs = first(images), second(images)
    return differing_calls((first, second), images, outputs)


def other_sums(first):
    """The same formula, its channels summed in another order."""
    second, turned = copy.deepcopy(first), torch.tensor([2, 0, 3, 1])
    for name, tensor in second[0].state_dict().items():
        tensor.copy_(first[0].state_dict()[name][turned])
    second[3].weight.data = first[3].weight.data[:, turned]
    second[1].weight.data, second[1].bias.data = first[1].weight.data[turned], first[1].bias.data[turned]
    return second


PAIRS = {
    "channels in another order": lambda: (first := network(), other_sums(first)),
    "a pool and a mean of a grey image": lambda: (
        nn.AvgPool2d((222, 222)),
        Net(lambda _, x: x.mean((2, 3), keepdim=True)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_formulas_differ_by_rounding(name):
    images = torch.ones(1, 1, 222, 222) if "grey" in name else IMAGES
    difference = apart(*PAIRS[name](), images)
    assert difference.ratio < 4
    assert not difference.refutes
    assert not difference.trouble


@pytest.mark.parametrize("image", [0, 1])
def test_a_difference_of_a_thousand_roundings_in_one_image_is_found(image):
    def off(net, images):
        outputs = net.inner(images).clone()
        outputs[image, 2] *= 1.01
        outputs[1 - image] += 0.0
        return outputs

    first = network()
    difference = apart(first, Net(off, inner=copy.deepcopy(first)))
    assert difference.refutes
    assert difference.place[:2] == (image, 2)
    assert difference.count > 1
    assert difference.first != difference.second
    assert difference.size > 100 * difference.rounding


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_number_that_one_network_alone_does_not_have_is_infinitely_far(number):
    def spoilt(net, images):
        outputs = net.inner(images).clone()
        outputs[0, 1] = number
        return outputs

    first = network()
    difference = apart(first, Net(spoilt, inner=copy.deepcopy(first)))
    assert (difference.refutes, difference.place[:2], difference.size) == (True, (0, 1), torch.inf)


def test_equal_bits_need_no_shaken_call():
    calls = []
    first = Net(lambda _, images: calls.append(images) or images * 2)
    assert apart(first, first).ratio == 0
    assert len(calls) == 2


def test_an_error_of_a_shaken_call_is_said_and_refutes_nothing():
    def fussy(_, images):
        if not torch.equal(images, IMAGES):
            raise ValueError("other numbers")
        return images + 1

    difference = apart(Net(fussy), nn.Identity())
    assert not difference.refutes
    assert "other numbers" in difference.trouble


def test_dropout_is_drawn_anew():
    torch.manual_seed(3)
    assert not apart(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.5))).refutes


def deep() -> nn.Sequential:
    """Thirty orthogonal layers, whose rounding stays small."""
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16) for _ in range(30)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight)
    return nn.Sequential(*layers).eval()


@pytest.mark.parametrize(
    ("change", "verdict"), [(0.17, Verdict.REFUTED), (0.01, Verdict.REFUTED), (1e-6, Verdict.UNDECIDED)]
)
def test_a_deep_network_is_refuted_by_more_than_rounding(change, verdict):
    first = deep()
    second = copy.deepcopy(first)
    with torch.no_grad():
        second[-1].bias[0] += change
    report = certify(first, second, images=torch.randn(4, 16, generator=torch.Generator().manual_seed(1)))
    assert report.verdict is verdict or (verdict is Verdict.UNDECIDED and at_most_rounded(report)), report.to_text()
    assert (report.strength is Strength.SAMPLED) == (verdict is Verdict.REFUTED)
    assert (report.counterexamples != ()) == (verdict is Verdict.REFUTED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_rounded_number_is_one_of_the_two_beside_the_exact_one(dtype):
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(70_001, generator=generator, dtype=torch.float64) * 10.0 ** torch.arange(70_001).remainder(9)
    exact[:6] = torch.tensor([0.0, 2.5, -1e-60, math.inf, math.nan, -0.0])
    near = exact.to(dtype)
    moved = neighbour(near, generator, exact)
    other = torch.nextafter(near, torch.where(exact > near, math.inf, -math.inf).to(dtype))
    inexact = exact.isfinite() & near.isfinite() & (exact != near)
    assert torch.equal(moved[~inexact].nan_to_num(7.0), near[~inexact].nan_to_num(7.0))
    assert bool(((moved == near) | (moved == other))[inexact].all())
    assert 0.45 < float((moved == other)[inexact].double().mean()) < 0.55


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64])
def test_a_number_without_an_exact_one_moves_by_one_place_and_what_may_count_stays(dtype):
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(70_001, generator=generator).to(dtype)
    numbers[:3] = torch.tensor([0.0, -3.0, math.inf]).to(dtype)
    moved = neighbour(numbers, generator)
    here, there = (torch.view_as_real(each) if dtype.is_complex else each for each in (numbers, moved))
    whole, up, down = here == here.round(), *(torch.nextafter(here, torch.full_like(here, s)) for s in (9e3, -9e3))
    assert torch.equal(there[whole], here[whole])
    assert bool(((there == up) | (there == down))[~whole].all())
    assert 0.45 < float((there == up)[~whole].double().mean()) < 0.55


FACTORS = {
    "matrices": torch.mm,
    "a layer with a bias": lambda a, b: nn.functional.linear(a, b.T, b[0]),
    "a convolution": lambda a, b: nn.functional.conv1d(a[None], b.reshape(2, 8, 8)),
    "matrices in a batch": lambda a, b: torch.bmm(a[None], b[None]),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FACTORS)
def test_a_product_is_the_exact_one_rounded_up_or_down(name, dtype):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(sides, generator=generator).to(dtype) for sides in ((8, 16), (16, 8)))
    exact = FACTORS[name](a.double(), b.double())
    with StochasticRounding(generator):
        product = FACTORS[name](a, b)
    assert product.dtype == dtype
    near = exact.to(dtype)
    up, down = (torch.nextafter(near, torch.full_like(near, end)) for end in (9e3, -9e3))
    beside = ((product == up) & (exact >= near)) | ((product == down) & (exact <= near))
    assert bool((beside | (product == near)).all())
    assert 0.25 < float(beside.double().mean()) < 0.75 or dtype == torch.float64
    assert bool(beside.any())
