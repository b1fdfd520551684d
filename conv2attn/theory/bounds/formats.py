"""Floating-point formats: their roundoff, range and other numbers of bounds, derived from their definitions."""

from dataclasses import dataclass
from fractions import Fraction
from typing import final

from conv2attn.errors import UsageError


@final
@dataclass(frozen=True)
class Format:
    """A binary format with round to nearest, ties to even, and gradual underflow.

    Args:
        name: `str(torch.dtype)` without the prefix. `tf32` and `bf32` mean float32 whose operands are cut to
            TensorFloat-32 or to bfloat16 before they are multiplied.
        precision: p, the bits of the significand, the hidden one included.
        smallest_normal_exponent: the smallest normal number is 2 to this power.
        largest_exponent: the largest number is just below 2 to this power plus one.
        accumulator: the format in which softmax is computed and products are summed.
        storage: the format in which weights, inputs and outputs are stored.
    Source: IEEE 754-2019, Table 3.5, for float16, float32, float64.
    """

    name: str
    precision: int
    smallest_normal_exponent: int
    largest_exponent: int
    accumulator: str
    storage: str

    @property
    def cuts(self) -> bool:
        """Whether numbers lose bits before they are multiplied."""
        return FORMATS[self.storage].precision > self.precision

    @property
    def unit_roundoff(self) -> float:
        """u = 2^-p: without underflow, one rounding errs by at most u times the exact result."""
        return 2.0**-self.precision

    @property
    def smallest_subnormal_exponent(self) -> int:
        """The smallest positive number is 2 to this power."""
        return self.smallest_normal_exponent - self.precision + 1

    @property
    def smallest_subnormal(self) -> float:
        return 2.0**self.smallest_subnormal_exponent

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.smallest_normal_exponent

    @property
    def largest(self) -> float:
        return float((2 - Fraction(2) ** (1 - self.precision)) * Fraction(2) ** self.largest_exponent)

    def round_up(self, value: float) -> float:
        """The smallest number of this format that is not below the positive normal `value`."""
        exact = Fraction(value)
        # The bit lengths give the exponent or one less; the loop adds the missing one.
        exponent = exact.numerator.bit_length() - exact.denominator.bit_length() - self.precision
        while exact > Fraction(2) ** (exponent + self.precision):
            exponent += 1
        return float(-(-exact // Fraction(2) ** exponent) * Fraction(2) ** exponent)


FORMATS = {
    row.name: row
    for row in (
        Format("float64", 53, -1022, 1023, "float64", "float64"),
        Format("float32", 24, -126, 127, "float32", "float32"),
        Format("bfloat16", 8, -126, 127, "float32", "bfloat16"),
        Format("float16", 11, -14, 15, "float32", "float16"),
        Format("tf32", 11, -126, 127, "float32", "float32"),
        Format("bf32", 8, -126, 127, "float32", "float32"),
    )
}


# Largest error of exp, in units in the last place of a normal result, by how softmax is evaluated. "softmax" doubles
# the 1 that Sleef (u10), MKL (HA) and CUDA's expf document, since torch may be built with any of them. "fused" is the
# error of exp_u20 in the CPU's flash kernels. Intrinsics chosen by fast-math flags are not covered.
EXP_ULPS = {"softmax": 2.0, "fused": 20.0}


def format_of(name: str) -> Format:
    """The format called `name`.

    Raises:
        UsageError: no format has this name.
    """
    if name not in FORMATS:
        raise UsageError("C2A002", f"format {name!r} is not one of {', '.join(FORMATS)}", "Pass one of these.")
    return FORMATS[name]


def accumulator_of(name: str) -> Format:
    """The format in which softmax and sums are computed for tensors of format `name`: float32 for the half types."""
    return FORMATS[format_of(name).accumulator]


def storage_of(name: str) -> Format:
    """The format in which weights, inputs and outputs are stored: `name` itself, but float32 for tf32 and bf32."""
    return FORMATS[format_of(name).storage]
