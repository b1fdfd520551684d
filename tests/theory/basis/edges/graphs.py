"""Graphs: each family is the formula of its paper, written with dense matrices, and degenerate graphs are graphs."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from theory.basis.edges.drawn import numbers

from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import (
    Chebyshev,
    Graph,
    Pattern,
    Sparse,
    Weights,
    adjacency,
    apply,
    as_matrix,
    basis_of,
    chebyshev,
    evaluate,
    gcn,
    inner_products,
    pattern_of,
    random_walks,
    relations,
    terms,
    weighted_sum,
)

EDGES = torch.tensor([[0, 1, 1, 2, 3, 3, 0], [1, 0, 2, 1, 3, 0, 1]])
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5, 2.5, 4.0], dtype=torch.float64)
GRAPH = Graph(EDGES, 5, WEIGHTS)  # directed, weighted, a loop, an edge that comes twice, and node 4 without edges
ROUNDING = 2.0**-44
SEEDS = st.integers(0, 2**16)


@st.composite
def graphs(draw):
    """A graph with loops, repeated edges and nodes without any; whole weights, as a matrix too."""
    nodes = draw(st.sampled_from([5, 5, 5, 1, 2]))
    edge = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1), st.integers(1, 4))
    return weighted(draw(st.lists(edge, max_size=9)), nodes)


def weighted(edges, nodes):
    matrix = torch.zeros(nodes, nodes, dtype=torch.float64)
    for source, target, weight in edges:
        matrix[target, source] += weight
    ends = torch.tensor([[source, target] for source, target, _ in edges], dtype=torch.int64).reshape(-1, 2).T
    weights = torch.tensor([weight for *_, weight in edges], dtype=torch.float64)
    return Graph(ends, nodes, weights), matrix


BUSY = weighted([*zip(*EDGES.tolist(), WEIGHTS.tolist(), strict=True)], 5)


def inverted(degrees):
    """`1 / degree`, 0 where a node has none."""
    return 1 / torch.where(degrees > 0, degrees, math.inf)


@example(BUSY, 2, 0)
@given(graphs(), st.integers(0, 4), SEEDS)
def test_adjacency_reads_the_sources_of_edges(drawn, spoiled, seed):
    """Each edge by each of its weights; and what is no number reaches its readers only."""
    graph, matrix = drawn
    sides, image = (len(matrix),), torch.ones(1, len(matrix), dtype=torch.float64)
    assert_same_output(as_matrix(adjacency(graph), sides)[0], matrix)
    image[0, spoiled % len(matrix)] = math.nan
    found = apply(adjacency(graph), image, sides)[0, 0].isnan()
    assert found.tolist() == (matrix[:, spoiled % len(matrix)] != 0).tolist()
    more = torch.stack([graph.weight, numbers(len(graph.weight), seed=seed)])
    both = as_matrix(Sparse.from_edges(graph.edges, more, graph.nodes), sides)
    for one, weights in zip(both, more, strict=True):
        assert_same_output(one, as_matrix(adjacency(Graph(graph.edges, graph.nodes, weights)), sides)[0])


@example(BUSY, 1.0)
@given(graphs(), st.sampled_from([None, 1.0, 2.0]))
def test_gcn_is_kipfs_formula(drawn, loop):
    graph, matrix = drawn
    if loop is not None:
        matrix = matrix + torch.diag(torch.where(matrix.diagonal() == 0, loop, 0.0))
    scale = inverted(matrix.sum(1)).sqrt()
    assert_same_output(as_matrix(gcn(graph, loop), (len(matrix),))[0], scale[:, None] * matrix * scale, ROUNDING)


@example(BUSY, 4, "rw", 3.5)
@given(graphs(), st.integers(0, 4), st.sampled_from(["sym", "rw", None]), st.sampled_from([None, 3.5]))
def test_chebyshev_polynomials_are_those_of_the_scaled_laplacian(drawn, order, normalisation, largest):
    graph, matrix = drawn
    matrix, eye = matrix.clone().fill_diagonal_(0), torch.eye(len(matrix), dtype=torch.float64)
    degrees = matrix.sum(0)
    laplacian = {
        None: torch.diag(degrees) - matrix,
        "rw": eye - matrix * inverted(degrees),
        "sym": eye - inverted(degrees).sqrt()[:, None] * matrix * inverted(degrees).sqrt(),
    }[normalisation]
    scaled = 2 * laplacian * inverted(torch.tensor(largest or 2 * laplacian.max().item(), dtype=torch.float64)) - eye
    values = [eye, scaled]
    while len(values) <= order:
        values.append(2 * scaled @ values[-1] - values[-2])
    found = as_matrix(chebyshev(graph, order, normalisation, largest), (len(matrix),))
    assert_same_output(found, torch.stack(values[: order + 1]), ROUNDING * scaled.abs().sum(1).max().item() ** order)


@example(BUSY, 3)
@given(graphs(), st.integers(0, 3))
def test_random_walks_go_along_and_against_the_edges(drawn, length):
    graph, matrix = drawn
    steps = []
    for along in (matrix.T, matrix):
        step = along * inverted(along.sum(1, keepdim=True))
        steps += [torch.linalg.matrix_power(step, power) for power in range(length + 1)]
    assert_same_output(as_matrix(random_walks(graph, length), (len(matrix),)), torch.stack(steps), ROUNDING)


@example(BUSY, True, 0)
@given(graphs(), st.booleans(), SEEDS)
def test_relations_are_means_or_sums_over_the_edges_of_a_kind(drawn, mean, seed):
    graph, matrix = drawn
    kinds = torch.randint(0, 3, graph.weight.shape, generator=torch.Generator().manual_seed(seed))
    expected = torch.zeros(3, *matrix.shape, dtype=torch.float64)
    counts = torch.zeros(3, len(matrix), 1, dtype=torch.float64)
    for source, target, weight, kind in zip(*graph.edges.tolist(), graph.weight.tolist(), kinds.tolist(), strict=True):
        expected[kind, target, source] += weight
        counts[kind, target] += 1
    expected = expected * inverted(counts) if mean else expected
    assert_same_output(as_matrix(relations(graph, kinds, 3, mean), (len(matrix),)), expected, ROUNDING)


@example(BUSY, True)
@given(graphs(), st.booleans())
def test_attention_on_a_graph_scores_its_edges_and_each_node_with_itself_once(drawn, loops):
    graph, _ = drawn
    pattern = pattern_of(graph, loops)
    edges = [(q, k) for k, q in graph.edges.T.tolist() if k != q or not loops]
    once = [(node, node) for node in range(graph.nodes)] if loops else []
    assert sorted(zip(pattern.queries.tolist(), pattern.keys.tolist(), strict=True)) == sorted(edges + once)


@st.composite
def patterns(draw):
    """Pairs of three queries and five keys, or of as many of both."""
    shape = draw(st.sampled_from([(3, 5), (4, 4)]))
    pair = st.tuples(*[st.integers(0, count - 1) for count in shape])
    pairs = draw(st.lists(pair, min_size=1, max_size=6))
    return Pattern.sorted(*torch.tensor(pairs).T, shape)[0]


@settings(max_examples=max(10, settings.default.max_examples // 4))
@given(patterns(), st.sampled_from(["first", "second", "both"]), SEEDS)
def test_products_over_pairs_are_those_of_dense_matrices_with_their_gradients(pattern, trained, seed):
    """The gradients of gradients too, and of either factor alone."""
    pairs, (queries, keys) = (pattern.queries, pattern.keys), pattern.shape
    weights, tokens, asking = (
        numbers(*shape, seed=seed + n) for n, shape in enumerate([(len(pairs[0]),), (keys, 2), (queries, 2)])
    )
    dense = torch.zeros(queries, keys, dtype=torch.float64).index_put(pairs, weights, accumulate=True)
    assert_same_output(weighted_sum(pattern, weights, tokens), dense @ tokens, ROUNDING)
    assert_same_output(inner_products(pattern, asking, tokens), (asking @ tokens.mT)[pairs], ROUNDING)
    for product, inputs in ((weighted_sum, [weights, tokens]), (inner_products, [asking, tokens])):
        for number, each in enumerate(inputs):
            each.requires_grad_(trained in ("both", ("first", "second")[number]))
        for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
            assert check(lambda *given, product=product: product(pattern, *given).square(), inputs)


@given(graphs(), st.sampled_from([2, 4, 8]), st.integers(1, 2), SEEDS)
def test_channels_before_tokens_or_after_them_give_the_same_sum(drawn, d_out, groups, seed):
    graph, matrix = drawn
    taps, image = numbers(3, d_out, 6 // groups, seed=seed).round(), numbers(2, 6, len(matrix), seed=seed + 1).round()
    family = Chebyshev(adjacency(graph), 2)
    basis = basis_of(family, Weights(None, taps, torch.ones(d_out, dtype=torch.float64), groups), 1)
    whole = torch.einsum("tqk,bik,toi->boq", as_matrix(family, (len(matrix),)), image, basis.weights.dense()) + 1
    assert_same_output(evaluate(basis, image), whole)


def test_graphs_without_edges_and_without_nodes_mix_nothing():
    bare = Graph(torch.zeros(2, 0).long(), 3)
    assert not as_matrix(adjacency(bare), (3,)).any()
    assert_same_output(as_matrix(gcn(bare), (3,))[0], torch.eye(3).double())
    image = torch.arange(6.0).reshape(2, 3)
    assert not apply(adjacency(bare), image, (3,)).any()
    assert_same_output(apply(chebyshev(bare, 2), image, (3,))[0], image)
    empty = Graph(torch.zeros(2, 0).long(), 0)
    for family in (adjacency(empty), gcn(empty), chebyshev(empty, 2, largest=2.0), random_walks(empty, 1)):
        assert apply(family, torch.ones(2, 0), (0,)).shape == (terms(family), 2, 0)


@pytest.mark.parametrize("family", [gcn, lambda graph: gcn(graph, None), lambda graph: chebyshev(graph, 2)])
def test_edges_learn_from_weights_of_zero(family):
    """A node all of whose edges weigh 0 has no degree, whose root has no gradient."""
    edges = torch.tensor([[0, 1, 1, 2, 3, 3, 4], [1, 0, 2, 1, 0, 1, 3]])
    weights = torch.tensor([1.0, 2, 1, 1, 0, 0, 0], dtype=torch.float64, requires_grad=True)
    image = torch.arange(1.0, 6.0, dtype=torch.float64)[None]
    found = apply(family(Graph(edges, 5, weights)), image, (5,))
    (gradient,) = torch.autograd.grad(found.pow(3).sum(), weights)
    assert gradient.isfinite().all()
    assert gradient[:4].all()


def test_no_term_at_all_leaves_the_bias():
    pattern, _ = Pattern.sorted(EDGES[1], EDGES[0], (5, 5))
    nothing = Sparse(pattern, torch.zeros(0, 7), (5,))
    basis = basis_of(nothing, Weights(None, torch.zeros(0, 3, 2), torch.tensor([1.0, 2.0, 3.0])), 1)
    assert_same_output(
        evaluate(basis, torch.ones(1, 2, 5)), torch.tensor([1.0, 2.0, 3.0])[None, :, None].expand(1, 3, 5)
    )


ONE = basis_of(adjacency(GRAPH), Weights(None, torch.ones(1, 1, 2)), 1)
