"""Heads whose scores depend on the image: the other three terms of Eq. (8), added to those of a position family."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from conv2attn.basis.grid import AttentionGrid
from conv2attn.basis.operator import Operator
from conv2attn.basis.operators.softmax import Positions


@final
@dataclass(frozen=True, eq=False)
class ContentSoftmax(Operator):
    """`q.k + q.(W_hat_key r_delta) + u.k` with `q = W_qry x_q + b_qry` and `k = W_key x_k + b_key`, and the scores of
    `positions`.

    A basis only once an image is given, so there is no `as_matrix`: the operators depend on what they are applied to.

    Args:
        query, key: (heads, d_key, d_in), or None where no term reads them.
        position_key: (heads, d_key, d_position), or None.
        content_bias: u, (heads, d_key), or None.
        query_bias, key_bias: b_qry and b_key, (heads, d_key), or None. Eq. (1) has none, the authors' code has both.
    Source: Cordonnier et al. 2020, Eq. (8).
    """

    reads_content: ClassVar[bool] = True

    positions: Positions
    query: Tensor | None
    key: Tensor | None
    position_key: Tensor | None
    content_bias: Tensor | None
    query_bias: Tensor | None = None
    key_bias: Tensor | None = None

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.positions.heads

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """Eq. (8) on the padded `image`: (batch, heads, queries, keys)."""
        assert image is not None, "content is scored on an image"
        total = self.positions.scores(grid, queries, dtype)
        image = image.to(dtype)
        tokens = image.flatten(2)
        asking = image[grid.sites.view(grid.keys, (0,) * len(grid.keys))].flatten(2)[:, :, queries]
        asked = None if self.query is None else torch.einsum("hdc,bcq->bhqd", self.query.to(dtype), asking)
        if asked is not None and self.query_bias is not None:
            asked = asked + self.query_bias.to(dtype)[:, None]
        if self.key is not None:
            keys = torch.einsum("hdc,bck->bhdk", self.key.to(dtype), tokens)
            if self.key_bias is not None:
                keys = keys + self.key_bias.to(dtype)[..., None]
            if asked is not None:
                total = total + asked @ keys
            if self.content_bias is not None:
                total = total + torch.einsum("hd,bhdk->bhk", self.content_bias.to(dtype), keys)[:, :, None]
        if self.position_key is not None and asked is not None:
            toward = torch.einsum("bhqd,hdp->bhqp", asked, self.position_key.to(dtype))
            total = total + self.positions.directed_scores(toward, grid, queries)
        return total
