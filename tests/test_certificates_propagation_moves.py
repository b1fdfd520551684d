"""Windows, moves and the carrier itself, step by step: what is counted, what is stopped, and what is told."""

from collections import namedtuple

import pytest
import torch
from test_certificates_propagation import Apply, carried_through
from test_certificates_propagation_exact import BX, S, U, X, passed, rounded, same
from torch import nn
from torch.nn import functional as F

from conv2attn.certificates.propagation import Carried, propagate
from conv2attn.certificates.propagation.carried import Stop
from conv2attn.certificates.propagation.rules import RULES, Call, functions_called, replaced, rule, stored, tensors_in

GRID, LAST = BX.largest_over([2, 3]), BX.largest_over([3])


def over(function, bounds, *args, **kwargs):
    """What a rule says, without a call of the function, which returns something like its first argument."""
    value = args[0] if args else X
    return RULES[function](Call(function, args, kwargs, value, lambda tensor: bounds, lambda tensor: True))


@pytest.mark.parametrize(("axes", "most"), [(1, LAST), (2, GRID), (3, BX.largest_over([1, 2, 3]))])
def test_pools_take_the_worst_of_the_grid(axes, most):
    for name in (
        "max_pool{}d",
        "max_pool{}d_with_indices",
        "adaptive_max_pool{}d",
        "adaptive_max_pool{}d_with_indices",
    ):
        same(over(getattr(F, name.format(axes)), BX, X), most.size, most.error)
    mean = getattr(F, f"avg_pool{axes}d")
    windows = [(2, 2**axes), ((3,), 3**axes), ([3], 3**axes), (tuple(range(2, 2 + axes)), (2, 6, 24)[axes - 1])]
    for window, count in windows:
        same(over(mean, BX, X, window), *rounded(most.size, most.error, count + 2))
        same(over(mean, BX, X, kernel_size=window), *rounded(most.size, most.error, count + 2))
    same(over(mean, BX, X, 2, 1, 0, True, False, None), *rounded(most.size, most.error, 2**axes + 2))
    with pytest.raises(Stop, match="avg_pool with a divisor of its own"):
        over(mean, BX, X, 2, 1, 0, False, True, 1)
    with pytest.raises(Stop, match="avg_pool with a divisor of its own"):
        over(mean, BX, X, 2, divisor_override=1)
    count = (3, 6, 24)[axes - 1]
    same(over(getattr(F, f"adaptive_avg_pool{axes}d"), BX, X, 1), *rounded(most.size, most.error, count + 2))


def test_a_mean_of_huge_numbers_is_stopped_at_their_sum():
    huge = Carried(BX.size * 4e37, BX.error)
    assert over(F.avg_pool2d, huge, X, 2)
    with pytest.raises(Stop, match="on the way"):
        over(F.avg_pool2d, huge, X, 3)


def test_resizing_counts_the_roundings_of_its_axes():
    for mode, axes, count in (("linear", 1, 8), ("bilinear", 2, 16), ("trilinear", 3, 24)):
        given = torch.ones(2, 4, *(2,) * axes)
        most = Carried(torch.full((1,) * given.ndim, 2.0).double(), torch.full((1,) * given.ndim, 0.5).double())
        same(over(F.interpolate, most, given, 4, None, mode), *rounded(most.size, most.error, count))
    for mode in ("nearest", "nearest-exact"):
        same(over(F.interpolate, BX, X, 4, mode=mode), GRID.size, GRID.error)
    same(over(F.interpolate, BX, X, 4), GRID.size, GRID.error)
    same(over(F.interpolate, BX, X, 4, mode="area"), *rounded(GRID.size, GRID.error, 8))
    same(over(F.upsample_nearest, BX, X, 4), GRID.size, GRID.error)
    same(over(F.upsample_bilinear, BX, X, 4), *rounded(GRID.size, GRID.error, 16))
    for stopped in (
        {"mode": "bicubic", "antialias": True},
        {"mode": "bilinear", "antialias": True},
        {"mode": "of old"},
    ):
        with pytest.raises(Stop, match=f"interpolate by {stopped['mode']}"):
            over(F.interpolate, BX, X, 4, **stopped)
    with pytest.raises(Stop, match="interpolate by bilinear"):
        over(F.interpolate, BX, X, 4, None, "bilinear", None, None, True)


