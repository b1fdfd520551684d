"""Licences of the leak bounds: the weight off the target, against theta series summed here at 2,000 bits."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
from flint import arb, ctx
from licences.cases import Licence, ball

from conv2attn.theory.bounds import leaked_mass


def rivals(alpha, beside=Fraction(0)):
    """A ball around the sum over all n != 0 of exp(-alpha (n^2 - 2 n beside)), summed until the rest is tiny."""
    alpha, beside, last = ball(alpha), ball(beside), 3 + math.isqrt(int(1100 / alpha) + 1)
    tail = (-alpha * (last * last - last)).exp() / (1 - (-alpha * last).exp())
    sides = [
        sum(((-alpha * (n * n - 2 * side * n)).exp() for n in range(1, last)), arb(0).union(tail))
        for side in ([beside, -beside] if beside else [beside])
    ]
    return sides[0] + sides[-1]


def leak(axes):
    """A ball around 1 - product of 1 / the sum over an axis: the least upper bound of what leaks, over all grids."""
    return -(-sum((rivals(*axis).log1p() for axis in axes), arb(0))).expm1()


def is_the_leak(function, case):
    """The leak on the whole lattice, rounded up once."""
    axes, arguments = case
    with ctx.workprec(2000):
        bound, exact = function(*arguments), leak(axes)
        return bool(ball(bound) >= exact) and bool(ball(math.nextafter(bound, 0)) < exact.upper())


def beside(centre):
    """How far the nearest integer is."""
    return abs(Fraction(centre) - round(Fraction(centre)))


def leaves_at_most(function, case):
    eps, n = case
    return function(math.nextafter(math.log(1 + 2 * n / eps), math.inf), n) <= eps


def precision(axes, root, skew, isotropic):
    """B'B + I/4 for a matrix B of halves, or a multiple of I; with a part that is not symmetric."""
    if isotropic:
        return tuple(tuple(root.size / 4 * (i == j) for j in range(axes)) for i in range(axes))
    b = (root.fill(axes, axes) / 2).tolist()
    entry = [[sum(row[i] * row[j] for row in b) + (i == j) / 4 for j in range(axes)] for i in range(axes)]
    return tuple(tuple(entry[i][j] + skew * ((i < j) - (i > j)) for j in range(axes)) for i in range(axes))


def covers_the_grid(function, matrix):
    """An isotropic head with this alpha leaks at least what leaks on a grid of 15 keys per axis with the target in the
    middle (9 of three axes), and not much more than for the least eigenvalue."""
    n = len(matrix)
    reach = range(-4, 5) if n == 3 else range(-7, 8)
    with ctx.workprec(200):
        others = arb(0)
        for d in product(reach, repeat=n):
            score = sum(Fraction(matrix[i][j]) * d[i] * d[j] for i in range(n) for j in range(n))
            others += (-ball(score)).exp() if any(d) else 0
        found = ball(leaked_mass(function(matrix), n))
        return bool(found * (1 + others) >= others) and bool(found <= largest_leak(matrix) + arb(2) ** -1070)


def largest_leak(matrix):
    """The leak of an isotropic head as flat as the flattest direction, up to the rounding of eigenvalues."""
    array = np.array(matrix)
    least = np.linalg.eigvalsh((array + array.T) / 2)[0] - abs(array).max() * 2.0**-40
    return leak([(least,)] * len(matrix)) * (1 + arb(2) ** -20)


def is_the_effect(function, case):
    share, radius = case
    exact, bound = 2 * Fraction(share) * Fraction(radius), function(share, radius)
    return Fraction(bound) >= exact and (bound == 0 or Fraction(math.nextafter(bound, 0)) < exact)


LICENCES = {
    ("L2b", "theory.bounds.leaked_mass"): Licence(
        leaves_at_most,
    ),
    ("L2c", "theory.bounds.leaked_mass"): Licence(
        is_the_leak,
        shape=lambda alpha, n: ([(alpha,)] * n, (alpha, n)),
    ),
    ("L2c", "theory.bounds.leaked_mass_diagonal"): Licence(
        is_the_leak,
        shape=lambda alphas, centre: ([(a, beside(c)) for a, c in zip(alphas, centre, strict=True)], (alphas, centre)),
    ),
    ("GQ", "theory.bounds.smallest_eigenvalue_at_least"): Licence(
        covers_the_grid,
        shape=precision,
    ),
    ("T1", "theory.bounds.mixing_effect"): Licence(
        is_the_effect,
    ),
}
