"""Layers read into one form, whether their code is what it seems to be, and how much of a head leaks."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.attention import EnumeratedEncoding, MultiHeadSelfAttention
from conv2attn.attention.encodings import ENCODINGS
from conv2attn.basis import Padding, Sites, Weights
from conv2attn.bounds import RoundingBound, leak_reached
from conv2attn.equivalence.computed.leak import alike, certain_leak, check_leak
from conv2attn.equivalence.computed.mixing import mixing_bound
from conv2attn.equivalence.readings.finding import holds, refuted, undecided
from conv2attn.equivalence.readings.genuine import a_kind, foreign, home_of, methods_in_the_way
from conv2attn.equivalence.readings.geometry import Geometry, start
from conv2attn.equivalence.readings.positions import LONGEST_RADIX, Positions
from conv2attn.equivalence.readings.reading import detached, plain_taps, reading_of, reading_of_convolution
from conv2attn.errors import UnsupportedError
from conv2attn.theorem import read
from conv2attn.verdicts import Strength, Verdict


def layer(kind=nn.Conv2d, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(4, 6, 3, **kwargs)


def test_a_form_is_stride_room_and_spacing():
    padding, sites = Padding((1, 2), (3, 4), spacing=(2, 3)), Sites(before=(5, 0), after=(1, 2), stride=(7, 8))
    assert Geometry.of(padding, sites) == Geometry((7, 8), (1 + 3 - 5 - 1, 2 + 4 - 0 - 2), (2, 3))


@pytest.mark.parametrize(
    ("room", "at", "out"),
    [((2, 1), (-2, -1), True), ((2, 1), (0, -1), True), ((0, 0), (0, 0), False), ((0, 0), (0, 1), True),
     ((0, -1), (0, 1), False), ((-1, 0), (1, 0), False), ((1, 0), (0, 0), True), ((-5, -5), (-1, 3), True)],
)  # fmt: skip
def test_a_tap_reaches_out_before_the_first_pixel_or_behind_the_last(room, at, out):
    assert Geometry((1, 1), room, (1, 1)).reaches_out(at) is out


@pytest.mark.parametrize("sides", [(5, 6), (8, 9)])
@pytest.mark.parametrize("settings", [{}, {"padding": 2}, {"stride": (2, 3), "dilation": (1, 2), "padding": (0, 2)}])
def test_the_form_of_a_convolution_is_that_of_its_outputs(settings, sides):
    made = layer(**settings)
    reading = reading_of(made)
    form = reading.geometry
    counts = [(side - 1 + room) // stride + 1 for side, room, stride in zip(sides, form.room, form.stride, strict=True)]
    with torch.no_grad():
        blank = made(torch.zeros(1, 4, *sides))
        assert list(blank.shape[2:]) == counts
        for query in ((0, 0), (counts[0] - 1, counts[1] - 1)):
            image = torch.zeros(1, 4, *sides)
            image.requires_grad_()
            with torch.enable_grad():
                made(image)[0, 1][query].backward()
            read_there = {tuple(place) for place in image.grad[0, 2].nonzero().tolist()}
            expected = {
                tuple(s + o * stride for s, o, stride in zip(at, query, form.stride, strict=True))
                for at in reading.starts
            }
            inside = {place for place in expected if all(0 <= at < side for at, side in zip(place, sides, strict=True))}
            assert read_there == inside


def test_a_convolution_is_read_with_its_taps():
    made = layer(groups=2, padding=1)
    reading = reading_of(made)
    assert (reading.channels, reading.weights.groups, reading.positions, reading.strays) == ((4, 6), 2, None, ())
    assert (reading.dtype, reading.format, reading.partial_sums) == (torch.float32, "float32", 0)
    assert reading.weights.value is None
    assert reading.weights.output is reading.taps
    assert torch.equal(reading.taps[5], made.weight[:, :, 1, 2])
    assert torch.equal(reading.weights.bias, made.bias)
    assert not reading.taps.requires_grad
    assert not reading.weights.bias.requires_grad
    assert (reading.starts[0], reading.offsets[0]) == ((-1, -1), (-1, -1))
    assert reading_of(layer(bias=False)).weights.bias is None
    assert reading_of(layer().double()).format == "float64"


def test_only_transposed_convolutions_store_partial_sums():
    assert reading_of(layer(nn.ConvTranspose2d)).partial_sums == 9
    assert reading_of_convolution(read(layer())).partial_sums == 0
    assert reading_of_convolution(read(layer()), transposed=True).partial_sums == 9


@pytest.mark.filterwarnings("ignore:C2A132")
def test_attention_is_read_with_its_heads():
    attention = conv2attn.convert(layer(groups=2, padding=1), trainable=True)
    reading, original = reading_of(attention), reading_of(layer(groups=2, padding=1))
    assert (reading.geometry, reading.starts, reading.offsets) == (original.geometry, original.starts, original.offsets)
    assert (reading.channels, reading.weights.groups, reading.strays) == ((4, 6), 2, ())
    assert reading.padding == attention.padding
    assert torch.equal(reading.taps, original.taps)
    assert reading.positions.alphas == tuple(attention.encoding.alpha.tolist())
    for factor in (reading.weights.value, reading.weights.output, reading.weights.bias):
        assert not factor.requires_grad
    given = Weights(None, torch.ones(9, 6, 2), None, 2)
    other = reading_of(attention, given)
    assert other.taps.unique().tolist() == [1.0]
    assert other.weights.bias is None


def refusal(attention, weights=None):
    with pytest.raises(UnsupportedError) as refused:
        reading_of(attention, weights)
    return refused.value.code, refused.value.found


def test_what_is_no_hard_attention_is_refused_with_the_reason():
    attention = conv2attn.convert(layer())
    attention.name = "f"
    vars(attention)["forward"] = print
    told = "f: forward was replaced, so what it computes is not known"
    assert refusal(attention) == ("C2A106", told)
    content = MultiHeadSelfAttention(4, 6, conv2attn.convert(layer()).encoding, content=True)
    assert refusal(content)[1].endswith("attention that depends on the content is no convolution")
    few = conv2attn.convert(layer())
    assert refusal(few, Weights(None, torch.ones(8, 6, 4), None, 1))[0] == "C2A105"
    assert refusal(few, Weights(torch.ones(8, 6, 4), torch.ones(9, 6, 6), None, 1))[1].endswith(
        "there are 9 centres, and not as many heads"
    )
    few.encoding.center.data[3, 1] = torch.inf
    assert refusal(few)[0] == "C2A408"
    with pytest.raises(UnsupportedError):
        reading_of(nn.ReLU())


def test_other_encodings_are_not_known_to_be_hard():
    attention = conv2attn.convert(layer())
    hard = {type(conv2attn.convert(layer(), encoding=name).encoding) for name in ("quadratic", "enumerated")}
    others = [kind for kind in ENCODINGS.values() if kind not in hard]
    assert others
    for kind in others:
        attention.encoding = object.__new__(kind)
        nn.Module.__init__(attention.encoding)
        code, found = refusal(attention)
        assert code in ("C2A101", "C2A106")
        assert kind.__name__ in found or "so what it computes is not known" in found


def test_starts_are_counted_from_the_first_pixel():
    assert start(Padding((1, 2), (0, 0)), Sites(before=(5, 7), after=(0, 0), stride=(1, 1)), (10, -20)) == (
        5 + 10 - 1,
        7 - 20 - 2,
    )


def test_numbers_are_read_without_their_gradients():
    numbers = [nn.Parameter(torch.randn(2, 2, 2)) for _ in range(2)]
    found = detached(Weights(numbers[0], numbers[1], None, 3))
    assert (found.bias, found.groups) == (None, 3)
    assert torch.equal(found.value, numbers[0])
    assert torch.equal(found.output, numbers[1])
    assert not found.value.requires_grad
    assert not found.output.requires_grad


def factors(groups, width, d_in, d_out):
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(3, groups * width, d_in, generator=generator)
    return value, torch.randn(3, d_out, width, generator=generator)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("more", [0, 2])
def test_taps_are_plain_where_a_factor_is_an_identity(groups, more):
    value, output = factors(groups, 3 + more, 3, 4 * groups)
    identity = torch.eye(3 + more, 3).repeat(3, groups, 1)
    assert torch.equal(plain_taps(Weights(identity, output, None, groups)), output[:, :, :3])
    assert plain_taps(Weights(identity * 2, output, None, groups)) is None
    value, output = factors(groups, 4 + more, 3, 4 * groups)
    identity = torch.eye(4, 4 + more).repeat(3, groups, 1)
    expected = torch.cat([block[:, :4] for block in value.split(4 + more, 1)], 1)
    assert torch.equal(plain_taps(Weights(value, identity, None, groups)), expected)
    assert plain_taps(Weights(value, identity + 1, None, groups)) is None
    off = identity.clone()
    off[2, -1, 0] = 1e-30
    assert plain_taps(Weights(value, off, None, groups)) is None
    assert torch.equal(plain_taps(Weights(value, None, None, groups)), value)
    assert torch.equal(plain_taps(Weights(None, output, None, groups)), output)


def test_a_factor_that_is_narrower_than_an_identity_is_none():
    value, output = factors(1, 2, 3, 4)
    assert plain_taps(Weights(torch.eye(2, 3).repeat(3, 1, 1), output, None, 1)) is None
    assert plain_taps(Weights(value, torch.eye(4, 2).repeat(3, 1, 1), None, 1)) is None
    double = Weights(torch.eye(3).repeat(3, 1, 1).double(), factors(1, 3, 3, 4)[1].double(), None, 1)
    assert plain_taps(double).dtype == torch.float64
    assert not plain_taps(Weights(nn.Parameter(value), None, None, 1)).requires_grad


@pytest.mark.filterwarnings("ignore:C2A132")
def test_the_code_of_a_conversion_is_its_own():
    for encoding in ("quadratic", "enumerated"):
        assert foreign(conv2attn.convert(layer(), encoding=encoding)) == ""
        assert foreign(conv2attn.convert(layer(), trainable=True)) == ""


class Odd(MultiHeadSelfAttention):
    """Attention of another class."""


class Enumerated(EnumeratedEncoding):
    """An encoding of another class."""


class Box(Padding):
    """A padding of another class."""


def written(part, key, held):
    """Puts something where the object holds its own things."""

    def change(attention):
        owner = attention if part == "" else getattr(attention, part)
        vars(owner)[key] = held

    return change


def parameter(key, held):
    return lambda attention: attention._parameters.update({key: held})


class Weight(nn.Parameter):
    """A parameter of another class."""


FOREIGN = {
    "it is an Odd, not one of conv2attn's own": lambda a: setattr(a, "__class__", Odd),
    "encoding is an Enumerated, not one of conv2attn's own": lambda a: setattr(a.encoding, "__class__", Enumerated),
    "padding is a Box, not one of conv2attn's own": lambda a: setattr(a, "padding", object.__new__(Box)),
    "sites is a Plain, not one of conv2attn's own": lambda a: setattr(a, "sites", Plain()),
    "forward was replaced": written("", "forward", print),
    "encoding.operators was replaced": written("encoding", "operators", print),
    "padding.pad was replaced": written("padding", "pad", print),
    "padding.is_identity was replaced": written("padding", "is_identity", True),
    "sites.count was replaced": written("sites", "count", print),
    "output is a Tensor, not a parameter": lambda a: (
        a._parameters.pop("output"),
        vars(a).update(output=torch.ones(1)),
    ),
    "bias is a Weight, not a parameter": parameter("bias", Weight(torch.ones(6))),
    "center is a Tensor, not a parameter": lambda a: (
        a.encoding._parameters.pop("center"),
        vars(a.encoding).update(center=torch.ones(9, 2)),
    ),
    "a weight is computed by a hook before each call": lambda a: nn.utils.prune.identity(a, "value"),
}


class Plain:
    """Nothing of ours."""


@pytest.mark.parametrize("told", FOREIGN)
@pytest.mark.filterwarnings("ignore:C2A132")
def test_what_stands_in_the_way_of_the_code_is_told(told):
    attention = conv2attn.convert(layer())
    if "hook" in told:
        attention = conv2attn.convert(layer(), trainable=True)
    FOREIGN[told](attention)
    found = foreign(attention)
    assert found == told or ("hook" in told and found)


def test_things_are_told_with_their_article():
    assert (a_kind(object.__new__(Odd)), a_kind(Plain())) == ("an Odd", "a Plain")


def test_functions_are_at_home_where_they_were_written():
    assert home_of(foreign) == "conv2attn"
    assert home_of(nn.Linear.forward) == "torch"
    assert home_of(layer) == __name__.partition(".")[0]
    assert list(methods_in_the_way(Plain())) == []
    assert list(methods_in_the_way(Sites.everywhere(2))) == []


def test_a_class_with_a_method_of_another_home_is_in_the_way(monkeypatch):
    monkeypatch.setattr(Sites, "count", lambda self: 1)
    assert list(methods_in_the_way(Sites.everywhere(2))) == ["count"]


def placed(alphas, *shifts, by_enumeration=False, dtype=torch.float32):
    """A reading of heads with these alphas, each shifted so along each axis."""
    count = len(alphas)
    positions = Positions(((0, 0),) * count, alphas, shifts, (0.0,) * count, (), by_enumeration, ())
    whole = reading_of(conv2attn.convert(layer().to(dtype)))
    taps = whole.taps[:count]
    weights = replace(whole.weights, output=taps, value=None)
    return replace(whole, positions=positions, weights=weights, taps=taps, starts=whole.starts[:count])


ON = (0.0, 0.0)


def largest(alpha):
    """The leak of a head on a pixel: in real arithmetic or as computed, whichever is more."""
    positions = placed((alpha,), ON).positions
    return max(positions.leak(0), positions.computed_leak(0, "float32"))


def test_a_convolution_leaks_nothing():
    assert check_leak(reading_of(layer())) == check_leak(placed(())) == (holds("leak"), 0.0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.inf, math.nan])
def test_an_alpha_is_positive_and_finite(alpha):
    told = f"head 1 has alpha = {alpha!r}, which is not positive and finite (2 of 3 heads)"
    assert check_leak(placed((128.0, alpha, -5.0), ON, ON, ON)) == (refuted("leak", "C2A403", told), 1.0)


def test_what_underflows_is_proved_if_it_does_so_here(monkeypatch):
    reading = placed((128.0, 200.0), ON, ON)
    assert check_leak(reading) == (holds("leak"), 0.0)
    asked = []

    def underflows(*arguments):
        asked.append(arguments)
        return False

    monkeypatch.setattr("conv2attn.equivalence.computed.leak.exponential_underflows", underflows)
    finding, most = check_leak(reading)
    assert (finding, most) == (holds("leak", Strength.BOUNDED), largest(128.0))
    assert asked[0][1:] == (torch.float32, "cpu")
    assert 103 < asked[0][0] < 104
    mixed = placed((128.0, 60.0), ON, ON)
    assert check_leak(mixed)[0].strength is Strength.BOUNDED
    assert len(asked) == 1
    value = replace(reading, weights=Weights(reading.taps, None, None, 1))
    assert check_leak(value)[0].strength is Strength.BOUNDED
    assert asked[1] == asked[0]


def test_a_leak_below_the_roundoff_is_bounded_and_below_46_a_warning():
    finding, most = check_leak(placed((60.0, 50.0, 70.0), ON, ON, ON))
    assert finding == holds("leak", Strength.BOUNDED)
    assert most == largest(50.0)
    finding, most = check_leak(placed((60.0, 20.0), ON, ON))
    told = f"alpha = 20 leaves up to {most:.3g} of a head's mass to other keys"
    assert finding == holds("leak", Strength.BOUNDED, "C2A131", told)
    assert check_leak(placed((46.0,), ON))[0] == holds("leak", Strength.BOUNDED)


def test_a_leak_above_the_roundoff_is_refuted_with_the_head():
    finding, most = check_leak(placed((128.0, 3.0, 2.5, 128.0), ON, ON, ON, ON))
    least = leak_reached(2.5, ON)
    told = f"head 2 leaks at least {least:.3g} of its mass at alpha = 2.5; the roundoff of float32 is {2.0**-24:.3g}"
    told += " (2 of 4 heads)"
    assert finding == refuted("leak", "C2A403", told)
    assert most == largest(2.5) > least
    assert check_leak(placed((16.0,), ON, dtype=torch.float64))[0].verdict is finding.verdict
    apart = check_leak(placed((60.0,), (0.0, 0.45)))[0]
    assert apart.sentence.startswith("head 0 is centred 0.45 from the nearest pixel and leaks at least ")
    assert apart.verdict is finding.verdict
    same = check_leak(placed((3.0, 3.0, 128.0, 3.0), ON, ON, ON, (0.0, 0.25)))[0]
    assert same.sentence.startswith("head 3 is centred 0.25 from the nearest pixel and leaks")
    assert same.sentence.endswith(" (3 of 4 heads)")
    assert check_leak(placed((3.0,), ON))[0].sentence.endswith(" (1 of 1 head)")


def test_an_alpha_below_1_is_an_alpha():
    assert "leaks at least" in check_leak(placed((0.5,), ON))[0].sentence


def test_what_is_neither_certain_nor_excluded_is_undecided(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.computed.leak.certain_leak", lambda *args: "")
    finding, most = check_leak(placed((3.0,), ON))
    assert finding == undecided("leak", "C2A403", f"the leak of alpha = 3 is within {most:.3g}")
    finding, most = check_leak(placed((3.0,), (0.0, 0.25)))
    assert finding.sentence == f"the leak of alpha = 3, centred 0.25 from the pixel is within {most:.3g}"


def test_the_worst_head_is_asked_first_and_then_the_others(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "conv2attn.equivalence.computed.leak.certain_leak", lambda positions, head, roundoff: asked.append(head) or ""
    )
    check_leak(placed((9.0, 4.0, 3.0, 5.0), ON, ON, ON, ON))
    assert asked == [2, 0, 1, 3]


def test_heads_that_leak_alike_are_counted():
    reading = placed((3.0, 3.0, 5.0, 3.0), ON, ON, ON, (0.0, 0.25))
    assert [alike(reading, head) for head in range(4)] == [2, 2, 1, 1]
    farther = replace(reading, positions=replace(reading.positions, distances=(0.0, 1.0, 0.0, 0.0)))
    assert [alike(farther, head) for head in range(4)] == [1, 1, 1, 1]
    reading.taps[1] = 0
    assert alike(reading, 0) == 1


@pytest.mark.parametrize("factor", ["value", "output"])
def test_a_head_that_does_nothing_leaks_nothing(factor):
    reading = placed((64.0, 3.0, 64.0), ON, ON, (0.5, 0.0))
    assert check_leak(reading)[0].verdict is Verdict.REFUTED
    idle = torch.ones(3, 4, 4).index_fill_(0, torch.tensor([1, 2]), 0.0)
    weights = replace(reading.weights, **{"value": torch.ones(3, 4, 4), "output": torch.ones(3, 4, 4), factor: idle})
    reading = replace(reading, weights=weights, taps=None)
    assert reading.working == [0]
    assert check_leak(reading)[0].verdict is Verdict.HOLDS
    nothing = replace(reading, weights=replace(weights, **{factor: idle * 0}))
    assert nothing.working == []
    assert check_leak(nothing) == (holds("leak"), 0.0)
    assert mixing_bound(nothing, (9, 9), "float32") == (0.0, RoundingBound(0.0, 0.0))


def test_a_leak_is_certain_where_it_is_reached():
    roundoff = 2.0**-24
    positions = placed((3.0, 60.0), (0.25, 0.0), ON).positions
    least = leak_reached(3.0, (0.25, 0.0))
    told = f"is centred 0.25 from the nearest pixel and leaks at least {least:.3g} of its mass at alpha = 3"
    assert certain_leak(positions, 0, roundoff) == told
    assert certain_leak(positions, 0, least) == certain_leak(positions, 1, roundoff) == ""
    beyond = placed((3.0,), (0.0, 0.75)).positions
    assert certain_leak(beyond, 0, roundoff) == ""
    half = placed((3.0,), (0.5, 0.0)).positions
    assert certain_leak(half, 0, roundoff) != ""


def test_an_enumeration_makes_other_pixels_of_shifts_on_wide_grids():
    told = "is centred between pixels, and on wide grids the enumeration makes other pixels of that"
    limit = LONGEST_RADIX * 2.0**-20
    wide = placed((128.0, 128.0), (limit,), (limit / 2,), by_enumeration=True).positions
    assert certain_leak(wide, 0, 2.0**-24) == told
    assert certain_leak(wide, 1, 2.0**-24) == ""
    assert certain_leak(replace(wide, by_enumeration=False), 0, 2.0**-24) == ""
