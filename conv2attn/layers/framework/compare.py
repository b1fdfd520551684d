"""Whether two linear layers are one map at given sides: exactly, or by a bound on the difference of their outputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.arguments import check_has_numbers
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.theory.basis import Sides, Weights, as_basis, as_matrix, moved_to, output_sides
from conv2attn.theory.basis.basis import field
from conv2attn.theory.bounds import gamma
from conv2attn.torch_internals import has_any_global_hook
from conv2attn.verdicts import Strength, Verdict

UNIT_ROUNDOFF, SMALLEST = 2.0**-53, 2.0**-1074


def check_no_hooks(layer: Any) -> None:
    """Refuses a layer with hooks, which may change what it takes and returns.

    Raises:
        UnsupportedError: it has hooks (C2A106).
    """
    modules = [*layer.modules()] if isinstance(layer, nn.Module) else []
    on_all = bool(modules and has_any_global_hook())
    if on_all or any(module._forward_hooks or module._forward_pre_hooks for module in modules):
        reason = f"{type(layer).__name__} has hooks, and what they do is not among its parameters"
        raise UnsupportedError("C2A106", reason, "Remove them, or compare whole networks with certify.")


@final
@dataclass(frozen=True)
class MapComparison:
    """Two layers as maps of inputs within [-1, 1], in exact arithmetic.

    Args:
        tolerance: the difference that was asked for.
        error: no output differs by more, for any such input; at most the tolerance unless an output differs by more
            than that.
        floor: some output differs by as much as this, for some such input; -inf where a number is not finite.
        sides: of the inputs.
    """

    tolerance: float
    error: float
    floor: float
    sides: Sides

    @property
    def verdict(self) -> Verdict:
        """Holds where the outputs differ by at most the tolerance; undecided where a number is not finite."""
        if self.error <= self.tolerance:
            return Verdict.HOLDS
        return Verdict.REFUTED if self.floor >= self.tolerance else Verdict.UNDECIDED

    @property
    def strength(self) -> Strength:
        """Proved where the maps are found equal, otherwise bounded."""
        return Strength.BOUNDED if self.error else Strength.PROVED


def compare(first: Any, second: Any, sides: Sides, tolerance: float = 0.0) -> MapComparison:
    """Compares all outputs of two layers, or of two bases, on inputs with these sides.

    Operators, factors of weights and biases count as the numbers that they are in float64; products of factors are
    exact. An output is furthest off at the input with the signs of its row. Rows that bounds in float64 leave open are
    summed in integers, so that the verdict is undecided only where a number is not finite.

    Raises:
        UnsupportedError: `as_basis` does not read a layer (C2A101), or a layer has hooks (C2A106).
        UsageError: the layers have other channels or queries (C2A120), or the tolerance is no number >= 0 (C2A001).
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 4, 3)
        >>> conv2attn.compare(conv, conv2attn.convert(conv), sides=(6, 7), tolerance=1e-6).verdict
        <Verdict.HOLDS: 'holds'>
    """
    if not 0 <= tolerance < math.inf:
        raise UsageError("C2A001", f"tolerance={tolerance} is not a number >= 0", "Pass a number of at least 0.")
    for layer in (first, second):
        check_no_hooks(layer)
        if isinstance(layer, nn.Module):
            check_has_numbers(layer, "a layer")
    layers = (moved_to(as_basis(first), "cpu"), moved_to(as_basis(second), "cpu"))
    shapes = [(b.weights.d_in, b.weights.d_out, *output_sides(b.mixing, sides)) for b in layers]
    if shapes[0] != shapes[1]:
        raise UsageError(
            "C2A120",
            f"channels and queries {shapes[0]} and {shapes[1]} are not those of one map",
            "Pass two layers with the same channels and queries.",
        )
    operators = [as_matrix(basis.mixing, sides).detach() for basis in layers]
    biases = [field(basis, sides).detach().double().expand(shapes[0][1:]).flatten(1) for basis in layers]
    factors = [w for b in layers for w in (b.weights.value, b.weights.output) if w is not None]
    if not all(bool(numbers.isfinite().all()) for numbers in (*operators, *biases, *factors)):
        return MapComparison(tolerance, math.inf, -math.inf, sides)
    gap = exact_difference(operators, [basis.weights for basis in layers], biases)
    if gap.is_zero:
        return MapComparison(tolerance, 0.0, 0.0, sides)
    least, most = row_bounds(gap)
    floor, error = max(0.0, least.max().item()), most.max().item()
    if floor > tolerance:
        return MapComparison(tolerance, error, floor, sides)
    for channel, query in (most > tolerance).nonzero().tolist():
        exact = gap.row_sum(channel, query)
        if exact > tolerance:
            return MapComparison(tolerance, error, max(tolerance, math.nextafter(as_float(exact), 0.0)), sides)
    return MapComparison(tolerance, min(error, tolerance), floor, sides)


@final
@dataclass(frozen=True, eq=False)
class ExactDifference:
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


def exact_difference(
    operators: Sequence[Tensor], weights: Sequence[Weights], biases: Sequence[Tensor]
) -> ExactDifference:
    """The first layer minus the second; terms with equal operators (terms, queries, keys) are merged into one."""
    parts = [channel_matrices(layer_weights) for layer_weights in weights]
    shift = max(exponent for _, exponent in parts)
    sums: dict[bytes, tuple[Tensor, Any]] = {}
    for sign, family, (taps, exponent) in zip((1, -1), operators, parts, strict=True):
        for operator, tap in zip(family + 0.0, taps * (sign << shift - exponent), strict=True):
            # By bits: equal operators of both layers meet in one term, whose taps cancel exactly. + 0.0 gives zeros of
            # either sign the same bits.
            name = operator.numpy().tobytes()
            sums[name] = operator, sums[name][1] + tap if name in sums else tap
    nonzero = [(operator, tap) for operator, tap in sums.values() if operator.any() and tap.any()]
    if not nonzero:
        return ExactDifference(operators[0][:0], parts[0][0][:0], shift, biases)
    return ExactDifference(torch.stack([o for o, _ in nonzero]), np.stack([tap for _, tap in nonzero]), shift, biases)


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


def row_bounds(gap: ExactDifference) -> tuple[Tensor, Tensor]:
    """Bounds from below and above on the sum of absolute entries in each row of the map, (d_out, queries)."""
    operators, taps, bias = gap.operators, gap.in_float(), (gap.biases[0] - gap.biases[1]).abs()
    count = taps.shape[0] + taps.shape[2] * operators.shape[2]
    # Each entry is a sum of products over the terms, each row a sum of absolute entries: whatever the order, a number
    # passes through at most `count` sums; a few more roundings are of taps, biases and the bound.
    slack = gamma(count + 6, UNIT_ROUNDOFF)
    underflow = SMALLEST * count * (1 + operators.abs().sum().item())
    ends = []
    for channel, shift in zip(taps.movedim(1, 0), bias, strict=True):
        row_sum = torch.einsum("tqk,ti->qik", operators, channel).abs().sum((1, 2)) + shift
        uncertainty = (
            torch.einsum("tqk,ti->qik", operators.abs(), channel.abs()).sum((1, 2)) + shift
        ) * slack + underflow
        ends.append(torch.stack([row_sum - uncertainty, row_sum + uncertainty]))
    least, most = torch.stack(ends, 1)
    infinity = torch.tensor(math.inf).double()
    return torch.nextafter(least, -infinity).nan_to_num(-math.inf), torch.nextafter(most, infinity).nan_to_num(math.inf)
