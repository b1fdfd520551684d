"""Attention mechanisms: scores of token pairs, combined by sums, products and softmax (Andreoli 2019, Defs. 4, 6)."""

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.errors import UnsupportedError
from conv2attn.layers.framework.pairs import AllPairs, Edges, Over
from conv2attn.theory.basis import AttentionGrid, QuadraticSoftmax, Sites

Pairs = AllPairs | Edges


class Mechanism(nn.Module):
    """Scores of pairs of keys (batch, heads or 1, keys, d) and queries (batch, heads or 1, queries, d')."""

    def __add__(self, other: "Mechanism") -> "Mechanism":
        return Both(self, other, product=False)

    def __mul__(self, other: "Mechanism") -> "Mechanism":
        return Both(self, other, product=True)

    def leaky_relu(self, slope: float = 0.2) -> "Mechanism":
        """Each score, multiplied by `slope` if it is negative."""
        return LeakyReLU(self, slope)

    def softmax(self, over: Over = "keys") -> "Mechanism":
        """Normalised over the keys of a query (the paper's columns), the queries of a key, or the heads.

        Masks are added to the scores, in the log domain; if all are masked, the result is 0.
        """
        return Normalised(self, over)


@final
class BiAffine(Mechanism):
    """`x^T bilinear z + from_key . x + from_query . z + constant` for key x and query z, in each head (Def. 6).

    Args:
        bilinear: Lambda, (heads, d, d'); this and the other terms may be None.
        from_key: lambda, (heads, d).
        from_query: lambda', (heads, d'); cancels, like `constant`, if a softmax over keys follows directly.
        constant: xi, (heads).
    """

    def __init__(
        self,
        bilinear: Tensor | None = None,
        from_key: Tensor | None = None,
        from_query: Tensor | None = None,
        constant: Tensor | None = None,
    ):
        super().__init__()
        self.bilinear, self.from_key = as_parameter(bilinear), as_parameter(from_key)
        self.from_query, self.constant = as_parameter(from_query), as_parameter(constant)

    def forward(self, keys: Tensor, queries: Tensor, pairs: Pairs) -> Tensor:
        parts = []
        if self.bilinear is not None:
            parts.append(pairs.products(queries @ self.bilinear.mT, keys))
        if self.from_key is not None:
            parts.append(pairs.of_keys((keys @ self.from_key[..., None])[..., 0]))
        if self.from_query is not None:
            parts.append(pairs.of_queries((queries @ self.from_query[..., None])[..., 0]))
        if self.constant is not None:
            heads = self.constant.expand(len(keys), -1)[..., None]
            parts.append(pairs.of_keys(heads.expand(-1, -1, keys.shape[2])))
        if not parts:
            raise UnsupportedError(
                "C2A110",
                "a bi-affine mechanism without any of its four terms has no scores",
                "Pass at least one of its four terms.",
            )
        return sum(parts[1:], parts[0])


@final
class DotProduct(Mechanism):
    """`(query z + query_bias) . (key x + key_bias) / sqrt(d_key)`: bi-affine through d_key dimensions (Eq. 12).

    Args:
        query, key: (heads, d_key, channels).
        query_bias, key_bias: (heads, d_key), or None.
    Source: Vaswani et al. 2017; Andreoli 2019, Sec. 3.3.
    """

    def __init__(self, query: Tensor, key: Tensor, query_bias: Tensor | None = None, key_bias: Tensor | None = None):
        super().__init__()
        self.query, self.key = nn.Parameter(query), nn.Parameter(key)
        self.query_bias, self.key_bias = as_parameter(query_bias), as_parameter(key_bias)

    def forward(self, keys: Tensor, queries: Tensor, pairs: Pairs) -> Tensor:
        query_vectors, key_vectors = queries @ self.query.mT, keys @ self.key.mT
        if self.query_bias is not None:
            query_vectors = query_vectors + self.query_bias[:, None]
        if self.key_bias is not None:
            key_vectors = key_vectors + self.key_bias[:, None]
        return pairs.products(query_vectors / math.sqrt(self.query.shape[1]), key_vectors)


@final
class Quadratic(Mechanism):
    """`-alpha |k - q - center|^2` for positions of a grid (Cordonnier et al. 2020, Eq. 9): scores without content."""

    def __init__(self, center: Tensor, alpha: Tensor):
        super().__init__()
        self.center, self.alpha = nn.Parameter(center), nn.Parameter(alpha)

    def forward(self, keys: Tensor, queries: Tensor, pairs: Pairs) -> Tensor:
        if isinstance(pairs, Edges) or pairs.sides != pairs.queries:
            raise UnsupportedError(
                "C2A110",
                "quadratic positions score only all pairs of one grid",
                "Pass tokens of one grid.",
            )
        # Queries and keys are the same tokens, so every site is a query.
        grid = AttentionGrid(pairs.sides, Sites.everywhere(len(pairs.sides)))
        everywhere = torch.arange(math.prod(pairs.sides), device=keys.device)
        return QuadraticSoftmax(self.center, self.alpha).scores(grid, everywhere, keys.dtype)


@final
class Both(Mechanism):
    """The sum or the product of two mechanisms, score by score."""

    def __init__(self, first: Mechanism, second: Mechanism, product: bool):
        super().__init__()
        self.first, self.second, self.product = first, second, product

    def forward(self, keys: Tensor, queries: Tensor, pairs: Pairs) -> Tensor:
        first, second = self.first(keys, queries, pairs), self.second(keys, queries, pairs)
        return first * second if self.product else first + second


@final
class LeakyReLU(Mechanism):
    """See `Mechanism.leaky_relu`."""

    def __init__(self, scored: Mechanism, slope: float):
        super().__init__()
        self.scored, self.slope = scored, slope

    def forward(self, keys: Tensor, queries: Tensor, pairs: Pairs) -> Tensor:
        return F.leaky_relu(self.scored(keys, queries, pairs), self.slope)


@final
class Normalised(Mechanism):
    """See `Mechanism.softmax`."""

    def __init__(self, scored: Mechanism, over: Over):
        super().__init__()
        self.scored, self.over = scored, over

    def forward(self, keys: Tensor, queries: Tensor, pairs: Pairs) -> Tensor:
        return pairs.softmax(self.scored(keys, queries, pairs), self.over)


def as_parameter(tensor: Tensor | None) -> nn.Parameter | None:
    """A tensor as a parameter, or None."""
    return None if tensor is None else nn.Parameter(tensor)
