"""The circumstances that a certificate holds for: versions, device, dtypes, kernels."""

import platform
from importlib.metadata import version

import torch
from torch import Tensor, nn

from conv2attn.attention.probes import indirect_convolution
from conv2attn.equivalence.arithmetic import Arithmetic


def machine(original: nn.Module, images: Tensor) -> tuple[tuple[str, str], ...]:
    """Names and values, in the order of their names."""
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in original.parameters()})
    found = {
        "conv2attn": version("conv2attn"),
        "torch": str(torch.__version__),
        "python-flint": version("python-flint"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": device_name(images.device),
        "dtypes": ", ".join(dtypes),
        "kernels": kernels(images),
    }
    return tuple(sorted(found.items()))


def device_name(device: torch.device) -> str:
    """The device, with its model where torch knows it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def kernels(images: Tensor) -> str:
    """The kernels that the convolutions may run by, and the settings that decide."""
    now = Arithmetic.of(images.device.type)
    products = f"fp32_precision {now.convolution} of convolutions, {now.product} of products"
    if images.device.type == "cuda":
        stored = "".join(f", {name} sums may be stored" for name in sorted(now.stored_sums))
        return f"cuDNN {torch.backends.cudnn.version()}, {products}{stored}"
    library = "oneDNN" if torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled else "native"
    indirect = indirect_convolution(images)
    return f"{library}, {torch.backends.cpu.get_cpu_capability()}, {products}" + (f" ({indirect})" if indirect else "")
