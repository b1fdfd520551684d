"""Windows whose pixels are weighed or squared: cubic interpolation, power pooling; exact and worst numbers."""

import math
from fractions import Fraction

import pytest
import torch
from test_certificates_propagation import Apply, carried_through, worst_found
from test_certificates_propagation_exact import BX, TINY, S, U, X, rounded, same
from test_certificates_propagation_moves import GRID, LAST, over
from torch.nn import functional as F

from conv2attn.bounds import gamma
from conv2attn.certificates.propagation import Carried
from conv2attn.certificates.propagation.carried import Stop
from conv2attn.certificates.propagation.pooling_rules import CUBIC, CUBIC_ROUNDINGS, pixels_in


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
    assert 0 < off <= CUBIC_ROUNDINGS * U + 8 * u


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


def test_cubic_weights_and_their_roundings_are_counted():
    for dtype, off in ((torch.float32, 514 * U), (torch.bfloat16, 512 * U + 2.0**-7)):
        given = X.to(dtype)
        found = over(F.interpolate, GRID, given, 4, None, "bicubic")
        factor, u = (1.375 + off) ** 2 * S, torch.finfo(dtype).eps / 2
        one = gamma(16, u) * factor * (GRID.size + GRID.error) + 16 * TINY
        same(found, (factor * GRID.size + one) * S, (factor * GRID.error + 2 * one) * S)


WHOLE = BX.largest_over([1, 2, 3])


@pytest.mark.parametrize(("axes", "most"), [(1, LAST), (2, GRID), (3, WHOLE)])
def test_powers_of_windows(axes, most):
    pool = getattr(F, f"lp_pool{axes}d")
    for power in (math.inf, -math.inf):
        same(over(pool, BX, X, power, 2), most.size, most.error)
    for window, count in ((3, 3**axes), ([3], 3**axes), (tuple(range(2, 2 + axes)), (2, 6, 24)[axes - 1])):
        size, error = most.size * count * S, most.error * count * S
        same(over(pool, BX, X, 1, window), *rounded(size, error, 2 * count + 4))
        size, error = rounded(most.size * math.sqrt(count) * S, most.error * math.sqrt(count) * S, count + 6)
        lost = math.sqrt(4 * count * TINY)
        for args, kwargs in (((2.0, window), {}), ((), {"norm_type": 2, "kernel_size": window})):
            same(over(pool, BX, X, *args, **kwargs), (size + lost) * S, (error + 2 * lost) * S)
    for power in (0, 0.5, 1.5, 3, 4, -1):
        with pytest.raises(Stop, match=rf"lp_pool{axes}d of power {power}, which is not 1, 2 or infinite"):
            over(pool, BX, X, power, 2)


def test_what_underflows_before_a_root_is_not_small_behind_it():
    """Of 2.6e-23 the square rounds to 0 in float32, of 2.7e-23 to 1.4e-45, whose root is 3.7e-23."""
    module = Apply(lambda x: F.lp_pool2d(x, 2, 1))
    first, second = (torch.full((1, 1, 1, 1), each) for each in (2.6e-23, 2.7e-23))
    found = (module(first) - module(second)).abs().item()
    bound, stop = carried_through(module, 2.7e-23, 1.01e-24, shape=(1, 1, 1, 1))
    assert stop == ""
    assert 30e-24 < found <= bound < 1e-18


def test_what_underflows_before_a_root_is_counted_four_times_a_pixel_on_each_side():
    nothing = Carried(BX.size * 0, BX.error * 0)
    lost = math.sqrt(4 * 6 * TINY)
    found, ones = over(F.lp_pool2d, nothing, X, 2, (2, 3)), torch.ones(2, 4, 1, 1, dtype=torch.float64)
    same(found, ones * lost * S, ones * 2 * lost * S)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("power", [1, 2, math.inf])
def test_powers_in_half_types_are_bounded(dtype, power):
    module = Apply(lambda x: F.lp_pool2d(x, power, (3, 2)))
    bound, stop = carried_through(module, 20.0, 0.5, dtype)
    assert stop == ""
    assert worst_found(module, 20.0, 0.5, dtype) <= bound


def alone(size):
    """The bounds of a number that is the same in both networks."""
    return Carried(torch.full((1, 1, 1, 1), size, dtype=torch.float64), torch.zeros(1, 1, 1, 1, dtype=torch.float64))


def test_squares_that_overflow_have_no_bound():
    """In float16 four squares of 127 are numbers, and of 129 they are not."""
    most = [alone(127.0), alone(129.0)]
    half = X.half()
    assert over(F.lp_pool2d, most[0], half, 2, 2).size < 256
    with pytest.raises(Stop, match=r"numbers of up to 6\.66e\+04 on the way in torch\.float16"):
        over(F.lp_pool2d, most[1], half, 2, 2)
    largest = 65504**0.5 / S**2
    near = [largest * (1 + ulps * 2.0**-53) for ulps in range(-8, 9)]
    equal = [size for size in near if (size * S * S) * (size * S * S) == 65504]
    assert over(F.lp_pool2d, alone(equal[0]), half, 2, 1)
    assert F.lp_pool2d(torch.full((1, 1, 2, 2), 129.0).half(), 2, 2).isinf().all()


@pytest.mark.parametrize(("window", "axes", "count"), [(2, 3, 8), ([3], 2, 9), ((2, 5), 2, 10), ((4,), 1, 4)])
def test_pixels_of_a_window(window, axes, count):
    assert pixels_in(window, axes) == count