@pytest.mark.parametrize(("amounts", "most"), [((1, 0), LAST), ((1, 1, 0, 2), GRID)])
def test_padding_is_a_constant_or_a_copy(amounts, most):
    for mode in ("reflect", "replicate", "circular"):
        same(over(F.pad, BX, X, amounts, mode), most.size, most.error)
        same(over(F.pad, BX, X, pad=amounts, mode=mode, value=9.0), most.size, most.error)
    same(over(F.pad, BX, X, amounts), most.size, most.error)
    for constant in (-1.75, 9.0, 0.0, None):
        size = most.size.clamp(min=abs(constant or 0.0))
        same(over(F.pad, BX, X, amounts, "constant", constant), size, most.error)
        same(over(F.pad, BX, X, amounts, value=constant), size, most.error)
    low = Carried(BX.size * 0.01, BX.error)
    for value in (100.03, 99.97):
        assert over(F.pad, low, X, amounts, value=value).size.max() == max(stored(value, torch.float32))
    assert over(F.pad, low, X, amounts).size.max() < 0.02


def test_dropout_is_none_out_of_training_or_with_no_chance():
    for args, kwargs in (((0.5, False), {}), ((0.0,), {}), ((), {"training": False}), ((), {"p": 0.0})):
        assert over(F.dropout, BX, X, *args, **kwargs) is BX
    for args, kwargs in (((), {}), ((0.5,), {}), ((1e-3, True), {}), ((), {"p": -1.0}), ((), {"p": 1.0})):
        with pytest.raises(Stop, match="dropout in training mode"):
            over(F.dropout, BX, X, *args, **kwargs)


def test_casts_round_unless_every_number_is_kept():
    kinds = {torch.float16: (2.0**-11, 2.0**-14), torch.bfloat16: (2.0**-8, TINY), torch.float32: (U, TINY)}
    for old, new, kept in ((torch.float16, torch.float32, True), (torch.bfloat16, torch.float32, True),
                           (torch.float32, torch.float32, True), (torch.float32, torch.float16, False),
                           (torch.float16, torch.bfloat16, False), (torch.bfloat16, torch.float16, False),
                           (torch.float32, torch.bfloat16, False)):  # fmt: skip
        given = X.to(old)
        call = Call(torch.Tensor.to, (given, new), {}, given.to(new), lambda tensor: BX, None)
        found = RULES[torch.Tensor.to](call)
        u, tiny = kinds[new]
        one = u / (1 - u) * (BX.size + BX.error) + tiny
        if kept:
            assert found is BX
        else:
            torch.testing.assert_close(found.size, (BX.size + one) * S, rtol=1e-12, atol=0)
            torch.testing.assert_close(found.error, (BX.error + 2 * one) * S, rtol=1e-12, atol=0)
    for old, new in ((torch.float32, torch.int32), (torch.int32, torch.float32)):
        call = Call(torch.Tensor.to, (X.to(old), new), {}, X.to(new), lambda tensor: BX, None)
        with pytest.raises(Stop, match=f"a cast from {old} to {new}"):
            RULES[torch.Tensor.to](call)


TINY = 2.0**-126


def test_numbers_move_with_their_bounds():
    same(passed(torch.flip, X, (1,)), BX.size.flip(1), BX.error.flip(1))
    same(passed(torch.flip, X, dims=(1,)), BX.size.flip(1), BX.error.flip(1))
    same(passed(torch.stack, [X, X], dim=1), torch.stack([BX.size] * 2, 1), torch.stack([BX.error] * 2, 1))
    parts = over(torch.chunk, BX, X, 2, 1)
    for part, size, error in zip(parts, BX.size.chunk(2, 1), BX.error.chunk(2, 1), strict=True):
        same(part, size, error)
    for args, kwargs in (((X, torch.float16), {}), ((X,), {"dtype": torch.float16})):
        with pytest.raises(Stop, match="view as another dtype"):
            RULES[torch.Tensor.view](Call(torch.Tensor.view, args, kwargs, X, lambda tensor: BX, None))
    mask = torch.ones(3).bool()
    for args, kwargs in (((mask, X, 0.1), {}), ((mask, X), {"other": 0.1})):
        with pytest.raises(Stop, match="where of a number that is rounded"):
            passed(torch.where, *args, **kwargs)
    assert passed(torch.where, mask, X, 0.5).size.equal(BX.size)


