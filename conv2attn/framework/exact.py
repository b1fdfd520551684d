"""The exact difference of two layers, term by term, in Python integers over a power of two."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from conv2attn.basis import Weights


@final
@dataclass(frozen=True, eq=False)
class Difference:
    """The map `sum_t operators[t] (x) taps[t] / 2^shift + biases[0] - biases[1]`.

    Args:
        operators: float64, (terms, queries, keys), all distinct and not zero.
        taps: Python integers, (terms, d_out, d_in), not zero in any term.
        shift: not negative.
        biases: of both layers, float64, (d_out, queries).
    """

    operators: Tensor
    taps: Any
    shift: int
    biases: Sequence[Tensor]

    @property
    def is_zero(self) -> bool:
        """Whether the difference has no terms and the biases are equal."""
        return not len(self.taps) and torch.equal(self.biases[0], self.biases[1])

    def in_float(self) -> Tensor:
        """The channel matrices, each entry rounded once to float64; inf where it is too large."""
        rounded = [as_float(number, 1 << self.shift) for number in self.taps.flat]
        return torch.tensor(rounded, dtype=torch.float64).reshape(self.taps.shape)

    def row_sum(self, channel: int, query: int) -> Fraction:
        """The sum of the absolute entries in a row of the map, its bias included."""
        rows = self.operators[:, query]
        numbers, shift = scaled_integers(rows[:, rows.any(0)])
        total = sum(abs(number) for number in (numbers.T @ self.taps[:, channel]).flat)
        first_bias, second_bias = (Fraction(biases[channel, query].item()) for biases in self.biases)
        return Fraction(total, 1 << shift + self.shift) + abs(first_bias - second_bias)


def exact_difference(operators: Sequence[Tensor], weights: Sequence[Weights], biases: Sequence[Tensor]) -> Difference:
    """The first layer minus the second; terms with equal operators (terms, queries, keys) are merged into one."""
    parts = [channel_matrices(layer_weights) for layer_weights in weights]
    shift = max(exponent for _, exponent in parts)
    sums: dict[bytes, tuple[Tensor, Any]] = {}
    for sign, family, (taps, exponent) in zip((1, -1), operators, parts, strict=True):
        for operator, tap in zip(family + 0.0, taps * (sign << shift - exponent), strict=True):
            name = operator.numpy().tobytes()
            sums[name] = operator, sums[name][1] + tap if name in sums else tap
    nonzero = [(operator, tap) for operator, tap in sums.values() if operator.any() and tap.any()]
    if not nonzero:
        return Difference(operators[0][:0], parts[0][0][:0], shift, biases)
    return Difference(torch.stack([o for o, _ in nonzero]), np.stack([tap for _, tap in nonzero]), shift, biases)


def channel_matrices(weights: Weights) -> tuple[Any, int]:
    """All `M_k` with their zero blocks, (terms, d_out, d_in), and the power of two that divides them."""
    present = [factor for factor in (weights.output, weights.value) if factor is not None]
    factors = [scaled_integers(factor.unflatten(1, (weights.groups, -1))) for factor in present]
    taps, shift = factors[0]
    if len(factors) == 2:
        taps, shift = taps @ factors[1][0], shift + factors[1][1]
    matrices = np.zeros((len(taps), weights.d_out, weights.d_in), dtype=object)
    rows, columns = taps.shape[2:]
    for group in range(weights.groups):
        matrices[:, group * rows : (group + 1) * rows, group * columns : (group + 1) * columns] = taps[:, group]
    return matrices, shift


def scaled_integers(numbers: Tensor) -> tuple[Any, int]:
    """Finite numbers as Python integers, and the power of two that divides them."""
    mantissas, exponents = np.frexp(numbers.detach().double().numpy())
    least = int(exponents.min(initial=53))
    return (mantissas * 2.0**53).astype(np.int64).astype(object) << (exponents - least).astype(object), 53 - least


def as_float(number: Fraction | int, divisor: int = 1) -> float:
    """`number / divisor`, rounded to nearest; inf where it is too large."""
    try:
        return float(number / divisor)
    except OverflowError:
        return math.inf
