"""Decides exactly whether two linear layers are one map at given sides, and whether given operators express a layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
import torch
from flint import fmpq, fmpq_mat
from torch import Tensor, nn

from conv2attn.arguments import check_has_numbers
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.theory.basis import Basis, Sides, Weights, as_basis, as_matrix, basis_of, moved_to, output_sides
from conv2attn.theory.basis.basis import field
from conv2attn.theory.basis.operator import Operator
from conv2attn.theory.bounds import gamma
from conv2attn.theory.bounds.dyadic import pivots, scaled_integers
from conv2attn.torch_internals import has_any_global_hook
from conv2attn.verdicts import Strength, Verdict

UNIT_ROUNDOFF, SMALLEST = 2.0**-53, 2.0**-1074


def check_no_hooks(layer: Any) -> None:
    """Refuses a layer with hooks, which may change its input and output.

    Raises:
        UnsupportedError: the layer has hooks (C2A106).
    """
    modules = [*layer.modules()] if isinstance(layer, nn.Module) else []
    on_all = bool(modules and has_any_global_hook())
    if on_all or any(module._forward_hooks or module._forward_pre_hooks for module in modules):
        reason = f"{type(layer).__name__} has hooks, whose effect is not in its parameters"
        raise UnsupportedError("C2A106", reason, "Remove them, or compare whole networks with certify.")


@final
@dataclass(frozen=True)
class MapComparison:
    """Two layers as maps of inputs within [-1, 1], in exact arithmetic.

    Args:
        tolerance: the allowed difference.
        error: upper bound on the difference of any output for any such input; at most the tolerance unless an output
            exceeds that.
        floor: some output differs by at least this for some such input; -inf if a number is not finite.
        sides: sides of the inputs.
    """

    tolerance: float
    error: float
    floor: float
    sides: Sides

    @property
    def verdict(self) -> Verdict:
        """Holds if the outputs differ by at most the tolerance; undecided if a number is not finite."""
        if self.error <= self.tolerance:
            return Verdict.HOLDS
        return Verdict.REFUTED if self.floor >= self.tolerance else Verdict.UNDECIDED

    @property
    def strength(self) -> Strength:
        """Proved if the maps are equal, otherwise bounded."""
        return Strength.BOUNDED if self.error else Strength.PROVED


def compare(first: Any, second: Any, sides: Sides, tolerance: float = 0.0) -> MapComparison:
    """Compares all outputs of two layers, or of two bases, on inputs with these sides.

    Operators, factors of weights and biases are taken as exact float64 numbers; products of factors are exact. An
    output differs most at the input with the signs of its row. Rows that float64 bounds leave open are summed in
    integers, so the verdict is undecided only if a number is not finite.

    Raises:
        UnsupportedError: `as_basis` does not read a layer (C2A101), or a layer has hooks (C2A106).
        UsageError: the layers have different channels or queries (C2A120), or the tolerance is not a number >= 0
            (C2A001).
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
        """The channel matrices, each entry rounded once to float64; inf if it is too large."""
        rounded = [as_float(number, 1 << self.shift) for number in self.taps.flat]
        return torch.tensor(rounded, dtype=torch.float64).reshape(self.taps.shape)

    def row_sum(self, channel: int, query: int) -> Fraction:
        """The sum of the absolute entries in a row of the map, its bias included."""
        rows = self.operators[:, query]
        numbers, shift = scaled_integers(rows[:, rows.any(0)].numpy())
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
            # Operators are compared by bits: equal operators of both layers share one term, whose taps cancel exactly.
            # + 0.0 gives zeros of either sign the same bits.
            name = operator.numpy().tobytes()
            sums[name] = operator, sums[name][1] + tap if name in sums else tap
    nonzero = [(operator, tap) for operator, tap in sums.values() if operator.any() and tap.any()]
    if not nonzero:
        return ExactDifference(operators[0][:0], parts[0][0][:0], shift, biases)
    return ExactDifference(torch.stack([o for o, _ in nonzero]), np.stack([tap for _, tap in nonzero]), shift, biases)


def channel_matrices(weights: Weights) -> tuple[Any, int]:
    """All `M_k` with their zero blocks, (terms, d_out, d_in), and the power of two that divides them."""
    present = [factor for factor in (weights.output, weights.value) if factor is not None]
    factors = [
        scaled_integers(factor.detach().double().unflatten(1, (weights.groups, -1)).numpy()) for factor in present
    ]
    taps, shift = factors[0]
    if len(factors) == 2:
        taps, shift = taps @ factors[1][0], shift + factors[1][1]
    matrices = np.zeros((len(taps), weights.d_out, weights.d_in), dtype=object)
    rows, columns = taps.shape[2:]
    for group in range(weights.groups):
        matrices[:, group * rows : (group + 1) * rows, group * columns : (group + 1) * columns] = taps[:, group]
    return matrices, shift


def as_float(number: Fraction | int, divisor: int = 1) -> float:
    """`number / divisor`, rounded to nearest; inf if it is too large."""
    try:
        return float(number / divisor)
    except OverflowError:
        return math.inf