@pytest.mark.parametrize(("args", "kwargs", "axis"), [((1,), {}, 1), ((), {"dim": -1}, 3), ((), {}, 0)])
def test_joined_tensors_stay_short_along_other_axes(args, kwargs, axis):
    short = BX.largest_over([(axis + 1) % 4])
    long = Carried(*(each.expand(X.shape).contiguous() for each in (short.size, short.error)))
    empty = torch.ones(0)
    bounds = {id(X): short}
    call = Call(torch.cat, ([X, empty, X], *args), kwargs, X, lambda tensor: bounds[id(tensor)], None)
    found = RULES[torch.cat](call)
    for part, each in (("size", long.size), ("error", long.error)):
        side = getattr(found, part)
        assert side.shape[(axis + 1) % 4] == 1
        expected = torch.cat([each, each], axis)
        assert side.expand(expected.shape).equal(expected)
    same(RULES[torch.cat](Call(torch.cat, (), {"tensors": [X]}, X, lambda tensor: BX, None)), BX.size, BX.error)
    with pytest.raises(Stop, match="cat along an axis that is no number"):
        RULES[torch.cat](Call(torch.cat, ([X], "N"), {}, X, lambda tensor: BX, None))


def test_calls_tell_their_arguments():
    call = Call("f", (X, 3), {"name": 5}, [X.half(), X], None, None)
    assert (call.argument(1, "name", 7), call.argument(2, "name", 7), call.argument(2, "other", 7)) == (3, 5, 7)
    assert call.argument(2, "other") is None
    assert call.dtype is torch.float16
    assert Call("f", (), {"input": X}, X.double(), None, None).tensor is X
    assert Call("f", (X,), {}, X.double(), None, None).dtype is torch.float64
    assert call.axes(None) == call.axes(()) == call.axes([]) == (0, 1, 2, 3)
    assert (call.axes(-1), call.axes(0), call.axes((1, -2)), call.axes([3])) == ((3,), (0,), (1, 2), (3,))


def test_functions_are_found_by_name_and_attributes_by_their_getter():
    assert set(functions_called("relu")) == {torch.relu, torch.Tensor.relu, F.relu}
    assert [each.__self__ for each in functions_called("mT")] == [torch.Tensor.mT]
    assert list(functions_called("no such name")) == []
    assert rule()(len) is len


def test_tensors_are_found_and_replaced_wherever_they_are():
    pair, whole = namedtuple("pair", "a b")(X, 1), torch.ones(2).long()
    assert [id(each) for each in tensors_in([X, (whole, {"a": X}), 3, "x"])] == [id(X), id(whole), id(X)]
    made = replaced([X, (whole, {"a": X}), 3], lambda tensor: "new")
    assert made[0] == "new"
    assert made[1][0] is whole
    assert made[1][1] == {"a": "new"}
    assert made[2] == 3
    assert type(made[1]) is tuple
    assert replaced(pair, None) is pair


def test_layers_may_be_called_by_keyword_and_inside_of_each_other():
    class Inner(nn.Module):
        def forward(self, *, image):
            return 2 * image

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, image):
            return self.inner(image=image)

    assert 0.2 <= carried_through(Outer(), 1.0, 0.1)[0] < 0.201
    double = {"inner": lambda given: Carried(2 * given.size, 2 * given.error + 0.5)}
    assert propagate(Outer(), double, torch.ones(1, 2), 1.0) == (0.5 * S, "")
    outer = {"0": lambda given: Carried(2 * given.size, 2 * given.error + 0.25)}
    assert propagate(nn.Sequential(Outer()), outer, torch.ones(1, 2), 1.0) == (0.25 * S, "")


