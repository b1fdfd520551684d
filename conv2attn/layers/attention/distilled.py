"""Self-attention on the tokens of one grid in which some heads are depthwise convolutions."""

from dataclasses import dataclass
from math import prod
from typing import Any, final

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.errors import UsageError

CONVOLUTIONS: Any = (F.conv1d, F.conv2d, F.conv3d)


@final
@dataclass(frozen=True)
class DistilledPlan:
    """The sizes of a distilled layer.

    Args:
        sides: sides of the grid of tokens, after `leading` tokens that are not pixels.
        attending, convolved: numbers of heads of each kind.
        d_key, d_value: widths of each head.
        kernel_size: odd, one number for each axis.
        returned: 0 if the layer returns a tensor, otherwise the length of its tuple, which begins with that tensor.
    """

    sides: tuple[int, ...]
    leading: int
    attending: int
    convolved: int
    d_in: int
    d_key: int
    d_value: int
    d_out: int
    kernel_size: tuple[int, ...]
    returned: int = 0


@final
class DistilledAttention(nn.Module):
    """`y = sum_h A_h x W_val,h^T W_out,h^T + b`, where `A_h` is a softmax or the table of a convolution.

    The first heads attend by `softmax(q k^T)`, with the scale in the query weights. In each other head, a pixel reads
    its neighbours with the weights of `kernel`, times its own entry of `scale`; `from_leading` are the weights of
    leading tokens for pixels, `by_leading` those of all tokens for leading tokens.

    Shapes:
        tokens (batch, leading + pixels, d_in) to (batch, leading + pixels, d_out), row by row.
        query, key (attending d_key, d_in), value (heads d_value, d_in), output (d_out, heads d_value);
        kernel (convolved, *kernel_size), scale (convolved, pixels), from_leading (convolved, pixels, leading),
        by_leading (convolved, leading, leading + pixels).
    Raises:
        UsageError: tokens of another number or width, or further tensors, such as masks (C2A120).
    """

    query: Tensor
    query_bias: Tensor
    key: Tensor
    key_bias: Tensor
    value: Tensor
    output: Tensor
    bias: Tensor
    kernel: Tensor
    scale: Tensor
    from_leading: Tensor
    by_leading: Tensor

    def __init__(self, plan: DistilledPlan):
        """Takes the sizes; parameters are empty until they are set."""
        super().__init__()
        self.plan = plan
        heads, pixels = plan.attending + plan.convolved, prod(plan.sides)
        self.tokens = plan.leading + pixels
        shapes: dict[str, tuple[int, ...]] = {
            "query": (plan.attending * plan.d_key, plan.d_in),
            "query_bias": (plan.attending * plan.d_key,),
            "key": (plan.attending * plan.d_key, plan.d_in),
            "key_bias": (plan.attending * plan.d_key,),
            "value": (heads * plan.d_value, plan.d_in),
            "output": (plan.d_out, heads * plan.d_value),
            "bias": (plan.d_out,),
            "kernel": (plan.convolved, *plan.kernel_size),
            "scale": (plan.convolved, pixels),
            "from_leading": (plan.convolved, pixels, plan.leading),
            "by_leading": (plan.convolved, plan.leading, self.tokens),
        }
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))

    def forward(self, tokens: Tensor, *others: Any, **named: Any) -> Any:
        """The layer's output; further arguments may not be tensors, except these tokens again."""
        plan = self.plan
        beside = [each for each in (*others, *named.values()) if isinstance(each, Tensor) and each is not tokens]
        if beside or tokens.ndim != 3 or tokens.shape[1] != self.tokens or tokens.shape[2] != plan.d_in:
            shape = "x".join(map(str, tokens.shape)) + (" and other tensors" if beside else "")
            reason = f"a distilled layer of {self.tokens}x{plan.d_in} tokens is called with {shape}"
            raise UsageError("C2A120", reason, "Pass images of the size that it was distilled on, without masks.")
        values = F.linear(tokens, self.value).unflatten(-1, (-1, plan.d_value)).transpose(1, 2)
        mixed: list[Tensor] = []
        if plan.attending:
            query = F.linear(tokens, self.query, self.query_bias).unflatten(-1, (-1, plan.d_key)).transpose(1, 2)
            key = F.linear(tokens, self.key, self.key_bias).unflatten(-1, (-1, plan.d_key)).transpose(1, 2)
            mixed.append(F.scaled_dot_product_attention(query, key, values[:, : plan.attending], scale=1.0))
        if plan.convolved:
            mixed.append(self.convolve(values[:, plan.attending :]))
        output = F.linear(torch.cat(mixed, 1).transpose(1, 2).flatten(2), self.output, self.bias)
        return (output, *[None] * (plan.returned - 1)) if plan.returned else output

    def convolve(self, values: Tensor) -> Tensor:
        """The heads that are convolutions, of values (batch, heads, tokens, channels)."""
        plan = self.plan
        leading, pixels = values[:, :, : plan.leading], values[:, :, plan.leading :]
        image = pixels.mT.flatten(1, 2).unflatten(-1, plan.sides)
        weight = self.kernel.repeat_interleave(plan.d_value, 0)[:, None]
        padding = tuple(size // 2 for size in plan.kernel_size)
        mixed: Tensor = CONVOLUTIONS[len(plan.sides) - 1](image, weight, padding=padding, groups=len(weight))
        mixed = mixed.flatten(2).unflatten(1, (plan.convolved, plan.d_value)).mT * self.scale[:, :, None]
        if not plan.leading:
            return mixed
        return torch.cat([self.by_leading @ values, mixed + self.from_leading @ leading], 2)

    def extra_repr(self) -> str:
        """The heads of each kind, and the grid."""
        plan = self.plan
        sides, kernel = ("x".join(map(str, each)) for each in (plan.sides, plan.kernel_size))
        return f"{plan.attending} heads attend, {plan.convolved} are {kernel} convolutions, grid {sides}"


def from_distilled_plan(sizes: dict[str, Any]) -> DistilledAttention:
    """A layer of these sizes, its parameters on the meta device.

    Raises:
        msgspec.ValidationError: the sizes are not those of a plan.
    """
    with torch.device("meta"):
        return DistilledAttention(msgspec.convert(sizes, DistilledPlan))
