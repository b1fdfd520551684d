"""Properties of layers that are drawn: families, terms, geometries, widths, alphas, dtypes and engines."""

import copy
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers.attention.drawing import FAMILIES, geometries, layers
from layers.attention.formula import loops

from conv2attn.errors import EngineError
from conv2attn.layers.attention import (
    ENGINES,
    Encoding,
    LearnedPlaces,
    MultiHeadSelfAttention,
    SinusoidalPlaces,
    explain_engines,
    hard_offsets,
    set_engine,
)
from conv2attn.layers.attention.plan import from_plan, to_plan
from conv2attn.testing import assert_same
from conv2attn.theory.basis import as_affine_map, as_basis
from conv2attn.theory.score_terms import ScoreTerms

PLAIN = tuple(family for family in FAMILIES if family != "enumerated")  # which the loops know


@given(layers(PLAIN, longest=3))
def test_a_layer_is_its_equations(drawn):
    layer, image = drawn
    with torch.no_grad():
        assert_same(layer(image), torch.stack([loops(layer, one) for one in image]), 1e-10)


@given(layers(), st.sampled_from([torch.float32, torch.float64]))
def test_every_exact_engine_gives_the_same_and_the_others_refuse(drawn, dtype):
    """Within the rounding of sums of a few dozen products of numbers of size one, and of scores below 2^10."""
    layer, image = drawn
    with torch.no_grad():
        expected = set_engine(layer, "dense")(image)
        layer, image = layer.to(dtype), image.to(dtype)
        reasons = explain_engines(layer.question(layer.basis(), image))
        assert reasons == layer.why_engine(image)
        for engine, reason in reasons.items():
            if reason == "exact":
                tolerance = 2e-2 if dtype == torch.float32 else 1e-9
                assert_same(set_engine(layer, engine)(image).double(), expected, tolerance)
            else:
                with pytest.raises(EngineError, match="C2A201"):
                    set_engine(layer, engine)(image)
        assert reasons[set_engine(layer, "auto").which_engine(image)] == "exact"


@given(layers(), st.sampled_from(sorted(ENGINES)))
def test_an_engine_changes_no_parameter(drawn, engine):
    layer, _ = drawn
    before = copy.deepcopy(layer.state_dict())
    set_engine(layer, engine)
    assert before.keys() == layer.state_dict().keys()
    assert all(torch.equal(value, layer.state_dict()[key]) for key, value in before.items())


@given(layers())
def test_a_plan_and_a_state_are_the_layer(drawn):
    layer, image = drawn
    again = from_plan(to_plan(layer))
    again.load_state_dict(layer.state_dict(), assign=True)
    assert str(again) == str(layer)
    with torch.no_grad():
        assert torch.equal(again(image), layer(image))


@given(layers(), st.integers(2**9, 2**14))
def test_attention_is_a_distribution_whole_and_in_chunks(drawn, limit):
    layer, image = drawn
    with torch.no_grad():
        attention = layer.attention(image)
        assert attention.shape[1:] == (layer.heads, *layer.question(layer.basis(), image).grid.shape)
        assert bool((attention >= 0).all())
        assert_same(attention.sum(-1), torch.ones_like(attention[..., 0]), 1e-12)
        layer.memory_limit = limit
        with suppress(EngineError):  # not even one query fits
            chunks = list(layer.attention_chunks(image))
            assert_same(torch.cat([piece for _, piece in chunks], 2), attention, 1e-12)


@given(layers())
def test_terms_sum_to_the_scores(drawn):
    layer, image = drawn
    with torch.no_grad():
        terms = layer.term_scores(image)
        total = sum(terms.values())
        assert tuple(terms) == layer.terms.names
        assert_same(total.softmax(-1), layer.attention(image).expand_as(total), 1e-10)


@given(layers())
def test_images_of_a_batch_do_not_meet(drawn):
    layer, image = drawn
    with torch.no_grad():
        alone = torch.cat([layer(one[None]) for one in image])
        assert_same(layer(image), alone, 1e-11)


@given(layers(terms=("vr",)))
def test_the_layer_is_affine_where_it_reads_no_content(drawn):
    """`f(x + y) + f(0) = f(x) + f(y)`; heads that read content are not affine."""
    layer, image = drawn
    other = torch.randn_like(image)
    with torch.no_grad():
        assert_same(layer(image + other) + layer(0 * image), layer(image) + layer(other), 1e-10)


