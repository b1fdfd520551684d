"""Geometry and weights of two layers: the same map at every size, or a finding with its rule."""

from dataclasses import replace
from fractions import Fraction
from itertools import chain

import pytest
import torch
from changes import changed, changing
from equality.pairs import Rows, convolution, row_of, rows_of
from equality.planted import factored, heads, rewritten, taps, ulp, zero_head_added
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.theory.basis import Padding, Sites
from conv2attn.verdicts import Verdict
from tests.equality.reports import decisive

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
HOLDS, REFUTED, UNDECIDED, UNSUPPORTED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED, Verdict.UNSUPPORTED


def made_of(layer, **changes):
    """The attention layer with other parts, its weights kept."""
    for name, part in changes.items():
        setattr(layer, name, part)
    return layer


def idle(layer, head=4):
    """Head `head` moves where no tap is, and adds nothing."""
    with changing(layer, "center") as numbers:
        numbers[head] = 7.0
    taps(layer)[head] = 0.0


def dead_tap(original, tap=4):
    original.weight.data.flatten(2)[:, :, tap] = 0.0


def inner(mode):
    """A convolution of one tap; its attention pads by one, and no query reads there."""
    ring = {"image_padding": Padding((1, 1), (1, 1), mode), "sites": Sites((1, 1), (1, 1), (1, 1))}
    original = convolution(kernel=1, padding=0)
    return original, made_of(conv2attn.convert(original), **ring)


def pair(change=lambda layer: None, prepare=lambda original: None, **options):
    """A convolution and its conversion, with a change to either."""
    original = convolution(**options)
    prepare(original)
    converted = conv2attn.convert(original)
    change(converted)
    return original, converted


def swapped(first, second):
    """Two layers, the second as the original."""
    return second, first


def idle_pair():
    return pair(idle, dead_tap)


def extra_bias(number, channel=5):
    """A bias on one side alone."""
    original = convolution(bias=False)
    converted = conv2attn.convert(original)
    converted.bias = nn.Parameter(torch.zeros(6).index_fill(0, torch.tensor([channel]), number))
    return original, converted


def half_padded(mode, more):
    """Attention on reflect or circular padding, and the same with more padding that no query reads."""
    one, other = (conv2attn.convert(convolution(padding_mode=mode, kernel=3)) for _ in range(2))
    other.image_padding = replace(other.image_padding, before=(2, 1))
    other.sites = replace(other.sites, before=(2, 1))
    return (one, other) if more else (other, one)


def beyond_floats():
    original = convolution(dtype=torch.float64)
    converted = conv2attn.convert(original)
    original.weight.data[3, 2, 1, 1], taps(converted)[4, 3, 2] = -1.5e308, 1.5e308
    return original, converted


def stuffed(stride):
    """Zeros between the pixels, left out by the stride or not."""
    original = convolution(kernel=1, padding=0)
    converted = conv2attn.convert(original)
    converted.image_padding = Padding((0, 0), (0, 0), "zeros", (2, 1))
    converted.sites = Sites((stride, 1), (0, 0), (0, 0))
    return original, converted


def twice(number):
    """A second head at the place of tap 3, which adds `number`."""

    def change(layer):
        heads(layer, [*range(layer.heads), 3])
        taps(layer)[-1] = 0.0
        taps(layer)[-1, 0, 2] = number

    return pair(change)


def not_finite(which, first):
    layer = factored(conv2attn.convert(convolution()))
    layer.value = nn.Parameter(torch.eye(4)[..., None].repeat(1, 1, layer.heads))
    getattr(layer, which).data.flatten()[1] = torch.inf
    return (layer, convolution()) if first else (convolution(), layer)


def shifted_kernel():
    """The taps are equal tensors, and stand one pixel further."""
    layer = conv2attn.convert(convolution())
    with changing(layer, "center") as numbers:
        numbers += 1.0
    return convolution(), layer


