"""Heads whose scores depend on the image: any terms of Eq. (8), over the relative positions of a family."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from conv2attn.basis.grid import AttentionGrid
from conv2attn.basis.operator import Operator
from conv2attn.basis.operators.softmax import Positions
from conv2attn.score_terms import ScoreTerms


@final
@dataclass(frozen=True, eq=False)
class ContentSoftmax(Operator):
    """`q.k + q.(W_hat_key r_delta) + u.k + v.(W_hat_key r_delta)`, those of the four that `terms` names, with
    `q = W_qry x_q + b_qry` and `k = W_key x_k + b_key`.

    A basis only once an image is given, so there is no `as_matrix`: the operators depend on what they are applied to.

    Args:
        positions: r_delta, and v by its meaning.
        query, key: (heads, d_key, d_in), or None where no term reads them.
        position_key: W_hat_key, (heads, d_key, d_position), or None for the identity.
        content_bias: u, (heads, d_key), or None.
        query_bias, key_bias: b_qry and b_key, (heads, d_key), or None. Eq. (1) has none, the authors' code has both.
    Source: Cordonnier et al. 2020, Eq. (8).
    """

    reads_content: ClassVar[bool] = True

    terms: ScoreTerms
    positions: Positions
    query: Tensor | None
    key: Tensor | None
    position_key: Tensor | None = None
    content_bias: Tensor | None = None
    query_bias: Tensor | None = None
    key_bias: Tensor | None = None

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.positions.heads

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """Eq. (8) on the padded `image`: (batch, heads, queries, keys)."""
        assert image is not None, "content is scored on an image"
        asked, keys = self.queries_of(grid, queries, image.to(dtype)), self.keys_of(image.to(dtype))
        parts = [self.positions.scores(grid, queries, dtype)] if self.terms.vr else []
        if self.terms.qk:
            parts.append(asked @ keys)
        if self.content_bias is not None:
            parts.append(torch.einsum("hd,bhdk->bhk", self.content_bias.to(dtype), keys)[:, :, None])
        if self.terms.qr:
            parts.append(self.positions.directed_scores(self.toward(asked), grid, queries))
        return sum(parts[1:], parts[0]).expand(-1, -1, queries.shape[0], -1)

    def queries_of(self, grid: AttentionGrid, queries: Tensor, image: Tensor) -> Tensor:
        """`W_qry x_q + b_qry` of some queries on the padded `image`: (batch, heads, queries, d_key)."""
        if self.query is None:
            return image.new_zeros(())
        asking = image[grid.sites.view(grid.keys, (0,) * len(grid.keys))].flatten(2)[:, :, queries]
        asked = torch.einsum("hdc,bcq->bhqd", self.query.to(image.dtype), asking)
        return asked if self.query_bias is None else asked + self.query_bias.to(image.dtype)[:, None]

    def keys_of(self, image: Tensor) -> Tensor:
        """`W_key x_k + b_key` of all keys on the padded `image`: (batch, heads, d_key, keys)."""
        if self.key is None:
            return image.new_zeros(())
        keys = torch.einsum("hdc,bck->bhdk", self.key.to(image.dtype), image.flatten(2))
        return keys if self.key_bias is None else keys + self.key_bias.to(image.dtype)[..., None]

    def toward(self, asked: Tensor) -> Tensor:
        """`W_hat_key^T q` for q (batch, heads, queries, d_key): (batch, heads, queries, d_position)."""
        if self.position_key is None:
            return asked
        return torch.einsum("bhqd,hdp->bhqp", asked, self.position_key.to(asked.dtype))
