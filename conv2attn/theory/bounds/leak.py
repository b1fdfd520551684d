"""The leak of a head, in real arithmetic: the attention that it gives to keys other than its target."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from conv2attn.errors import AlphaError, UsageError
from conv2attn.theory.bounds.claimed import BALL_PRECISION, Claimed, down, positive_ball, up

SERIES_TERMS = 8  # the ninth term of either theta series below is under 2^-300 of the first


def leaked_mass(alpha: float, dimensions: int = 2) -> Claimed:
    """Upper bound on `1 - attention[q, q + offset]` for a quadratic head with an integer offset.

    Let theta = sum over all integers n of exp(-alpha n^2). The target's share is at least theta^-dimensions on every
    grid of every size, since the keys are a subset of the integer lattice. Large grids approach equality. When the
    target lies outside a box of keys, the same number bounds the weight off the key nearest to it. An enumerated head
    has scores -alpha (t - t0)^2 for distinct integers t, among them t0; it is the case `dimensions=1`.

    Args:
        alpha: sharpness of the head, in inverse squared pixels; positive.
    Returns:
        (theta^n - 1) / theta^n, computed without cancellation and rounded up; never 0, at most 1.
    Raises:
        AlphaError: `alpha` is not positive and finite.
    Source: Cordonnier et al. 2020, Lemma 2. The weaker theta <= 1 + 2 / (e^alpha - 1) is proved in proofs/.
    """
    return leaked_mass_diagonal([alpha] * dimensions)


def leaked_mass_diagonal(alphas: Sequence[float], centre: Sequence[float] | None = None) -> Claimed:
    """Upper bound on the weight off the nearest key, for scores `-sum alphas[i] (displacement[i] - centre[i])^2`.

    The softmax over the lattice is a product over the axes. Let f be the distance of centre[i] from the nearest
    integer. Relative to that integer's weight, the other keys of the axis weigh sum over n != 0 of
    exp(-alphas[i] (n^2 - 2 n f)). Halfway between two integers this is more than 1: no key is the target. When the
    nearest integer is not a key of the box, the bound holds for the nearest key, whose rivals all lie on one side.

    Args:
        alphas: sharpness per axis, in inverse squared pixels; positive.
        centre: real centre of the head per axis; on an integer when absent.
    Returns:
        The bound, rounded up; never 0, at most 1.
    Raises:
        AlphaError: an alpha is not positive and finite.
        UsageError: a centre is not finite, or the number of centres is not that of alphas (C2A007).
    Source: Cordonnier et al. 2020, Lemma 2 and Eq. 9. Proved as claim L2c of proofs/, except for a nearest integer that
        is not a key. Where alpha < 3, the sum is taken over the dual lattice by Poisson's formula.
    """
    centre = [0.0] * len(alphas) if centre is None else centre
    if len(centre) != len(alphas) or not alphas or not all(map(math.isfinite, centre)):
        raise UsageError(
            "C2A007",
            f"centre {list(centre)} is not one finite number for each of {len(alphas)} axes",
            "Pass one finite number for each axis.",
        )
    with ctx.workprec(BALL_PRECISION):
        rivals = [
            # The nearest integer, and not the given offset, is the target: beyond 1/2 another key is nearer.
            _rivals(positive_ball(alpha), abs(c - round(c)))  # exact: a float and its nearest integer
            for alpha, c in zip(alphas, centre, strict=True)
        ]
        return Claimed(min(1.0, up(_leak(rivals))), {"L2c"})


def leak_reached(alpha: float, shifts: Sequence[float]) -> float:
    """Lower bound on the off-target weight, for a target with a key on either side of it along every axis.

    Every layer has such queries once its grid is large enough. Let f_i = |shifts[i]|. Relative to the target, its two
    neighbours on axis i weigh exp(-alpha (1 - 2 f_i)) + exp(-alpha (1 + 2 f_i)). Other rivals only add to the leak, and
    the softmax over a box is a product over its axes.

    Args:
        alpha: sharpness, in inverse squared pixels; positive.
        shifts: how far the centre is from the target, per axis.
    Returns:
        The bound, rounded down. It refutes a claim of a smaller leak.
    Raises:
        AlphaError: `alpha` is not positive and finite.
    Source: Cordonnier et al. 2020, Lemma 2 and Eq. 9.
    """
    with ctx.workprec(BALL_PRECISION):
        sharpness = positive_ball(alpha)
        # Lemma 2 is a limit in alpha, so it gives no lower bound. The two neighbours on each axis give one.
        sides = [(1 - 2 * arb(abs(shift)), 1 + 2 * arb(abs(shift))) for shift in shifts]
        return max(0.0, down(_leak([(-sharpness * near).exp() + (-sharpness * far).exp() for near, far in sides])))


def lattice_rivals(alpha: arb, dimensions: int) -> arb:
    """Ball around theta^dimensions - 1: on the whole lattice, the weight of all other keys over the target's weight."""
    return _odds([_rivals(alpha, 0.0)] * dimensions)