def test_the_first_reason_is_told_with_the_innermost_module_that_runs():
    def deaf(image):
        for function in (torch.cumsum, torch.cumprod):
            try:
                function(image, 1)
            except Exception:
                continue
        return image

    assert propagate(Apply(deaf), {}, torch.ones(1, 2), 1.0) == (None, "cumsum")
    after = nn.Sequential(nn.Sequential(nn.ReLU(), nn.ReLU()), Apply(deaf))
    assert propagate(after, {}, torch.ones(1, 2), 1.0) == (None, "cumsum in 1")
    assert propagate(Apply(deaf), {}, torch.ones(1, 2), torch.inf) == (None, "inputs that are not finite")

    def stops(given):
        raise Stop("there")

    assert propagate(nn.Sequential(nn.ReLU()), {"0": stops}, torch.ones(1, 2), 1.0) == (None, "there in 0")
    failing = nn.Sequential(Apply(lambda image: 1 // 0))
    assert propagate(failing, {}, torch.ones(1, 2), 1.0) == (None, "an error (ZeroDivisionError)")


def test_what_is_filled_in_place_from_the_image_stops():
    def filled(image):
        made = torch.zeros(1, 4, 6, 5)
        made.add_(image)
        return made

    assert carried_through(Apply(filled), 1.0, 0.1)[1] == "a change in place of what does not come from the image in 1"

    def constant(image):
        made = torch.zeros(1, 4, 6, 5)
        view = made[:, :1]
        made.add_(3.0)
        return image * view + made

    assert 0.3 <= carried_through(Apply(constant), 1.0, 0.1)[0] < 0.301

    def unseen(image):
        made = image + 1
        made.data.numpy()[...] = 5.0
        return made

    assert carried_through(Apply(unseen), 1.0, 0.1)[0] is None


def test_shapes_like_those_of_the_image_are_constants_and_values_are_not():
    assert carried_through(Apply(lambda x: torch.zeros_like(x)), 1.0, 0.1) == (0.0, "")
    bound, stop = carried_through(Apply(lambda x: torch.ones_like(x) * x + x.new_ones(5)), 1.0, 0.1)
    assert stop == ""
    assert 0.1 <= bound < 0.101
    assert carried_through(Apply(lambda x: x.new_full((5,), x.amax())), 1.0, 0.1)[0] is None


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((1, 4, 6, 5, 1), "sin, whose bounds have another shape in 1"),
        ((1, 1, 4, 6, 5), "sin, whose bounds have another shape in 1"),
        ((2, 4, 6, 5), "sin, whose bounds have another shape in 1"),
        ((1, 3, 6, 5), "sin, whose bounds have another shape in 1"),
    ],
)
def test_bounds_of_another_shape_stop(shape, told, monkeypatch):
    wrong, right = torch.ones(shape).double(), torch.ones(5).double()
    for bounds in (Carried(wrong, wrong), Carried(wrong, right), Carried(right, wrong)):
        monkeypatch.setitem(RULES, torch.sin, lambda call, bounds=bounds: bounds)
        assert carried_through(Apply(torch.sin), 1.0, 0.1) == (None, told)
    monkeypatch.setitem(RULES, torch.sin, lambda call: Carried(right, right))
    assert carried_through(Apply(torch.sin), 1.0, 0.1)[1] == ""


def test_numbers_may_be_as_large_as_the_format_holds():
    most = torch.finfo(torch.float16).max
    same_layer = {"0": lambda given: Carried(given.size / S, given.error)}
    network = nn.Sequential(nn.Identity()).half()
    assert propagate(network, same_layer, torch.ones(1, 2).half(), most) == (0.0, "")
    assert propagate(nn.Sequential(nn.Identity(), nn.ReLU()).half(), {}, torch.ones(1, 2).half(), 2 * most)[0] is None
