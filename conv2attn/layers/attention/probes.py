"""Measures the arithmetic of this device, once, instead of assuming it."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conv2attn.torch_internals import mkldnn_enabled

SPIKE = 1e7


@lru_cache(maxsize=64)
def exponential_underflows(threshold: float, dtype: torch.dtype, device: str) -> bool:
    """Whether softmax, after the cast, is exactly 1 and 0 for scores 0 and below `-threshold` in any vector lane."""
    score_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    below = math.nextafter(threshold, math.inf) if dtype == torch.float64 else threshold * (1 + 2**-22)
    with torch.inference_mode(False), torch.no_grad():
        # 67 is prime to every vector width, so each lane and the scalar remainder compute some diagonal entry.
        scores = torch.full((67, 67), -below, dtype=score_dtype, device=device)
        scores.fill_diagonal_(0.0)
        attention = torch.softmax(scores, -1).to(dtype)
        return torch.equal(attention, torch.eye(67, dtype=dtype, device=device))


def float32_precisions(device: str) -> tuple[str, str]:
    """torch's present `fp32_precision` on this device (none, ieee, tf32 or bf16), for convolutions and for products.

    They are those of cuDNN and cuBLAS on a GPU, of oneDNN elsewhere. The older `allow_tf32` raises if it contradicts
    them.
    """
    convolutions: Any = torch.backends.cudnn if device == "cuda" else torch.backends.mkldnn
    products: Any = torch.backends.cuda if device == "cuda" else torch.backends.mkldnn
    return convolutions.conv.fp32_precision, products.matmul.fp32_precision


def indirect_convolution(image: Tensor) -> str | None:
    """The reason why this device's convolution of `image` may not be a direct sum of products in its dtype, or None.

    Winograd and FFT convolutions, and TF32, break the error bound of a direct sum. On a GPU the algorithm depends on
    the shape, so directness is never assumed; on a CPU it is measured.
    """
    if image.device.type == "cuda":
        if image.dtype == torch.float32 and float32_precisions("cuda")[0] == "tf32":
            return "cuDNN may round to TF32 here (torch.backends.cudnn.conv.fp32_precision)"
        return "cuDNN may choose a Winograd or FFT algorithm"
    spread = spread_of_kernels(image.dtype, image.device.type, backend_flags(image.device.type))
    return (
        f"a pixel of {SPIKE:g} changes outputs that do not depend on it by {spread:.2g}: not a direct sum"
        if spread
        else None
    )


def backend_flags(device: str) -> tuple[Any, ...]:
    """The settings of torch on which the kernels of a convolution depend."""
    if device == "cuda":
        return float32_precisions(device)
    return (mkldnn_enabled(),)


@lru_cache(maxsize=64)
def spread_of_kernels(dtype: torch.dtype, device: str, flags: tuple[Any, ...]) -> float:
    """`spread_of_spike` for a 3x3 layer and a batch for which libraries are known to choose Winograd algorithms.

    The larger number of the convolution and of the transposed convolution.
    """
    with torch.inference_mode(False):
        # Not drawn by torch: a layer may call this while its network is traced, and the draw would count as the
        # network's.
        drawn = torch.as_tensor(np.random.default_rng(0).standard_normal((16, 16, 3, 3)), device="cpu")
        weight = drawn.to(device, torch.float32).to(dtype)
    ones: tuple[int, ...] = (1, 1)

    def layer(transposed: bool, image: Tensor) -> Tensor:
        return torch.convolution(image, weight, None, ones, ones, ones, transposed, (0, 0), 1)

    shape, affected = torch.Size((16, 16, 24, 24)), (slice(11, 14), slice(11, 14))
    return max(spread_of_spike(partial(layer, kind), shape, dtype, device, affected) for kind in (False, True))


def spread_of_spike(
    layer: Callable[[Tensor], Tensor], shape: torch.Size, dtype: torch.dtype, device: str, affected: tuple[slice, ...]
) -> float:
    """The largest change of an output that does not depend on the middle pixel, by setting that pixel to 1e7.

    The rest of the image is zero. A direct sum never includes the pixel in such an output: the change is 0. A Winograd
    or FFT convolution does, with rounding errors.

    Args:
        shape: (batch, channels, *sides) of the image.
        affected: for each axis, the outputs that may depend on the pixel.
    """
    with torch.inference_mode(False), torch.no_grad():
        image = torch.zeros(shape, dtype=dtype, device=device)
        blank = layer(image)
        spike: tuple[Any, ...] = (slice(None), 0, *(side // 2 for side in shape[2:]))
        image[spike] = SPIKE if dtype != torch.float16 else 2.0**15
        spiked = layer(image).clone()
    inside: tuple[Any, ...] = (Ellipsis, *affected)
    # Outputs that may depend on the pixel are excluded; any other difference comes from the algorithm.
    spiked[inside] = blank[inside]
    if torch.equal(spiked, blank):
        return 0.0
    return (spiked.cpu().double() - blank.cpu().double()).abs().max().item()
