"""Licences of the leak bounds: the weight off the target, against theta series summed here at 2,000 bits."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
from flint import arb, ctx
from licences.cases import Licence, ball

from conv2attn.theory.bounds import leaked_mass, leaked_mass_diagonal, mixing_effect, smallest_eigenvalue_at_least


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


def float_bound(alpha, n):
    return 1 - (1 + 2 / math.expm1(alpha)) ** -n


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


def scaled(factor):
    return lambda matrix: smallest_eigenvalue_at_least([[factor * x for x in row] for row in matrix])


def one_triangle(matrix):
    n = len(matrix)
    return smallest_eigenvalue_at_least([[matrix[max(i, j)][min(i, j)] for j in range(n)] for i in range(n)])


def is_the_effect(function, case):
    share, radius = case
    exact, bound = 2 * Fraction(share) * Fraction(radius), function(share, radius)
    return Fraction(bound) >= exact and (bound == 0 or Fraction(math.nextafter(bound, 0)) < exact)


def by_branch(low, high):
    """`leaked_mass` scaled where it sums the dual series (alpha below 3) and where it sums the theta series."""
    return lambda alpha, n: leaked_mass(alpha, n) * (low if alpha < 3 else high)


LICENCES = {
    ("L2b", "theory.bounds.leaked_mass"): Licence(
        leaves_at_most,
        {
            "half as much again": lambda alpha, n: 1.5 * leaked_mass(alpha, n),
            "the odds": lambda alpha, n: leaked_mass(alpha, n) / (1 - min(0.9999, leaked_mass(alpha, n))) * 1.01,
            "never 0": lambda alpha, n: max(2.0**-40, leaked_mass(alpha, n)),
        },
    ),
    ("L2c", "theory.bounds.leaked_mass"): Licence(
        is_the_leak,
        {
            "cancellation": float_bound,
            "too small below 3": by_branch(1 - 1e-9, 1),
            "too small above 3": by_branch(1, 1 - 1e-9),
            "too large below 3": by_branch(1 + 1e-9, 1),
            "too large above 3": by_branch(1, 1 + 1e-9),
        },
        shape=lambda alpha, n: ([(alpha,)] * n, (alpha, n)),
    ),
    ("L2c", "theory.bounds.leaked_mass_diagonal"): Licence(
        is_the_leak,
        {
            "the sharpest axis for all": lambda alphas, centre: leaked_mass(max(alphas), len(alphas)),
            "the flattest axis for all": lambda alphas, centre: leaked_mass(min(alphas), len(alphas)),
            "the first axis alone": lambda alphas, centre: leaked_mass(alphas[0], 1),
            "the sum of the axes": lambda alphas, centre: min(1.0, sum(leaked_mass(alpha, 1) for alpha in alphas)),
            "the centres forgotten": lambda alphas, centre: leaked_mass_diagonal(alphas),
            "half as far from the key": lambda alphas, centre: leaked_mass_diagonal(
                alphas, [float(beside(c)) / 2 for c in centre]
            ),
            "a shifted centre": lambda alphas, centre: leaked_mass_diagonal(alphas, [c + 0.125 for c in centre]),
            "centres ignored from alpha 100 on": lambda alphas, centre: leaked_mass_diagonal(
                alphas, centre if max(alphas) < 100 else None
            ),
        },
        shape=lambda alphas, centre: ([(a, beside(c)) for a, c in zip(alphas, centre, strict=True)], (alphas, centre)),
    ),
    ("GQ", "theory.bounds.smallest_eigenvalue_at_least"): Licence(
        covers_the_grid,
        {
            "10 % too large": scaled(1.1),
            "1 % too large": scaled(1.01),
            "1 % too small": scaled(0.99),
            "the smallest diagonal entry": lambda matrix: min(row[i] for i, row in enumerate(matrix)),
            "one triangle of a matrix that is not symmetric": one_triangle,
        },
        shape=precision,
    ),
    ("T1", "theory.bounds.mixing_effect"): Licence(
        is_the_effect,
        {
            "without the radius": lambda share, radius: mixing_effect(share, 1.0),
            "rounded down": lambda share, radius: math.nextafter(mixing_effect(share, radius), 0),
            "rounded to nearest": lambda share, radius: 2 * share * radius,
            "a radius above 2^20": lambda share, radius: mixing_effect(share, min(radius, 2.0**20)),
        },
    ),
}
