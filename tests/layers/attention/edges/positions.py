"""Encodings: no cancellation, low precision, far offsets, borders; tests/licences/encodings.py has the scores."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import convolve
from suite import convolutions, images_for

from conv2attn.errors import EngineError
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention, set_engine
from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

HARD = [name for name, family in FAMILIES.items() if family.sharpens]


@given(st.data(), st.sampled_from(HARD), st.integers(0, 9))
def test_one_layer_makes_its_convolution_at_every_size(data, kind, more):
    """Enumerated positions have two numbers, whose radix is that of the grid at run time, not of the layer."""
    conv = data.draw(convolutions())
    layer = attention_for(read_convolution(conv), encoding=kind)
    assert layer.encoding.d_position == layer.d_key == (2 if kind == "enumerated" else len(conv.kernel_size) + 1)
    for engine in ("auto", "dense", "gather", "conv"):
        for extra in (0, more):
            image = data.draw(images_for(conv, extra=extra))
            assert_same_output(set_engine(layer, engine)(image).detach(), convolve(conv, image, image.dtype))


def test_enumerated_heads_that_leave_the_grid_are_not_replicate_padding():
    """ERRATA E8: this encoding wraps around, so neither `gather` nor `conv` may continue the border."""
    layer = MultiHeadSelfAttention(1, 1, Encoding.of("enumerated", [[0.0, 2.0]], 128.0)).requires_grad_(False)
    image = torch.arange(6.0).reshape(1, 1, 2, 3)
    with pytest.raises(EngineError, match=r"head 0 leaves the grid at offset \(0, 2\), where heads of"):
        set_engine(layer, "gather")(image)
    set_engine(layer, "auto")
    assert layer.which_engine(image) == "dense"
    quadratic = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", [[0.0, 2.0]], 128.0))
    assert quadratic.attention(image)[0, 0].argmax(-1).tolist() == [2, 2, 2, 5, 5, 5]
    assert layer.attention(image)[0, 0].argmax(-1).tolist() == [2, 2, 3, 5, 5, 5]


FAR = st.tuples(st.integers(-(2**23), 2**23), st.integers(-(2**23), 2**23))


@example("quadratic", torch.bfloat16, (301, -7))
@given(st.sampled_from(HARD), st.sampled_from([torch.bfloat16, torch.float16, torch.float64]), FAR)
def test_positions_never_drop_below_float32(kind, dtype, offset):
    """bfloat16 cannot count past 256, and 301 would become 300."""
    encoding = Encoding.of(kind, [[float(x) for x in offset]], 128.0).to(dtype)
    assert encoding.center.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert encoding.center.tolist() == [[float(x) for x in offset]]


@settings(max_examples=max(10, settings.default.max_examples // 4))
@example("quadratic", (11, 11))
@given(st.sampled_from(HARD), st.tuples(st.integers(0, 49), st.integers(0, 11)))
def test_far_offsets_in_low_precision_still_hit_their_pixel(kind, offset):
    """The expanded form picks the wrong pixel in bfloat16 from offset (11, 11); scores from int64 do not."""
    layer = MultiHeadSelfAttention(1, 1, Encoding.of(kind, [[float(x) for x in offset]], 128.0), dtype=torch.bfloat16)
    row = layer.attention(sides=(50, 12))[0, 0, 0]
    assert row.argmax().item() == 12 * offset[0] + offset[1]
    assert row.max() == 1
    assert row.sum() == 1


@pytest.mark.parametrize("kind", HARD)
def test_an_encoding_reads_well(kind):
    expected = f"Encoding({kind}, heads=2, dimensions=2, alpha=128)"
    assert repr(Encoding.of(kind, [[0.0, 1.0], [0.0, 2.0]], 128.0)) == expected
    assert "alpha=1..3" in repr(Encoding.of(kind, [[0.0], [1.0]], [1.0, 3.0]))
