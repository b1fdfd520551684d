"""Heads whose target leaves the padded grid read the nearest key: never decided otherwise than every small size is."""

import pytest
import torch
from equality.pairs import Rows, convolution, row_of, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.errors import GeometryError
from conv2attn.layers.attention import Encoding
from conv2attn.theory.basis import Padding, Sites
from conv2attn.verdicts import Verdict

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
HOLDS, REFUTED, UNDECIDED, UNSUPPORTED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED, Verdict.UNSUPPORTED


def less_padded(original, before, after, mode, encoding="quadratic"):
    """The conversion with so much less padding on either end of each axis, and queries that stay where they were."""
    converted = conv2attn.convert(original)

    def less(amounts, by):
        return tuple(amount - each for amount, each in zip(amounts, by, strict=True))

    padding, sites = converted.image_padding, converted.sites
    converted.image_padding = Padding(less(padding.before, before), less(padding.after, after), mode, padding.spacing)
    converted.sites = Sites(sites.stride, less(sites.before, before), less(sites.after, after))
    converted.encoding = Encoding.of(encoding, *converted.encoding.operators().values)
    return converted


@torch.no_grad()
def same_on_every_small_size(original, layer):
    """Whether one-hot images of every small size give the same numbers, bit for bit; None where some do not fit."""
    for side in range(1, 9):
        images = torch.eye(side)[:, None]
        try:
            expected = original(images)
        except RuntimeError:
            continue
        try:
            if not torch.equal(expected, layer(images)):
                return False
        except GeometryError:
            return None
    return True


@st.composite
def less_padded_lines(draw):
    """A convolution on a line, and its conversion with less padding of some mode."""
    size, dilation, stride = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    mode, amount = draw(st.sampled_from(["zeros", "replicate", "reflect", "circular"])), draw(st.integers(0, 3))
    original = convolution(
        nn.Conv1d, (1, 1), size, stride=stride, padding=amount, dilation=dilation, bias=False, padding_mode=mode
    )
    if draw(st.booleans()):
        original.weight.data[..., draw(st.integers(0, size - 1))] = 0
    ends = [(draw(st.integers(0, amount)),) for _ in range(2)]
    return original, less_padded(original, *ends, draw(st.sampled_from([mode, "zeros", "replicate"])))


@settings(max_examples=3)
@given(st.lists(less_padded_lines(), min_size=10, max_size=10))
def test_no_verdict_on_heads_off_the_grid_contradicts_small_sizes(pairs):
    made = {number: (*pair, torch.ones(1, 1, 29)) for number, pair in enumerate(pairs)}
    for number, row in rows_of(made).items():
        found, same = row.part("geometry"), same_on_every_small_size(*pairs[number])
        assert found.verdict is not HOLDS or same is not False, found
        assert row.verdict is not REFUTED or not same, row


def stray(kernel, less, mode, encoding="quadratic", channels=(2, 3), **options):
    """A pair of which the second has less padding."""

    def make():
        original = convolution(channels=channels, kernel=kernel, **options)
        return original, less_padded(original, less, less, mode, encoding)

    return make


REPLICATE = {"padding": (1, 2), "padding_mode": "replicate"}


STRAYS = {
    "replicate needs no padding": (stray((3, 5), (1, 2), "zeros", **REPLICATE), HOLDS),
    "replicate with some padding": (stray((3, 5), (1, 1), "replicate", **REPLICATE), HOLDS),
    "replicate around a crop": (stray((3, 5), (2, 3), "replicate", **REPLICATE), REFUTED),
    "replicate with a ring of zeros": (stray((3, 5), (1, 1), "zeros", **REPLICATE), REFUTED),
    "zeros need padding": (stray((3, 5), (1, 2), "zeros", padding=(1, 2)), REFUTED),
    "one ring of zeros is as good as two": (stray((3, 5), (0, 1), "zeros", padding=(1, 2)), HOLDS),
    "zeros on one axis hide nothing of another": (stray((1, 3), (0, 1), "zeros", padding=(1, 1)), REFUTED),
    "circular": (stray((3, 5), (1, 2), "zeros", padding=(1, 2), padding_mode="circular"), REFUTED),
    "reflect": (stray((3, 5), (1, 2), "zeros", padding=(1, 2), padding_mode="reflect"), REFUTED),
    "zeros far away need padding": (stray((2, 1), (400, 0), "zeros", dilation=(800, 1), padding=(400, 0)), REFUTED),
}


BY_ENUMERATION = {"encoding": "enumerated", "channels": (1, 1)}


ENUMERATED = {  # E8 of the errata: below the last row the nearest t is that of the last pixel of all
    "pixels of other rows": (stray(3, (1, 1), "zeros", padding_mode="replicate", **BY_ENUMERATION), UNDECIDED),
    "right on a small grid, which proves nothing": (stray(5, (1, 1), "zeros", padding=2, **BY_ENUMERATION), UNDECIDED),
}


@pytest.fixture(scope="module")
def rows():
    """The rows of all tables here."""
    tables = {"strays": STRAYS, "enumerated": ENUMERATED}
    made = {(table, name): case[0]() for table, cases in tables.items() for name, case in cases.items()}
    return Rows(made)


@pytest.mark.rotated
@pytest.mark.parametrize("name", STRAYS)
def test_heads_off_the_grid_of_two_axes(rows, name):
    row, wanted = rows["strays", name], STRAYS[name][1]
    geometry = row.part("geometry").verdict
    # A row may be refuted by its outputs, but then its geometry must not hold either.
    assert geometry is HOLDS if wanted is HOLDS else row.verdict is REFUTED and geometry is not HOLDS, row


@pytest.mark.rotated
@pytest.mark.parametrize("name", ENUMERATED)
def test_an_enumeration_off_the_grid_picks_the_nearest_in_its_own_order(rows, name):
    assert rows["enumerated", name].part("geometry").verdict is ENUMERATED[name][1], rows["enumerated", name]


def test_an_enumeration_off_the_grid_that_reads_pixels_of_other_rows_is_refuted_by_two_calls():
    original, layer = ENUMERATED["pixels of other rows"][0]()
    assert certify(original, layer, input_size=(1, 6, 7)).verdict is REFUTED


@pytest.mark.parametrize("encoding", ["quadratic", "enumerated"])
def test_unpadded_heads_on_one_axis_are_replicate_padding(encoding):
    original = convolution(nn.Conv1d, (1, 1), 3, padding_mode="replicate")
    layer = less_padded(original, (1,), (1,), "zeros", encoding)
    assert row_of(original, layer).verdict is HOLDS


@pytest.mark.parametrize("number", [-0.7, -0.5])
def test_weights_that_cancel_where_all_read_one_pixel_are_not_refuted(number):
    original = convolution(nn.Conv1d, (1, 1), 2, stride=2, padding=2)
    original.weight.data = torch.tensor([[[0.7, number]]])
    row = row_of(original, less_padded(original, (2,), (0,), "zeros"))
    assert row.verdict is (UNDECIDED if number == -0.7 else REFUTED), row
