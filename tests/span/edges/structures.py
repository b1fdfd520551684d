"""Whether attention on the nodes of a graph can express a graph convolution: the same programme and verdicts."""

from fractions import Fraction

import networkx
import numpy as np
import pytest
import torch
from confirmation import confirm

from conv2attn import check_span
from conv2attn.errors import UsageError
from conv2attn.layers.framework import AttentionConvolution, BiAffine, from_torch
from conv2attn.span import limits_for, rows_of
from conv2attn.span.equations import operators_of
from conv2attn.theory.basis import (
    Chebyshev,
    Graph,
    Shift,
    adjacency,
    as_matrix,
    causal_shifts,
    gcn,
    pattern_of,
    random_walks,
    terms,
)
from conv2attn.verdicts import Strength, Verdict


def graph_of(network):
    edges = torch.tensor([*network.edges, *[(b, a) for a, b in network.edges]]).T
    return Graph(edges, len(network), torch.ones(edges.shape[1], dtype=torch.float64))


CLUB = graph_of(networkx.Graph(networkx.karate_club_graph().edges))
CYCLE = graph_of(networkx.cycle_graph(9))


def graph_attention(graph, heads, sharpness=1.0):
    """The attention of a graph attention layer on random features, (heads, queries, keys)."""
    torch.manual_seed(0)
    keys, queries = (sharpness * torch.randn(heads, 4, dtype=torch.float64) for _ in range(2))
    mechanism = BiAffine(from_key=keys, from_query=queries).leaky_relu(0.2).softmax()
    layer = AttentionConvolution(mechanism, torch.randn(heads, 4, 8, dtype=torch.float64), of_values=True)
    features = torch.randn(1, 8, graph.nodes, dtype=torch.float64)
    return as_matrix(layer.basis(features, mask=pattern_of(graph)).operators, (graph.nodes,))


def test_targets_are_the_operators():
    for structure in (gcn(CLUB), random_walks(CLUB, 2), Chebyshev(adjacency(CLUB), 3), Shift(((0,), (40,)))):
        attention = rows_of("a", graph_attention(CLUB, 1), None, 1)
        targets = operators_of(structure, attention.grid)
        assert len(targets) == terms(structure)
        assert np.array_equal(targets.block(np.arange(34), 34), as_matrix(structure, (34,)).numpy())
        for query in range(34):
            asked = targets.places[:, query]
            assert len(set(asked[asked >= 0])) == (asked >= 0).sum()


def test_uniform_attention_is_the_graph_convolution_of_a_regular_graph_and_of_no_other():
    """Rows of a mixture of softmaxes have one sum; those of Kipf's normalisation do on regular graphs alone."""
    for graph, verdict in ((CYCLE, Verdict.HOLDS), (CLUB, Verdict.REFUTED)):
        found = check_span(graph_attention(graph, 1, 0.0), structure=gcn(graph))
        assert found.verdict is verdict
        assert [each.name for each in found.rows[0].conditions] == ["joint"]
    walk = random_walks(CLUB, 1).families[1]
    assert check_span(graph_attention(CLUB, 1, 0.0), structure=gcn(CLUB, None)).verdict is Verdict.REFUTED
    both = torch.cat([graph_attention(CLUB, 1, 0.0), torch.eye(34, dtype=torch.float64)[None]])
    found = check_span(both, structure=walk)  # the mean over neighbours alone: degrees differ, so no single mixture
    assert [target.verdict for target in found.rows[0].deciding.targets] == [Verdict.HOLDS, Verdict.REFUTED]


def test_graph_attention_on_random_features_cannot_be_the_graph_convolution():
    found = check_span({"gat": graph_attention(CLUB, 8)}, structure=gcn(CLUB))
    assert found.verdict is Verdict.REFUTED
    assert "asked: the operators of a Sparse, 1 of them" in found.to_text()
    assert '"gat"' in found.to_json()


