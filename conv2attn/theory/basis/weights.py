"""The channel matrices `M_k` of a basis, each stored as a product of two factors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from conv2attn.errors import UnsupportedError
from conv2attn.theory.basis.grid import Sides


@final
@dataclass(frozen=True, eq=False)
class Weights:
    """The channel matrices `M_k = output_k value_k`, and the bias.

    Args:
        value: (terms, d_head, d_in / groups), or None for the identity.
        output: (terms, d_out, d_head / groups), or None for the identity.
        bias: (d_out); or (d_out, *queries) if it differs between queries, as in a composition; or None.
        groups: number of diagonal blocks of each matrix, as in torch.nn.functional.conv2d.
    """

    value: Tensor | None
    output: Tensor | None
    bias: Tensor | None = None
    groups: int = 1

    @classmethod
    def of_kernel(
        cls, kernel: Tensor, bias: Tensor | None, groups: int, narrow: bool, transposed: bool = False
    ) -> "Weights":
        """Weights whose channel matrices are the taps of a convolution's `kernel`, (d_out, d_in / groups, *sides).

        The taps are made on first use, since a layer that is evaluated as a convolution never needs them. They are
        views of the kernel. Only the kernel of a transposed convolution is copied.

        Args:
            narrow: whether the taps are stored as `value`; otherwise they are stored as `output`.
            transposed: whether `kernel` is that of a transposed convolution, (d_in, d_out / groups, *sides).
        """
        # Without `__init__`: `value` and `output` must stay unset, or `__getattr__` would not be called for them.
        weights = object.__new__(cls)
        vars(weights).update(bias=bias, groups=groups, source=(kernel, narrow, transposed, torch.is_grad_enabled()))
        return weights

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor | None:
            if name not in ("value", "output") or "source" not in vars(self):
                raise AttributeError(f"weights have no {name}")
            kernel, narrow, transposed, grad = vars(self)["source"]
            # The views are kept for later uses, so a first use under `no_grad` must not make them without gradients.
            # Hence they are made in the gradient mode in which `of_kernel` was called.
            with torch.set_grad_enabled(grad):
                taps = kernel_taps(kernel, self.groups, transposed)
            vars(self).update(value=taps if narrow else None, output=None if narrow else taps)
            return vars(self)[name]

    @property
    def like(self) -> Tensor:
        """A tensor with the dtype and the device of the weights."""
        return vars(self)["source"][0] if "source" in vars(self) else self.stored

    @property
    def transposed(self) -> bool:
        """Whether the weights are the taps of a transposed convolution's kernel."""
        return "source" in vars(self) and vars(self)["source"][2]

    def kernel(self, sides: Sides, order: Sequence[int] | None = None, transposed: bool = False) -> Tensor:
        """The channel matrices as a kernel (d_out, d_in / groups, *sides), whose taps are row-major.

        Args:
            order: the term whose channel matrix each tap of the kernel holds; by default the terms in their order.
            transposed: whether the kernel is to be that of a transposed convolution, (d_in, d_out / groups, *sides).
        """
        # The original parameter itself where possible: it is exact, needs no memory, and its gradients arrive directly.
        if order is None and (source := vars(self).get("source")) is not None and source[2] == transposed:
            kernel: Tensor = source[0]
            if kernel.shape[2:] == sides:
                return kernel
        taps = self.taps()
        taps = taps if order is None else torch.stack([taps[head] for head in order])
        kernel = taps.permute(1, 2, 0).reshape(*taps.shape[1:], *sides)
        return turned(kernel, self.groups) if transposed else kernel

    @property
    def stored(self) -> Tensor:
        """A stored factor: the output, or the value if the output is the identity.

        Raises:
            UnsupportedError: no factor is stored, since each call passes the weights (C2A103).
        """
        factor = self.value if self.output is None else self.output
        if factor is None:
            reason = "attention that replaces a functional convolution gets its weights at each call, and stores none"
            raise UnsupportedError("C2A103", reason, "Leave this layer out.")
        return factor

    @property
    def d_in(self) -> int:
        """Number of input channels."""
        return self.stored.shape[2] * self.groups if self.value is None else self.value.shape[2] * self.groups

    @property
    def d_out(self) -> int:
        """Number of output channels."""
        return self.stored.shape[1] if self.output is None else self.output.shape[1]

    @property
    def d_head(self) -> int:
        """Number of channels between the factors, over all groups."""
        return self.stored.shape[2] * self.groups if self.value is None else self.value.shape[1]

    def explicit_factors(self) -> tuple[Tensor, Tensor]:
        """Value (terms, d_head, d_in / groups) and output (terms, d_out, d_head / groups); identities as matrices."""

        def factor(stored: Tensor | None, width: int) -> Tensor:
            if stored is not None:
                return stored
            identity = torch.eye(width // self.groups, device="cpu").repeat(self.groups, 1)
            return identity.to(self.stored).expand(len(self.stored), -1, -1)

        return factor(self.value, self.d_in), factor(self.output, self.d_out)

    @property
    def numbers(self) -> int:
        """How many numbers both factors hold."""
        return sum(factor.numel() for factor in (self.value, self.output) if factor is not None)

    def to(self, where: torch.dtype | torch.device) -> "Weights":
        """These weights in another dtype or on another device; no copy if unchanged."""
        if "source" in vars(self):
            kernel, narrow, transposed, _ = vars(self)["source"]
            bias = None if self.bias is None else self.bias.to(where)
            return Weights.of_kernel(kernel.to(where), bias, self.groups, narrow, transposed)
        value, output, bias = (None if w is None else w.to(where) for w in (self.value, self.output, self.bias))
        return Weights(value, output, bias, self.groups)

    def taps(self) -> Tensor:
        """`M_k` of each term, (terms, d_out, d_in / groups); exact if either factor is the identity."""
        # No product with an identity: in tf32 it would cut the weights, and 0 times infinity would be NaN.
        if self.output is None or self.value is None:
            return self.stored
        value, output = self.value.unflatten(1, (self.groups, -1)), self.output.unflatten(1, (self.groups, -1))
        return torch.einsum("hgok,hgki->hgoi", output, value).flatten(1, 2)

    def dense(self) -> Tensor:
        """`M_k` with its zero blocks, (terms, d_out, d_in)."""
        blocks = self.taps().unflatten(1, (self.groups, -1))
        return torch.stack([torch.block_diag(*matrix) for matrix in blocks])


def kernel_taps(weight: Tensor, groups: int = 1, transposed: bool = False) -> Tensor:
    """The channel matrices of a convolution's weight, one per tap, row-major: (taps, d_out, d_in / groups).

    The result is a view of `weight`, except if `transposed`: `turned` makes a copy.

    Args:
        weight: (d_out, d_in / groups, *kernel_size); if `transposed`, (d_in, d_out / groups, *kernel_size).
    """
    return (turned(weight, groups) if transposed else weight).flatten(2).permute(2, 0, 1)


def turned(weight: Tensor, groups: int) -> Tensor:
    """Turns the weight of a transposed convolution into that of the convolution that computes the same map, or back.

    The convolution reads the image with zeros stuffed between its pixels.
    """
    # The transpose of a shift by a is the shift by -a, so the taps are flipped, and input and output channels change
    # places within each group. Doing both twice gives the weight back.
    return weight.flip(list(range(2, weight.ndim))).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
