"""Strategies of tensors: whole numbers that make every sum exact, and numbers of very different sizes."""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from conv2attn.theory.bounds import format_of

GENERATOR_SEEDS = st.integers(0, 2**16)


def budget_of(dtype: torch.dtype) -> int:
    """2^p: within this `sum |w| |x| + |b|` of whole numbers, every partial sum is a number of `dtype`, hence exact."""
    return 1 << format_of(str(dtype).removeprefix("torch.")).precision


@st.composite
def integer_tensors(draw: st.DrawFn, shape: Sequence[int], dtype: torch.dtype, largest: int) -> Tensor:
    """Whole numbers within +-`largest`, or within +- a smaller power of two."""
    reach = min(largest, 2 ** draw(st.integers(0, largest.bit_length())))
    generator = torch.Generator().manual_seed(draw(GENERATOR_SEEDS))
    return torch.randint(-reach, reach + 1, tuple(shape), generator=generator, device="cpu").to(dtype)


@st.composite
def wide_tensors(draw: st.DrawFn, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Numbers of very different sizes, a tenth of them 0, all others within 2^+-24; in float16 within 2^+-4."""
    generator = torch.Generator().manual_seed(draw(GENERATOR_SEEDS))
    reach = draw(st.integers(0, 4 if dtype == torch.float16 else 24))
    exponents = torch.randint(-reach, reach + 1, tuple(shape), generator=generator, device="cpu")
    numbers = torch.rand(tuple(shape), generator=generator, device="cpu", dtype=torch.float64) + 1
    signs = 2.0 * torch.randint(2, tuple(shape), generator=generator, device="cpu") - 1
    present = torch.rand(tuple(shape), generator=generator, device="cpu") < 0.9
    return (torch.ldexp(numbers, exponents - 1) * signs * present).to(dtype)
