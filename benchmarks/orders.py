"""`python -m benchmarks.orders [--quick]`: the three orders of evaluation, and the one that `auto` takes.

Forward, float32, one thread, functions measured in turn.
"""

import os
import sys
from typing import Any

import torch

from benchmarks.timing import interleave
from conv2attn.basis import Dense, Graph, Shift, Weights, adjacency, basis_of, cheapest_order, chebyshev, evaluate
from conv2attn.report.markup import markdown_table

ORDERS = ("mixing", "channels", "map")
LARGEST_MAP = 2**24

# family, batch B, tokens M, queries N, terms K, channels P, channels Q
CASES = [
    ("graph", 1, 10_000, 10_000, 1, 256, 8),
    ("graph", 1, 10_000, 10_000, 1, 8, 256),
    ("Chebyshev", 1, 10_000, 10_000, 4, 64, 64),
    ("Chebyshev", 1, 10_000, 10_000, 4, 128, 8),
    ("shifts", 8, 1024, 1024, 9, 64, 64),
    ("shifts", 8, 1024, 1024, 9, 64, 4),
    ("dense", 1, 256, 256, 8, 64, 4),
    ("dense", 1, 256, 256, 8, 4, 64),
    ("dense", 8, 512, 16, 8, 64, 64),
    ("dense", 8, 16, 512, 8, 64, 64),
    ("dense", 512, 16, 16, 64, 4, 4),
]


def family(name: str, tokens: int, queries: int, terms: int) -> Any:
    """Operators of a kind; all but dense ones have as many queries as tokens."""
    edges = torch.randint(0, tokens, (2, 10 * tokens))
    match name:
        case "graph":
            return adjacency(Graph(edges, tokens))
        case "Chebyshev":
            return chebyshev(Graph(edges, tokens), terms - 1)
        case "shifts":
            return Shift(tuple((k - terms // 2,) for k in range(terms)))
        case _:
            return Dense(torch.randn(terms, queries, tokens), (queries,))


def row(case: tuple[str, int, int, int, int, int, int], seconds: float) -> list[str]:
    """Milliseconds of each order, the fastest, and the choice of `auto`."""
    name, batch, tokens, queries, terms, d_in, d_out = case
    basis = basis_of(family(name, tokens, queries, terms), Weights(None, torch.randn(terms, d_out, d_in)), 1)
    image = torch.randn(batch, tokens, d_in).mT
    orders = [order for order in ORDERS if order != "map" or tokens * queries * d_in * d_out <= LARGEST_MAP]
    calls = {order: lambda order=order: evaluate(basis, image, order) for order in orders}
    with torch.inference_mode():
        timings = {order: timing.low for order, timing in interleave(calls, seconds).items()}
    shown = [f"{timings[order]:.3g}" if order in timings else "not run: too large" for order in ORDERS]
    return [*map(str, case), *shown, min(timings, key=timings.__getitem__), cheapest_order(basis, (tokens,), batch)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    quick = "--quick" in sys.argv
    head = ("basis", "B", "M", "N", "K", "P", "Q", "mixing, ms", "channels, ms", "map, ms", "fastest", "auto")
    load = f"Load of the machine when measuring began: {os.getloadavg()[0]:.1f}."
    print(f"{load}\n\n{markdown_table(head, [row(case, 0.0 if quick else 1.0) for case in CASES])}")