def row_bounds(gap: ExactDifference) -> tuple[Tensor, Tensor]:
    """Bounds from below and above on the sum of absolute entries in each row of the map, (d_out, queries)."""
    operators, taps, bias = gap.operators, gap.in_float(), (gap.biases[0] - gap.biases[1]).abs()
    count = taps.shape[0] + taps.shape[2] * operators.shape[2]
    # Each entry is a sum of products over the terms, each row a sum of absolute entries. In any order, a number passes
    # through at most `count` sums; a few more roundings are for taps, biases and the bound.
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


@final
@dataclass(frozen=True)
class Expansion:
    """A linear layer in given operators: `sum_k P_k x M_k^T + b`, at given sides.

    Args:
        exists: whether there are such `M_k`, decided in rational arithmetic.
        basis: the operators with these `M_k`, each rounded once to float64; if there are none, with the least-squares
            ones.
        unique: whether no other `M_k` give the same map: the operators are linearly independent.
        comparison: the layer compared with `basis`; its `error` is due to rounding the `M_k`.
    """

    exists: bool
    basis: Basis
    unique: bool
    comparison: MapComparison

    @property
    def verdict(self) -> Verdict:
        """Holds if such `M_k` exist, refuted otherwise."""
        return Verdict.HOLDS if self.exists else Verdict.REFUTED


def expand(layer: Any, operators: Operator, sides: Sides) -> Expansion:
    """The `M_k` with which `layer` is `sum_k P_k x M_k^T + b` for these `P_k`, if they exist.

    Operators and weights are taken as exact float64 numbers. If the operators are a basis of all matrices (queries,
    keys), there is exactly one choice for every layer.

    Raises:
        UnsupportedError: `as_basis` does not read the layer (C2A101), or it has hooks (C2A106).
        UsageError: the operators do not map these sides to the layer's queries (C2A120), or a number is not finite
            (C2A001).
    Examples:
        >>> import torch
        >>> from conv2attn.theory.basis import Shift
        >>> from conv2attn.layers.framework import expand
        >>> found = expand(torch.nn.Conv1d(1, 1, 1), Shift(((-1,), (0,), (1,))), sides=(5,))
        >>> found.verdict, found.basis.weights.taps().count_nonzero().item()
        (<Verdict.HOLDS: 'holds'>, 1)

    Source: Andreoli 2019, Proposition 1.
    """
    check_no_hooks(layer)
    basis, operators = moved_to(as_basis(layer), "cpu"), moved_to(operators, "cpu")
    if output_sides(operators, sides) != output_sides(basis.mixing, sides):
        queries = output_sides(operators, sides), output_sides(basis.mixing, sides)
        raise UsageError(
            "C2A120",
            f"the operators have queries {queries[0]} at sides {sides}, the layer {queries[1]}",
            "Pass operators with the layer's queries, such as `basis.mixing` of a layer with its stride.",
        )
    requested, terms = as_matrix(operators, sides).detach(), as_matrix(basis.mixing, sides).detach()
    stored = [each for each in (basis.weights.value, basis.weights.output) if each is not None]
    if not all(bool(numbers.isfinite().all()) for numbers in (requested, terms, *stored)):
        raise UsageError("C2A001", "an operator or a weight is not finite", "Pass finite numbers.")
    (rows, row_shift), (mixed, mixed_shift) = (scaled_integers(each.flatten(1).numpy()) for each in (requested, terms))
    taps, tap_shift = channel_matrices(basis.weights)
    target = np.tensordot(taps.reshape(len(taps), -1).T, mixed, 1)
    scale = fmpq(1, 1) / (1 << mixed_shift + tap_shift) * (1 << row_shift)
    independent = pivots(rational(rows.T))
    coefficients = solution(rational(rows[independent]), rational(target) * scale)
    matrices = torch.zeros(len(requested), *taps.shape[1:], dtype=torch.float64)
    if coefficients is not None:
        numbers = [as_float(Fraction(int(each.p), int(each.q))) for each in coefficients.entries()]
        matrices[independent] = torch.tensor(numbers, dtype=torch.float64).reshape(*taps.shape[1:], -1).permute(2, 0, 1)
    else:
        wanted = torch.einsum("toi,tqk->oiqk", basis.weights.dense().detach().double(), terms).flatten(2).flatten(0, 1)
        nearest = torch.linalg.lstsq(requested.flatten(1).T, wanted.T, driver="gelsd").solution
        matrices = nearest.reshape(-1, *taps.shape[1:])
    bias = field(basis, sides).detach().double()
    nearest_basis = basis_of(operators, Weights(None, matrices, bias if bias.any() else None), len(sides))
    return Expansion(
        coefficients is not None,
        nearest_basis,
        len(independent) == len(requested),
        compare(basis, nearest_basis, sides),
    )


def rational(numbers: Any) -> fmpq_mat:
    """A matrix of Python integers as one of rational numbers."""
    rows, columns = numbers.shape
    return fmpq_mat(rows, columns, [fmpq(int(number)) for number in numbers.flat])


def solution(rows: fmpq_mat, target: fmpq_mat) -> fmpq_mat | None:
    """C with `C rows = target`, for independent rows; None if there is none."""
    columns = pivots(rows)
    square = fmpq_mat(len(columns), len(columns), [rows[r, c] for r in range(rows.nrows()) for c in columns])
    wanted = fmpq_mat(target.nrows(), len(columns), [target[r, c] for r in range(target.nrows()) for c in columns])
    coefficients = wanted * square.inv()
    return coefficients if coefficients * rows == target else None
