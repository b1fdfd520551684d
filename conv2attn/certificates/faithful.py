"""Whether a convolution computes, on this device, what it says: held against its own formula in float32."""

from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.certificates.outputs import largest_difference
from conv2attn.errors import Conv2AttnError
from conv2attn.models.replacement import present
from conv2attn.theorem import STOCK

HALF = (torch.float16, torch.bfloat16)
SUMS = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


def departure(layer: nn.Module, args: Any, kwargs: Any, output: Tensor) -> float:
    """max |output - what a half-precision convolution on a CPU computes in float32|; 0 where it is not asked.

    In bfloat16 with channels innermost oneDNN, as of torch 2.13, reads beyond the image for some strides and dilations.
    """
    if not isinstance(layer, STOCK) or output.dtype not in HALF or output.device.type != "cpu":
        return 0.0
    image = (args[0] if args else kwargs["input"]).float()
    try:
        with present(layer) as convolution, torch.no_grad():
            axes = len(convolution.kernel_size)
            batched = image if image.ndim == axes + 2 else image.unsqueeze(0)
            keys = convolution.padding.pad(batched).contiguous()
            weight, bias = convolution.weight.float().contiguous(), convolution.bias
            exact = SUMS[axes](
                keys,
                weight,
                None if bias is None else bias.float(),
                stride=convolution.stride,
                dilation=convolution.dilation,
                groups=convolution.groups,
            )
    except (Conv2AttnError, RuntimeError):
        return 0.0
    exact = exact if image.ndim == batched.ndim else exact.squeeze(0)
    return largest_difference(exact, output.float()) if exact.shape == output.shape else 0.0