def test_filters_of_a_cycle_are_spanned_by_walks_of_each_length():
    """Chebyshev polynomials of order 2, and attention to each distance: a graph transformer with distance heads."""
    ring = torch.stack([torch.roll(torch.eye(9, dtype=torch.float64), d, 1) for d in range(9)])
    heads = torch.stack([ring[0], (ring[1] + ring[8]) / 2, (ring[2] + ring[7]) / 2])
    filters = Chebyshev(adjacency(CYCLE), 2)
    assert check_span(heads, structure=filters).verdict is Verdict.HOLDS
    missing = check_span(heads[:2], structure=filters).rows[0].deciding
    assert [target.verdict for target in missing.targets] == [Verdict.HOLDS, Verdict.HOLDS, Verdict.REFUTED]
    assert check_span(ring, structure=Shift(((0,),))).verdict is Verdict.HOLDS
    assert check_span(ring, structure=causal_shifts(2)).verdict is Verdict.REFUTED  # the first token has no past


def test_the_checker_confirms_what_was_found():
    for graph, given in ((CYCLE, graph_attention(CYCLE, 2, 0.0)), (CYCLE, graph_attention(CYCLE, 2))):
        attention = rows_of("a", given, None, 1)
        targets, limits = operators_of(gcn(graph), attention.grid), limits_for(attention, None, None)
        report = check_span(given, structure=gcn(graph))
        found = report.rows[0].deciding
        assert confirm(found, attention, targets, limits)
        moved = operators_of(gcn(graph, 1.5), attention.grid)
        assert confirm(found, attention, moved, limits) is (found.verdict is Verdict.REFUTED)


def test_exact_attention_is_decided_exactly():
    """One multiple of thirds is the operator, whose entries are equal floats; none is, where one float is the next."""
    third, ring = Fraction(1, 3), graph_of(networkx.cycle_graph(5))
    heads = [[[third if (q - k) % 5 in (0, 1, 4) else Fraction(0) for k in range(5)] for q in range(5)]]
    for moved, verdict in ((0.0, Verdict.HOLDS), (2.0**-52, Verdict.REFUTED)):
        weights = ring.weight.clone()
        weights[3] += moved
        found = check_span(np.array(heads, dtype=object), structure=adjacency(with_loops(ring, weights)), exact=True)
        assert (found.verdict, found.strength) == (verdict, Strength.PROVED)


def with_loops(graph, weights):
    """The graph with these weights, and a loop of weight 1 at each node."""
    loops = torch.arange(graph.nodes).expand(2, -1)
    return Graph(
        torch.cat([graph.edges, loops], 1), graph.nodes, torch.cat([weights, torch.ones(graph.nodes).double()])
    )


def test_a_graph_transformer_whose_scores_are_equal_is_the_graph_convolution_of_a_ring():
    """Its heads prefer some keys, and cannot be it; with queries of zero they read all neighbours alike, and are."""
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).double()
    query = attention.in_proj_weight.data[:8]
    features = torch.randn(1, 8, 9).double()
    for sharpness, verdict in ((1.0, Verdict.REFUTED), (0.0, Verdict.HOLDS)):
        query.mul_(sharpness)
        layer = from_torch(attention)
        heads = as_matrix(layer.basis(features, mask=pattern_of(CYCLE)).operators, (9,))
        assert check_span(heads, structure=gcn(CYCLE)).verdict is verdict


def test_structures_that_do_not_fit_are_refused():
    attention = graph_attention(CYCLE, 1)
    with pytest.raises(UsageError, match="C2A004 structure excludes offsets, convolution"):
        check_span(attention, structure=gcn(CYCLE), offsets=((0,),))
    with pytest.raises(Exception, match="C2A122 edges between"):
        check_span(attention, structure=gcn(CLUB))
    with pytest.raises(UsageError, match="C2A504 the operators that are asked for are not finite"):
        check_span(attention, structure=adjacency(Graph(CYCLE.edges, 9, CYCLE.weight * torch.nan)))
