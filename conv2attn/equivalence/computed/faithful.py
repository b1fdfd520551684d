"""Whether a convolution computes, on this device, what it says: held against its own formula in float32."""

import torch
from torch import Tensor, nn

from conv2attn.equivalence.computed.outputs import largest_difference
from conv2attn.errors import Conv2AttnError
from conv2attn.models.conversion.replacement import present
from conv2attn.theorem import STOCK, Convolution

HALF = (torch.float16, torch.bfloat16)
SUMS = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


def departure(layer: nn.Module, image: Tensor, output: Tensor) -> float:
    """`departure_of` for what a convolution layer made of an image; 0 for other layers and where it cannot be read."""
    if not isinstance(layer, STOCK) or not is_asked(output):
        return 0.0
    try:
        with present(layer) as convolution:
            return departure_of(convolution, image, output)
    except (Conv2AttnError, RuntimeError):
        return 0.0


def departure_of(convolution: Convolution, image: Tensor, output: Tensor) -> float:
    """max |output - what a half-precision convolution on a CPU computes in float32|; 0 where it is not asked.

    In bfloat16 with channels innermost oneDNN, as of torch 2.13, reads beyond the image for some strides and dilations.
    """
    if not is_asked(output):
        return 0.0
    axes = len(convolution.kernel_size)
    batched = image.float() if image.ndim == axes + 2 else image.float().unsqueeze(0)
    with torch.no_grad():
        exact = SUMS[axes](
            convolution.padding.pad(batched).contiguous(),
            convolution.weight.float().contiguous(),
            None if convolution.bias is None else convolution.bias.float(),
            stride=convolution.stride,
            dilation=convolution.dilation,
            groups=convolution.groups,
        )
    exact = exact if image.ndim == batched.ndim else exact.squeeze(0)
    return largest_difference(exact, output.float()) if exact.shape == output.shape else 0.0


def is_asked(output: Tensor) -> bool:
    """Whether kernels are known to fail in the dtype and on the device of this output."""
    return output.dtype in HALF and output.device.type == "cpu"
