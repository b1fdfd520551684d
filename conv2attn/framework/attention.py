"""Convolutions whose basis is computed from content (Andreoli 2019, Def. 5 and Eq. 10)."""

import math
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.basis import Basis, Pattern, Weights, basis_of
from conv2attn.errors import UsageError
from conv2attn.framework.convolution import BasisConvolution
from conv2attn.framework.mechanisms import Mechanism, as_parameter
from conv2attn.framework.pairs import AllPairs, Edges


@final
class AttentionConvolution(nn.Module):
    """`y = sum_k a_k(x, z) x M_k^T + b` with a mechanism a; self-attention where z is x.

    `M_k = output_k value_k` (Eq. 13). Heads whose basis is given, not computed, may stand beside (Sec. 3.3, end).

    Args:
        mechanism: gives the weights of all heads; its last step is usually a softmax.
        value: (heads, d_head, d_in).
        output: (heads, d_out, d_head), or None for the identity: the heads are added up.
        bias: (d_out), or None.
        concatenate: without `output`, put the heads side by side: d_out = heads * d_head.
        of_values: the mechanism reads `value x` of its own head, as in graph attention networks, and not x.
        given: the heads with a given basis.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        value: Tensor,
        output: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        concatenate: bool = False,
        of_values: bool = False,
        given: BasisConvolution | None = None,
    ):
        super().__init__()
        if concatenate and output is not None:
            raise UsageError("C2A001", "heads with an output matrix are added up, not concatenated")
        self.mechanism, self.value, self.output = mechanism, nn.Parameter(value), as_parameter(output)
        self.bias, self.concatenate, self.of_values, self.given = as_parameter(bias), concatenate, of_values, given

    def weights(self, image: Tensor, other: Tensor | None = None, mask: Tensor | Pattern | None = None) -> Tensor:
        """The `a_k`: (batch, heads, queries, keys), or (batch, heads, pairs) under a `Pattern`."""
        return self.attend(image, other, mask)[0]

    def basis(self, image: Tensor, other: Tensor | None = None, mask: Tensor | Pattern | None = None) -> Basis:
        """The layer on one image, with the heads that are not given: linear once its attention is known."""
        if len(image) != 1:
            raise UsageError("C2A120", f"the basis depends on the image, and there are {len(image)}")
        weights, _, pairs = self.attend(image, other, mask)
        output = self.output
        if self.concatenate:
            heads, size = self.value.shape[:2]
            output = torch.eye(heads * size).to(self.value).unflatten(1, (heads, size)).movedim(1, 0)
        return basis_of(pairs.operator(weights[0]), Weights(self.value, output, self.bias), image.ndim - 2)

    def forward(
        self,
        image: Tensor,
        other: Tensor | None = None,
        mask: Tensor | Pattern | None = None,
        structure: Any = None,
    ) -> Tensor:
        """`image` (batch, d_in, *sides) read by the tokens of `other`, by default by its own: (batch, d_out, *queries).

        Args:
            mask: in the log domain, -inf where a query must not read a key, broadcast to (batch, heads, queries,
                keys); or the only pairs there are, in which case nothing of the size queries x keys is formed.
            structure: the operators of the given heads.
        """
        weights, values, pairs = self.attend(image, other, mask)
        heads = pairs.mix(weights, values)
        if self.concatenate:
            tokens = heads.movedim(1, 2).flatten(2)
        elif self.output is None:
            tokens = heads.sum(1)
        else:
            tokens = torch.einsum("bhqd,hod->bqo", heads, self.output)
        if self.bias is not None:
            tokens = tokens + self.bias
        result = tokens.mT.unflatten(2, pairs.queries)
        return result if self.given is None else result + self.given(image, structure)

    def attend(
        self, image: Tensor, other: Tensor | None, mask: Tensor | Pattern | None
    ) -> tuple[Tensor, Tensor, AllPairs | Edges]:
        """The weights, the values (batch, heads, keys, d_head), and the pairs that are scored."""
        asked = image if other is None else other
        sides, queries = tuple(image.shape[2:]), tuple(asked.shape[2:])
        if isinstance(mask, Pattern) and mask.shape != (math.prod(queries), math.prod(sides)):
            raise UsageError("C2A122", f"a mask of {mask.shape} tokens for queries {queries} and keys {sides}")
        pairs = Edges(mask, queries) if isinstance(mask, Pattern) else AllPairs(sides, queries, mask)
        keys, readers = image.flatten(2).mT[:, None], asked.flatten(2).mT[:, None]
        values = torch.einsum("bkc,hdc->bkhd", keys[:, 0], self.value).movedim(2, 1)
        if self.of_values:
            keys, readers = values, values if other is None else readers @ self.value.mT
        return pairs.open(self.mechanism(keys, readers, pairs)), values, pairs
