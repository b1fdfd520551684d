"""Windows whose pixels are weighed or squared: cubic interpolation, power pooling; exact and worst numbers."""

from fractions import Fraction

import pytest
import torch
from equivalence.rules.cases import Apply
from equivalence.rules.laws import carried_through
from torch.nn import functional as F

from conv2attn.equivalence.rules.windows import CUBIC, CUBIC_ROUNDINGS


def cubic_weights(t, a=Fraction(-3, 4)):
    """Keys' convolution, exactly: weights of the pixels at -1, 0, 1 and 2, for a point at t."""

    def near(x):
        return (a + 2) * x**3 - (a + 3) * x**2 + 1

    def far(x):
        return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def test_cubic_weights_have_absolute_values_of_11_8_in_sum():
    """1 + 3/2 t (1 - t): of degree 3 in t, so that four points show it; and t (1 - t) <= 1/4."""
    for t in [Fraction(n, 16) for n in range(17)]:
        weights = cubic_weights(t)
        assert sum(weights) == 1
        assert sum(map(abs, weights)) == 1 + Fraction(3, 2) * t * (1 - t) <= Fraction(11, 8)
    assert sum(map(abs, cubic_weights(Fraction(1, 2)))) == Fraction(11, 8) == CUBIC


def test_torch_weighs_as_is_assumed():
    """One line of 9 pixels, doubled with its corners kept: t is 0 or 1/2; and by an odd factor."""
    for count, corners in ((17, True), (63, False)):
        ones = torch.eye(9, dtype=torch.float64).reshape(9, 1, 9, 1).expand(9, 1, 9, 9)
        made = F.interpolate(ones, (count, 9), mode="bicubic", align_corners=corners)
        middle = made[:, 0, count // 3 : -count // 3, 0].abs().sum(0)
        assert middle.max() <= CUBIC * (1 + 2.0**-50)
        assert not corners or middle.max() == CUBIC


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_are_as_accurate_as_is_assumed(dtype):
    """The sum of their absolute values, of one axis."""
    ones = torch.eye(9, dtype=dtype).reshape(9, 1, 9, 1).expand(9, 1, 9, 9)
    made, exact = (F.interpolate(each, (63, 9), mode="bicubic") for each in (ones, ones.double()))
    off = (made.double().abs().sum(0) - exact.abs().sum(0)).max().item()
    u = torch.finfo(dtype).eps / 2
    assert 0 < off <= CUBIC_ROUNDINGS * 2.0**-24 + 8 * u


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_worst_image_for_cubic_weights_comes_close(dtype):
    module = Apply(lambda x: F.interpolate(x, (11, 9), mode="bicubic", align_corners=True))
    image = torch.zeros(1, 1, 6, 5, dtype=torch.float64, requires_grad=True)
    module(image)[0, 0, 5, 3].backward()
    worst = image.grad.sign()
    size, error = 4.0, 1.0
    first, second = (worst * each for each in (size, size - error))
    found = (module(first.to(dtype)) - module(second.to(dtype))).abs().max().item()
    bound, stop = carried_through(module, size, error, dtype, (1, 1, 6, 5))
    assert stop == ""
    assert found <= bound
    assert found > (1 - 200 * torch.finfo(dtype).eps) * CUBIC**2 * error
    assert dtype is torch.bfloat16 or bound < CUBIC**2 * error * (1.2 if dtype is torch.float16 else 1.01)
