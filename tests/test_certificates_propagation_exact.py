"""Rules of carried bounds, number for number, called by themselves: by place, by name, and with what stands for it."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from conv2attn.bounds import activations as known
from conv2attn.bounds import gamma, softmax_error
from conv2attn.bounds.activations import Activation
from conv2attn.certificates.propagation import Carried, affine
from conv2attn.certificates.propagation.activation_rules import activated
from conv2attn.certificates.propagation.carried import Stop
from conv2attn.certificates.propagation.rules import RULES, Call, stored

S, U, TINY = 1 + 2.0**-30, 2.0**-24, 2.0**-126


def drawn(low, high, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


X, Y = torch.ones(2, 4, 2, 3), torch.ones(2, 4, 2, 3)
BX = Carried(drawn(1, 2, 2, 4, 2, 3), drawn(0.1, 0.2, 2, 4, 2, 3, seed=1))
BY = Carried(drawn(3, 4, 2, 4, 2, 3, seed=2), drawn(0.3, 0.4, 2, 4, 2, 3, seed=3))


def passed(function, *args, **kwargs):
    """What the rule of a function makes of X and Y."""
    bounds = {id(X): BX, id(Y): BY}
    value = function(*args, **kwargs)
    call = Call(function, args, kwargs, value, lambda t: bounds.get(id(t)) or Carried.of_constant(t),
                lambda t: t.is_floating_point() and id(t) in bounds)  # fmt: skip
    found = RULES[function](call)
    shape = (value if isinstance(value, torch.Tensor) else value[0]).shape
    assert torch.broadcast_shapes(found.size.shape, shape) == shape
    return found


def same(found, size, error):
    torch.testing.assert_close(found.size, torch.as_tensor(size), rtol=1e-13, atol=0)
    torch.testing.assert_close(found.error, torch.as_tensor(error), rtol=1e-13, atol=0)


def rounded(size, error, count, of=None):
    one = gamma(count, U) * (size + error if of is None else of) + count * TINY
    return (size + one) * S, (error + 2 * one) * S


def test_each_rounding_is_counted_on_both_sides():
    size, error = drawn(1, 2, 3), drawn(0.1, 0.2, 3)
    given = Carried(size, error)
    same(given.rounded(5, torch.float32), *rounded(size, error, 5))
    same(given.rounded(5, torch.float32, size * 7), *rounded(size, error, 5, size * 7))
    same(Carried(0 * size, 0 * error).rounded(5, torch.float32), 0 * size + 5 * TINY * S, 0 * size + 10 * TINY * S)
    assert given.rounded(0, torch.int32) is given
    with pytest.raises(Stop, match=r"numbers of torch\.int32"):
        given.rounded(1, torch.int32)
    with pytest.raises(Stop, match="2049 roundings in a row in float16"):
        given.rounded(2049, torch.float16)


def test_what_is_carried_is_in_float64_and_has_a_reach():
    given = Carried(torch.tensor([1.0, 3.0]).double(), torch.tensor([0.5, 0.25]).double())
    assert given.reach == 3.25 * S
    constant = Carried.of_constant(torch.tensor([[-2.0, 1.0]]))
    assert torch.equal(constant.size, torch.tensor([[2.0, 1.0]]).double())
    assert torch.equal(constant.error, torch.zeros(1, 1).double())
    assert constant.error.dtype is torch.float64
    assert constant.with_axes(4).size.shape == (1, 1, 1, 2)
    assert constant.with_axes(2).size.shape == (1, 2)
    assert BX.largest_over([1, 3]).size.equal(BX.size.amax((1, 3), keepdim=True))
    assert BX.largest_over([]).size is BX.size
    assert BX.at_most(1.5, 0.15).size.max() == 1.5
    assert BX.at_most(1.5, 0.15).error.max() == 0.15


def test_numbers_on_the_way_stay_below_the_largest():
    largest = torch.finfo(torch.float32).max
    one = Carried(*(torch.full((1,), x, dtype=torch.float64) for x in (largest / 8 / S, 0.0)))
    assert one.below_overflow(8, torch.float16) is one
    for dtype, factor in ((torch.float32, 8.001), (torch.int32, 1), (torch.bfloat16, 8.1)):
        with pytest.raises(Stop, match=rf"on the way in {dtype}"):
            one.below_overflow(factor, dtype)
    half = Carried(one.size / 2, one.size / 2)
    assert half.below_overflow(7.999, torch.float32) is half
    with pytest.raises(Stop, match=r"numbers of up to 3.83e\+38 on the way"):
        half.below_overflow(9, torch.float32)


@pytest.mark.parametrize("bias", [None, torch.tensor([1.0, -2.0, 3.0, -4.0])])
def test_a_matrix_is_applied_to_both_bounds(bias):
    blocks, given = drawn(0, 1, 2, 2, 3), Carried(drawn(1, 2, 6), drawn(0.1, 0.2, 6))
    size, error = (torch.cat([b @ v for b, v in zip(blocks, each.chunk(2), strict=True)]) for each in
                   (given.size, given.error))  # fmt: skip
    size = size + (0 if bias is None else bias.double().abs())
    one = 0.25 * (size + error) + 0.5
    same(affine(blocks, bias, given, 0.25, 0.5), (size + one) * S, (error + 2 * one) * S)


def test_sums_and_differences():
    size, error = (BX.size + BY.size) * S, (BX.error + BY.error) * S
    for function, kwargs in ((torch.add, {}), (torch.sub, {}), (torch.add, {"alpha": 1}), (torch.rsub, {})):
        same(passed(function, X, Y, **kwargs), *rounded(size, error, 1))
    same(passed(torch.add, input=X, other=Y), *rounded(size, error, 1))
    size, error = (BX.size + 2 * BY.size) * S, (BX.error + 2 * BY.error) * S
    same(passed(torch.add, X, Y, alpha=2), *rounded(size, error, 2))
    same(passed(torch.rsub, Y, X, alpha=2), *rounded(size, error, 2))
    same(passed(torch.sub, X, 0.5), *rounded((BX.size + 0.5) * S, BX.error * S, 1))


def test_products_and_quotients():
    size, error = BX.size * BY.size * S, (BX.size * BY.error + (BY.size + BY.error) * BX.error) * S
    same(passed(torch.mul, X, Y), *rounded(size, error, 1))
    size, error = BX.size * BX.size * S, (BX.size * BX.error + (BX.size + BX.error) * BX.error) * S
    same(passed(torch.square, X), *rounded(size, error, 1))
    size, error = BX.size / 0.5 * S, BX.error / 0.5 * S
    same(passed(torch.div, X, 0.5), *rounded(size, error, 2))
    same(passed(torch.div, input=X, other=-0.5), *rounded(size, error, 2))
    known = torch.tensor([0.5, 4.0, 0.25])
    same(passed(torch.div, X, known), *rounded(BX.size / known * S, BX.error / known * S, 2))
    with pytest.raises(Stop, match="a quotient by what is computed"):
        passed(torch.div, 1.0 * Y, X)
    with pytest.raises(Stop, match="a quotient that is rounded"):
        passed(torch.div, X, 0.3, rounding_mode="floor")
    low, high = min(map(abs, stored(0.3, torch.float32))), max(map(abs, stored(0.3, torch.float32)))
    same(passed(torch.div, X, 0.3), *rounded(BX.size / low * S, BX.error / low * S, 2))
    same(passed(torch.mul, X, 0.3), *rounded(BX.size * high * S, BX.error * high * S, 1))


@pytest.mark.parametrize(
    ("args", "kwargs", "axis"), [((1,), {}, 1), ((), {"dim": 1}, 1), ((-3,), {}, 1), ((0,), {}, 0)]
)
def test_a_gate_is_bounded_along_its_axis(args, kwargs, axis):
    whole = BX.largest_over([axis])
    size, error = whole.size * S, whole.error * (1 + whole.size / 4) * S
    same(passed(F.glu, X, *args, **kwargs), *rounded(size, error, 64))


def test_a_gate_is_along_the_last_axis_unless_told():
    given = X[..., :2]
    found = RULES[F.glu](SimpleNamespace(
        given=Carried(BX.size[..., :2], BX.error[..., :2]), dtype=torch.float32, argument=lambda at, name, other: other,
        axes=lambda axis: (axis % given.ndim,)))  # fmt: skip
    assert found.size.shape == (2, 4, 2, 1)


def test_the_larger_of_two_is_off_by_the_worse():
    size, error = torch.maximum(BX.size, BY.size), torch.maximum(BX.error, BY.error)
    for function in (torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.max, torch.min):
        same(passed(function, X, Y), size, error)
    same(passed(torch.max, X, other=Y), size, error)


@pytest.mark.parametrize(("dim", "axes"), [(1, (1,)), ((1, -1), (1, 3)), ([2], (2,))])
def test_means_and_sums_over_axes(dim, axes):
    count = torch.tensor([X.shape[axis] for axis in axes]).prod().item()
    most = BX.largest_over(axes)
    for function, factor in ((torch.mean, None), (torch.sum, count)):
        size, error = most.size, most.error
        if factor:
            size, error = size * count * S, error * count * S
        kept = rounded(size, error, count + 2)
        same(passed(function, X, dim, True), *kept)
        same(passed(function, X, dim=dim, keepdim=True), *kept)
        same(passed(function, X, dim), *(each.squeeze(axes) for each in kept))
        same(passed(function, input=X, dim=dim, keepdim=False), *(each.squeeze(axes) for each in kept))
        with pytest.raises(Stop, match=f"a {function.__name__} over the images"):
            passed(function, X, (0, 1))


def test_all_numbers_of_one_axis_may_be_added():
    line, bounds = torch.ones(3), Carried(drawn(1, 2, 3), drawn(0.1, 0.2, 3))
    call = Call(torch.sum, (line,), {}, line.sum(), lambda _: bounds, lambda _: True)
    same(RULES[torch.sum](call), *rounded(bounds.size.max() * 3 * S, bounds.error.max() * 3 * S, 5))


@pytest.mark.parametrize("function", [torch.amax, torch.amin, torch.max, torch.min])
def test_the_largest_along_an_axis(function):
    most = BX.largest_over([2])
    same(passed(function, X, 2, True), most.size, most.error)
    same(passed(function, X, dim=2, keepdim=True), most.size, most.error)
    same(passed(function, X, 2), most.size.squeeze(2), most.error.squeeze(2))
    same(passed(function, input=X, dim=2), most.size.squeeze(2), most.error.squeeze(2))
    same(passed(function, X), BX.size.max(), BX.error.max())


def by_activation(activation):
    return activated(BX, activation, torch.float32)


def test_an_activation_is_bounded_by_what_is_known_of_it():
    activation = Activation(3.0, 0.5, 5.0, 0.45, 7, 0.25)
    size, error = (BX.size * 3 + 0.5) * S, BX.error * 3 * S
    size, error = rounded(size.clamp(max=5), error.clamp(max=0.45), 7, BX.size + BX.error + 1)
    same(by_activation(activation), size + 0.25, (error + 0.5) * S)
    size, error = (BX.size * 3 + 0.5) * S, BX.error * 3 * S
    size, error = rounded(size, error, 7, torch.ones(()).double())
    same(by_activation(Activation(3.0, 0.5, roundings=7, saturates=True)), size, error * S)
    slopes = drawn(1, 2, 1, 4, 1, 1)
    same(activated(BX, Activation(9.0), torch.float32, slopes), BX.size * slopes * S, BX.error * slopes * S * S)
    huge = Carried(BX.size * 3e37, BX.error)
    assert activated(huge, Activation(1.0), torch.float32).size.isfinite().all()
    assert activated(huge, Activation(1.0, roundings=1, saturates=True), torch.float32).size.isfinite().all()
    with pytest.raises(Stop, match="on the way"):
        activated(huge, Activation(1.0, roundings=1), torch.float32)
    most = torch.finfo(torch.float32).max / 8 / S
    near = [Carried(torch.tensor([size], dtype=torch.float64), torch.zeros(1).double()) for size in (most, most * 1.01)]
    assert activated(near[0], Activation(1.0, roundings=1), torch.float32)
    with pytest.raises(Stop, match="on the way"):
        activated(near[1], Activation(1.0, roundings=1), torch.float32)


def test_a_rectifier_may_have_a_slope_for_each_channel():
    slopes = torch.tensor([0.5, -3.0, 2.0, 0.0])
    steep = torch.tensor([1.0, 3.0, 2.0, 1.0]).double().reshape(1, 4, 1, 1)
    expected = activated(BX, known.leaky(1.0), torch.float32, steep)
    same(passed(F.prelu, X, slopes), expected.size, expected.error)
    same(passed(F.prelu, X, weight=slopes), expected.size, expected.error)
    expected = activated(BX, known.leaky(3.0), torch.float32)
    same(passed(F.prelu, X, torch.tensor([-3.0])), expected.size, expected.error)
    with pytest.raises(Stop, match="prelu with a slope that is computed"):
        RULES[F.prelu](Call(F.prelu, (X, slopes), {}, X, lambda tensor: BX, lambda tensor: True))


@pytest.mark.parametrize("args", [((1,), {}), ((), {"dim": 1})])
def test_weights_of_a_softmax(args):
    off = softmax_error(4, "float32", 2 * U * BX.reach)
    found = passed(F.softmax, X, *args[0], **args[1])
    worst = (BX.error.max() / 2 + 2 * off).reshape(1, 1, 1, 1)
    same(found, torch.full_like(worst, 1 + off), worst * S)
    size, error = (2 * BX.size.max() + torch.tensor(4.0).double().log() * S) * S, 2 * BX.error.max() * S
    size, error = (each.reshape(1, 1, 1, 1) for each in rounded(size, error, 4 + 128, size + error + 1))
    same(passed(F.log_softmax, X, *args[0], **args[1]), size, error)


def test_a_softmax_of_anything_stays_between_0_and_1():
    far = Carried(torch.full((1,), 1e8).double(), torch.full((1,), 9e7).double())
    found = RULES[F.softmax](Call(F.softmax, (X, 1), {}, X, lambda tensor: far, None))
    assert (found.size.item(), found.error.item()) == (2.0, 3.0 * S)


def test_weights_of_a_softmax_are_apart_by_little_more_than_1():
    apart = Carried(torch.full((1,), 1.0).double(), torch.full((1,), 3.0).double())
    off = softmax_error(4, "float32", 2 * U * apart.reach)
    found = RULES[F.softmax](Call(F.softmax, (X, 1), {}, X, lambda tensor: apart, None))
    assert (found.size.item(), found.error.item()) == (1 + off, (1 + 2 * off) * S)
