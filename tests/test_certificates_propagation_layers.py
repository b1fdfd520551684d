"""Layers with weights of their own, number for number: what is counted, what has a default, and what is computed."""

import pytest
import torch
from test_certificates_propagation import carried_through
from test_certificates_propagation_exact import BX, S, U, X, passed, rounded, same
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.bounds import convolution_bound, gamma
from conv2attn.certificates.computed.arithmetic import Arithmetic
from conv2attn.certificates.propagation import Carried, affine, propagate
from conv2attn.certificates.propagation.carried import Stop
from conv2attn.certificates.propagation.rules import RULES, Call


def test_a_linear_layer_counts_its_products():
    weight, bias = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]]), torch.tensor([1.0, -4.0])
    rounding = convolution_bound(3, "float32", bias=True, casts=2)
    given = Carried(BX.size.amax((0, 1, 2)), BX.error.amax((0, 1, 2)))
    named = {"weight": weight, "bias": bias}
    for args, kwargs, each in (((weight, bias), {}, bias), ((weight,), {}, None), ((), named, bias)):
        expected = affine(weight.double().abs()[None], each, given, rounding.factor, rounding.absolute)
        found = passed(F.linear, X, *args, **kwargs)
        same(found, expected.size, expected.error)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_product_and_the_bias_of_half_types_are_stored_apart(dtype):
    """Two casts, whose terms stand far above those of the products."""
    weight, given = torch.ones(2, 3, dtype=dtype), Carried(torch.ones(1, 3).double(), torch.zeros(1, 3).double())
    call = Call(F.linear, (X.to(dtype), weight), {}, X.to(dtype), lambda tensor: given, lambda tensor: False)
    cast = 1 + torch.finfo(dtype).eps / 2
    one = 3 * (cast**2 * (1 + gamma(4, U)) - 1)
    found = RULES[F.linear](call)
    torch.testing.assert_close(found.size - 3, torch.full((2,), one).double(), rtol=1e-4, atol=0)
    torch.testing.assert_close(found.error, torch.full((2,), 2 * one).double(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "dtype", "kind", "casts"),
    [
        (Arithmetic("ieee", "tf32"), torch.float32, "tf32", 2),
        (Arithmetic("ieee", "ieee", frozenset({"bfloat16"})), torch.bfloat16, "bfloat16", 8),
        (Arithmetic("ieee", "ieee", frozenset({"float16"})), torch.bfloat16, "bfloat16", 2),
    ],
)
def test_the_settings_of_the_device_decide_how_products_are_rounded(settings, dtype, kind, casts, monkeypatch):
    asked = []
    monkeypatch.setattr(Arithmetic, "of", staticmethod(lambda device: asked.append(device) or settings))
    weight = torch.tensor([[1.0, -2.0, 0.5]], dtype=dtype)
    rounding = convolution_bound(3, kind, casts=casts)
    given = Carried(BX.size.amax((0, 1, 2)), BX.error.amax((0, 1, 2)))
    expected = affine(weight.double().abs()[None], None, given, rounding.factor, rounding.absolute)
    found = RULES[F.linear](Call(F.linear, (X, weight), {}, X, lambda tensor: BX, lambda tensor: False))
    same(found, expected.size, expected.error)
    assert asked == ["cpu"]


def test_a_linear_layer_takes_the_worst_of_the_vectors():
    """Of all images and places, whether their bounds are written out or are the same along the features."""
    weight = torch.tensor([[1.0, -2.0, 0.5]])
    short = BX.largest_over([3])
    for given in (BX, short):
        call = Call(F.linear, (X, weight), {}, X, lambda tensor, given=given: given, lambda tensor: False)
        rounding = convolution_bound(3, "float32")
        worst = given.size.amax((0, 1, 2)).expand(3), given.error.amax((0, 1, 2)).expand(3)
        expected = affine(weight.double().abs()[None], None, Carried(*worst), rounding.factor, rounding.absolute)
        same(RULES[F.linear](call), expected.size, expected.error)


@pytest.mark.parametrize("place", [0, 1])
def test_a_product_with_what_is_computed_stops(place):
    numbers = torch.ones(2, 3), torch.ones(2)
    with pytest.raises(Stop, match="linear with a weight that is computed"):
        RULES[F.linear](Call(F.linear, (X, *numbers), {}, X, lambda t: BX, lambda t: t is numbers[place]))


MEAN, VARIANCE = torch.tensor([1.0, -2.0, 0.5, 0.0]), torch.tensor([1.0, 4.0, 0.25, 9.0])
WEIGHT, BIAS = torch.tensor([2.0, -1.0, 0.5, 3.0]), torch.tensor([-1.0, 1.0, 0.0, 2.0])


