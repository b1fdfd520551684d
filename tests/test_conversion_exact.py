"""Theorem 1's construction: what it stores, for which heads and widths it serves, and what it refuses."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import convolve
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from conv2attn.attention import set_engine
from conv2attn.errors import AlphaError, GeometryError, HeadSizeError, UnsupportedError, UsageError
from conv2attn.models import convert
from conv2attn.testing import assert_same, convolutions, images_for, integer_tensors
from conv2attn.theorem import attention_for, read

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


@given(convolutions(wide=True), st.sampled_from(["quadratic", "enumerated"]))
def test_the_products_are_the_taps_and_the_centres_the_offsets(conv, encoding):
    """`W_val W_out` equals the tap bit for bit, and heads and taps are in bijection, row-major."""
    layer = attention_for(read(conv), encoding=encoding)
    weight = conv.weight
    if conv.transposed:
        parts = weight.unflatten(0, (conv.groups, -1)).transpose(1, 2).flatten(0, 1)
        weight = parts.flip(list(range(2, parts.ndim)))
    taps = list(itertools.product(*map(range, conv.kernel_size)))
    assert layer.heads == len(taps)
    for head, tap in enumerate(taps):
        assert torch.equal(layer.weights.taps()[head], weight[(..., *tap)])
        triples = zip(conv.dilation, tap, conv.kernel_size, strict=True)
        assert layer.encoding.center[head].tolist() == [d * (t - (k - 1) // 2) for d, t, k in triples]
    assert layer.bias is conv.bias is None or torch.equal(layer.bias, conv.bias)


@given(convolutions())
def test_an_identity_is_not_stored(conv):
    layer = attention_for(read(conv))
    assert layer.d_head == min(conv.in_channels, conv.out_channels)
    assert (layer.value is None) is (conv.in_channels <= conv.out_channels)
    assert (layer.output is None) is (conv.in_channels > conv.out_channels)
    stored = layer.output if layer.value is None else layer.value
    assert stored.numel() == conv.weight.numel()
    assert stored.requires_grad
    assert not layer.encoding.center.requires_grad


@given(convolutions())
def test_a_trainable_conversion_stores_its_identities(conv):
    layer = attention_for(read(conv), trainable=True)
    assert layer.value is not None
    assert layer.output is not None
    assert all(parameter.requires_grad for parameter in layer.parameters())
    weights = layer.weights
    identity = weights.value if conv.in_channels <= conv.out_channels else weights.output
    identity = identity.unflatten(1, (conv.groups, -1))
    assert torch.equal(identity, torch.eye(identity.shape[-1]).to(identity).expand_as(identity))


@given(convolutions())
def test_groups_stay_blocks(conv):
    layer = attention_for(read(conv))
    assert sum(p.numel() for p in layer.parameters() if p.ndim == 3) == conv.weight.numel()


@given(st.data(), convolutions(dtypes=[torch.float32]))
def test_every_width_from_the_smallest_that_serves_up_is_exact(data, conv):
    smallest = min(conv.in_channels, conv.out_channels)
    width = smallest + conv.groups * data.draw(st.integers(0, 5))
    layer, image = attention_for(read(conv), d_head=width), data.draw(images_for(conv))
    assert layer.d_head == width
    assert_same(layer(image).detach(), convolve(conv, image, image.dtype))


def test_heads_that_are_too_narrow_are_refused_with_what_they_could_express():
    conv, grouped = nn.Conv2d(8, 6, 3), nn.Conv2d(8, 12, 3, groups=4)
    message = r"C2A105 d_head=4 is less than min\(d_in, d_out\)=6: it could express any 4 of the 6 output channels"
    with pytest.raises(HeadSizeError, match=message):
        attention_for(read(conv), d_head=4)
    message = r"C2A105 d_head=4 is less than .*=8: .* any 1 of the 3 output channels of each of the 4 groups"
    with pytest.raises(HeadSizeError, match=message):
        attention_for(read(grouped), d_head=4)
    for width in (0, -4, 6):
        with pytest.raises(HeadSizeError, match=f"C2A105 d_head={width} is not a positive multiple of groups=4"):
            attention_for(read(grouped), d_head=width)


def test_a_narrow_head_expresses_the_channels_that_it_was_said_to():
    """The clause of Theorem 1 on min(D_h, D_out) channels: the first four of six, converted alone."""
    conv = nn.Conv2d(8, 6, 3).requires_grad_(False)
    for parameter in conv.parameters():
        parameter.copy_(torch.randint(-9, 10, parameter.shape))
    some = nn.Conv2d(8, 4, 3).requires_grad_(False)
    some.weight.copy_(conv.weight[:4])
    some.bias.copy_(conv.bias[:4])
    image = torch.randint(-9, 10, (1, 8, 5, 4)).float()
    assert_same(attention_for(read(some), d_head=4)(image).detach(), conv(image)[:, :4])


AUTO = {torch.float64: 1024.0, torch.float32: 128.0, torch.bfloat16: 128.0, torch.float16: 64.0}


@pytest.mark.parametrize("dtype", AUTO)
def test_alpha_is_the_power_of_two_of_the_layer_s_own_dtype(dtype):
    layer = attention_for(read(nn.Conv1d(1, 1, 3, dtype=dtype)))
    assert layer.encoding.alpha.tolist() == [AUTO[dtype]] * 3


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf"), "hard"])
def test_an_alpha_that_is_not_positive_and_finite_is_refused(alpha):
    with pytest.raises(AlphaError, match=f"C2A130 alpha={alpha!r} is not a positive finite number"):
        attention_for(read(nn.Conv1d(1, 1, 3)), alpha=alpha)


@pytest.mark.parametrize("alpha", [46, 1.5, 200.0])
def test_a_given_alpha_is_taken_as_it_is(alpha):
    layer = attention_for(read(nn.Conv1d(1, 1, 3)), alpha=alpha)
    assert layer.encoding.alpha.tolist() == [alpha] * 3
    assert (layer.which_engine(torch.ones(1, 1, 4)) == "conv") is (alpha == 200.0)


def test_at_the_paper_s_alpha_small_pixels_next_to_large_ones_are_wrong():
    """ERRATA E1: at 46 the target's weight is exactly 1 but others are 1e-20; only a wide range shows it."""
    conv = nn.Conv1d(1, 1, 1, bias=False).requires_grad_(False)
    conv.weight.fill_(1)
    image = torch.tensor([[[0.0, 1e30]]])
    assert_same(attention_for(read(conv))(image).detach(), image)
    paper = set_engine(attention_for(read(conv), alpha=46), "dense")(image).detach()
    assert paper[0, 0, 0] > 1e9
    assert paper[0, 0, 1] == image[0, 0, 1]


