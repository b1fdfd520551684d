"""One call of a layer, as an engine sees it: the image, the geometry, and the weights in the dtype of the call."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from conv2attn.basis import AttentionGrid, Padding, Sites

if TYPE_CHECKING:
    from conv2attn.attention.layer import MultiHeadSelfAttention


@final
@dataclass(frozen=True, eq=False)
class Weights:
    """`value` (heads, d_head, d_in / groups), `output` (heads, d_out, d_head / groups), `bias` (d_out).

    None is the identity, or no bias.

    With groups, row blocks of a matrix read the column block of their own group, as in torch.nn.functional.conv2d.
    """

    value: Tensor | None
    output: Tensor | None
    bias: Tensor | None
    groups: int

    def to(self, dtype: torch.dtype) -> "Weights":
        """The same weights in another dtype; no copy where it is theirs already."""
        value, output, bias = (None if w is None else w.to(dtype) for w in (self.value, self.output, self.bias))
        return Weights(value, output, bias, self.groups)

    def taps(self) -> Tensor:
        """`W_val W_out` of each head, (heads, d_out, d_in / groups); exact where either is the identity."""
        if self.output is None or self.value is None:
            taps = self.value if self.output is None else self.output
            assert taps is not None
            return taps
        value, output = self.value.unflatten(1, (self.groups, -1)), self.output.unflatten(1, (self.groups, -1))
        return torch.einsum("hgok,hgki->hgoi", output, value).flatten(1, 2)


@final
@dataclass(frozen=True, eq=False)
class Call:
    """What an engine is given: a layer as it is now, and a batch of images (batch, d_in, *sides)."""

    layer: "MultiHeadSelfAttention"
    image: Tensor
    padding: Padding
    sites: Sites
    weights: Weights

    @cached_property
    def padded(self) -> Tensor:
        """The keys: the padded image."""
        return self.padding.pad(self.image)

    @cached_property
    def grid(self) -> AttentionGrid:
        """The keys and queries."""
        return AttentionGrid(self.padding.sides(tuple(self.image.shape[2:])), self.sites)

    @property
    def score_dtype(self) -> torch.dtype:
        """Scores and softmax are computed in float64 for float64 images, otherwise in float32."""
        return torch.float64 if self.image.dtype == torch.float64 else torch.float32

    @property
    def memory_limit(self) -> int:
        """Bytes that temporary tensors of the call may take."""
        return self.layer.memory_limit
