"""Do heads of different networks attend alike? Correlations of their mean attention by displacement.

The square of such a correlation is the linear CKA (Kornblith et al. 2019) of the two tables as one feature.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conv2attn.span import LayerFacts

REACH = {1: 24, 2: 3}
"""How far tables reach along each axis, by the number of axes: 49 displacements on lines and on images."""
AXES = {"images": 2, "lines": 1}


def tables_of(layer: LayerFacts) -> list[list[float]] | None:
    """The mean attention of each head over all pairs of a displacement, `REACH` each way; None on a smaller grid."""
    reach = REACH.get(len(layer.grid), 0)
    if layer.mass is None or layer.grid != layer.queries or not reach or min(layer.grid) <= reach:
        return None
    middle = tuple(slice(side - 1 - reach, side + reach) for side in layer.grid)
    pairs = [side - np.abs(np.arange(1 - side, side)) for side in layer.grid]
    counts = np.multiply.outer(pairs[0], pairs[1]) if len(pairs) == 2 else pairs[0]
    means = layer.mass * np.prod(layer.grid) / counts
    tables: list[list[float]] = means[(slice(None), *middle)].reshape(len(means), -1).tolist()
    return tables


def correlations(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """The correlation of each table (rows) of the first with each of the second; 0 where one of them is constant."""

    def unit(tables: NDArray[np.float64]) -> NDArray[np.float64]:
        away = tables - tables.mean(1, keepdims=True)
        norms = np.linalg.norm(away, axis=1, keepdims=True)
        return np.divide(away, norms, out=np.zeros_like(away), where=norms > 0)

    return unit(first) @ unit(second).T


def likeness(models: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """How like the heads of trained networks are the nearest heads of other ones, and of the untrained twins of these.

    For images and lines apart: `comparisons`, the number of correlations; for each network a number in `trained` and in
    `twins`: the mean over its heads of the largest correlation with a head of another network, a mean over the others.
    """
    found = {}
    for name, axes in AXES.items():
        tables: dict[bool, dict[str, NDArray[np.float64]]] = {True: {}, False: {}}
        for model in models:
            heads = [x for layer in model["layers"] if len(layer["grid"]) == axes for x in layer["tables"] or ()]
            if heads:
                tables[model["trained"]][model["model"]] = np.array(heads)
        both = [network for network in tables[True] if network in tables[False]]
        nearest: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
        comparisons = 0
        for network, other in permutations(both, 2):
            for trained in (True, False):
                each = correlations(tables[True][network], tables[trained][other])
                nearest[trained].setdefault(network, []).append(float(each.max(1).mean()))
                comparisons += each.size
        means = [{network: float(np.mean(x)) for network, x in nearest[kind].items()} for kind in (True, False)]
        if comparisons:
            found[name] = {"comparisons": comparisons, "trained": means[0], "twins": means[1]}
    return found
