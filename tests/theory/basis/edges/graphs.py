"""Graphs: normalisations are those of the papers' formulas, and degenerate graphs are graphs."""

import math
from itertools import combinations

import pytest
import torch

from conv2attn.errors import GeometryError, UsageError
from conv2attn.testing import assert_same
from conv2attn.theory.basis import (
    Chebyshev,
    Composition,
    Graph,
    Pattern,
    Powers,
    Shift,
    Sparse,
    Weights,
    adjacency,
    apply,
    as_matrix,
    basis_of,
    cheapest_order,
    chebyshev,
    combine,
    compose,
    compose_filters,
    disjoint,
    evaluate,
    gcn,
    inner_products,
    order_costs,
    pattern_of,
    random_walks,
    relations,
    terms,
    weighted_sum,
)
from conv2attn.theory.basis.graphs import inverse

EDGES = torch.tensor([[0, 1, 1, 2, 3, 3, 0], [1, 0, 2, 1, 3, 0, 1]])
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5, 2.5, 4.0], dtype=torch.float64)
GRAPH = Graph(EDGES, 5, WEIGHTS)  # directed, weighted, a loop, an edge that comes twice, and node 4 without edges
ROUNDING = 2.0**-48


def dense_adjacency():
    matrix = torch.zeros(5, 5, dtype=torch.float64)
    for source, target, weight in zip(*EDGES.tolist(), WEIGHTS.tolist(), strict=True):
        matrix[target, source] += weight
    return matrix


@pytest.mark.parametrize("normalisation", ["sym", "rw", None])
@pytest.mark.parametrize("order", [0, 1, 4])
def test_chebyshev_polynomials_are_those_of_the_scaled_laplacian(normalisation, order):
    matrix = dense_adjacency().fill_diagonal_(0)
    degrees = matrix.sum(0)
    inverse = torch.where(degrees > 0, degrees, math.inf)
    laplacian = torch.diag(degrees) - matrix
    if normalisation == "sym":
        laplacian = torch.eye(5) - inverse.rsqrt()[:, None] * matrix * inverse.rsqrt()
    if normalisation == "rw":
        laplacian = torch.eye(5) - matrix / inverse
    scaled = 2 * laplacian / 3.5 - torch.eye(5)
    values = [torch.eye(5, dtype=torch.float64), scaled]
    while len(values) <= order:
        values.append(2 * scaled @ values[-1] - values[-2])
    found = as_matrix(chebyshev(GRAPH, order, normalisation, 3.5), (5,))
    assert_same(found, torch.stack(values[: order + 1]), 2.0**-36)


def test_relations_are_means_over_the_edges_of_a_kind():
    kinds = torch.tensor([0, 1, 1, 1, 0, 0, 0])
    matrix = as_matrix(relations(Graph(EDGES, 5), kinds, 3), (5,))
    expected = torch.zeros(3, 5, 5, dtype=torch.float64)
    for kind in range(3):
        for target in range(5):
            sources = [s for s, t, k in zip(*EDGES.tolist(), kinds.tolist(), strict=True) if (t, k) == (target, kind)]
            for source in sources:
                expected[kind, target, source] += 1 / len(sources)
    assert_same(matrix, expected, 2.0**-22)


def test_the_types_of_walks_are_compositions_of_relations():
    kinds = torch.tensor([0, 1, 1, 1, 0, 0, 0])
    both = relations(GRAPH, kinds, 2, mean=False)
    walks = as_matrix(Composition((both, both)), (5,)).unflatten(0, (2, 2))
    single = as_matrix(both, (5,))
    assert_same(walks[0, 1], single[0] @ single[1])


def test_a_batch_of_graphs_is_one_graph_of_separate_blocks():
    other = Graph(torch.tensor([[0], [2]]), 3, torch.tensor([7.0], dtype=torch.float64))
    both = as_matrix(adjacency(disjoint([GRAPH, other])), (8,))[0]
    assert_same(both, torch.block_diag(dense_adjacency(), as_matrix(adjacency(other), (3,))[0]))


def test_graphs_without_edges_and_without_nodes_mix_nothing():
    bare = Graph(torch.zeros(2, 0).long(), 3)
    assert not as_matrix(adjacency(bare), (3,)).any()
    assert_same(as_matrix(gcn(bare), (3,))[0], torch.eye(3).double())
    image = torch.arange(6.0).reshape(2, 3)
    assert not apply(adjacency(bare), image, (3,)).any()
    assert_same(apply(chebyshev(bare, 2), image, (3,))[0], image)
    empty = Graph(torch.zeros(2, 0).long(), 0)
    for family in (adjacency(empty), gcn(empty), chebyshev(empty, 2, largest=2.0), random_walks(empty, 1)):
        assert apply(family, torch.ones(2, 0), (0,)).shape == (terms(family), 2, 0)


