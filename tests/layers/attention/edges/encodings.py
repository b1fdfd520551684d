"""Every row of the paper's Table 3: the attention of each encoding against its formula as plain loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from imitated_device import has_float64
from layers.attention.formula import encoding_of

from conv2attn.errors import EngineError
from conv2attn.layers.attention import Encoding, LearnedPlaces, MultiHeadSelfAttention, score_error, set_engine
from conv2attn.theory.basis import AttentionGrid, GeneralisedSoftmax, Sites


def layer_with(encoding, sites=None, **options):
    torch.manual_seed(1)
    return MultiHeadSelfAttention(3, 4, encoding, value=False, sites=sites, dtype=torch.float64, **options)


@pytest.mark.parametrize("kind", ["quadratic", "generalised", "learned", "sinusoidal"])
def test_gradients_of_every_encoding_are_those_of_differences(kind):
    encoding = encoding_of(kind, 2, heads=2)
    layer = set_engine(layer_with(encoding), "dense")
    image = torch.randn(1, 3, 2, 3, dtype=torch.float64)
    parameters = list(encoding.parameters())
    assert torch.autograd.gradcheck(lambda *_: layer(image), parameters)


def test_large_coordinates_keep_sdpa_away_from_quadratic_forms():
    encoding = Encoding.of("generalised", torch.zeros(1, 2), torch.eye(2) * 300)
    layer = MultiHeadSelfAttention(3, 3, encoding)
    image = torch.randn(1, 3, 20, 20)
    assert "would err by up to" in layer.why_engine(image)["sdpa"]
    assert layer.which_engine(image) == "dense"


def test_quadratic_forms_whose_attention_does_not_fit_take_sdpa():
    layer = MultiHeadSelfAttention(3, 3, Encoding.of("generalised", torch.zeros(2, 2), torch.eye(2) / 3))
    image = torch.randn(1, 3, 20, 20)
    assert layer.which_engine(image) == "dense"
    layer.memory_limit = 2 * 64 * 400 * 16 - 1  # less than a box of 8x8 queries takes
    assert layer.which_engine(image) == "sdpa"
    torch.testing.assert_close(layer(image), set_engine(layer, "dense")(image), rtol=1e-3, atol=1e-4)


def test_sinusoids_reach_as_far_as_any_grid():
    layer = layer_with(encoding_of("sinusoidal", 2))
    torch.testing.assert_close(layer.attention(sides=(40, 3)).sum(-1), torch.ones(1, 3, 120, dtype=torch.float64))


def test_learned_places_are_added_and_end_where_they_were_learned():
    places = LearnedPlaces(4, (3, 5))
    image = torch.randn(2, 4, 2, 5)
    assert torch.equal(places(image), image + places.places[:, :2])


@pytest.mark.parametrize("kind", ["generalised", "learned", "sinusoidal"])
def test_layers_are_exported_with_open_batch_and_sides(kind):
    layer = layer_with(encoding_of(kind, 2)).requires_grad_(False)
    image, other = torch.randn(2, 3, 4, 5, dtype=torch.float64), torch.randn(3, 3, 5, 3, dtype=torch.float64)
    wanted = layer(image), layer(other)
    dims = {axis: torch.export.Dim(name, min=2, max=5) for axis, name in ((0, "batch"), (2, "rows"), (3, "columns"))}
    program = torch.export.export(layer, (image,), dynamic_shapes=(dims,)).module()
    torch.testing.assert_close((program(image), program(other)), wanted)


@pytest.mark.parametrize(("kind", "content"), [("generalised", False), ("learned", True)])
def test_trained_chunks_are_the_whole_and_are_not_held(kind, content):
    """Bytes saved for the backward pass grow like the tokens, not like their square."""
    layer = set_engine(layer_with(encoding_of(kind, 2), terms="qk+vr" if content else "vr"), "dense")
    saved, gradients = {}, {}
    for side in (4, 5):
        image = torch.randn(2, 3, side, side, dtype=torch.float64)
        for limit in (2**30, 3 * 8 * (4 * 2 * side**2 + 12)):
            layer.memory_limit = limit
            layer.zero_grad()
            held = []
            with torch.autograd.graph.saved_tensors_hooks(lambda t, held=held: held.append(t.nbytes) or t, lambda t: t):
                output = layer(image)
            output.square().sum().backward()
            gradients[side, limit > 2**20] = [p.grad.clone() for p in layer.parameters()]
            saved[side, limit > 2**20] = sum(held)
        torch.testing.assert_close(gradients[side, True], gradients[side, False], rtol=1e-9, atol=1e-11)
        assert saved[side, False] < saved[side, True]
    attention = 3 * 8 * (5**4 - 4**4)
    assert saved[5, True] - saved[4, True] > attention
    assert saved[5, False] - saved[4, False] < attention


@given(st.integers(1, 3), st.sampled_from([0.1, 1.0, 10.0]), st.integers(0, 2**16))
def test_absolute_features_of_quadratic_forms_stay_within_their_bound(axes, scale, seed):
    side, generator = {1: 60, 2: 9, 3: 4}[axes], torch.Generator().manual_seed(seed)
    grid = AttentionGrid((side,) * axes, Sites.everywhere(axes))
    centers, roots = torch.randn(4, axes, generator=generator), torch.randn(4, axes, axes, generator=generator)
    operators = Encoding.of("generalised", 3 * centers, scale * roots).operators()
    asking, keys = operators.features(grid, torch.float32)
    found = (asking @ keys.mT)[0].double()
    exact = operators.scores(grid, grid.every_query(), torch.float64)[0]
    off = (found - found[..., :1]) - (exact - exact[..., :1])
    assert 0 < off.abs().max().item() <= 2 * score_error(operators.numbers(), side, torch.float32)


def test_full_covariances_are_the_same_on_every_device_or_fused_attention_is_refused(device):
    heads = GeneralisedSoftmax(torch.tensor([[0.0, 1.0], [0.5, -1.0]]), torch.tensor([[[1.5, -0.3], [0.0, 0.6]]] * 2))
    layer = MultiHeadSelfAttention(3, 4, Encoding(heads).learn(False))
    image = torch.arange(126.0).reshape(1, 3, 6, 7) / 100
    expected = set_engine(layer, "dense")(image).detach()
    layer, image = set_engine(layer.to(device), "sdpa"), image.to(device)
    if not has_float64(device):
        with pytest.raises(EngineError, match="formed in float64, which imitated does not have"):
            layer(image)
        set_engine(layer, "auto")
    assert (layer(image).detach().cpu() - expected).abs().max() < 1e-5