def _odds(rivals: Sequence[arb]) -> arb:
    """The product of all (1 + r), minus 1, computed without a subtraction.

    For one axis, r is the weight of all other keys divided by the target's weight.
    """
    return reduce(lambda left, right: left + right + left * right, rivals)


def _leak(rivals: Sequence[arb]) -> arb:
    """1 minus the product of all 1 / (1 + r), computed without a subtraction."""
    # 1 - 1 / (1 + odds) cancels to exactly 0 in float64 where alpha is large, which would be a false certificate.
    odds = _odds(rivals)
    return odds / (1 + odds)


def _rivals(alpha: arb, shift: float) -> arb:
    """Ball around the sum over n != 0 of exp(-alpha (n^2 - 2 n shift)), for 0 <= shift <= 1/2."""
    indices = range(1, SERIES_TERMS + 1)
    # The direct sum needs about 1 / sqrt(alpha) terms. Poisson's formula makes it a sum over the dual lattice, whose
    # exponents have alpha in the denominator. Eight terms suffice: of the dual sum if alpha is below 3 (about pi), of
    # the direct sum otherwise.
    if alpha < 3:
        dual = arb.pi() * arb.pi() / alpha
        waves = sum((2 * (-dual * (m * m)).exp() * arb(2 * m * shift).cos_pi() for m in indices), arb(1))
        # Each omitted term has the sign of its cosine, so the sum of the omitted terms may be negative too.
        tail = 2 * (-dual * (SERIES_TERMS + 1) ** 2).exp() / (1 - (-dual).exp())
        # theta is the sum of exp(-alpha (n - f)^2) over all n, so the factor exp(alpha f^2) makes it relative to n = 0.
        # Subtracting 1 is safe here: below alpha = 3 the rivals weigh more than 2 e^-3, and balls have 256 bits.
        return (arb.pi() / alpha).sqrt() * (alpha * arb(shift) * arb(shift)).exp() * (waves + (-tail).union(tail)) - 1
    pairs = sum(
        (-alpha * (n * (n - 2 * arb(shift)))).exp() + (-alpha * (n * (n + 2 * arb(shift)))).exp() for n in indices
    )
    # n (n - 2 f) >= n (n - 1) for f <= 1/2, which grows by at least 1 with n, so a geometric series bounds the tail.
    tail = 2 * (-alpha * (SERIES_TERMS * (SERIES_TERMS + 1))).exp() / (1 - (-alpha).exp())
    return pairs + arb(0).union(tail)


def smallest_eigenvalue_at_least(matrix: Sequence[Sequence[float]]) -> float:
    """A certified lower bound on the smallest eigenvalue of the symmetric part of `matrix`.

    A floating-point guess is lowered until `matrix - guess I` has positive pivots in rational arithmetic (Sylvester).
    Take a head with scores `-(displacement - centre)^T A (displacement - centre)` whose centre is a key. It leaks no
    more than an isotropic head whose alpha is this eigenvalue of A.

    Source: proved as claim GQ of proofs/; Cordonnier et al. 2020, App. E.
    Raises:
        AlphaError: `matrix` is not square, finite and positive definite, or too nearly singular for a decision.
    """
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size or not np.isfinite(array).all():
        raise AlphaError(
            "C2A130",
            f"the inverse covariance {array.tolist()} is not a finite square matrix",
            "Pass a square matrix of finite numbers.",
        )
    # LAPACK's eigenvalue errs in either direction, by a few units in the last place of the norm: it is only a guess.
    guess = float(np.linalg.eigvalsh((array + array.T) / 2)[0])
    # Exact elimination is slow, so the margin doubles, and few guesses are tried.
    margin = float(abs(array).max()) * 2.0**-50
    while (lowered := guess - margin) > 0:
        if is_positive_definite(array, lowered):
            return lowered
        margin *= 2
    raise AlphaError(
        "C2A130",
        f"the inverse covariance {array.tolist()} is not certified positive definite",
        "Pass a symmetric matrix whose eigenvalues are positive.",
    )


def is_positive_definite(array: NDArray[np.float64], shift: float = 0.0) -> bool:
    """Whether the symmetric part of `array`, minus shift I, has only positive pivots, by exact elimination."""
    size = len(array)
    # Fractions, because a float pivot near zero may have either sign. Rows are never exchanged: a symmetric matrix is
    # positive definite exactly if elimination in the given order meets positive pivots alone (Sylvester).
    rows = [[(Fraction(array[i, j]) + Fraction(array[j, i])) / 2 for j in range(size)] for i in range(size)]
    for i in range(size):
        rows[i][i] -= Fraction(shift)
    for pivot in range(size):
        if rows[pivot][pivot] <= 0:
            return False
        for i in range(pivot + 1, size):
            ratio = rows[i][pivot] / rows[pivot][pivot]
            rows[i] = [below - ratio * above for below, above in zip(rows[i], rows[pivot], strict=True)]
    return True
