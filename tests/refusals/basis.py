"""Maps of tokens, and graphs, that do not fit."""

import torch
from theory.basis.edges.graphs import EDGES, GRAPH, ONE
from torch import nn

from conv2attn.errors import GeometryError, UnsupportedError, UsageError
from conv2attn.theory import basis
from conv2attn.theory.basis import (
    Chebyshev,
    Combination,
    Concatenation,
    Dense,
    Form,
    Graph,
    Operator,
    Padding,
    Pattern,
    Shift,
    Sites,
    Sparse,
    Weights,
    adjacency,
    apply,
    as_basis,
    as_matrix,
    basis_of,
    chebyshev,
    combine,
    evaluate,
    offsets,
    output_sides,
    relations,
    terms,
)

STEP = adjacency(GRAPH)
FIVE, ONCE, WIDER = torch.ones(1, 1, 5), Sites((1,), (0,), (0,)), Sites.everywhere(1)

REFUSALS = {
    UsageError: {
        "C2A120 the second layer reads 2 channels, the first gives 3": lambda: basis.compose(
            *[as_basis(nn.Conv1d(2, 3, 1))] * 2, (4,)
        ),
        "C2A104 padding_mode='mirror' is not one of zeros, reflect": lambda: Padding((1,), (1,), "mirror"),
        "C2A104 padding_mode='reflect' of a zero-stuffed grid": lambda: Padding((1, 1), (1, 1), "reflect", (1, 2)),
        "C2A120 an image of 3 channels, but the layer reads 2": lambda: evaluate(ONE, torch.ones(1, 3, 5)),
        "C2A122 an edge has the key 7, which is not from 0 to 4": lambda: Sparse.from_edges(
            torch.tensor([[7], [0]]), torch.ones(1), 5
        ),
        "C2A122 queries .* are not pairs": [
            lambda: Pattern.sorted(torch.zeros(2).long(), torch.zeros(3).long(), (5, 5)),
            lambda: Pattern.sorted(*torch.zeros(2, 2, 1).long(), (5, 5)),
        ],
        "C2A122 an edge has the node 7": lambda: Graph(torch.tensor([[7], [0]]), 5),
        "C2A122 an edge has the node -1, which is not from 0 to 4": lambda: Graph(torch.tensor([[-1], [0]]), 5),
        r"C2A122 edges must be int64 of shape \(2, edges\), not torch": [
            lambda edges=edges: Graph(edges, 5) for edges in (EDGES.int(), EDGES.double(), EDGES[:1], EDGES[0])
        ],
        r"C2A122 7 edges have weights \(6,\)": lambda: Graph(EDGES, 5, torch.ones(6)),
        r"C2A122 7 edges have kinds \(2,\)": lambda: relations(GRAPH, torch.zeros(2), 2),
        "C2A122 an edge has the kind 2, which is not from 0 to 1": lambda: relations(GRAPH, torch.arange(7) % 3, 2),
        r"C2A122 shifts by \(\(0, 1\),\) do not fit": [
            lambda rule=rule: rule(Shift(((0, 1),)), torch.ones(1, 1, 4), (4,)) for rule in (apply, combine)
        ],
        "C2A122 edges between": lambda: apply(STEP, torch.ones(1, 4), (4,)),
        "C2A122 7 edges have weights": lambda: Sparse.from_edges(EDGES, torch.ones(6), 5),
        "C2A122 .* have no polynomials of order -1": lambda: apply(Chebyshev(STEP, -1), torch.ones(1, 5), (5,)),
        "C2A122 2 operators from": lambda: combine(Chebyshev(Shift(((0,), (1,))), 2), torch.ones(3, 1, 4), (4,)),
        "C2A122 a basis of 1 operators for 2 channel matrices": lambda: evaluate(
            basis_of(ONE.operators, Weights(None, torch.ones(2, 1, 2)), 1), torch.ones(1, 2, 5)
        ),
    },
    UnsupportedError: {
        "C2A110 .* has no rule for": [
            *(lambda: as_matrix("shift", (2,)), lambda: output_sides(3, (2,)), lambda: terms("shift")),
            *(lambda rule=rule: rule(object(), FIVE, (5,)) for rule in (apply, combine)),
            lambda: offsets(STEP),
        ],
        "C2A110 Operator has no ": [
            *(lambda: Operator().heads, lambda: Operator().features(None, None)),
            *(lambda: Operator().scores(None, None, None), lambda: Operator().axis_scores(None, 0, None)),
            lambda: Operator().content_features(None, None, None, by_axis=True),
        ],
        "C2A101 Linear cannot be read": lambda: as_basis(nn.Linear(1, 1)),
    },
    GeometryError: {
        r"C2A121 the padded grid \(6, 9\) is smaller than the dilated kernel \(7, 3\)": lambda: Sites.of_kernel(
            (4, 3), (1, 1), (2, 1)
        ).count((6, 9)),
        r"C2A121 reflect padding by \(2, 0\) needs a longer axis than 2 pixels": lambda: Padding(
            (2,), (0,), "reflect"
        ).pad(torch.ones(1, 1, 2)),
        r"C2A121 circular padding by \(0, 3\)": lambda: as_matrix(Padding((0,), (3,), "circular"), (2,)),
        r"C2A121 zeros padding by \(1, 1\) needs a longer axis than 0 pixels": lambda: Padding((1,), (1,)).source(0, 0),
        "C2A122 normalisation='none' is not one of sym, rw, None": lambda: chebyshev(GRAPH, 2, "none"),
        r"C2A122 the families map \(5,\) to": lambda: output_sides(
            Concatenation((STEP, Dense(torch.ones(1, 3, 5), (3,)))), (5,)
        ),
        r"C2A122 coefficients \(2, 3\) do not combine 1 terms": lambda: output_sides(
            Combination(torch.ones(2, 3), STEP), (5,)
        ),
        r"C2A121 matrices \(1, 1, 3\) do not map \(2,\)": lambda: as_matrix(Dense(torch.ones(1, 1, 3), (1,)), (2,)),
    },
    # axes without a partner
    ValueError: {
        "zip": [
            lambda: ONCE.view((5,), (1, 2)),
            lambda: Form.of(Padding.none(2), WIDER),
            lambda: Form.of(Padding.none(1), Sites((1,), (0,), (0, 0))),
            lambda: Form.of(Padding((0,), (0, 0)), WIDER),
            lambda: Padding((1,), (1, 1)).pad(FIVE),
        ]
    },
}
