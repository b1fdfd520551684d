"""`python -m benchmarks.graphs [--quick]`: graph layers against torch_geometric.

Layers: forward and backward on a random graph, 64 channels in and out, float32, one thread, each measurement in a fresh
process: the least of three runs, from edges to gradients. `python -m benchmarks.graphs LAYER WHO NODES EDGES` prints
one as JSON. LAYER is gcn, chebyshev (orders 0 to 3) or gat (8 heads); WHO is theirs, or ours with the same weights.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.processes import MIB, apart, peak_bytes
from conv2attn.layers.framework import from_torch
from conv2attn.report.markup import markdown_table
from conv2attn.theory.basis import (
    Graph,
    as_basis,
    evaluate,
    pattern_of,
)

LAYERS = ("gcn", "chebyshev", "gat")
COMPARED = [(layer, who, 10**5, 10**6) for layer in LAYERS for who in ("theirs", "ours")]
GROWTH = [(layer, "ours", edges // 10, edges) for layer in LAYERS for edges in (10**5, 3 * 10**6)]
FURTHEST = [("gcn", "ours", 10**6, 10**7)]
QUICK = [(layer, who, 100, 1000) for layer in LAYERS for who in ("theirs", "ours")]


def function(layer: str, who: str, nodes: int, edges: Tensor) -> Callable[[Tensor], Tensor]:
    """The layer as a function of features (nodes, channels)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.nn import ChebConv, GATConv, GCNConv

        import conv2attn.layers.framework.geometric  # noqa: F401
    made = {"gcn": GCNConv(64, 64), "chebyshev": ChebConv(64, 64, 4), "gat": GATConv(64, 8, heads=8)}[layer]
    if who == "theirs":
        return lambda features: made(features, edges)
    graph = Graph(edges, nodes)
    if layer == "gat":
        attention = from_torch(made)
        return lambda features: attention(features.mT[None], mask=pattern_of(graph))[0].mT
    return lambda features: evaluate(as_basis(made, graph), features.mT[None])[0].mT


def random_edges(nodes: int, edges: int) -> Tensor:
    """Edges without loops."""
    source = torch.randint(0, nodes, (edges,))
    return torch.stack([source, (source + torch.randint(1, nodes, (edges,))) % nodes])


def measure(layer: str, who: str, nodes: int, edges: int) -> dict[str, Any]:
    """Measures here, after a small graph, so that what libraries allocate once is not counted."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    function(layer, who, 9, random_edges(9, 18))(torch.randn(9, 64, requires_grad=True)).sum().backward()
    features = torch.randn(nodes, 64, requires_grad=True)
    run = function(layer, who, nodes, random_edges(nodes, edges))
    before, times = peak_bytes(), []
    for _ in range(3):
        began = time.process_time()
        output = run(features)
        between = time.process_time()
        output.square().sum().backward()
        times.append((between - began, time.process_time() - between))
    forward, backward = min(times, key=sum)
    found = {"layer": layer, "who": who, "nodes": nodes, "edges": edges}
    return {**found, "forward": forward, "backward": backward, "mebibytes": (peak_bytes() - before) / MIB}


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    head = ("layer", "whose", "nodes", "edges", "forward, s", "backward, s", "microseconds an edge", "MiB more")
    cells = [
        [row["layer"], row["who"], f"{row['nodes']:,}", f"{row['edges']:,}"]
        + [f"{row[key]:.3g}" for key in ("forward", "backward")]
        + [f"{1e6 * (row['forward'] + row['backward']) / row['edges']:.3g}", f"{row['mebibytes']:.0f}"]
        for row in rows
    ]
    return markdown_table(head, cells)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        quick = "--quick" in sys.argv
        rows = [apart("graphs", *case) for case in (QUICK if quick else COMPARED + GROWTH + FURTHEST)]
        print(f"Times are of the processor.\n\n{table(rows)}")