@given(st.data(), convolutions(dtypes=[torch.float32]))
def test_one_layer_serves_images_of_every_size(data, conv):
    layer = attention_for(read(conv))
    for extra in (0, 2, 9):
        image = data.draw(images_for(conv, extra=extra))
        assert_same(layer(image).detach(), convolve(conv, image, image.dtype))


@given(st.data(), convolutions(transposed=[True], dtypes=[torch.float64]))
def test_output_size_of_a_transposed_convolution_is_honoured(data, conv):
    """Every size that torch accepts gives torch's output; the sizes on either side are refused."""
    conv.output_padding = (0,) * len(conv.kernel_size)
    image = data.draw(images_for(conv, batches=[1]))
    smallest = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, s, p, d, k in zip(
            image.shape[2:], conv.stride, conv.padding, conv.dilation, conv.kernel_size, strict=True
        )
    ]
    extra = [data.draw(st.integers(0, s - 1)) for s in conv.stride]
    size = [n + e for n, e in zip(smallest, extra, strict=True)]
    layer = attention_for(read(conv))
    assert_same(layer(image, output_size=size).detach(), conv(image, output_size=size))
    for wrong in ([n - 1 for n in smallest], [n + s for n, s in zip(smallest, conv.stride, strict=True)]):
        with pytest.raises(GeometryError, match=r"C2A121 attention: output_size .* is not between"):
            layer(image, output_size=wrong)