def test_a_node_that_is_nan_reaches_its_readers_only():
    image = torch.ones(1, 5, dtype=torch.float64)
    image[0, 2] = math.nan
    assert apply(adjacency(GRAPH), image, (5,))[0, 0].isnan().tolist() == [False, True, False, False, False]


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
    assert_same(evaluate(basis, torch.ones(1, 2, 5)), torch.tensor([1.0, 2.0, 3.0])[None, :, None].expand(1, 3, 5))


def test_the_products_over_pairs_have_gradients_of_gradients():
    pattern, _ = Pattern.sorted(EDGES[1], EDGES[0], (5, 5))
    inputs = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in (7, (5, 3), (5, 3))]
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda weights, tokens: weighted_sum(pattern, weights, tokens), inputs[:2])
        assert check(lambda asking, answering: inner_products(pattern, asking, answering), inputs[1:])


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("layout", ["coo", "csr", "dense"])
def test_matrices_of_torch_are_read_in_any_layout(layout):
    matrix = dense_adjacency()[:3]
    given = {"coo": matrix.to_sparse_coo(), "dense": matrix}.get(layout)
    if given is None:
        rows, columns = matrix.nonzero(as_tuple=True)
        starts = torch.tensor([0, *torch.bincount(rows, minlength=3).cumsum(0).tolist()])
        given = torch.sparse_csr_tensor(starts, columns, matrix[rows, columns], matrix.shape, check_invariants=True)
    assert_same(as_matrix(Sparse.from_matrix(given), (5,))[0], matrix)


def test_attention_on_a_graph_scores_its_edges_and_each_node_with_itself_once():
    for loops, pattern in ((True, pattern_of(GRAPH)), (False, pattern_of(GRAPH, loops=False))):
        edges = [(q, k) for k, q in EDGES.T.tolist() if k != q or not loops]
        once = [(node, node) for node in range(GRAPH.nodes)] if loops else []
        assert sorted(zip(pattern.queries.tolist(), pattern.keys.tolist(), strict=True)) == sorted(edges + once)


@pytest.mark.parametrize("kind", [Chebyshev, Powers])
@pytest.mark.parametrize("orders", [(1, 2), (2, 1), (0, 0), (3, 2)])
def test_filters_compose_to_one_of_the_sum_of_their_orders(kind, orders):
    step = adjacency(Graph(EDGES, 5))
    second, first = (
        basis_of(
            kind(step, order),
            Weights(None, torch.randint(-4, 5, (order + 1, *channels)).double() * 2, torch.ones(channels[0]).double()),
            1,
        )
        for order, channels in zip(orders, ((4, 3), (3, 2)), strict=True)
    )
    image = torch.randint(-9, 10, (2, 2, 5)).double()
    one = compose_filters(second, first, (5,))
    assert terms(one.operators) == sum(orders) + 1
    assert_same(evaluate(one, image), evaluate(second, evaluate(first, image)))
    assert terms(compose(second, first, (5,)).mixing) == (orders[0] + 1) * (orders[1] + 1)


def test_only_polynomials_of_one_operator_compose_to_one():
    step, other, taps = *(adjacency(Graph(EDGES, 5)) for _ in "12"), Weights(None, torch.ones(3, 1, 1))
    filters = [basis_of(family, taps, 1) for family in (Chebyshev(step, 2), Powers(step, 2), Powers(other, 2), step)]
    for second, first in combinations(filters, 2):
        for pair in ((second, first), (first, second)):
            with pytest.raises(UsageError, match="C2A007 filters compose to one"):
                compose_filters(*pair, (5,))


def test_the_cheapest_order_narrows_first():
    family = adjacency(Graph(torch.randint(0, 100, (2, 900)), 100))
    for d_in, d_out, order in ((64, 2, "channels"), (2, 64, "mixing")):
        basis = basis_of(family, Weights(None, torch.ones(1, d_out, d_in)), 1)
        assert cheapest_order(basis, (100,)) == order
        each = {"mixing": 3 * (100 * 128 + 900 * d_in), "channels": 3 * (100 * 128 + 900 * d_out)}
        assert order_costs(basis, (100,), 3) == {**each, "map": 128 * 100**2 * (1 + 3)}