LAYERS = {
    "heads off the taps that do nothing": (idle_pair, "geometry", HOLDS),
    "taps without a head that do nothing": (lambda: swapped(*idle_pair()), "geometry", HOLDS),
    "a head of zeros": (lambda: pair(zero_head_added), "geometry", HOLDS),
    "a head where no tap is": (
        lambda: pair(lambda a: changed(a, "center", lambda numbers: numbers[4].fill_(7)), dead_tap),
        "geometry",
        HOLDS,
    ),
    "a head too many": (lambda: swapped(*pair(lambda a: heads(a, [0, 1, 2, 3, 4]))), "geometry", REFUTED),
    "a kernel one pixel further": (shifted_kernel, "geometry", REFUTED),
    "padding that nothing reads": (lambda: inner("replicate"), "geometry", HOLDS),
    "reflect padding that nothing reads, but that refuses a side of 1": (lambda: inner("reflect"), "geometry", REFUTED),
    "zeros by other amounts": (lambda: half_padded("zeros", True), "geometry", HOLDS),
    "reflect padding of more, which refuses more": (lambda: half_padded("reflect", True), "geometry", REFUTED),
    "reflect padding of less": (lambda: half_padded("reflect", False), "geometry", UNDECIDED),
    "zeros stuffed and left out by the stride": (lambda: stuffed(2), "geometry", UNDECIDED),
    "zeros stuffed": (lambda: stuffed(1), "geometry", REFUTED),
    "channels": (lambda: (convolution(), conv2attn.convert(convolution(channels=(4, 7)))), "geometry", REFUTED),
    "another dtype": (lambda: (convolution(), conv2attn.convert(convolution().double())), "weights", REFUTED),
    "no bias and a bias of zeros": (lambda: extra_bias(0.0), "weights", HOLDS),
    "no bias and a bias of negative zeros": (lambda: extra_bias(-0.0), "weights", HOLDS),
    "a bias of zeros and none": (lambda: swapped(*extra_bias(0.0)), "weights", HOLDS),
    "a bias where none is": (lambda: extra_bias(2.0**-140), "weights", REFUTED),
    "a bias that is missing": (lambda: swapped(*extra_bias(2.0**-140)), "weights", REFUTED),
    "a difference beyond all floats": (beyond_floats, "weights", REFUTED),
    "two heads at one place": (lambda: twice(0.0), "weights", HOLDS),
    "two heads at one place, off together": (lambda: twice(2.0**-100), "weights", REFUTED),
    **{
        f"{which} of the {'first' if first else 'second'} is not finite": (
            lambda which=which, first=first: not_finite(which, first),
            *(("support", UNSUPPORTED) if first else ("weights", REFUTED)),
        )
        for which in ("value", "output", "bias")
        for first in (True, False)
    },
}


CODES = {"geometry": "C2A401", "weights": "C2A402", "support": "C2A408"}


@pytest.fixture(scope="module")
def rows():
    """The rows of all tables here."""
    return Rows({name: case[0]() for name, case in LAYERS.items()})


@pytest.mark.rotated
@pytest.mark.parametrize("name", LAYERS)
def test_a_pair_of_layers_is_decided_by_the_right_part(rows, name):
    (_, part, verdict), found = LAYERS[name], rows[name]
    assert (found.part(part).verdict, found.verdict) == (verdict, verdict), found.findings
    assert verdict is HOLDS or (decisive(found).part, decisive(found).code) == (part, CODES[part])


def test_taps_without_a_head_are_counted_and_the_first_is_named():
    row = row_of(nn.Conv2d(2, 3, 3, padding=1), conv2attn.convert(nn.Conv2d(2, 3, (1, 3), padding=(0, 1))))
    assert row.part("geometry").sentence == "no head attends to (-1, -1) (6 taps without a head)"


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_that_are_off_are_counted_and_the_worst_is_named(groups):
    original, converted = pair(groups=groups)
    taps(converted)[1, 0, 0] += 2.0
    taps(converted)[2, 4, 1] += 8.0
    taps(converted)[5, 5, 0] -= 4.0
    told = decisive(row_of(original, converted)).sentence
    assert told.startswith("3 weights off"), told
    assert f"(head 2), output channel 4, input channel {1 if groups == 1 else 3}: " in told


def by_fractions(value, output):
    """The products of factors (heads, inner, d_in) and (heads, d_out, inner), summed over the heads."""
    rows, columns = output.tolist(), value.transpose(1, 2).tolist()
    return [
        [
            sum(
                Fraction(a) * Fraction(b)
                for head in range(len(rows))
                for a, b in zip(rows[head][o], columns[head][i], strict=True)
            )
            for i in range(value.shape[2])
        ]
        for o in range(output.shape[1])
    ]


@st.composite
def products(draw):
    """Factors of a format, with as many bits and as spread as drawn, and the layer of their rounded sums."""
    dtype, bits = draw(st.sampled_from(DTYPES)), draw(st.sampled_from([1, 3, 9, 24]))
    spread = draw(st.sampled_from([0, 3] if dtype == torch.float16 else [0, 5, 30]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))

    def numbers(*shape):
        whole = torch.randint(-(2**bits) + 1, 2**bits, shape, generator=generator).double() * 2.0**-bits
        return (whole * 2.0 ** torch.randint(-spread, spread + 1, shape, generator=generator)).to(dtype)

    value, output = numbers(3, 4, 3), numbers(3, 2, 4)
    exact = by_fractions(value, output)
    original = nn.Conv1d(3, 2, 1, bias=False).to(dtype)
    original.weight.data = torch.tensor([[float(each) for each in line] for line in exact]).to(dtype)[..., None]
    return original, value, output, exact


