"""What this device really computes: measured once, never assumed."""

import math
from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=64)
def exponential_underflows(threshold: float, dtype: torch.dtype, device: str) -> bool:
    """Whether softmax gives exactly 1 and 0 for scores 0 and less than `-threshold`, in any vector lane, then cast."""
    score_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    below = math.nextafter(threshold, math.inf) if dtype == torch.float64 else threshold * (1 + 2**-22)
    with torch.inference_mode(False), torch.no_grad():
        scores = torch.full((67, 67), -below, dtype=score_dtype, device=device)
        scores.fill_diagonal_(0.0)
        attention = torch.softmax(scores, -1).to(dtype)
        return torch.equal(attention, torch.eye(67, dtype=dtype, device=device))


def indirect_convolution(image: Tensor) -> str | None:
    """Why this device's convolution of `image` may not be a plain sum of products in its dtype, or None if it is.

    Winograd and FFT convolutions, and TF32, break the error bound of a direct sum.
    """
    if image.device.type == "cuda":
        if image.dtype == torch.float32 and torch.backends.cudnn.allow_tf32:
            return "cuDNN may round to TF32 here (torch.backends.cudnn.allow_tf32)"
        return "cuDNN may choose a Winograd or FFT algorithm"
    if image.device.type == "cpu" and not torch.backends.mkldnn.enabled and torch.backends.nnpack.is_available():
        return "NNPACK may choose a Winograd or FFT algorithm (oneDNN is off)"
    return None