def test_output_size_overrides_output_padding():
    conv = nn.ConvTranspose2d(2, 3, 3, stride=3, output_padding=(2, 1)).requires_grad_(False)
    layer, image = attention_for(read(conv)), torch.randn(1, 2, 3, 4)
    for size in ([9, 12], [10, 14], [11, 13]):
        assert_same(layer(image, output_size=size).detach(), conv(image, output_size=size), 1e-5)
        assert layer(image, output_size=[1, 3, *size]).shape[2:] == torch.Size(size)


def spoiled(change):
    conv = nn.Conv2d(2, 2, 3)
    change(conv)
    return conv


class Own(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * 2


REFUSED = {
    "complex": (lambda: nn.Conv2d(2, 2, 3, dtype=torch.complex64), "C2A102 Conv2d has weights of torch.complex64"),
    "lazy": (lambda: nn.LazyConv2d(2, 3), "C2A103 LazyConv2d has not seen an input yet"),
    "own forward": (lambda: Own(2, 2, 3), "C2A106 Own has a forward of its own"),
    "patched": (
        lambda: spoiled(lambda c: setattr(c, "forward", lambda x: x)),
        "C2A106 Conv2d has a forward of its own",
    ),
    "a linear layer": (lambda: nn.Linear(2, 2), "C2A101 torch.nn.modules.linear.Linear is not a convolution layer"),
    "integers": (
        lambda: spoiled(lambda c: setattr(c, "weight", nn.Parameter(c.weight.to(torch.int8), requires_grad=False))),
        "C2A102 Conv2d has weights of torch.int8",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_a_convolution_with_a_softmax_is_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(UnsupportedError, match=message):
        read(make())


@pytest.mark.filterwarnings("ignore")
def test_quantised_layers_are_refused():
    with pytest.raises(UnsupportedError, match=r"C2A102 torch.ao.nn.quantized.* has quantised weights"):
        read(torch.ao.nn.quantized.Conv2d(2, 2, 3))


def test_unknown_padding_modes_are_refused():
    with pytest.raises(UsageError, match="C2A104 padding_mode='mirror' is not one that a convolution can have"):
        read(spoiled(lambda conv: setattr(conv, "padding_mode", "mirror")))
    strided = nn.Conv2d(2, 2, 3, padding="same")
    strided.stride = (2, 2)
    with pytest.raises(UsageError, match=r"C2A001 padding='same' has no meaning at stride \(2, 2\)"):
        read(strided)


def test_a_lazy_layer_is_converted_once_it_was_initialised():
    conv, image = nn.LazyConv2d(3, (3, 2), padding=1), torch.randint(-9, 10, (1, 2, 5, 4)).float()
    conv(image)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-9, 10, parameter.shape))
    assert_same(attention_for(read(conv))(image).detach(), conv(image).detach())


def pruned(conv):
    prune.random_unstructured(conv, "weight", amount=0.4)


PARAMETRISED = {
    "weight_norm by hooks": weight_norm,
    "spectral_norm by hooks": spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "pruned": pruned,
}


@pytest.mark.parametrize("how", PARAMETRISED)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_a_parametrised_weight_is_converted_as_it_evaluates(how, training):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 3, padding=1)
    PARAMETRISED[how](conv)
    with torch.no_grad():
        conv.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    image = torch.randn(1, 2, 5, 4)
    expected = conv.eval()(image).detach()
    layer = convert(conv.train(training))
    assert layer.training is training
    assert_same(set_engine(layer, "conv").eval()(image).detach(), expected)


def test_the_weight_is_copied_and_not_shared():
    conv = nn.Conv1d(1, 1, 3)
    layer = attention_for(read(conv))
    before = layer.output.detach().clone()
    with torch.no_grad():
        conv.weight.zero_()
    assert torch.equal(layer.output, before)


@given(st.data(), integer_tensors((2, 3, 2, 2), torch.float32, 4))
def test_equal_taps_and_zero_taps_are_heads_like_any_other(data, weight):
    conv = nn.Conv2d(3, 2, 2, bias=False).requires_grad_(False)
    conv.weight.copy_(weight * data.draw(st.sampled_from([0, 1])))
    image = data.draw(images_for(conv))
    layer = attention_for(read(conv))
    assert layer.heads == 4
    assert_same(layer(image).detach(), convolve(conv, image, image.dtype))
