"""The arithmetic of each engine, measured on the device that it runs on."""

from functools import lru_cache

import torch
from torch import Tensor

from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.engines import ENGINES
from conv2attn.layers.attention.hardness import FORMAT_NAMES
from conv2attn.layers.attention.layer import MultiHeadSelfAttention
from conv2attn.layers.attention.probes import float32_precisions
from conv2attn.layers.attention.recipe import score_dtype
from conv2attn.theory.bounds import EXP_ULPS, Arithmetic

CUT = {"bf16": "bf32", "tf32": "tf32"}  # torch's names of float32 products in fewer bits; the coarsest first
# The largest errors of exponentials in ulps, over all float32 numbers from -104 to 0, on CPUs with AVX2 and AVX-512:
# measured by benchmarks/exponentials.py with torch 2.13, rounded up. Any other kernel takes the documented EXP_ULPS.
MEASURED_ULPS = {"softmax": 1.61, "fused": 5.72}


def arithmetics(engine: str, dtype: torch.dtype, device: str) -> tuple[Arithmetic, ...]:
    """The arithmetic of an engine for `dtype` with the device's present settings; "auto" has two for soft heads.

    The settings of torch are read at each call; measurements that do not depend on them are made once.
    """
    convolution, product = float32_precisions(device)
    form = FORMAT_NAMES[dtype]
    if dtype == torch.float32:
        form = next((CUT[each] for each in CUT if each in (convolution, product)), form)
    truncates = device == "cuda" and dtype in (torch.bfloat16, torch.float16)
    cublas = torch.backends.cuda.matmul
    stored = truncates and (
        cublas.allow_bf16_reduced_precision_reduction
        if dtype == torch.bfloat16
        else cublas.allow_fp16_reduced_precision_reduction or cublas.allow_fp16_accumulation
    )
    measured = (device, score_dtype(dtype)) == ("cpu", torch.float32)
    exponentials = MEASURED_ULPS if measured and torch.backends.cpu.get_cpu_capability().startswith("AVX") else EXP_ULPS
    half = dtype in (torch.bfloat16, torch.float16) and device != "meta"
    return tuple(
        Arithmetic(
            form,
            exp_ulps=exponentials["fused" if name == "sdpa" else "softmax"],
            flushes=thread_flushes() or flushes(dtype, device),
            truncates=truncates,
            stores_means=stored or (half and name == "separable" and stores_means(dtype, device)),
            stores_products=stored or (half and name == "separable" and stores_products(dtype, device)),
            by_axis=name == "separable",
            fused=name == "sdpa",
            # Frozen heads leave keys out if an engine mixes axis by axis, as "auto" may select.
            leaves_out="separable" in ENGINES[engine].rounds_as,
        )
        for name in ENGINES[engine].rounds_as
    )


def thread_flushes() -> bool:
    """Whether this thread flushes subnormal results to 0, as set by `torch.set_flush_denormal`."""
    smallest = torch.full((1,), torch.finfo(torch.float32).smallest_normal, dtype=torch.float32, device="cpu")
    return not bool((smallest / 2).view(torch.int32).item())


@lru_cache(maxsize=64)
def flushes(dtype: torch.dtype, device: str) -> bool:
    """Whether a convolution or a matrix product flushes subnormal products or operands to 0."""
    if device == "meta":
        return False
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    with torch.inference_mode(False), torch.no_grad():
        # First a subnormal operand, then a subnormal product: libraries flush either.
        for first, second in ((2 * smallest, 1.0), (smallest * 2.0**16, 2.0**-14)):
            image = torch.zeros(1, 16, 8, 8, dtype=dtype, device=device)
            image[:, 0] = first
            weight = torch.full((16, 16, 1, 1), second, dtype=dtype, device=device)
            tokens, matrix = image.flatten(2).mT, weight.flatten(1).mT
            products = (
                torch.conv2d(image, weight),
                torch.conv1d(image.flatten(2), weight.flatten(2)),
                tokens @ matrix,
                image[:, :1] * weight[0, 0],
            )
            if not all(bool((each != 0).all()) for each in products):
                return True
    return False


@lru_cache(maxsize=64)
def stores_means(dtype: torch.dtype, device: str) -> bool:
    """Whether `separable` stores the partial sums of a mean in `dtype`: each time a quarter of an ulp is then lost.

    Along either axis a soft head sums a product of 1 and 24 products of a quarter ulp; if sums are stored, only the
    first counts.
    """
    eps = torch.finfo(dtype).eps
    reads = torch.arange(-12, 13, dtype=torch.float64, device="cpu")
    # Each term is divided by its weight, so that the weighted terms are 1 and quarter ulps of 1.
    amounts = torch.where(reads == -12, 1.0, eps / 4) * (reads.square() / 20).exp()
    for axis in (0, 1):
        sides = [1, 1]
        sides[axis] = 2048
        both = torch.zeros(2, 1, 2048, dtype=torch.float64, device="cpu")
        both[..., 1024 - 12 : 1024 + 13] = amounts
        both[1, :, 1024 - 11 :] = 0
        total, first = read(both.unflatten(2, sides), [[0.0, 0.0]], 0.05, dtype, device)[:, 0].flatten(1)[:, 1024]
        if total <= first * (1 + 2 * eps):
            return True
    return False


@lru_cache(maxsize=64)
def stores_products(dtype: torch.dtype, device: str) -> bool:
    """Whether `separable` stores partial sums over heads in `dtype`, for few channels or for many."""
    eps = torch.finfo(dtype).eps
    centers = [[0.0, float(column)] for column in range(-12, 13)]
    for channels in (1, 64):
        image = torch.zeros(1, channels, 1, 25, dtype=torch.float64, device="cpu")
        image[:, 0] = eps / 4
        image[:, 0, :, 0] = 1
        if read(image, centers, 128.0, dtype, device)[0, 0, 0, 12] <= 1 + 2 * eps:
            return True
    return False


def read(image: Tensor, centers: list[list[float]], alpha: float, dtype: torch.dtype, device: str) -> Tensor:
    """The sum over heads and channels, computed by the engine `separable`."""
    encoding = Encoding.of("quadratic", centers, alpha)
    layer = MultiHeadSelfAttention(
        image.shape[1], 1, encoding, d_head=image.shape[1], value=False, bias=False, engine="separable"
    ).to(device, dtype)
    with torch.inference_mode(False), torch.no_grad():
        assert layer.output is not None
        layer.output.fill_(1)
        return layer(image.to(device, dtype)).cpu().double()