def test_statistics_are_the_same_on_both_sides():
    mean, variance, weight, bias = (each.double().reshape(1, 4, 1, 1) for each in (MEAN, VARIANCE, WEIGHT, BIAS))
    for eps, args, kwargs in ((1e-5, (), {}), (0.5, (False, 0.1, 0.5), {}), (0.5, (), {"eps": 0.5})):
        scale = (variance + eps).rsqrt() * weight.abs() * S
        size, error = (scale * BX.size + scale * mean.abs() + bias.abs()) * S, scale * BX.error * S
        same(passed(F.batch_norm, X, MEAN, VARIANCE, WEIGHT, BIAS, *args, **kwargs), *rounded(size, error, 10))
    scale = (variance + 1e-5).rsqrt() * S
    size, error = (scale * BX.size + scale * mean.abs()) * S, scale * BX.error * S
    same(passed(F.batch_norm, X, running_mean=MEAN, running_var=VARIANCE), *rounded(size, error, 10))
    assert torch.batch_norm not in RULES


@pytest.mark.parametrize("absent", ["weight", "bias"])
def test_a_factor_or_a_shift_alone(absent):
    given = {"weight": WEIGHT, "bias": BIAS}
    del given[absent]
    whole = passed(F.batch_norm, X, MEAN, VARIANCE, **given)
    neutral = {"weight": torch.ones(4), "bias": torch.zeros(4), **given}
    expected = passed(F.batch_norm, X, MEAN, VARIANCE, neutral["weight"], neutral["bias"])
    same(whole, expected.size, expected.error)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_statistics_that_are_computed_stop(place):
    numbers = [each.clone() for each in (MEAN, VARIANCE, WEIGHT, BIAS)]
    with pytest.raises(Stop, match="batch_norm with statistics that are computed"):
        RULES[F.batch_norm](Call(F.batch_norm, (X, *numbers), {}, X, lambda t: BX, lambda t: t is numbers[place]))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((None, VARIANCE), {}),
        ((MEAN, None), {}),
        ((MEAN,), {}),
        ((), {"running_var": VARIANCE}),
        ((MEAN, VARIANCE, None, None, True), {}),
        ((MEAN, VARIANCE), {"training": True}),
        ((None, None), {"training": True}),
    ],
)
def test_statistics_of_the_images_themselves_stop(args, kwargs):
    with pytest.raises(Stop, match="batch_norm in training mode"):
        RULES[F.batch_norm](Call(F.batch_norm, (X, *args), kwargs, X, lambda t: BX, lambda t: False))


def test_statistics_whose_square_root_is_no_number_have_no_bound():
    layer = torch.nn.BatchNorm2d(4).eval()
    layer.running_var.fill_(-1.0)
    assert carried_through(layer, 1.0, 0.1)[1] == "an infinite bound in 1"


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "instance_norm", "rms_norm"])
def test_normalisations_of_one_image_stop(name):
    function = getattr(F, name)
    with pytest.raises(Stop, match=rf"^{name} \(where the variance may vanish, its rounding is not bounded\)$"):
        RULES[function](Call(function, (X,), {}, X, lambda t: BX, lambda t: False))


class OverTime(nn.Module):
    """The same convolution of many images at once, of one again, and of a batch of batches flattened."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 1)

    def forward(self, images):
        times = images.shape[1]
        seen = self.first(images.flatten(0, 1)).relu()
        again = self.second(torch.cat([seen, seen[:1]])) + self.second(seen[:1])
        return again[:-1].unflatten(0, (-1, times)).mean(1)


def test_layers_that_are_called_on_many_images_are_bounded():
    original = OverTime()
    images = torch.rand(1, 3, 2, 5, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    outputs = conv2attn.certify(original, conv2attn.convert(original, example_input=images), images=images).outputs
    assert 0 <= outputs.max_difference <= outputs.bound < 1e-3


@pytest.mark.parametrize(("groups", "inputs"), [(1, 4), (2, 2)])
def test_of_many_vectors_the_largest_of_each_number_counts(groups, inputs):
    blocks = torch.arange(1.0, 1 + groups * 3 * inputs).double().reshape(groups, 3, inputs)
    many = Carried(BX.size.flatten(), BX.error.flatten())
    worst = Carried(BX.size.reshape(-1, 4).amax(0), BX.error.reshape(-1, 4).amax(0))
    expected = affine(blocks, None, worst, 0.25, 0.5)
    same(affine(blocks, None, many, 0.25, 0.5), expected.size, expected.error)


def test_where_subnormal_numbers_are_flushed_no_bound_is_given():
    torch.set_flush_denormal(True)
    try:
        found = propagate(nn.ReLU(), {}, torch.ones(1, 2), 1.0)
    finally:
        torch.set_flush_denormal(False)
    assert found == (None, "numbers that are flushed to zero")
    assert propagate(nn.ReLU(), {}, torch.ones(1, 2), 1.0) == (0.0, "")
