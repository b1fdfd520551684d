"""Functions written as compositions of others, so that code that writes them out is the same function."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.equality.worlds.shadows import Unfollowed
from conv2attn.torch_internals import decomposition_table


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x (1 + erf(x / sqrt 2)) / 2, or its approximation by tanh; torch's own code creates two more tensors."""
    if approximate == "none":
        return torch.addcmul(x, x, (x * math.sqrt(0.5)).erf()).mul_(0.5)
    return torch.addcmul(x, x, (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh()).mul_(0.5)


def absolute(x: Tensor) -> Tensor:
    """|x|: two slopes around 0, or the root of two squares."""
    return torch.view_as_real(x).square().sum(-1).sqrt() if x.is_complex() else x.relu() + x.neg().relu()


def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 / (1 + exp(-x))) = -log(1 + exp(-x)), and what torch's operator returns beside it."""
    # Torch's softplus leaves out the logarithm above 20, which float32 does not see: exp(-20) is 2e-9. Float64 does.
    return (x.sigmoid().log() if x.dtype == torch.float64 else -F.softplus(-x)), x


def threshold(x: Tensor, bound: float, value: float) -> Tensor:
    """A threshold that replaces smaller numbers by the threshold: a lower bound."""
    if bound != value:
        raise Unfollowed("a threshold with a jump")
    return x.clamp(min=bound)


COMPOSED: dict[str, Callable[..., Any]] = {
    "aten::log_sigmoid_forward": log_sigmoid,
    "aten::gelu": gelu,
    "aten::abs": absolute,
    "aten::_prelu_kernel": lambda x, slopes: x.relu() - slopes * x.neg().relu(),
    "aten::clamp_min": lambda x, low: x.clamp(min=low),
    "aten::clamp_max": lambda x, high: x.clamp(max=high),
    "aten::threshold": threshold,
    "aten::_log_softmax": lambda x, axis, _: x - x.logsumexp(axis, keepdim=True),
}
"""Operators that are replaced by this code."""
BY_TORCH = ("silu", "mish", "hardsigmoid", "hardswish", "glu", "hardtanh")
"""Operators that are replaced by torch's decomposition."""


def written_out(func: Any) -> Callable[..., Any] | None:
    """The code that replaces an operator, if there is any."""
    name = func._schema.name.rstrip("_")
    if name.removeprefix("aten::") in BY_TORCH:
        return decomposition_table.get(
            getattr(getattr(torch.ops.aten, name.removeprefix("aten::")), func._overloadname)
        )
    return COMPOSED.get(name)