@given(layers())
def test_heads_may_be_permuted_together(drawn):
    layer, image = drawn
    with torch.no_grad():
        expected = layer(image)
        for name, parameter in layer.named_parameters():
            if name in ("value", "output"):
                parameter.copy_(parameter.flip(-1))
            elif name != "bias" and not name.startswith("encoding.tables"):
                parameter.copy_(parameter.flip(0))
        assert_same(layer(image), expected, 1e-10)


@given(layers(("learned", "sinusoidal"), ("vr", "qk+qr", "qr+vr")))
def test_larger_tables_leave_attention_as_it_was(drawn):
    layer, image = drawn
    with torch.no_grad():
        expected = layer.attention(image)
        keys = layer.image_padding.sides(tuple(image.shape[2:]))
        layer.encoding = layer.encoding.resized(tuple(side + 5 for side in keys))
        assert_same(layer.prepare().attention(image), expected, 1e-12)


@given(layers())
def test_frozen_positions_are_the_same_layer_without_their_state(drawn):
    layer, image = drawn
    with torch.no_grad():
        expected = layer(image)
        layer.encoding.learn(False)
        assert not any(key.startswith("encoding.") for key in layer.state_dict())
        assert_same(layer.prepare()(image), expected, 1e-10)
        layer.encoding.learn()
        assert_same(layer.prepare()(image), expected, 1e-10)


@given(geometries(), st.data())
def test_hard_offsets_are_where_one_hot_attention_is(geometry, data):
    sides, padding, sites = geometry
    axes = len(sides)
    offsets = data.draw(st.lists(st.tuples(*[st.integers(-2, 2)] * axes), min_size=1, max_size=3))
    encoding = Encoding.of("quadratic", torch.tensor(offsets, dtype=torch.float64), 800.0)
    layer = MultiHeadSelfAttention(1, 1, encoding, padding=padding, sites=sites, dtype=torch.float64)
    assert hard_offsets(layer.operators(), torch.float64) == tuple(offsets)
    attention = layer.attention(sides=sides)[0]
    grid = layer.question(layer.basis(), torch.zeros(1, 1, *sides, dtype=torch.float64)).grid
    for head, offset in enumerate(offsets):
        distances = grid.squared_distance(offset)
        found = distances.min(1).values == 0
        assert torch.equal(attention[head][found], (distances == 0).double()[found])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 2**16))
def test_places_add_the_same_to_every_image(sides, share, seed):
    torch.manual_seed(seed)
    width = 2 * len(sides) * share
    images = torch.randn(2, width, *sides, dtype=torch.float64)
    learned = LearnedPlaces(width, tuple(side + 1 for side in sides)).double()
    for places in (learned, SinusoidalPlaces(width, len(sides))):
        added = places(images) - images
        assert_same(added[0].detach(), added[1].detach(), 1e-12)
        corner = places(images[(..., *[slice(1)] * len(sides))]) - images[(..., *[slice(1)] * len(sides))]
        assert_same(corner.detach(), added[(..., *[slice(1)] * len(sides))].detach(), 1e-12)


@given(st.sets(st.sampled_from(["qk", "qr", "uk", "vr"]), min_size=1), st.randoms())
def test_terms_are_a_set(names, random):
    shuffled = sorted(names)
    random.shuffle(shuffled)
    terms = ScoreTerms.of("+".join(shuffled))
    assert set(terms.names) == names
    assert ScoreTerms.of(str(terms)) == ScoreTerms.of(terms) == terms
    assert terms.read_content == (names != {"vr"})
    assert (terms.has_query, terms.has_key) == (bool(names & {"qk", "qr"}), bool(names & {"qk", "uk"}))


@given(layers(terms=("vr",)))
def test_a_layer_is_read_as_its_basis(drawn):
    layer, image = drawn
    with torch.no_grad():
        matrix, constant = as_affine_map(as_basis(layer), tuple(image.shape[2:]))
        assert_same(layer(image).flatten(1), image.flatten(1) @ matrix.mT + constant.flatten(), 1e-10)
