"""The bound on two layers as computed: every term of it, from the formulas that it is made of."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.basis import Weights
from conv2attn.bounds import (
    RoundingBound,
    convolution_bound,
    difference_bound,
    format_of,
    gamma,
    hard_mixing_bound,
    leaked_mass,
    leaked_mass_diagonal,
    soft_mixing_bound,
    target_rounds_to_one_threshold,
)
from conv2attn.equivalence.computed.arithmetic import Arithmetic
from conv2attn.equivalence.computed.mixing import formed_exactly, lost, mixing_bound, product_error
from conv2attn.equivalence.computed.overflow import ROUNDED, overflow
from conv2attn.equivalence.computed.rounding import (
    SLACK,
    difference_bounds,
    fan_in,
    largest_biases,
    tap_differences,
    what_differs,
)
from conv2attn.equivalence.readings.places import single, summed
from conv2attn.equivalence.readings.positions import Positions
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.errors import UsageError

SIDES = (7, 9)
NOTHING = RoundingBound(0.0, 0.0)


def layer(seed=0, dtype=torch.float32, **kwargs):
    settings = {"padding": 1, "groups": 2, **kwargs}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(4, 6, 3, **settings).to(dtype)


def read(module, **changes):
    return replace(reading_of(module), **changes)


def attending(module, **kwargs):
    return reading_of(conv2attn.convert(module, **kwargs))


def with_factors(reading, value, output):
    """The reading with other factors, whose product is not plain to see."""
    weights = Weights(value, output, reading.weights.bias, reading.weights.groups)
    return replace(reading, weights=weights, taps=None)


def placed(alphas, *shifts, distances=()):
    """A reading with heads of these alphas, each shifted so along each axis."""
    reading = attending(layer())
    given = zip(alphas, shifts, distances or (0.0,) * len(alphas), strict=True)
    each = list(zip(*itertools.islice(itertools.cycle(given), len(reading.starts)), strict=True))
    return replace(reading, positions=Positions(((0, 0),) * len(reading.starts), *each, (), False, ()))


def dense_factors(reading, dtype=torch.float32, inner=5):
    """Random factors of the right shapes."""
    generator = torch.Generator().manual_seed(1)
    heads, groups = len(reading.starts), reading.weights.groups
    value = torch.randn(heads, groups * inner, fan_in(reading), generator=generator).to(dtype)
    return with_factors(reading, value, torch.randn(heads, reading.channels[1], inner, generator=generator).to(dtype))


def expected(original, converted, reach, kind="float32", sides=SIDES, casts=(2, 2)):
    """The bound by its formula, each float64 sum and the whole enlarged by SLACK."""
    terms = [len(side.starts) * fan_in(side) for side in (original, converted)]
    rounding = [convolution_bound(n, kind, casts=c) for n, c in zip(terms, casts, strict=True)]
    leak, mixing = 0.0, NOTHING
    for side in (original, converted):
        own, means = mixing_bound(side, sides, kind)
        leak += own
        mixing = RoundingBound(mixing.factor + means.factor, mixing.absolute + means.absolute)
    mixing = RoundingBound(mixing.factor * SLACK, mixing.absolute * SLACK)
    bounds = []
    for channel in range(original.channels[1]):
        sums = [float(side.magnitudes[channel]) for side in (original, converted)]
        biases = [
            0.0 if side.weights.bias is None else float(side.weights.bias[channel]) for side in (original, converted)
        ]
        formed = sum(product_error(side, kind) * s for side, s in zip((original, converted), sums, strict=True))
        formed += sum(n * lost(side, kind) for n, side in zip(terms, (original, converted), strict=True))
        taps, offs = (float(each[channel]) for each in what_differs(original, converted))
        bound = difference_bound(max(sums) * SLACK, max(map(abs, biases)), reach, *rounding, leak * SLACK, mixing)
        bounds.append((bound + formed * SLACK**2 * 2 * reach + taps * SLACK * reach + offs) * SLACK)
    return bounds


def close(numbers, others):
    return all(math.isclose(a, b, rel_tol=1e-13) for a, b in zip(numbers, others, strict=True))


@pytest.mark.parametrize("reach", [1.0, 0.25, 37.0])
@pytest.mark.parametrize(
    ("alpha", "encoding"),
    [(128, "quadratic"), (60, "quadratic"), (3, "quadratic"), (3, "enumerated"), (128, "enumerated")],
)
def test_the_bound_is_the_sum_of_all_that_can_differ(alpha, encoding, reach):
    original, converted = read(layer()), attending(layer(), alpha=alpha, encoding=encoding)
    assert close(difference_bounds(original, converted, reach, SIDES), expected(original, converted, reach))
    assert close(difference_bounds(converted, original, reach, SIDES), expected(converted, original, reach))
    assert close(difference_bounds(converted, converted, reach, SIDES), expected(converted, converted, reach))


@pytest.mark.parametrize("bias", [True, False])
def test_other_weights_and_biases_are_added_to_the_bound(bias):
    original, other = read(layer(bias=bias)), attending(layer(1, bias=True))
    bounds = difference_bounds(original, other, 3.0, SIDES)
    assert close(bounds, expected(original, other, 3.0))
    weights = layer(bias=bias).weight - layer(1).weight
    assert all(b > 3 * w for b, w in zip(bounds, weights.abs().sum((1, 2, 3)).tolist(), strict=True))
    assert close(difference_bounds(other, original, 3.0, SIDES), expected(other, original, 3.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_that_are_formed_are_counted_on_both_sides(dtype):
    kind = str(dtype).removeprefix("torch.")
    original, converted = read(layer(dtype=dtype)), dense_factors(attending(layer(dtype=dtype)), dtype)
    for first, second in ((original, converted), (converted, original), (converted, converted)):
        assert close(difference_bounds(first, second, 2.0, SIDES), expected(first, second, 2.0, kind))


def test_partial_sums_that_are_stored_are_counted():
    original = read(layer(dtype=torch.bfloat16), partial_sums=9)
    converted = attending(layer(dtype=torch.bfloat16))
    for first, second, casts in ((original, converted, (11, 2)), (converted, original, (2, 11))):
        found = difference_bounds(first, second, 1.0, SIDES)
        assert close(found, expected(first, second, 1.0, "bfloat16", casts=casts))


def test_a_layer_without_taps_adds_no_less_than_one_term():
    original = read(layer())
    empty = replace(original, starts=(), offsets=(), weights=Weights(None, original.weights.output[:0], None, 2))
    empty = replace(empty, taps=original.taps[:0])
    bound = difference_bounds(empty, empty, 1.0, SIDES)
    alone = convolution_bound(1, "float32", casts=2)
    assert close(bound, [difference_bound(0.0, 0.0, 1.0, alone, alone) * SLACK] * 6)


def test_the_format_is_that_of_the_device(monkeypatch):
    original, converted = read(layer()), attending(layer())
    asked = []

    def of(device):
        asked.append(device)
        return Arithmetic("tf32", "tf32")

    monkeypatch.setattr(Arithmetic, "of", staticmethod(of))
    assert close(difference_bounds(original, converted, 1.0, SIDES), expected(original, converted, 1.0, "tf32"))
    only_value = replace(converted, weights=Weights(converted.taps, None, None, 2))
    assert difference_bounds(original, only_value, 1.0, SIDES)
    assert asked == ["cpu", "cpu"]


def test_where_sums_are_too_long_nothing_is_said():
    original, converted = read(layer()), attending(layer(), alpha=3)
    assert difference_bounds(original, converted, 1.0, (2**12, 2**12)) is None
    assert difference_bounds(original, original, 1.0, (2**12, 2**12)) is not None


def test_what_is_rounded_here_is_paid_for():
    assert 1 + (2**22 - 1) * 2.0**-52 < SLACK == 1 + 2.0**-30
    assert 1 + 2**16 * 2.0**-24 < ROUNDED == 1 + 2.0**-7


def test_the_slack_pays_for_so_many_sums_in_float64():
    assert SLACK == 1 + 2**22 * 2.0**-52


def test_a_convolution_mixes_exactly():
    assert mixing_bound(read(layer()), SIDES, "float32") == (0.0, NOTHING)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("alpha", [64.0, 24.0])
def test_hard_heads_leak_only_what_is_counted_in_the_means(axes, alpha):
    reading = placed((200.0, alpha), *[(0.0,) * axes] * 2)
    leak, means = mixing_bound(reading, SIDES, "float32")
    whole, axis = hard_mixing_bound(alpha, axes, "float32"), hard_mixing_bound(alpha, 1, "float32")
    assert leak == 0
    assert means.factor == max(whole.factor, 2 * axes * axis.factor)
    assert means.absolute == max(whole.absolute, 2 * axes * axis.absolute)


@pytest.mark.parametrize(
    ("kind", "inner"), [("float32", "float32"), ("float64", "float64"), ("bfloat16", "float32"), ("tf32", "float32")]
)
@pytest.mark.parametrize(("axes", "sides"), [(2, (7, 9)), (1, (7, 9)), (1, (7,))])
def test_soft_heads_leak_what_the_softmax_does_and_round_as_it_does(kind, inner, axes, sides):
    far = 0.25 if axes == 1 else 0.0
    reading = placed((2.0, 3.0), (0.25,) * axes, (0.0,) * axes, distances=(far, far / 2))
    leak, means = mixing_bound(reading, sides, kind)
    reaches = [(2 * (side + math.sqrt(far))) ** 2 for side in sides]
    farthest = sum(reaches) if axes == len(sides) else math.prod(reaches)
    soft = soft_mixing_bound(math.prod(sides), kind, 4 * format_of(inner).unit_roundoff * 3.0 * farthest)
    assert leak == leaked_mass_diagonal([2.0] * axes, [0.25] * axes) > leaked_mass(3.0, axes)
    assert means == RoundingBound(2 * axes * soft.factor, 2 * axes * soft.absolute)


def test_a_head_between_pixels_is_as_soft_as_a_head_on_a_pixel_with_less_alpha():
    assert mixing_bound(placed((24.0,), (0.25, 0.0)), SIDES, "float32")[0] == leaked_mass_diagonal(
        [24.0] * 2, [0.25, 0]
    )
    sharp = placed((128.0,), (0.25, 0.25))
    leak, means = mixing_bound(sharp, SIDES, "float32")
    assert leak == 0
    assert means.factor >= hard_mixing_bound(sharp.positions.sharpness(0, "float32"), 2, "float32").factor > 0


def test_the_least_sharp_head_counts():
    alone, both = (
        mixing_bound(placed(alphas, *[(0.0, 0.0)] * len(alphas)), SIDES, "float32")
        for alphas in [(24.0,), (200.0, 24.0, 100.0)]
    )
    assert both == alone


def test_soft_heads_of_too_many_keys_are_not_bounded():
    reading = placed((1e-9,), (0.0, 0.0))
    sides = next((1, n) for n in range(2**20, 2**24, 2**16) if 2 * soft_mixing_bound(n, "float32").factor > 0.999)
    factor = soft_mixing_bound(sides[1], "float32", 4 * 2.0**-24 * 1e-9 * (4 + 4 * sides[1] ** 2)).factor
    assert 0.5 < factor <= 1
    with pytest.raises(UsageError, match="soft weights is not bounded"):
        mixing_bound(reading, sides, "float32")
    assert mixing_bound(reading, (1, sides[1] // 4), "float32")[1].factor > 0
    assert mixing_bound(placed((1e-30,), (0.0,)), sides, "float32")[1].factor <= 2


def test_a_product_that_is_formed_errs_by_the_length_of_its_sum():
    reading = attending(layer())
    assert (product_error(reading, "float32"), lost(reading, "float32")) == (0.0, 0.0)
    formed = dense_factors(reading, inner=5)
    assert product_error(formed, "float32") == 2 * gamma(7, 2.0**-24)
    assert lost(formed, "float32") == 7 * 2.0**-149
    assert product_error(formed, "tf32") == 2 * gamma(7, format_of("tf32").unit_roundoff)
    for alone in (
        with_factors(reading, None, formed.weights.output),
        with_factors(reading, formed.weights.value, None),
    ):
        assert (product_error(alone, "float32"), product_error(alone, "tf32")) == (0.0, 0.0)
    scaled = with_factors(reading, torch.eye(2).repeat(9, 2, 1) * 4, formed.weights.output[:, :, :2])
    assert (product_error(scaled, "float32"), lost(scaled, "float32")) == (0.0, 0.0)
    assert product_error(scaled, "tf32") == 2 * gamma(4, format_of("tf32").unit_roundoff)


def test_permutations_and_powers_of_two_form_products_exactly():
    taps = torch.randn(2, 6, 2, generator=torch.Generator().manual_seed(0))
    order = torch.eye(2).flip(0).repeat(2, 3, 1)
    assert formed_exactly(Weights(order, taps, None, 3))
    assert formed_exactly(Weights(order * 8, taps, None, 3))
    assert formed_exactly(Weights(order * 3, taps, None, 3)) is False
    some, others = torch.ones(2, 6, 2), torch.ones(2, 6, 2)
    some[:, 0], others[:, :, 0] = 0.0, torch.tensor([1.0, 0.0] * 3)
    assert formed_exactly(Weights(others, some, None, 3)) is False
    assert formed_exactly(Weights(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.ones(1, 2, 2), None, 1)) is False
    assert not formed_exactly(Weights(order.double(), taps.double(), None, 3))
    full = torch.randn(2, 6, 2, generator=torch.Generator().manual_seed(1))
    assert not formed_exactly(Weights(full, taps, None, 3))
    assert not formed_exactly(Weights(torch.ones(2, 6, 2), torch.ones(2, 6, 2), None, 3))
    columns = torch.eye(2).repeat(2, 3, 1)
    assert formed_exactly(Weights(full, columns, None, 3))
    tiny = torch.full((1, 2, 2), 2.0**-100)
    assert not formed_exactly(Weights(torch.eye(2)[None] * 2.0**-60, tiny, None, 1))
    assert formed_exactly(Weights(torch.zeros(1, 2, 2), tiny, None, 1))


def test_the_groups_divide_the_inputs_of_an_output():
    assert fan_in(read(layer())) == 2
    assert fan_in(read(layer(groups=1))) == 4


def test_the_larger_bias_counts_whatever_its_sign():
    first, second = read(layer(bias=True)), read(layer(bias=True))
    first.weights.bias.copy_(torch.tensor([1.0, -5, 0, 2, 3, 4]))
    second.weights.bias.copy_(torch.tensor([-2.0, 4, 0, 2, -7, 0]))
    assert largest_biases(first, second) == [2, 5, 0, 2, 7, 4]
    without = read(layer(bias=False))
    assert largest_biases(first, without) == largest_biases(without, first) == [1, 5, 0, 2, 3, 4]
    assert largest_biases(without, without) == [0.0] * 6
    assert what_differs(first, second)[1].tolist() == [SLACK * x for x in (3, 9, 0, 0, 10, 4)]
    assert what_differs(without, first)[1].tolist() == [SLACK * x for x in (1, 5, 0, 2, 3, 4)]


def test_taps_are_summed_at_their_places_in_one_group():
    reading = read(layer(bias=False))
    reading.weights.output.copy_(torch.arange(9 * 6 * 2.0).reshape(9, 6, 2))
    places = (*reversed(reading.starts), (40, 40))
    found = summed(reading, places)
    assert (found.shape, found.dtype) == ((10, 6, 4), torch.float64)
    assert not found[9].any()
    blocks = torch.arange(9 * 6 * 2.0).reshape(9, 6, 2).flip(0)
    assert torch.equal(found[:9, :3, :2].float(), blocks[:, :3])
    assert torch.equal(found[:9, 3:, 2:].float(), blocks[:, 3:])
    assert not found[:9, :3, 2:].any()
    twice = replace(reading, starts=(reading.starts[0],) * 9)
    assert torch.equal(summed(twice, reading.starts[:1])[0, :3, :2].float(), blocks[:, :3].sum(0))
    value, output = torch.full((9, 6, 2), 2.0), torch.full((9, 6, 3), 5.0)
    assert summed(with_factors(reading, value, output), reading.starts)[0, 0].tolist() == [30, 30, 0, 0]


def test_differences_of_taps_are_those_of_their_sums():
    first = read(layer(bias=False))
    second = read(layer(bias=False))
    assert tap_differences(first, second).tolist() == [0.0] * 6
    second.taps[4, 1, 0] += 3
    second.taps[2, 1, 1] -= 4
    off = [float(x) for x in (first.taps.double() - second.taps.double()).abs().sum((0, 2))]
    assert tap_differences(first, second).tolist() == off
    assert off[1] > 6.9
    moved = replace(second, starts=(*second.starts[:-1], (9, 9)))
    by_hand = off[5] + 2 * first.taps[8, 5].double().abs().sum().item()
    assert math.isclose(tap_differences(first, moved)[5], by_hand)
    whole = read(layer(bias=False, groups=1))
    whole.taps.zero_()
    whole.taps[:, :3, :2], whole.taps[:, 3:, 2:] = first.taps[:, :3], first.taps[:, 3:]
    assert tap_differences(first, whole).tolist() == [0.0] * 6
    assert tap_differences(whole, first).tolist() == [0.0] * 6


def test_where_sums_are_formed_their_rounding_is_a_doubt():
    first = read(layer(bias=False))
    formed = with_factors(first, torch.eye(2).repeat(9, 2, 1), first.taps)
    twice = replace(first, starts=(first.starts[0],) * 9)
    assert (single(first), single(formed), single(twice)) == (True, False, False)
    magnitudes = first.taps.double().abs().sum((0, 2))
    assert torch.allclose(first.magnitudes, magnitudes, rtol=1e-12, atol=0)
    for sides in ((first, formed), (formed, first), (formed, formed)):
        assert torch.allclose(tap_differences(*sides), 2 * magnitudes * 2.0**-30, rtol=1e-9, atol=0)
    doubled = replace(first, starts=(first.starts[0],) * 9)
    assert torch.allclose(tap_differences(doubled, doubled), 2 * magnitudes * 2.0**-30, rtol=1e-9, atol=0)


@pytest.mark.parametrize("groups", [1, 2])
def test_magnitudes_are_sums_of_absolute_products(groups):
    reading = dense_factors(read(layer(groups=groups, bias=False)))
    value, output = reading.weights.value, reading.weights.output
    expected = Weights(value.abs(), output.abs(), None, groups).taps().double().sum((0, 2))
    assert torch.allclose(reading.magnitudes, expected, rtol=1e-5)
    alone = replace(reading, weights=Weights(value, None, None, groups))
    assert torch.allclose(alone.magnitudes, value.double().abs().sum((0, 2)))


def test_what_a_layer_reaches_is_held_against_the_end_of_its_format():
    reading = read(layer(dtype=torch.float16, groups=1))
    reading.taps.fill_(2.0)
    reading.weights.bias.fill_(-100.0)
    largest = 2 * 9 * 4
    limit = format_of("float16").largest
    reach = (limit / ROUNDED - 100) / largest
    assert overflow(reading, reach * (1 - 1e-9)) == ""
    assert overflow(reading, reach * (1 + 1e-9)).startswith(
        "the original can overflow at this range: sums of inputs within +-9"
    )
    assert overflow(reading, reach * (1 + 1e-9)).endswith(
        f"reach {limit / ROUNDED:.3g}, and float16 ends at {limit:.3g}"
    )
    wide = read(layer(dtype=torch.float64, groups=1))
    wide.weights.bias.fill_(1e300)
    assert overflow(wide, 1.0) == ""
    assert overflow(reading, math.inf) == overflow(reading, math.nan) == "its inputs are not finite"


def test_equal_taps_at_other_places_differ():
    """A whole kernel one pixel further: the tensors of taps are equal, and nothing else is."""
    reading = reading_of(layer())
    moved = replace(reading, starts=tuple((row, column + 1) for row, column in reading.starts))
    assert tap_differences(reading, reading).max() == 0
    assert tap_differences(reading, moved).min() > 0


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_threshold_of_hard_heads_is_that_of_all_axes(axes):
    threshold = target_rounds_to_one_threshold("float32", axes)
    on = (0.0,) * axes
    assert mixing_bound(placed((threshold,), on), (7,) * axes, "float32")[0] == 0
    softer = math.nextafter(threshold, 0)
    positions = placed((softer,), on).positions
    leak, mixing = mixing_bound(placed((softer,), on), (7,) * axes, "float32")
    assert leak == positions.leak(0) > 0
    assert mixing.factor > 0
