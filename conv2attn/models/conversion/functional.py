"""Functional convolutions of a network as `Convolution`s."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch.nn import functional as F

from conv2attn.basis import Padding
from conv2attn.errors import UnsupportedError
from conv2attn.theorem import Convolution
from conv2attn.theorem.convolution import DTYPES, check_plain, per_axis, resolve_padding, transposed_convolution

FUNCTIONS: dict[Callable[..., Any], tuple[str, int]] = {
    F.conv1d: ("conv1d", 1),
    F.conv2d: ("conv2d", 2),
    F.conv3d: ("conv3d", 3),
    F.conv_transpose1d: ("conv_transpose1d", 1),
    F.conv_transpose2d: ("conv_transpose2d", 2),
    F.conv_transpose3d: ("conv_transpose3d", 3),
}

OTHER_FUNCTIONS = (torch.convolution, torch._convolution, torch.conv_tbc)


@final
@dataclass(frozen=True, eq=False)
class FunctionalCall:
    """A functional convolution in the forward of the module `owner`; `reason` says why `convolution` is None."""

    owner: str
    function: str
    convolution: Convolution | None = None
    reason: str = ""

    @property
    def signature(self) -> str:
        """The call in one line."""
        return self.convolution.describe(self.function) if self.convolution else self.function

    @property
    def name(self) -> str:
        """The call as reports name it: `(root):conv2d`."""
        return f"{self.owner or '(root)'}:{self.function}"


def convolution_of_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Convolution:
    """The convolution that a call of torch.nn.functional.conv* computes.

    Raises:
        UnsupportedError: weights of a dtype without a softmax (C2A102), or of a class that computes by itself (C2A106).
    """
    name, axes = FUNCTIONS[function]
    plain = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    order = (*plain[:5], "output_padding", "groups", "dilation") if "transpose" in name else plain
    arguments = {**dict(zip(order, args, strict=False)), **kwargs}
    weight, bias, groups = arguments["weight"], arguments.get("bias"), arguments.get("groups", 1)
    check_plain(name, weight, bias)
    if weight.dtype not in DTYPES:
        raise UnsupportedError(
            "C2A102",
            f"{name} is called with weights of {weight.dtype}",
            "Dequantise or cast the weights to float64, float32, bfloat16 or float16 first.",
        )
    stride, dilation = (per_axis(arguments.get(key, 1), axes) for key in ("stride", "dilation"))
    padding = arguments.get("padding", 0)
    if "transpose" in name:
        amounts = per_axis(padding, axes), per_axis(arguments.get("output_padding", 0), axes)
        return transposed_convolution(weight, bias, stride, *amounts, groups, dilation)
    amount = padding if isinstance(padding, str) else per_axis(padding, axes)
    before, after = resolve_padding(amount, weight.shape[2:], dilation, stride)
    return Convolution(weight, bias, stride, dilation, Padding(before, after), groups)


def unconverted(owner: str, function: str, reason: str) -> FunctionalCall:
    """A functional convolution that is not converted, with the reason."""
    return FunctionalCall(
        owner,
        function,
        None,
        str(UnsupportedError("C2A107", f"{owner or 'the network'} {reason}", "Wrap the call in an nn.Conv layer.")),
    )