@settings(max_examples=3)
@given(st.lists(products(), min_size=8, max_size=8))
def test_sums_of_products_are_compared_as_real_numbers(drawn):
    """Random factors against their rounded sums: as many weights are off as rounding moved, by exact fractions."""
    rows = rows_of({number: (layer, attending(layer, *factors)) for number, (layer, *factors, _) in enumerate(drawn)})
    for number, (original, *_, exact) in enumerate(drawn):
        rounded = original.weight.flatten().tolist()
        gaps = [y - Fraction(x) for x, y in zip(rounded, chain.from_iterable(exact), strict=True)]
        off, worst = sum(map(bool, gaps)), float(max(gaps, key=abs))
        found = rows[number].part("weights")
        assert found.verdict is (REFUTED if off else HOLDS), found
        assert not off or found.sentence.startswith(f"{off} weight"), (found, off)
        assert not off or any(f"(off by {each:.3g})" in found.sentence for each in (worst, -worst)), (found, worst)


def test_one_ulp_of_a_factor_is_seen_in_every_format():
    """The number that is moved up is positive and its mantissa even, so that only its last bit changes."""
    pairs = {}
    for dtype in DTYPES:
        for which in ("value", "output"):
            right, wrong = pair(rewritten, dtype=dtype), pair(rewritten, dtype=dtype)
            numbers = getattr(wrong[1], which).data
            bits = numbers.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[numbers.element_size()])
            ulp(numbers, tuple(((numbers > 0) & (bits % 2 == 0)).nonzero()[-1].tolist()))
            pairs |= {(dtype, which, HOLDS): right, (dtype, which, REFUTED): wrong}
    for case, row in rows_of(pairs).items():
        assert row.part("weights").verdict is case[-1], case


def attending(original, value, output):
    """Attention with these factors, heads first, all on one pixel."""
    encoding = Encoding.of(
        "quadratic", torch.zeros(len(value), 1), conv2attn.convert(original).encoding.alpha[0].item()
    )
    options = {"d_head": value.shape[1], "value": True, "output": True, "bias": False, "dtype": original.weight.dtype}
    layer = MultiHeadSelfAttention(original.in_channels, original.out_channels, encoding, **options)
    layer.value, layer.output = (nn.Parameter(each.permute(1, 2, 0).clone()) for each in (value, output))
    return layer


def test_long_sums_of_large_numbers_are_exact():
    """50,000 products of 42 bits are more than a float64 holds."""
    generator = torch.Generator().manual_seed(0)
    left, right = (2**21 - 10 - torch.randint(0, 50, (50_000,), generator=generator) for _ in range(2))
    left[0], right[0] = 1, 0
    right[0] = -(sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True)) % 64)
    original = nn.Conv1d(1, 1, 1, bias=False).double()
    original.weight.data.fill_(float(sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))))
    found = row_of(original, attending(original, left.double()[None, :, None], right.double()[None, None]))
    assert found.part("weights").verdict is HOLDS


@pytest.mark.parametrize("number", [5e-324, -(2.0**-1022), 1.7976931348623157e308])
def test_the_smallest_and_the_largest_numbers_are_compared_exactly(number):
    original, converted = pair(kind=nn.Conv1d, channels=(2, 2), kernel=1, padding=0, dtype=torch.float64)
    original.weight.data[0, 1], taps(converted)[0, 0, 1] = number, number
    assert row_of(original, converted).part("weights").verdict is HOLDS
    taps(converted)[0, 0, 1] = torch.nextafter(taps(converted)[0, 0, 1], torch.tensor(0.0).double())
    assert row_of(original, converted).part("weights").verdict is REFUTED


def test_one_ulp_is_seen_in_heads_of_another_order():
    def turned(layer):
        changed(layer, "center", lambda numbers: numbers.copy_(numbers.flip(0).clone()))
        taps(layer).copy_(taps(layer).flip(0).clone())

    original, converted = pair(turned)
    assert row_of(original, converted).verdict is HOLDS
    tap = taps(converted)
    tap[3, 0, 0] = torch.nextafter(tap[3, 0, 0], torch.tensor(9.0))
    assert row_of(original, converted).verdict is REFUTED
