"""The largest error of the exponentials in torch's softmaxes, over all float32 numbers from -104 to 0.

Once a release, for each instruction set: `ATEN_CPU_CAPABILITY=default|avx2|avx512 python -m benchmarks.exponentials`.
The figures, rounded up, are EXPONENTIALS in conv2attn/layers/attention/measured_arithmetic.py.
"""

import torch
from torch import Tensor

from conv2attn.layers.attention.measured_arithmetic import SOFTMAX_KERNELS, ulps_of

LOWEST = 0x42D00000  # the bits of 104.0
ROWS = 1 << 16


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
