"""Heads whose target leaves the padded grid: decided as the layer itself decides on every small grid."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.attention import EnumeratedEncoding, MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.basis import Padding, Sites
from conv2attn.equivalence import certify
from conv2attn.equivalence.readings import border, strays
from conv2attn.equivalence.readings.finding import holds, refuted, undecided
from conv2attn.equivalence.readings.geometry import Geometry
from conv2attn.equivalence.readings.maps import compare_maps
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.errors import GeometryError
from conv2attn.verdicts import Strength, Verdict


def attending(convolution, padding, sites, encoding=QuadraticEncoding):
    """The conversion of a convolution, on another padded grid and with its queries elsewhere: the same affine forms."""
    converted = conv2attn.convert(convolution)
    layer = MultiHeadSelfAttention(
        convolution.in_channels,
        convolution.out_channels,
        encoding(converted.encoding.center.detach(), converted.encoding.alpha.detach()),
        d_head=converted.d_head,
        value=converted.value is not None,
        output=converted.output is not None,
        padding=padding,
        sites=sites,
    )
    for name in ("value", "output", "bias"):
        setattr(layer, name, getattr(converted, name))
    return layer


def less_padded(convolution, before, after, mode):
    """The same with so much padding less on either end of each axis, and as many more queries there."""
    converted = conv2attn.convert(convolution)
    padding, sites = converted.padding, converted.sites

    def less(amounts, by):
        return tuple(amount - each for amount, each in zip(amounts, by, strict=True))

    return attending(
        convolution,
        Padding(less(padding.before, before), less(padding.after, after), mode, padding.spacing),
        Sites(sites.stride, less(sites.before, before), less(sites.after, after)),
    )


def geometry(original, layer):
    return compare_maps(reading_of(original), reading_of(layer))[0]


def same_everywhere(original, layer, largest=9):
    """Whether basis images of every small size give the same numbers, bit for bit; None where some do not fit."""
    with torch.no_grad():
        bias = original.bias.clone()
        original.bias.zero_()
        layer.bias.zero_()
        try:
            return all(agree(original, layer, side) for side in range(1, largest))
        except GeometryError:
            return None
        finally:
            original.bias.copy_(bias)
            layer.bias.copy_(bias)


def agree(original, layer, side):
    images = torch.eye(side)[:, None]
    try:
        expected = original(images)
    except RuntimeError:
        return True
    return torch.equal(expected, layer(images))


@given(st.data())
def test_the_verdict_is_what_every_small_size_says(data):
    size, dilation, stride = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    mode = data.draw(st.sampled_from(["zeros", "replicate", "reflect", "circular"]))
    torch.manual_seed(data.draw(st.integers(0, 100)))
    amount = data.draw(st.integers(0, 3))
    original = nn.Conv1d(1, 1, size, stride, amount, dilation, padding_mode=mode)
    if data.draw(st.booleans()):
        original.weight.data[..., data.draw(st.integers(0, size - 1))] = 0
    before, after = data.draw(st.integers(0, amount)), data.draw(st.integers(0, amount))
    layer = less_padded(original, (before,), (after,), data.draw(st.sampled_from([mode, "zeros", "replicate"])))
    reading = reading_of(layer)
    assume(reading.strays)
    found, expected = geometry(original, layer), same_everywhere(original, layer)
    if expected is None:
        assert found.verdict is not Verdict.HOLDS
    elif found.verdict is not Verdict.UNDECIDED:
        assert (found.verdict is Verdict.HOLDS) == expected, found.sentence
    else:
        assert "does not fit" in found.sentence


@pytest.mark.parametrize(
    ("mode", "before", "padding_mode", "expected"),
    [
        ("replicate", (1, 2), "zeros", Verdict.HOLDS),
        ("replicate", (1, 1), "replicate", Verdict.HOLDS),
        ("replicate", (1, 1), "zeros", Verdict.REFUTED),
        ("zeros", (1, 2), "zeros", Verdict.REFUTED),
        ("zeros", (0, 1), "zeros", Verdict.HOLDS),
        ("zeros", (0, 1), "replicate", Verdict.REFUTED),
        ("circular", (1, 2), "zeros", Verdict.REFUTED),
        ("reflect", (1, 2), "zeros", Verdict.REFUTED),
    ],
)
def test_two_axes(mode, before, padding_mode, expected):
    """Without padding hard heads are replicate padding; one ring of zeros is as good as two: beyond it all is zero."""
    torch.manual_seed(0)
    original = nn.Conv2d(2, 3, (3, 5), padding=(1, 2), stride=(1, 2), padding_mode=mode)
    layer = less_padded(original, before, before, padding_mode)
    report = certify(original, layer, input_size=(2, 9, 8))
    found = report.rows[0].part("geometry")
    assert (found.verdict, found.strength) == (expected, Strength.PROVED), found.sentence
    if expected is Verdict.HOLDS:
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED)
        assert report.rows[0].max_error <= report.rows[0].bound
    else:
        assert report.witnesses
        assert "off the padded grid for query" in found.sentence


def test_a_head_that_strays_and_applies_zero_is_right():
    torch.manual_seed(0)
    original = nn.Conv2d(2, 3, 3, padding=1)
    original.weight.data[:, :, [0, 2], :] = 0
    original.weight.data[:, :, :, [0, 2]] = 0
    assert geometry(original, less_padded(original, (1, 1), (1, 1), "zeros")).verdict is Verdict.HOLDS
    original.weight.data.zero_()
    assert geometry(original, less_padded(original, (1, 1), (1, 1), "zeros")).verdict is Verdict.HOLDS
    original.weight.data[0, 0, 2, 1] = 2.0**-20
    found = geometry(original, less_padded(original, (1, 1), (1, 1), "zeros"))
    assert found.verdict is Verdict.REFUTED
    assert "head 7 attends to (1, 0)" in found.sentence
    assert "and not zero" in found.sentence


def test_the_query_and_the_pixel_that_are_told_are_the_layers_own():
    torch.manual_seed(0)
    original = nn.Conv1d(1, 1, 3, padding=1)
    found = geometry(original, less_padded(original, (1,), (1,), "zeros"))
    assert found.sentence == (
        "head 0 attends to (-1,), off the padded grid for query (0,) of an input 1: it reads pixel (0,), and not zero"
    )


def test_wrong_weights_are_told_apart_from_wrong_places():
    torch.manual_seed(0)
    original = nn.Conv2d(2, 3, 3, padding=1, padding_mode="replicate")
    layer = less_padded(original, (1, 1), (1, 1), "zeros")
    (layer.output if layer.value is None else layer.value).data[0, 0, 0] += 1
    parts = {found.part: found.verdict for found in compare_maps(reading_of(original), reading_of(layer))}
    assert parts == {"geometry": Verdict.HOLDS, "weights": Verdict.REFUTED}


def test_far_targets_are_not_guessed_at():
    original = nn.Conv1d(1, 1, 2, padding=400, dilation=800)
    found = geometry(original, less_padded(original, (400,), (400,), "zeros"))
    assert found.verdict is Verdict.UNDECIDED
    assert "by more than is looked at" in found.sentence
    original = nn.Conv2d(1, 1, 3, padding=9, dilation=9)
    layer = attending(original, Padding.none(2), Sites.everywhere(2), EnumeratedEncoding)
    assert "by more than is looked at" in geometry(original, layer).sentence


def test_a_border_that_is_not_looked_at_would_be_seen(monkeypatch):
    """Were only grids of one size tried, an error that a stride shows at other sizes would hold."""
    torch.manual_seed(0)
    original = nn.Conv1d(1, 1, 2, stride=3, padding=1)
    layer = less_padded(original, (0,), (1,), "zeros")
    assert geometry(original, layer).verdict is Verdict.REFUTED
    whole = border.read

    def one_size(padding, axis, side, places):
        return whole(padding, axis, side, places) if side == 8 else None

    monkeypatch.setattr(border, "read", one_size)
    assert geometry(original, layer).verdict is Verdict.HOLDS


@pytest.mark.parametrize("encoding", [QuadraticEncoding, EnumeratedEncoding])
def test_one_axis_by_enumeration(encoding):
    torch.manual_seed(0)
    original = nn.Conv1d(1, 1, 3, padding=1, padding_mode="replicate")
    layer = attending(original, Padding.none(1), Sites.everywhere(1), encoding)
    report = certify(original, layer, input_size=(1, 9))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED)


def test_an_enumeration_picks_pixels_of_other_rows():
    """E8 of the errata: below the last row the nearest t is that of the last pixel of all."""
    torch.manual_seed(0)
    original = nn.Conv2d(1, 1, 3, padding=1, padding_mode="replicate")
    layer = attending(original, Padding.none(2), Sites.everywhere(2), EnumeratedEncoding)
    found = geometry(original, layer)
    assert found.verdict is Verdict.REFUTED
    assert certify(original, layer, input_size=(1, 6, 7)).witnesses
    ringed = nn.Conv2d(1, 1, 5, padding=2)
    assert geometry(ringed, less_padded(ringed, (1, 1), (1, 1), "zeros")).verdict is Verdict.HOLDS
    layer = less_padded(ringed, (1, 1), (1, 1), "zeros")
    layer.encoding = EnumeratedEncoding(layer.encoding.center.detach(), layer.encoding.alpha.detach())
    assert geometry(ringed, layer).verdict is Verdict.UNDECIDED
    seen = layer.attention(sides=(6, 7))[0]
    reading = reading_of(layer)
    for head, start in enumerate(reading.starts):
        for query in range(42):
            key = divmod(int(seen[head, query].argmax()), 9)
            pixel = tuple(k - 1 for k in key)
            expected = pixel if all(0 <= x < side for x, side in zip(pixel, (6, 7), strict=True)) else ()
            assert border.nearest(reading, (6, 7), divmod(query, 7), start) == expected


def test_an_axis_that_begins_with_zeros_hides_nothing_of_another():
    torch.manual_seed(0)
    original = nn.Conv2d(1, 1, (1, 3), padding=(1, 1))
    assert geometry(original, less_padded(original, (0, 1), (0, 1), "zeros")).verdict is Verdict.REFUTED


def test_other_pixels_with_weights_that_cancel_there_are_the_same_map():
    original = nn.Conv1d(1, 1, 2, stride=2, padding=2)
    original.weight.data = torch.tensor([[[0.7, -0.7]]])
    layer = less_padded(original, (2,), (0,), "zeros")
    assert same_everywhere(original, layer)
    assert geometry(original, layer).verdict is Verdict.HOLDS
    original.weight.data[0, 0, 1] = -0.5
    layer = less_padded(original, (2,), (0,), "zeros")
    assert not same_everywhere(original, layer)
    assert geometry(original, layer).verdict is Verdict.REFUTED


def dilated(amount, monkeypatch):
    """The finding for two taps that reach out so far on either side of an unpadded grid, were all kinds alike."""
    monkeypatch.setattr(strays, "patterns", lambda *arguments: [])
    original = nn.Conv1d(1, 1, 2, padding=amount, dilation=2 * amount)
    return geometry(original, less_padded(original, (amount,), (amount,), "zeros"))


def test_what_is_looked_at_ends_at_256_pixels(monkeypatch):
    assert dilated(256, monkeypatch) == holds("geometry")
    told = "head 0 attends to (0,), which can lie off the padded grid, by more than is looked at"
    assert dilated(257, monkeypatch) == undecided("geometry", "C2A401", told)


def test_enumerations_are_looked_at_up_to_8_pixels(monkeypatch):
    asked = []
    monkeypatch.setattr(strays, "judge_enumerated", lambda *arguments: asked.append(arguments) or holds("geometry"))
    for amount in (8, 9):
        original = nn.Conv2d(1, 1, 3, padding=amount, dilation=amount)
        geometry(original, attending(original, Padding.none(2), Sites.everywhere(2), EnumeratedEncoding))
    assert len(asked) == 1
    original = nn.Conv2d(1, 1, 3, padding=1)
    geometry(conv2attn.convert(original, encoding="enumerated"), less_padded(original, (1, 1), (1, 1), "zeros"))
    assert len(asked) == 1


def test_a_padding_that_does_not_fit_all_inputs_is_told():
    original = nn.Conv1d(1, 1, 7, padding=3)
    told = "head 0 attends to (-3,), which can lie off the padded grid; its padding does not fit all inputs: "
    expected = undecided("geometry", "C2A401", told + "none of reflect fits 1 pixels")
    assert geometry(original, less_padded(original, (1,), (1,), "reflect")) == expected


def test_what_holds_is_told_of_the_geometry():
    original = nn.Conv1d(1, 1, 2, stride=2, padding=2)
    original.weight.data = torch.tensor([[[0.7, -0.7]]])
    assert geometry(original, less_padded(original, (2,), (0,), "zeros")) == holds("geometry")


def test_every_query_of_a_small_grid_is_looked_at(monkeypatch):
    asked = set()
    monkeypatch.setattr(strays, "nearest", lambda reading, sides, at, start: asked.add((sides, at)) or start)
    reading = replace(reading_of(nn.Conv2d(1, 1, 1)), geometry=Geometry((2, 3), (5, -1), (3, 2)))
    told = undecided("geometry", "C2A401", "so: on an input 8x9 it is right")
    assert strays.judge_enumerated(reading, reading, [(0, 0)], "so") == told
    assert asked == {((8, 9), (row, column)) for row in range(0, 28, 2) for column in range(0, 18, 3)}


def test_weights_that_cancel_are_not_told_apart_by_an_enumeration(monkeypatch):
    original = nn.Conv2d(1, 1, (1, 2))
    original.weight.data = torch.tensor([[[[0.7, -0.7]]]])
    ours = reading_of(original)
    theirs = reading_of(original)
    monkeypatch.setattr(strays, "nearest", lambda reading, *others: (0, 0) if reading is ours else (1, 1))
    found = strays.judge_enumerated(ours, theirs, list(ours.starts), "so")
    assert found.verdict is Verdict.UNDECIDED
    original.weight.data[0, 0, 0, 1] = 0.5
    ours = reading_of(original)
    converted = reading_of(conv2attn.convert(original))
    assert strays.judge_enumerated(ours, converted, list(ours.starts), "so").verdict is Verdict.REFUTED


def test_the_first_head_that_reads_elsewhere_is_told():
    converted = reading_of(conv2attn.convert(nn.Conv1d(1, 1, 2)))
    found = strays.elsewhere(converted, list(converted.starts), [(4,), ()], [(4,), (6,)], "here")
    told = "head 1 attends to (1,), off the padded grid here: it reads pixel (6,), and not zero"
    assert found == refuted("geometry", "C2A401", told)
