"""The machine and the versions with which a certificate is made."""

import platform
from collections.abc import Iterable
from functools import cache
from importlib import metadata

import torch
from torch import Tensor, nn

from conv2attn.equality.asked import Asked
from conv2attn.equality.layers.bases import gradual_underflow
from conv2attn.layers.attention import ENGINES
from conv2attn.layers.attention.hardness import FORMAT_NAMES
from conv2attn.layers.attention.measured_arithmetic import arithmetics
from conv2attn.layers.attention.probes import float32_precisions, indirect_convolution
from conv2attn.networks.provenance import assumed_of
from conv2attn.theory.bounds import worst

version = cache(metadata.version)  # reading a version opens a file


def circumstances_of(asked: Asked, further: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The circumstances of a certificate by name: the machine's, `further` ones, and assumptions of reading."""
    facts = {**machine(asked.networks[0], asked.specimens[0].main), **dict(further)}
    first, second = map(assumed_of, asked.networks)
    parts = [f"the {which} network is {each}" for which, each in (("first", first), ("second", second)) if each]
    if parts:
        facts["read as"] = first if first == second else f"of which {' and '.join(parts)}"
    return dict(sorted(facts.items()))


def machine(original: nn.Module, images: Tensor) -> dict[str, str]:
    """The circumstances given by the machine: versions, device, dtypes, arithmetic, kernels."""
    dtypes = sorted({p.dtype for p in original.parameters()}, key=str)
    return {
        "conv2attn": version("conv2attn"),
        "torch": str(torch.__version__),
        "python-flint": version("python-flint"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": device_name(images.device),
        "dtypes": ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes),
        "arithmetic": arithmetic(dtypes, images.device.type),
        "kernels": kernels(images),
    }


def device_name(device: torch.device) -> str:
    """The device, with its model where torch knows it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def kernels(images: Tensor) -> str:
    """The kernels that convolutions may use, and the settings that select them."""
    convolutions, matrices = float32_precisions(images.device.type)
    products = f"fp32_precision {convolutions} of convolutions, {matrices} of products"
    if images.device.type == "cuda":
        return f"cuDNN {torch.backends.cudnn.version()}, {products}"
    library = "oneDNN" if torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled else "native"
    indirect = indirect_convolution(images) if images.dtype in FORMAT_NAMES else None  # not for ids or 8-bit formats
    return f"{library}, {torch.backends.cpu.get_cpu_capability()}, {products}" + (f" ({indirect})" if indirect else "")


@gradual_underflow()
def arithmetic(dtypes: Iterable[torch.dtype], device: str) -> str:
    """The measured arithmetic of the engines for these dtypes on the device, which every bound uses."""
    lines = (
        f"{' and '.join(ENGINES['auto'].rounds_as)}: {worst(arithmetics('auto', dtype, device))}; "
        f"sdpa: {worst(arithmetics('sdpa', dtype, device))}"
        for dtype in dtypes
        if dtype in FORMAT_NAMES
    )
    return "; ".join(lines)
