"""Relative positional encodings: the trainable numbers behind a family of softmax operators.

The v of Eq. (8) enters only through `W_hat_key^T v`, a vector of d_position numbers a head; an encoding holds it by
its meaning, a centre and a sharpness, so that scores are computed without the cancellation of the expanded form.
Its parameters never drop below float32: bfloat16 cannot count past 256.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from conv2attn.basis import EnumeratedSoftmax, GeneralisedSoftmax, QuadraticSoftmax


class CenteredPositions(nn.Module):
    """A centre in pixels (heads, axes) for each head, kept in float32 or float64 with all else of it.

    Positions that train are parameters. Others are buffers outside the state dict: they follow from the geometry.
    """

    center: Tensor

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.center.shape[0]

    @property
    def dimensions(self) -> int:
        """Number of axes of the grid."""
        return self.center.shape[1]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def no_lower(tensor: Tensor) -> Tensor:
            cast = fn(tensor)
            return cast if cast.dtype not in (torch.float16, torch.bfloat16) else tensor.float().to(cast.device)

        super()._apply(no_lower, recurse)
        return self

    def learn(self, whether: bool = True) -> Self:
        """Makes all positions parameters that train, or buffers outside the state dict."""
        for name, value in [*self.named_parameters(), *self.named_buffers()]:
            delattr(self, name)
            if whether:
                self.register_parameter(name, nn.Parameter(value.detach()))
            else:
                self.register_buffer(name, value.detach(), persistent=False)
        return self

    def fixed(self) -> dict[str, Any]:
        """The positions that do not train, as plain numbers, and their dtype; empty where all train."""
        held: dict[str, Any] = {name: value.tolist() for name, value in self.named_buffers()}
        return held and {"dtype": str(self.center.dtype).removeprefix("torch."), **held}

    def arguments(self) -> list[int]:
        """What, with a state dict and `fixed`, rebuilds it: heads and axes."""
        return [self.heads, self.dimensions]


class HeadPositions(CenteredPositions):
    """A sharpness `alpha` (heads) beside each centre."""

    d_position: int
    alpha: Tensor

    def __init__(self, centers: Tensor | Sequence[Sequence[float]], alpha: Tensor | Sequence[float] | float):
        super().__init__()
        center = torch.as_tensor(centers, dtype=None if isinstance(centers, Tensor) else torch.float32)
        sharpness = torch.as_tensor(alpha, dtype=center.dtype, device=center.device)
        self.center = nn.Parameter(center.detach().clone())
        self.alpha = nn.Parameter(sharpness.detach().expand(len(center)).clone())

    @classmethod
    def from_arguments(cls, arguments: Sequence[int]) -> Self:
        """An encoding of this shape, at zero."""
        return cls(torch.zeros(*arguments), 1.0)

    def extra_repr(self) -> str:
        """Heads, axes and the range of alpha."""
        if self.alpha.device.type == "meta":
            return f"heads={self.heads}, dimensions={self.dimensions}"
        low, high = self.alpha.min().item(), self.alpha.max().item()
        sharpness = f"{low:g}" if low == high else f"{low:g}..{high:g}"
        return f"heads={self.heads}, dimensions={self.dimensions}, alpha={sharpness}"


class QuadraticEncoding(HeadPositions):
    """`r_delta = (|delta|^2, delta)`, `v = -alpha (1, -2 center)`: scores are `-alpha |delta - center|^2` + const.

    Source: Cordonnier et al. 2020, Eq. (9); d_position = axes + 1.
    """

    @property
    def d_position(self) -> int:  # type: ignore[override]
        """Width of r_delta: one more than the number of axes."""
        return self.dimensions + 1

    def operators(self) -> QuadraticSoftmax:
        """The softmax operators of the heads, over the live parameters."""
        return QuadraticSoftmax(self.center, self.alpha)


class EnumeratedEncoding(HeadPositions):
    """`r_delta = (t, t^2)`, `v = alpha (2 t_center, -1)`: two dimensions serve any number of shifts.

    t is an injective integer function of the displacement; its radix grows with the run-time grid, and the score
    `-alpha (t - t_center)^2` is computed from int64. Disproves the conjecture d_position >= 3 of Cordonnier et al.
    2019, v1.
    """

    d_position = 2

    def operators(self) -> EnumeratedSoftmax:
        """The softmax operators of the heads, over the live parameters."""
        return EnumeratedSoftmax(self.center, self.alpha)


class GeneralisedEncoding(CenteredPositions):
    """`r_delta = (delta, delta_i delta_j)`: scores are `-1/2 |root (delta - center)|^2`, a full covariance per head.

    `root` is Sigma^{-1/2}; any matrix is one, and `root^T root` is positive semi-definite.

    Args:
        centers: in pixels, (heads, axes).
        root: (heads, axes, axes), or one for all heads; the identity by default.
    Source: Cordonnier et al. 2020, Eq. (19); d_position = axes (axes + 3) / 2.
    """

    def __init__(self, centers: Tensor | Sequence[Sequence[float]], root: Tensor | None = None):
        super().__init__()
        center = torch.as_tensor(centers, dtype=None if isinstance(centers, Tensor) else torch.float32)
        heads, axes = center.shape
        given = torch.eye(axes) if root is None else root
        self.center = nn.Parameter(center.detach().clone())
        self.root = nn.Parameter(given.detach().to(center).expand(heads, axes, axes).clone())

    @property
    def d_position(self) -> int:
        """Width of r_delta."""
        return self.dimensions * (self.dimensions + 3) // 2

    def operators(self) -> GeneralisedSoftmax:
        """The softmax operators of the heads, over the live parameters."""
        return GeneralisedSoftmax(self.center, self.root)

    @classmethod
    def from_arguments(cls, arguments: Sequence[int]) -> Self:
        """An encoding of this shape, at zero."""
        return cls(torch.zeros(*arguments))

    def extra_repr(self) -> str:
        """Heads and axes."""
        return f"heads={self.heads}, dimensions={self.dimensions}"
