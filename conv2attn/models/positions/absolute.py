"""Encoders that add a position to each token: the attention of their first layer on tokens that are positions alone.

Content held at zero means here: every embedding but that of the position (patches, words, segments, class tokens) is
zero, so that token i is the i-th position, learned or sinusoidal, or zero where a class token has none.
It passes the norms in front of the first attention
layer, and its products with the query and key weights are the scores. Only the first layer has such an attention:
what reaches the second is no longer positions alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.basis import AttentionGrid, Sides, Sites
from conv2attn.bounds import gamma
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.models.positions.position_scores import UNIT, PositionAttention, leading_note

HOW = "absolute positions as tokens of the first layer, all other content held at zero"


def attention_of_positions(
    positions: Tensor,
    query: nn.Linear,
    key: nn.Linear,
    heads: int,
    *,
    grid: Sides,
    norms: Sequence[nn.Module] = (),
    scale: float | None = None,
    others: Tensor | None = None,
) -> PositionAttention:
    """`softmax(scale q . k)` with `q = W_qry t + b_qry`, `k = W_key t + b_key` and t the normed positions.

    Args:
        positions: (pixels, width), learned or sinusoidal.
        query, key: their outputs are split into heads one after the other.
        grid: sides of the pixels.
        norms: layer norms or identities between the positions and the layer.
        scale: of the scores; by default the head width to the power of -1/2.
        others: (tokens, width), the positions of leading tokens that are no pixels.
    Raises:
        UsageError: positions that are not those of the grid (C2A503).
        UnsupportedError: a norm of another kind (C2A110).
    """
    pixels, leading_count = len(positions), 0 if others is None else len(others)
    tokens = torch.cat([positions, *([] if others is None else [others])]).detach().double().cpu()
    sizes = tokens.abs()
    for norm in norms:
        tokens, sizes = apply_norm(norm, tokens, sizes)
    queries, keys = apply_linear(tokens[:pixels], query, heads), apply_linear(tokens, key, heads)
    scale = queries.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * products(queries, keys)
    unit = gamma(8 * tokens.shape[1] + 32, UNIT)
    query_errors = unit * apply_linear(sizes[:pixels], query, heads, absolute=True)
    key_errors = unit * apply_linear(sizes, key, heads, absolute=True)
    score_errors = products(query_errors, keys.abs() + key_errors) + products(
        queries.abs(), key_errors + unit * keys.abs()
    )
    attention_grid = AttentionGrid(grid, Sites.everywhere(len(grid)))
    uncertainty = scale * float(score_errors.max())
    return PositionAttention(
        scores, attention_grid, query.weight.dtype, HOW, uncertainty, leading_note(leading_count), leading_count
    )


def products(queries: Tensor, keys: Tensor) -> Tensor:
    """`q . k` of every pair, (heads, queries, keys)."""
    return torch.einsum("qhc,khc->hqk", queries, keys)


def apply_linear(tokens: Tensor, layer: nn.Linear, heads: int, absolute: bool = False) -> Tensor:
    """`W t + b` in float64, (tokens, heads, width); with `absolute`, of the absolute values of W and b."""
    weight = layer.weight.detach().double().cpu()
    bias = weight.new_zeros(()) if layer.bias is None else layer.bias.detach().double().cpu()
    product = tokens @ weight.abs().T + bias.abs() if absolute else tokens @ weight.T + bias
    return product.unflatten(-1, (heads, -1))


def apply_norm(norm: nn.Module, tokens: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens after a norm, and the sizes to which their rounding errors are proportional.

    An error e in a token moves the deviation from the mean by `e + mean(e)`, hence the deviation in units of its
    spread, `z`, by at most `(1 + |z|)` times that over the spread.

    Raises:
        UnsupportedError: neither a layer norm nor the identity (C2A110).
    """
    if isinstance(norm, nn.Identity):
        return tokens, sizes
    if not isinstance(norm, nn.LayerNorm):
        raise UnsupportedError(
            "C2A110",
            f"positions pass a {type(norm).__name__}, which is not a layer norm",
            "Pass --inputs, so that its attention is captured as it runs.",
        )
    plain = F.layer_norm(tokens, norm.normalized_shape, eps=norm.eps)
    spread = torch.sqrt(tokens.var(-1, unbiased=False, keepdim=True) + norm.eps)
    normed_sizes = (sizes + sizes.mean(-1, keepdim=True)) / spread * (1 + plain.abs())
    ones, zeros = plain.new_ones(()), plain.new_zeros(())
    weight = ones if norm.weight is None else norm.weight.detach().double().cpu()
    bias = zeros if norm.bias is None else norm.bias.detach().double().cpu()
    return plain * weight + bias, normed_sizes * weight.abs() + bias.abs()


def first_positions(positions: Tensor, count: int) -> Tensor:
    """The first `count` rows of a table of positions.

    Raises:
        UsageError: it has fewer (C2A503).
    """
    if count > len(positions):
        raise UsageError(
            "C2A503",
            f"there are {len(positions)} positions, not {count}",
            "Pass the --grid and the --extra-tokens that the positions are of.",
        )
    return positions[:count]
