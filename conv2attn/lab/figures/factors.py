"""Fig. 11 of the paper from trained layers: what one query computes, as weights times attention.

For `D_in D_out = 2`, two heads and three keys, `V_SA` (2 x 3) is `W_SA` (2 x 2) times `A_q` (2 x 3); the nearest
convolution is `W_conv` times `E_q`, whose rows are one-hot at the query's neighbours. Lemma 3: a span that holds the
rows of `E_q` is enough, and necessary.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from torch import nn

from conv2attn.extras import optional
from conv2attn.lab.figures.ellipses import FloatArray
from conv2attn.layers.theorem import as_basis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 24
"""So many rows of the vectorised weights are drawn; a layer of width 64 has 4,096."""


@final
@dataclass(frozen=True, eq=False)
class Factors:
    """A layer's map at one query as a product: weights (d_in d_out, heads) times rows of attention (heads, keys)."""

    weights: FloatArray
    rows: FloatArray

    @property
    def product(self) -> FloatArray:
        """V_q of Appendix C, (d_in d_out, keys)."""
        return self.weights @ self.rows


def factors_of_layer(layer: nn.Module, attention: FloatArray) -> Factors:
    """W_SA and A_q of a layer, for the attention (heads, rows, columns) of the query."""
    matrices = as_basis(layer).weights.dense().detach().double().cpu().numpy()  # (heads, d_out, d_in)
    return Factors(matrices.reshape(len(matrices), -1).T, attention.reshape(len(attention), -1))


def nearest_convolution(factors: Factors, sides: tuple[int, ...], query: tuple[int, int], kernel: int) -> Factors:
    """W_conv and E_q of the kernel x kernel convolution that is nearest to a layer at this query.

    Rows of E_q are orthonormal, so its weights are the columns of the layer's V at the query's neighbours.
    """
    around = [(query[0] + a, query[1] + b) for a in span(kernel) for b in span(kernel)]
    inside = [a * sides[1] + b for a, b in around if 0 <= a < sides[0] and 0 <= b < sides[1]]
    rows = np.eye(math.prod(sides))[inside]
    return Factors(factors.product @ rows.T, rows)


def span(kernel: int) -> range:
    """The offsets of one axis of a kernel, as `Convolution.offsets` has them."""
    return range(-((kernel - 1) // 2), kernel - (kernel - 1) // 2)


def factors_figure(layer: nn.Module, attention: FloatArray, query: tuple[int, int]) -> "Figure":
    """The factors of the nearest convolution with as many taps as heads, or fewer, above those of the layer."""
    ours = factors_of_layer(layer, attention)
    kernel = max(1, math.isqrt(len(attention)))
    conv = nearest_convolution(ours, attention.shape[1:], query, kernel)
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(8, 4), layout="constrained")
    figure.suptitle(
        f"the nearest {kernel}x{kernel} convolution, and the layer, at token {query[0]},{query[1]}", fontsize=8
    )
    largest = float(np.abs(ours.product).max()) or 1.0
    names = (("V_conv", "W_conv", "E_q"), ("V_SA", "W_SA", "A_q"))
    for line, factors, titles in zip(figure.subplots(2, 3), (conv, ours), names, strict=True):
        for panel, array, title in zip(line, (factors.product, factors.weights, factors.rows), titles, strict=True):
            scale = largest if title.startswith("V") else float(np.abs(array).max()) or 1.0
            panel.imshow(array[:ROWS], cmap="RdBu", vmin=-scale, vmax=scale, aspect="auto", interpolation="nearest")
            shown = f" (first {ROWS} of {len(array)} rows)" if len(array) > ROWS else ""
            panel.set_title(f"{title} {array.shape[0]}x{array.shape[1]}{shown}", fontsize=7)
            panel.set(xticks=[], yticks=[])
    return figure