def test_structures_that_do_not_fit_are_refused():
    with pytest.raises(GeometryError, match="C2A122 an edge has the key 7, and there are 5"):
        Sparse.from_edges(torch.tensor([[7], [0]]), torch.ones(1), 5)
    for queries, keys in ((torch.zeros(2), torch.zeros(3)), (torch.zeros(2, 1), torch.zeros(2, 1))):
        with pytest.raises(GeometryError, match=r"C2A122 queries .* are no pairs"):
            Pattern.sorted(queries.long(), keys.long(), (5, 5))
    for node in (7, -1):
        with pytest.raises(GeometryError, match=f"C2A122 an edge has the node {node}, and there are 5"):
            Graph(torch.tensor([[node], [0]]), 5)
    for edges in (EDGES.int(), EDGES.double(), EDGES[:1], EDGES[0]):
        with pytest.raises(GeometryError, match=r"C2A122 edges are int64 of shape \(2, edges\), and not torch"):
            Graph(edges, 5)
    with pytest.raises(GeometryError, match=r"C2A122 7 edges have weights \(6,\)"):
        Graph(EDGES, 5, torch.ones(6))
    with pytest.raises(GeometryError, match=r"C2A122 7 edges have kinds \(2,\)"):
        relations(GRAPH, torch.zeros(2), 2)
    with pytest.raises(GeometryError, match="C2A122 an edge has the kind 2, and there are 2"):
        relations(GRAPH, torch.arange(7) % 3, 2)
    for rule in (apply, combine):
        with pytest.raises(GeometryError, match=r"C2A122 shifts by \(\(0, 1\),\) are not those of a grid"):
            rule(Shift(((0, 1),)), torch.ones(1, 1, 4), (4,))
    with pytest.raises(GeometryError, match="C2A122 edges between"):
        apply(adjacency(GRAPH), torch.ones(1, 4), (4,))
    with pytest.raises(GeometryError, match="C2A122 7 edges have weights"):
        Sparse.from_edges(EDGES, torch.ones(6), 5)
    with pytest.raises(GeometryError, match=r"C2A122 .* have no polynomials of order -1"):
        apply(Chebyshev(adjacency(GRAPH), -1), torch.ones(1, 5), (5,))
    with pytest.raises(GeometryError, match="C2A122 2 operators from"):
        combine(Chebyshev(Shift(((0,), (1,))), 2), torch.ones(3, 1, 4), (4,))
    with pytest.raises(UsageError, match="C2A122 a basis of 1 operators for 2 channel matrices"):
        evaluate(basis_of(adjacency(GRAPH), Weights(None, torch.ones(2, 1, 2)), 1), torch.ones(1, 2, 5))
    with pytest.raises(UsageError, match="C2A002 order='rows' is not one of mixing, channels, map, auto"):
        evaluate(basis_of(adjacency(GRAPH), Weights(None, torch.ones(1, 1, 2)), 1), torch.ones(1, 2, 5), "rows")
    with pytest.raises(UsageError, match="C2A120 an image of 3 channels, where the layer reads 2"):
        evaluate(basis_of(adjacency(GRAPH), Weights(None, torch.ones(1, 1, 2)), 1), torch.ones(1, 3, 5))


def test_a_node_without_edges_shares_nothing_and_has_no_gradient():
    degrees = torch.tensor([0.0, 2.0], requires_grad=True)
    shares = inverse(degrees)
    shares.sum().backward()
    assert (shares.tolist(), degrees.grad.tolist()) == ([0.0, 0.5], [0.0, -0.25])


def test_patterns_between_other_numbers_of_tokens_turn_and_have_the_gradients_of_either_side():
    pattern, order = Pattern.sorted(torch.tensor([2, 0, 2]), torch.tensor([4, 1, 0]), (3, 5))
    assert (pattern.transposed[0].shape, order.tolist()) == ((5, 3), [1, 0, 2])
    asking, answering = torch.randn(3, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    for trained in ([asking], [answering], [asking, answering]):
        for side in (asking, answering):
            side.requires_grad_(any(side is each for each in trained))
        gradients = torch.autograd.grad(inner_products(pattern, asking, answering).square().sum(), trained)
        dense = (asking @ answering.mT)[pattern.queries, pattern.keys].square().sum()
        for gradient, expected in zip(gradients, torch.autograd.grad(dense, trained), strict=True):
            assert_same(gradient, expected, 1e-12)


def test_edges_may_have_several_weights_each():
    weights = torch.arange(14.0).unflatten(0, (2, 7))
    both = as_matrix(Sparse.from_edges(EDGES, weights, 5), (5,))
    for number, each in enumerate(weights):
        assert torch.equal(both[number], as_matrix(Sparse.from_edges(EDGES, each, 5), (5,))[0])
