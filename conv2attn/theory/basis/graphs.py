"""Families of operators on graphs, one function for each kind of graph convolution."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from conv2attn.errors import GeometryError
from conv2attn.theory.basis.operators import Chebyshev, Concatenation, Pattern, Powers, Sparse
from conv2attn.theory.basis.operators.pattern import require_below

Normalisation = Literal["sym", "rw"]


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """A directed weighted graph: node `edges[1, e]` reads node `edges[0, e]`, as in torch_geometric's edge_index.

    Args:
        edges: int64, (2, edges); an undirected edge comes twice.
        nodes: number of nodes, those without edges included.
        weights: (edges); by default all 1 in torch's default dtype.
    """

    edges: Tensor
    nodes: int
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        """Raises GeometryError (C2A122) if edges have a wrong dtype, shape or node, or weights a wrong shape."""
        if self.edges.ndim != 2 or len(self.edges) != 2 or self.edges.dtype != torch.int64:
            shape = f"{self.edges.dtype} {tuple(self.edges.shape)}"
            raise GeometryError(
                "C2A122",
                f"edges must be int64 of shape (2, edges), not {shape}",
                "Pass a tensor of two rows of node indices: edges.long().",
            )
        if self.weights is not None and self.weights.shape != self.edges.shape[1:]:
            raise GeometryError(
                "C2A122",
                f"{self.edges.shape[1]} edges have weights {tuple(self.weights.shape)}",
                "Pass one weight for each edge.",
            )
        require_below(self.edges, self.nodes, "node")

    @property
    def weight(self) -> Tensor:
        """The weight of each edge, (edges)."""
        return torch.ones(self.edges.shape[1]) if self.weights is None else self.weights


def adjacency(graph: Graph) -> Sparse:
    """One term: the weighted adjacency matrix, by which a node reads all nodes with an edge to it."""
    return Sparse.from_edges(graph.edges, graph.weight, graph.nodes)


def pattern_of(graph: Graph, loops: bool = True) -> Pattern:
    """The pairs that attention scores on a graph: its edges, and with `loops` each node with itself exactly once."""
    edges = graph.edges
    if loops:
        # The graph's own loops are removed first. Otherwise their nodes would be scored with themselves twice.
        everywhere = torch.arange(graph.nodes).expand(2, -1)
        edges = torch.cat([edges[:, edges[0] != edges[1]], everywhere], 1)
    return Pattern.sorted(edges[1], edges[0], (graph.nodes, graph.nodes))[0]


def gcn(graph: Graph, loop: float | None = 1.0) -> Sparse:
    """One term: `D^-1/2 (A + loop I) D^-1/2` (Kipf and Welling 2017, Eq. 2).

    The degree D of a node is the sum of the weights of the edges that it reads, and of its loop. A node that already
    has a loop keeps it. With `loop=None` no loop is added, and a node without edges reads 0.
    """
    edges, weights = graph.edges, graph.weight
    if loop is not None:
        loops = edges[0] == edges[1]
        bare = torch.ones(graph.nodes, dtype=torch.bool).index_fill(0, edges[0][loops], False).nonzero()[:, 0]
        edges, weights = (
            torch.cat([edges, bare.expand(2, -1)], 1),
            torch.cat([weights, weights.new_full(bare.shape, loop)]),
        )
    # Kipf and Welling have undirected graphs. On directed graphs torch_geometric uses the degree over incoming edges
    # for both ends of an edge; so does this function.
    scale = inverse(degree(edges[1], weights, graph.nodes), 0.5)
    return Sparse.from_edges(edges, at(scale, edges[0]) * weights * at(scale, edges[1]), graph.nodes)


def chebyshev(
    graph: Graph, order: int, normalisation: Normalisation | None = "sym", largest: float | Tensor | None = None
) -> Chebyshev:
    """`T_0` to `T_order` of `2 L / largest - I` for the Laplacian L without loops (Defferrard et al. 2016).

    Args:
        normalisation: `sym`, `L = I - D^-1/2 A D^-1/2`; `rw`, `L = I - D^-1 A`; None, `L = D - A`. D counts the
            edges that leave a node.
        largest: a bound on the eigenvalues of L; by default twice the largest entry of L, as in torch_geometric.
    """
    if normalisation not in ("sym", "rw", None):
        raise GeometryError(
            "C2A122",
            f"normalisation={normalisation!r} is not one of sym, rw, None",
            "Pass normalisation='sym', 'rw' or None.",
        )
    # A loop would cancel between D and A in L = D - A, but not in the degree that normalises the other edges.
    keep = graph.edges[0] != graph.edges[1]
    edges, weights = graph.edges[:, keep], graph.weight[keep]
    degrees = degree(edges[0], weights, graph.nodes)
    diagonal = degrees if normalisation is None else torch.ones_like(degrees)
    if normalisation == "sym":
        scale = inverse(degrees, 0.5)
        weights = at(scale, edges[0]) * weights * at(scale, edges[1])
    elif normalisation == "rw":
        weights = at(inverse(degrees), edges[0]) * weights
    # Chebyshev polynomials are bounded on [-1, 1] alone. The eigenvalues of 2 L / largest - I are there if `largest`
    # bounds the eigenvalues of L. For weights >= 0, twice the largest entry of L does (Gershgorin's circles).
    if largest is None:
        largest = 2 * torch.cat([-weights, diagonal, diagonal.new_zeros(1)]).max()
    scaled = torch.cat([-weights, diagonal]) * inverse(torch.as_tensor(largest, dtype=weights.dtype)) * 2
    scaled = torch.cat([scaled[: len(weights)], scaled[len(weights) :] - 1])
    everywhere = torch.arange(graph.nodes).expand(2, -1)
    return Chebyshev(Sparse.from_edges(torch.cat([edges, everywhere], 1), scaled, graph.nodes), order)


def random_walks(graph: Graph, order: int) -> Concatenation:
    """Walks of 0 to `order` steps along the edges, then walks of as many steps against them (Li et al. 2018, Eq. 2).

    A step along an edge is `D_out^-1 W`: a node reads the nodes that its edges lead to. A step against it is
    `D_in^-1 W^T`.
    """
    source, target = graph.edges
    along = graph.weight * at(inverse(degree(source, graph.weight, graph.nodes)), source)
    against = graph.weight * at(inverse(degree(target, graph.weight, graph.nodes)), target)
    # In `from_edges` the target of an edge reads its source. In a step along an edge the source reads the target.
    forward = Sparse.from_edges(graph.edges.flip(0), along, graph.nodes)
    return Concatenation((Powers(forward, order), Powers(Sparse.from_edges(graph.edges, against, graph.nodes), order)))


def relations(graph: Graph, kinds: Tensor, count: int, mean: bool = True) -> Concatenation:
    """One term for each of `count` relations (Schlichtkrull et al. 2018).

    Args:
        kinds: the number of the relation that each edge belongs to, (edges).
        mean: whether a node divides by its number of incoming edges in the relation; otherwise the weights are added
            up.
    """
    if kinds.shape != graph.edges.shape[1:]:
        raise GeometryError(
            "C2A122", f"{graph.edges.shape[1]} edges have kinds {tuple(kinds.shape)}", "Pass one kind for each edge."
        )
    require_below(kinds, count, "kind")
    families = []
    for kind in range(count):
        edges, weights = graph.edges[:, kinds == kind], graph.weight[kinds == kind]
        if mean:
            weights = weights * at(inverse(degree(edges[1], torch.ones_like(weights), graph.nodes)), edges[1])
        families.append(Sparse.from_edges(edges, weights, graph.nodes))
    return Concatenation(tuple(families))


def degree(index: Tensor, weights: Tensor, nodes: int) -> Tensor:
    """The sum of the weights at each node, (nodes)."""
    return weights.new_zeros(nodes).index_add(0, index, weights)


def at(numbers: Tensor, index: Tensor) -> Tensor:
    """The number of each node in `index`; for many nodes this is several times faster than `numbers[index]`."""
    return numbers.index_select(0, index)


def inverse(numbers: Tensor, power: float = 1.0) -> Tensor:
    """`x^-power`, but 0 with gradient 0 at x = 0, which is the degree of a node without edges or with weights of 0."""
    # Filled before the power, not after: 0^-p has an infinite slope, and infinity times 0 is NaN in the backward pass.
    nothing = numbers == 0
    return torch.where(nothing, 0, numbers.masked_fill(nothing, 1).pow(-power))
