"""The largest error of the exponentials in torch's softmaxes, over all float32 numbers from -104 to 0.

Once a release, for each instruction set: `ATEN_CPU_CAPABILITY=default|avx2|avx512 python -m benchmarks.exponentials`.
The figures, rounded up, are MEASURED_ULPS in conv2attn/layers/attention/measured_arithmetic.py.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

LOWEST = 0x42D00000  # the bits of 104.0
ROWS = 1 << 16


def softmax_weights(scores: Tensor) -> Tensor:
    """The weights of `torch.softmax`."""
    return torch.softmax(scores, -1)


def fused_weights(scores: Tensor) -> Tensor:
    """The weights of scaled_dot_product_attention: keys and values are unit vectors, so scores are the queries."""
    units = torch.eye(scores.shape[-1], dtype=scores.dtype, device=scores.device)
    return F.scaled_dot_product_attention(scores[None, None], units[None, None], units[None, None], scale=1.0)[0, 0]


SOFTMAX_KERNELS: dict[str, Callable[[Tensor], Tensor]] = {"softmax": softmax_weights, "fused": fused_weights}


def ulps_of(kernel: str, arguments: Tensor) -> float:
    """The largest error of the exponentials of `arguments`, (rows, 63), in units in the last place.

    A key of score 0 stands beside them, and its weight divides theirs: so the sum cancels, and two quotients round.
    Only weights that are normal numbers count; others are off by at most the smallest of these.
    """
    weights, arguments = SOFTMAX_KERNELS[kernel](F.pad(arguments, (1, 0))).cpu(), arguments.cpu()
    normal = weights[:, 1:] >= torch.finfo(weights.dtype).tiny
    exact = arguments.double().exp()
    quotients = weights[:, 1:].double() / weights[:, :1].double()
    spacing = torch.ldexp(torch.full_like(exact, torch.finfo(arguments.dtype).eps), torch.frexp(exact).exponent - 1)
    return torch.where(normal, (quotients - exact).abs() / spacing, 0.0).max().item()


def every_argument() -> list[range]:
    """The bits of all float32 numbers from 0 to 104, in blocks."""
    step = 63 * ROWS
    return [range(start, min(start + step, LOWEST + 1)) for start in range(0, LOWEST + 1, step)]


def arguments(bits: range) -> Tensor:
    """The negatives of the float32 numbers with these bits, filled up with 0 to rows of 63."""
    found = torch.zeros(63 * -(-len(bits) // 63), dtype=torch.int32)
    found[: len(bits)] = torch.arange(bits.start, bits.stop, dtype=torch.int32)
    return -found.view(torch.float32).unflatten(0, (-1, 63))


def main() -> None:
    worst = dict.fromkeys(SOFTMAX_KERNELS, 0.0)
    for bits in every_argument():
        block = arguments(bits)
        for name in SOFTMAX_KERNELS:
            worst[name] = max(worst[name], ulps_of(name, block))
    capability = torch.backends.cpu.get_cpu_capability()
    for name, ulps in worst.items():
        print(f"{name:10} {capability:10} {ulps:.4f} ulp")


if __name__ == "__main__":
    main()
