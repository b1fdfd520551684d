"""Heads whose scores depend on the image: a subset of the terms of Eq. (8), with the relative positions of a family."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import AttentionGrid
from conv2attn.theory.basis.numbers import HeadNumbers
from conv2attn.theory.basis.operator import Operator
from conv2attn.theory.basis.operators.quadratic import isotropic
from conv2attn.theory.basis.operators.softmax import Positions
from conv2attn.theory.score_terms import ScoreTerms


@final
@dataclass(frozen=True, eq=False)
class ContentSoftmax(Operator):
    """`q.k + q.(W_hat_key r_delta) + u.k + v.(W_hat_key r_delta)`, restricted to the `terms`, with `q = W_qry x_q +
    b_qry` and `k = W_key x_k + b_key`.

    The operators depend on the image that they are applied to, so the family has no `as_matrix`.

    Args:
        positions: the family that gives r_delta; its own scores are the term `v.(W_hat_key r_delta)`.
        query, key: (heads, d_key, d_in), or None if no term reads them.
        position_key: W_hat_key, (heads, d_key, d_position), or None for the identity.
        content_bias: u, (heads, d_key), or None.
        query_bias, key_bias: b_qry and b_key, (heads, d_key), or None. Eq. (1) has none, the authors' code has both.
    Source: Cordonnier et al. 2020, Eq. (8).
    """

    reads_content: ClassVar[bool] = True

    terms: ScoreTerms
    positions: Positions
    query: Tensor | None  # (heads, d_key, d_in)
    key: Tensor | None  # (heads, d_key, d_in)
    position_key: Tensor | None = None  # (heads, d_key, d_position)
    content_bias: Tensor | None = None  # (heads, d_key)
    query_bias: Tensor | None = None  # (heads, d_key)
    key_bias: Tensor | None = None  # (heads, d_key)

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.positions.heads

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """Eq. (8) on the padded `image`: (batch, heads, queries, keys)."""
        assert image is not None, "content is scored on an image"
        q, keys = self.queries_of(grid, queries, image.to(dtype)), self.keys_of(image.to(dtype))
        parts = [self.positions.scores(grid, queries, dtype)] if self.terms.vr else []
        if self.terms.qk:
            parts.append(q @ keys.mT)
        if self.terms.uk:
            assert self.content_bias is not None
            parts.append(torch.einsum("hd,bhkd->bhk", self.content_bias.to(dtype), keys)[:, :, None])
        if self.terms.qr:
            parts.append(self.positions.directed_scores(self.toward(q), grid, queries))
        # v.r is the same for every image, and u.k for every query. If no other term is added, that axis has length 1.
        return sum(parts[1:], parts[0]).expand(-1, -1, queries.shape[0], -1)

    @property
    def is_separable(self) -> bool:  # type: ignore[override]
        """Whether the positional scores are a sum over the axes, or absent."""
        return self.positions.is_separable or not (self.terms.qr or self.terms.vr)

    def content_features(
        self, grid: AttentionGrid, dtype: torch.dtype, image: Tensor, by_axis: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Features whose inner products have the softmax of the scores: a part for content, then one for positions."""
        image, all_queries = image.to(dtype), grid.every_query()
        q, parts = self.queries_of(grid, all_queries, image), []
        # q.k + u.k = (q + u).k, so both terms share one feature of the key.
        if self.terms.has_key:
            bias = self.content_bias
            biases = [] if bias is None or not self.terms.uk else [bias.to(dtype)[None, :, None]]
            vectors = [q] if self.terms.qk else []
            parts.append((sum([*vectors, *biases]), self.keys_of(image)))
        if self.terms.qr or self.terms.vr:
            parts.append(self.position_features(grid, q, dtype, by_axis))
        shape = (image.shape[0], self.heads)
        queries, keys = (
            [part.expand(*shape, tokens, -1) for part in side]
            for side, tokens in zip(zip(*parts, strict=True), grid.shape, strict=True)
        )
        return queries, keys

    def position_features(
        self, grid: AttentionGrid, q: Tensor, dtype: torch.dtype, by_axis: bool
    ) -> tuple[Tensor, Tensor]:
        """The features of `q.(W_hat_key r_delta) + v.(W_hat_key r_delta)`, without a term that `terms` lacks."""
        positions, all_queries, query_parts = self.positions, grid.every_query(), []
        if by_axis:
            coordinates = grid.key_coordinates()
            # One-hot marks of the coordinates turn a lookup of scores by axis into an inner product, without rounding.
            marks = [
                coordinates[:, axis, None] == torch.arange(side, device=coordinates.device)
                for axis, side in enumerate(grid.keys)
            ]
            keys = torch.cat(marks, -1).to(dtype)[None, None]
            if self.terms.vr:
                query_parts.append(torch.cat(positions.parts(grid, all_queries, dtype), -1)[None])
            if self.terms.qr:
                query_parts.append(torch.cat(positions.directed_parts(self.toward(q), grid), -1))
        else:
            queries, keys = positions.features(grid, dtype)
            if self.terms.vr:
                query_parts.append(queries)
            if self.terms.qr:
                query_parts.append(positions.directed_features(self.toward(q), grid))
        return sum(query_parts[1:], query_parts[0]), keys

    def moved_centers(self, grid: AttentionGrid, image: Tensor) -> Tensor | None:
        """The displacement at which the positional terms are largest, for each query on the padded `image`.

        With the head's centre Delta and `W_hat_key^T q = (a, b)`, it is `(2 alpha Delta + b) / (2 (alpha - a))`.

        Returns:
            (batch, heads, queries, axes) in float64; NaN if no score is the largest. None if the scores do not have
            the term qr, or heads are not quadratic.
        Source: claim DEFORM of proofs/.
        """
        heads = isotropic(self.positions)
        if heads is None or not self.terms.qr:
            return None
        q = self.queries_of(grid, grid.every_query(), image.double())
        return heads.moved_centers(self.toward(q))

    def numbers_on(self, image: Tensor) -> HeadNumbers | None:
        """Bounds on the positional part of the scores on the padded `image`; None if positions have no features.

        Let `q.(W_hat_key r_delta) = a |delta|^2 + b . delta`. On grids with a side of at least 2, the absolute values
        of the products in a score sum to no more than those of a head of sharpness `alpha + |a| + |b| / 3`. For general
        quadratic forms, |a| is the sum of the absolute values of the coefficients of the squares. Reads values.
        """
        # |b . delta| is at most |b| n L, and a sharpness s allows 3 s n L^2 (`absolute_score_error`): hence |b| / 3.
        if not (self.positions.has_features and (self.terms.qr or self.terms.vr)):
            return None
        axes, reach, sharpness = self.positions.dimensions, 0.0, 0.0
        if self.terms.vr:
            numbers = self.positions.numbers()
            reach = max([numbers.reach, *(abs(x) for center in numbers.centers for x in center)])
            sharpness = max([numbers.sharpness, *map(abs, numbers.alphas)])
        if self.terms.qr:
            query, bias = self.query, self.query_bias
            assert query is not None
            if self.position_key is not None:
                # The product of the matrices comes first: the bound is on the vector multiplied with r_delta. A bound
                # on each factor would be larger, since the product may cancel.
                query = self.position_key.mT @ query
                bias = None if bias is None else torch.einsum("hdp,hd->hp", self.position_key, bias)
            toward = torch.einsum("hpc,bcn->bhpn", query.detach(), image.flatten(2).to(query))
            toward = (toward if bias is None else toward + bias.detach()[..., None]).abs()
            toward = toward.amax((0, 1, 3)) if toward.numel() else toward.new_zeros(toward.shape[2])
            squares, linear = self.positions.split(toward)
            sharpness += squares.sum().item() + linear.amax().item() / 3
        return HeadNumbers(axes=axes, reach=reach, sharpness=sharpness)

    def queries_of(self, grid: AttentionGrid, queries: Tensor, image: Tensor) -> Tensor:
        """`W_qry x_q + b_qry` of some queries on the padded `image`: (batch, heads, queries, d_key)."""
        if self.query is None:
            return image.new_zeros(())
        pixels = image[grid.sites.view(grid.keys, (0,) * len(grid.keys))].flatten(2)[:, :, queries]
        q = torch.einsum("hdc,bcq->bhqd", self.query.to(image.dtype), pixels)
        return q if self.query_bias is None else q + self.query_bias.to(image.dtype)[:, None]

    def keys_of(self, image: Tensor) -> Tensor:
        """`W_key x_k + b_key` of all keys on the padded `image`: (batch, heads, keys, d_key)."""
        if self.key is None:
            return image.new_zeros(())
        keys = torch.einsum("hdc,bck->bhkd", self.key.to(image.dtype), image.flatten(2))
        return keys if self.key_bias is None else keys + self.key_bias.to(image.dtype)[:, None]

    def toward(self, q: Tensor) -> Tensor:
        """`W_hat_key^T q` for q (batch, heads, queries, d_key): (batch, heads, queries, d_position)."""
        if self.position_key is None:
            return q
        return torch.einsum("bhqd,hdp->bhqp", q, self.position_key.to(q.dtype))
