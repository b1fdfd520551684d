"""Properties of layers that are drawn: families, terms, geometries, widths, alphas, dtypes and engines."""

import copy
import math
from contextlib import suppress
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers.attention.drawing import FAMILIES, geometries, layers
from layers.attention.formula import loops, score, sinusoid
from theory.basis.edges.drawn import numbers

from conv2attn.errors import EngineError
from conv2attn.layers.attention import (
    ENGINES,
    Encoding,
    MultiHeadSelfAttention,
    ScoreTerms,
    SinusoidalPlaces,
    from_plan,
    hard_offsets,
    set_engine,
    to_mha,
    to_plan,
)
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import AttentionGrid, Sites, as_affine_map, as_basis

PLAIN = tuple(family for family in FAMILIES if family != "enumerated")  # which the loops know


@given(layers(PLAIN, longest=3))
def test_a_layer_is_its_equations(drawn):
    layer, image = drawn
    with torch.no_grad():
        assert_same_output(layer(image), torch.stack([loops(layer, one) for one in image]), 1e-10)


@given(layers(), st.sampled_from([torch.float32, torch.float64]))
def test_every_exact_engine_gives_the_same_and_the_others_refuse(drawn, dtype):
    """Within the rounding of sums of a few dozen products of numbers of size one, and of scores below 2^10."""
    layer, image = drawn
    with torch.no_grad():
        expected = set_engine(layer, "dense")(image)
        layer, image = layer.to(dtype), image.to(dtype)
        reasons = layer.why_engine(image)
        for engine, reason in reasons.items():
            if reason == "exact":
                tolerance = 2e-2 if dtype == torch.float32 else 1e-9
                assert_same_output(set_engine(layer, engine)(image).double(), expected, tolerance)
            else:
                with pytest.raises(EngineError, match="C2A201"):
                    set_engine(layer, engine)(image)
        assert reasons[set_engine(layer, "auto").which_engine(image)] == "exact"


@given(layers(longest=3))
def test_gradients_of_every_exact_engine_are_those_of_the_dense_softmax(drawn):
    """With respect to the image and every parameter; relative to the largest of each."""
    layer, image = drawn
    image.requires_grad_()
    inputs = [image, *layer.parameters()]

    def gradients(engine):
        total = set_engine(layer, engine)(image).square().sum()
        return torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)

    expected = gradients("dense")
    reasons = layer.why_engine(image)
    for engine in (name for name, reason in reasons.items() if reason == "exact"):
        for got, wanted in zip(gradients(engine), expected, strict=True):
            assert_same_output(got, wanted, 1e-9 * max(1.0, wanted.abs().max().item()))


@given(layers(), st.sampled_from(sorted(ENGINES)))
def test_an_engine_changes_no_parameter(drawn, engine):
    layer, image = drawn
    before = copy.deepcopy(layer.state_dict())
    set_engine(layer, engine)
    with torch.no_grad(), suppress(EngineError):
        layer(image)
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
        assert_same_output(attention.sum(-1), torch.ones_like(attention[..., 0]), 1e-12)
        layer.memory_limit = limit
        with suppress(EngineError):  # not even one query fits
            chunks = list(layer.attention_chunks(image))
            assert [q for rows, _ in chunks for q in range(rows.start, rows.stop)] == [*range(attention.shape[2])]
            assert_same_output(torch.cat([piece for _, piece in chunks], 2), attention, 1e-12)


@given(layers(terms=("vr",)))
def test_attention_that_reads_no_content_is_that_of_its_sides(drawn):
    layer, image = drawn
    with torch.no_grad():
        assert torch.equal(layer.attention(sides=tuple(image.shape[2:])), layer.attention(image))


@given(
    st.floats(0.01, 60.0), st.sampled_from([torch.float32, torch.float64]), st.integers(2, 12), st.integers(0, 2**16)
)
def test_no_weight_of_attention_is_subnormal(alpha, dtype, side, seed):
    encoding = Encoding.of("quadratic", numbers(2, 2, seed=seed).to(dtype), alpha)
    attention = MultiHeadSelfAttention(1, 1, encoding, dtype=dtype).attention(sides=(side, side + 5)).detach()
    assert not ((attention != 0) & (attention < torch.finfo(dtype).tiny)).any()
    assert_same_output(attention.sum(-1), torch.ones(attention.shape[:-1], dtype=dtype), 1e-5)


@given(geometries(longest=3), st.floats(0.01, 1e6), st.integers(0, 2**16))
def test_scores_of_quadratic_heads_lose_no_digit_to_cancellation(geometry, alpha, seed):
    sides, axes = geometry[0], len(geometry[0])
    encoding = Encoding.of("quadratic", numbers(2, axes, seed=seed), alpha)
    grid = AttentionGrid(sides, Sites.everywhere(axes))
    found = encoding.operators().scores(grid, grid.every_query(), torch.float64)[0]
    away = grid.displacements()
    for head, query, key in product(range(2), *map(range, grid.shape)):
        expected = score(encoding, head, away[query, key].tolist())
        assert math.isclose(found[head, query, key].item(), expected, rel_tol=8 * 2.0**-53)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 3))
def test_sinusoidal_places_are_added_as_the_formula_says(sides, share):
    width = 2 * len(sides) * share
    found = SinusoidalPlaces(width, len(sides))(torch.zeros(1, width, *sides, dtype=torch.float64))[0]
    for place in product(*map(range, sides)):
        expected = [number for at in place for number in sinusoid(at, 2 * share)]
        assert found[(slice(None), *place)].tolist() == pytest.approx(expected)


@given(st.integers(1, 3), st.integers(1, 3), st.floats(0.1, 4.0), st.integers(0, 2**16))
def test_attention_of_torch_is_the_layer(heads, axes, alpha, seed):
    encoding = Encoding.of("quadratic", numbers(heads, axes, seed=seed), alpha)
    layer = MultiHeadSelfAttention(2, 3, encoding, d_head=2, dtype=torch.float64).requires_grad_(False)
    image = numbers(2, 2, *range(3, 3 + axes), seed=seed)
    module = to_mha(layer, side=6)
    assert_same_output(module(image).detach(), layer(image), 1e-6)


@given(layers())
def test_terms_sum_to_the_scores(drawn):
    layer, image = drawn
    with torch.no_grad():
        terms = layer.term_scores(image)
        total = sum(terms.values())
        assert tuple(terms) == layer.terms.names
        assert_same_output(total.softmax(-1), layer.attention(image).expand_as(total), 1e-10)


@given(layers())
def test_frozen_positions_are_the_same_layer_without_their_state(drawn):
    layer, image = drawn
    with torch.no_grad():
        expected = layer(image)
        layer.encoding.learn(False)
        assert not any(key.startswith("encoding.") for key in layer.state_dict())
        assert_same_output(layer.prepare()(image), expected, 1e-10)
        layer.encoding.learn()
        assert_same_output(layer.prepare()(image), expected, 1e-10)


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
        assert_same_output(layer(image).flatten(1), image.flatten(1) @ matrix.mT + constant.flatten(), 1e-10)
