"""The attention that is captured is the model's own."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import conv2attn
from conv2attn import capture
from conv2attn.errors import UsageError

TOKENS = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))


class Calls(nn.Module):
    """A network that is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Attends(nn.Module):
    """Four heads of four channels attend by `how`, and their attention is computed plainly beside it."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, tokens):
        heads = heads_of(tokens)
        self.plain = plain(heads, self.how)
        return self.how(heads)


def heads_of(tokens):
    return tokens.unflatten(-1, (4, 4)).transpose(1, 2)


def plain(heads, how):
    scores = heads @ heads.mT * 4**-0.5
    if how is causal:
        scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    if how is biased:
        scores = scores - (torch.arange(9)[:, None] - torch.arange(9)).abs()
    if how in (first_alone, strictly_causal):
        scores = scores.masked_fill(torch.ones(9, 9).triu(0).bool(), -torch.inf)
    if how is grouped:
        scores = heads @ heads[:, :2].repeat_interleave(2, 1).mT * 4**-0.5
    return torch.nan_to_num(scores.exp() / scores.exp().sum(-1, keepdim=True))


def fused(heads):
    return F.scaled_dot_product_attention(heads, heads, heads)


def causal(heads):
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


def biased(heads):
    return flex_attention(heads, heads, heads, score_mod=lambda score, b, h, q, k: score - (q - k).abs())


def grouped(heads):
    return flex_attention(heads, heads[:, :2], heads[:, :2], enable_gqa=True)


def strictly_causal(heads):
    mask = create_block_mask(lambda b, h, q, k: q > k, None, None, 9, 9, device="cpu")
    result, _ = flex_attention(heads, heads, heads, block_mask=mask, return_aux=AuxRequest(lse=True))
    return result


def first_alone(heads):
    return F.scaled_dot_product_attention(heads, heads, heads, torch.ones(9, 9).tril(-1).bool())


def by_hand(heads):
    return (heads @ heads.mT * 4**-0.5).softmax(-1) @ heads


WAYS = [fused, causal, biased, grouped, strictly_causal, first_alone, by_hand]


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.__name__)
def test_every_way_to_attend(how):
    layer = Attends(how)
    outputs = []
    layer.register_forward_hook(lambda *call: outputs.append(call[2]))
    layer(TOKENS)
    seen = capture(nn.Sequential(nn.Identity(), layer), TOKENS)
    torch.testing.assert_close(*outputs)
    assert list(seen) == ["1"]
    torch.testing.assert_close(seen["1"], layer.plain)


def test_torch_s_own_layer():
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    own = layer(TOKENS, TOKENS, TOKENS, average_attn_weights=False)[1]
    assert torch.equal(capture(layer, (TOKENS, TOKENS, TOKENS))[""], own)


def test_torch_s_encoder_despite_its_fast_path():
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
    )
    seen = capture(encoder.eval(), TOKENS)
    assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert seen["layers.1.self_attn"].shape == (2, 4, 9, 9)


def test_our_layers_by_their_definition():
    network = conv2attn.convert(nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 3)))
    image = torch.randn(2, 2, 5, 6)
    seen = capture(network, image)
    assert {name: tuple(attention.shape) for name, attention in seen.items()} == {
        "0": (2, 9, 30, 56),
        "2": (2, 9, 12, 30),
    }
    assert torch.equal(seen["0"][1:], network[0].attention(image[:1]))


@pytest.mark.parametrize("engine", ["auto", "dense"])
def test_our_layers_with_as_many_queries_as_keys_are_kept_once(engine):
    network = conv2attn.set_engine(conv2attn.convert(nn.Conv2d(2, 3, 1)), engine)
    seen = capture(nn.Sequential(network), torch.randn(2, 2, 4, 5))
    assert {name: tuple(attention.shape) for name, attention in seen.items()} == {"0": (2, 1, 20, 20)}


@pytest.mark.parametrize("shape", [(2, 2, 5, 6), (2, 5, 6)])
def test_our_layers_take_their_image_by_name_and_without_a_batch(shape):
    class ByName(nn.Sequential):
        def forward(self, x):
            return self[0](input=x)

    network, image = ByName(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1))), torch.randn(shape)
    assert capture(network, image)["0"].shape == (2 if len(shape) == 4 else 1, 9, 30, 56)
    assert conv2attn.heads(network, image).layers[0].grid == (7, 8)
    assert conv2attn.soften(network, image, alpha=5).layers[0].measured > 0


def test_a_softmax_that_is_a_module_is_that_of_the_layer_around_it():
    softmax = nn.Softmax(-1)
    layer = Calls(lambda tokens: softmax(heads_of(tokens) @ heads_of(tokens).mT) @ heads_of(tokens))
    layer.softmax = softmax
    assert list(capture(nn.Sequential(layer), TOKENS)) == ["0"]


def test_two_attentions_in_one_forward_are_kept_apart():
    both = Calls(lambda tokens: fused(heads_of(tokens)) + causal(heads_of(tokens)))
    assert list(capture(both, TOKENS)) == ["", "#2"]


def test_the_network_is_left_as_it_was():
    layer = Attends(biased).train()
    before = Attends.forward.__globals__["flex_attention"], dict(layer._forward_hooks), globals()["flex_attention"]
    capture(layer, TOKENS)
    assert layer.training
    assert (Attends.forward.__globals__["flex_attention"], dict(layer._forward_hooks), flex_attention) == before


def test_threads_capture_one_network():
    block, tokens = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(8, 1, 5, 8)
    with ThreadPoolExecutor(8) as threads:
        captured = list(threads.map(lambda each: capture(block, each)["self_attn"], tokens))
    assert all(torch.equal(each, capture(block, t)["self_attn"]) for each, t in zip(captured, tokens, strict=True))


@pytest.mark.parametrize("fails", [False, True])
def test_each_module_is_left_in_the_mode_that_it_had(fails):
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(9), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))
    network[1].eval()
    modes = [module.training for module in network.modules()]
    with pytest.raises(UsageError, match="C2A009") if fails else nullcontext():
        capture(network, torch.randn(2, 9, 3 if fails else 4))
    assert [module.training for module in network.modules()] == modes


@pytest.mark.parametrize("how", [torch.softmax, Tensor.softmax, F.softmax])
@pytest.mark.parametrize(("axis", "keys"), [(-1, -1), (3, -1), (-2, -2), (2, -2)])
def test_a_softmax_is_over_keys_wherever_they_are(how, axis, keys):
    scores = torch.randn(2, 3, 9, 9)
    for given in ({"dim": axis}, None):
        network = Calls(lambda x, given=given: how(x, **given) if given else how(x, axis))
        (captured,) = capture(network, scores).values()
        own = torch.softmax(scores, keys)
        assert torch.equal(captured, own if keys == -1 else own.mT)


@pytest.mark.parametrize("axis", [0, 1, -3])
def test_a_softmax_over_heads_or_images_is_no_attention(axis):
    with pytest.raises(UsageError, match="C2A501"):
        capture(Calls(lambda x: torch.softmax(x, axis)), torch.randn(2, 3, 9, 9))
