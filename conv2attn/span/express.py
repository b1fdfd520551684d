"""Lemma 3 applied: a convolution expressed with given attention heads."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
import torch
from torch import nn

from conv2attn.errors import UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import Convolution, as_convolution
from conv2attn.layers.theorem.construction import factors
from conv2attn.span.arrays import MEMORY_LIMIT
from conv2attn.span.attention_rows import ROUNDOFF, Array, AttentionRows, Limits, Whole, limits_for
from conv2attn.span.conditions import check
from conv2attn.span.ends import bound_of_layer
from conv2attn.span.equations import Targets, head_taps, kernel_targets, portions, shift_targets
from conv2attn.span.grids import as_sides
from conv2attn.span.layers import check_ours, read_layer
from conv2attn.span.least_squares import factors_of, residuals_of
from conv2attn.span.span_report import Condition
from conv2attn.theory.basis import Weights
from conv2attn.theory.bounds import Claimed
from conv2attn.verdicts import Verdict


@final
@dataclass(frozen=True, eq=False)
class Expression:
    """`W_val` and `W_out` with which the heads of given attention best approximate a convolution.

    Args:
        weights: `W_val`, `W_out` and the bias.
        condition: the verdict at all queries of the convolution, for the shifts of the taps as targets. If the heads
            cannot give all shifts, the targets are the combinations of shifts that the convolution uses.
        mixing: coefficients of the heads, (targets, heads). If the condition does not hold, they are those of least
            squares.
        bound: in real arithmetic, the heads with these weights differ from the convolution by at most
            `bound * max|X|`. It rests on claim L3 (L3_near), and names it.
        layer: a layer with these weights.
    """

    weights: Weights
    condition: Condition
    mixing: Array
    bound: Claimed
    layer: MultiHeadSelfAttention


def express(
    convolution: nn.Module | Convolution, layer: MultiHeadSelfAttention, *, grid: Sequence[int] | int | None = None
) -> MultiHeadSelfAttention:
    """A layer with the heads of `layer`, and with weights by which they best approximate `convolution`.

    `expression` returns this layer with a verdict and with a bound on the difference for all images.

    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(2, 3, 3))
        >>> conv = torch.nn.Conv2d(2, 4, 3)
        >>> image = torch.randn(1, 2, 6, 7)
        >>> torch.allclose(conv2attn.express(conv, layer, grid=(6, 7))(image), conv(image), atol=1e-5)
        True
    """
    return expression(convolution, layer, grid=grid).layer


def expression(
    convolution: nn.Module | Convolution, layer: MultiHeadSelfAttention, *, grid: Sequence[int] | int | None = None
) -> Expression:
    """Approximates `convolution` by a layer with the positions of `layer`, and with a bound on the difference.

    The layer has the padding, strides and bias of the convolution.

    Args:
        convolution: the convolution to express.
        layer: the layer whose positions are kept; its values, outputs and geometry are ignored.
        grid: sides of the input for which soft heads are fitted; by default three kernels wide. The fit of hard heads
            is the same at every size.
    Raises:
        UsageError: the numbers of axes differ (C2A504), `layer` is of another class, or its attention depends on the
            image (C2A502).
    Source: Cordonnier et al. 2020, Lemma 3, with one Phi for all queries; claim L3' of proofs/.
    """
    check_ours(layer)
    kernel = as_convolution(convolution)
    if len(kernel.kernel_size) != layer.dimensions:
        raise UsageError(
            "C2A504",
            f"the convolution has {len(kernel.kernel_size)} axes, and the heads have {layer.dimensions}",
            "Pass a convolution of as many axes as the heads have.",
        )
    spans = [d * (k - 1) + 1 for d, k in zip(kernel.dilation, kernel.kernel_size, strict=True)]
    sides = as_sides(grid, layer.dimensions) or tuple(3 * span for span in spans)
    # A layer of zero weights has the attention of `layer` on the geometry of the convolution; only that is read.
    zeros = head_weights(kernel, torch.zeros_like(kernel.taps()[:1]).expand(layer.heads, -1, -1))
    attention = read_layer("expressed", with_weights(kernel, layer, zeros), sides, MEMORY_LIMIT)
    limits = limits_for(attention, None, None)
    combined = kernel_targets(attention, kernel, ROUNDOFF[str(kernel.weight.dtype).removeprefix("torch.")])
    # Shifts first: a Phi for the shifts serves every convolution of this kernel, and its bound is a theorem. Heads that
    # are too few for the shifts may still serve the combinations that these weights use.
    for targets in (shift_targets(attention.grid, combined.offsets), combined):
        condition = check("kernel", attention, targets, limits)
        if condition.verdict is Verdict.HOLDS:
            break
    # Every query has its whole kernel on the padded keys, since a convolution has outputs only there.
    rows = np.arange(attention.grid.shape[0])
    mixing = best_mixing(condition, attention, targets, limits, rows)
    taps = torch.from_numpy(head_taps(kernel, targets, mixing)).to(kernel.weight)
    every = np.arange(len(targets))
    residuals, _ = residuals_of(portions(attention, targets, rows), targets, attention.width, mixing, every, 0)
    # The bound is on the weights as they are stored, after rounding to the dtype of the convolution.
    stored = taps.detach().cpu().double().numpy()
    bound = bound_of_layer(kernel, attention, targets, mixing, residuals, stored)
    weights = head_weights(kernel, taps)
    return Expression(weights, condition, mixing, bound, with_weights(kernel, layer, weights))


def best_mixing(condition: Condition, attention: AttentionRows, targets: Targets, limits: Limits, rows: Whole) -> Array:
    """The Phi of a condition that holds, otherwise that of least squares, (targets, heads)."""
    if condition.targets and all(target.verdict is Verdict.HOLDS for target in condition.targets):
        # The mixing that was proved is used. Least squares would give another mixing, without a proof.
        weights = [[float(Fraction(w)) for w in target.weights] for target in condition.targets]
        return np.array(weights).reshape(len(weights), attention.heads)
    return factors_of(portions(attention, targets, rows), targets.coefficients, limits.max_phi).plain


def head_weights(convolution: Convolution, taps: torch.Tensor) -> Weights:
    """The channel matrices `taps` (heads, d_out, d_in / groups) in two factors, and the convolution's bias."""
    width = min(convolution.d_in, convolution.d_out) // convolution.groups
    value, output = factors(taps.detach(), convolution.groups, width)
    return Weights(value, output, convolution.bias, convolution.groups)


def with_weights(convolution: Convolution, layer: MultiHeadSelfAttention, weights: Weights) -> MultiHeadSelfAttention:
    """A layer with the positions of `layer`, the geometry of `convolution`, and these weights."""
    expressing = MultiHeadSelfAttention(
        convolution.d_in,
        convolution.d_out,
        deepcopy(layer.encoding),
        d_head=min(convolution.d_in, convolution.d_out) // convolution.groups * convolution.groups,
        value=weights.value is not None,
        output=weights.output is not None,
        bias=weights.bias is not None,
        groups=convolution.groups,
        padding=convolution.padding,
        sites=convolution.sites,
        device="meta",
    )
    expressing.hold(weights)
    return expressing
