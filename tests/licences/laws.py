"""Each licence of a claim: the proved expression and the licensed function agree on the same exact inputs, and a mutant
of the function does not."""

import importlib
import math
import sys
from dataclasses import replace
from functools import reduce
from itertools import product

import pytest
import sympy
import torch
from sympy import Indexed, Integer, Rational

from conv2attn.attention.engines import gather, sdpa
from conv2attn.basis import (
    AttentionGrid,
    Dense,
    EnumeratedSoftmax,
    Padding,
    QuadraticSoftmax,
    Sites,
    Weights,
    apply,
    as_affine_map,
    basis_of,
    compose,
)
from conv2attn.basis.operators.enumerated import radix
from conv2attn.bounds import (
    auto_alpha,
    leaked_mass,
    mixing_effect,
    one_hot_threshold,
    softmax_error,
    target_rounds_to_one_threshold,
)
from conv2attn.errors import HeadSizeError
from conv2attn.span import check_span
from conv2attn.theorem import construction
from conv2attn.theorem.convolution import Convolution
from conv2attn.verdicts import Verdict
from proofs import CLAIMS as NAMES
from proofs import core
from proofs.deciding import load

CLAIMS = [load(name, NAMES) for name in NAMES]
LICENCES = [(claim.name, name) for claim in CLAIMS for name in claim.licenses]
proof = {name: sys.modules[f"proofs.{name}"] for name in NAMES}
ALPHAS = (0.5, 1.0, 3.0, 18.125, 46.0, 104.0)
GRID = AttentionGrid((3, 4), Sites.everywhere(2))
PAIRS = list(product(range(12), repeat=2))
CENTRES, SHARPNESS = [[1.0, -2.0], [0.5, 3.0]], [2.0, 0.25]


def family(kind, centres=CENTRES, alphas=SHARPNESS):
    return kind(torch.tensor(centres), torch.tensor(alphas))


def exact(expr, **values):
    """`expr` of a proof at exact values: sizes and scalars are numbers, tensors are sequences."""
    scalars = {name: sympy.sympify(v) for name, v in values.items() if not isinstance(v, (list, tuple))}
    total = Integer(0)
    for bound, monomial in core.terms(expr):
        for place in product(*(range(1, 1 + int(scalars[size.name])) for size in bound.values())):
            value = monomial.xreplace({k: Integer(v) for k, v in zip(bound, place, strict=True)})
            value = value.replace(lambda e: isinstance(e, Indexed), lambda e: entry(values[e.base.name], e.indices))
            total += value.xreplace({symbol: scalars[symbol.name] for symbol in value.free_symbols})
    return total


def entry(tensor, indices):
    return Rational(reduce(lambda inner, index: inner[int(index) - 1], indices, tensor))


def below(smaller, larger):
    return core.less(sympy.expand(smaller), sympy.expand(larger)) is Verdict.HOLDS


def sites_of_kernel(of_kernel):
    for side, k, s, d in [(11, 3, 2, 3), (8, 4, 3, 1), (7, 1, 1, 1), (9, 2, 1, 4)]:
        grid = AttentionGrid((side,), of_kernel((k,), (s,), (d,)))
        values = {"s": s, "d": d, "K": k, "P": side, "m": (k - 1) // 2}
        count = int(exact(proof["L1"].last, **values)) // s + 1
        reads = [exact(proof["L1"].key, q=q, t=t, **values) for q in range(count) for t in range(k)]
        offsets = [exact(proof["L1"].offset, t=t, **values) for t in range(k)]
        if grid.queries != (count,) or reads != [int(at) + o for at in grid.site(0) for o in offsets]:
            return False
    return True


def zero_padding(source):
    cases = [(2, 5, 1), (0, 3, 4), (3, 2, 0)]
    placed = [[k - lo if 0 <= k - lo < side else -1 for k in range(lo + side + hi)] for lo, side, hi in cases]
    return placed == [source(Padding((lo,), (hi,)), 0, side).tolist() for lo, side, hi in cases]


def displacement(query, key):
    return [key // 4 - query // 4, key % 4 - query % 4]


def quadratic(kind):
    encoding, rows = family(kind), torch.arange(12)
    inner = torch.einsum("qkp,hp->hqk", encoding.vectors(GRID, rows), encoding.position_bias(GRID))
    scores = encoding.scores(GRID, rows, torch.float64)[0]
    for h, (q, k) in product((0, 1), PAIRS):
        values = {"n": 2, "alpha": Rational(SHARPNESS[h]), "delta": displacement(q, k), "Delta": CENTRES[h]}
        if exact(proof["L2a"].score, **values) != Rational(inner[h, q, k].item()):
            return False
        if exact(-proof["L2a"].alpha * proof["L2a"].distance, **values) != Rational(scores[h, q, k].item()):
            return False
    return True


class QuadraticWithoutTwo(QuadraticSoftmax):
    def position_bias(self, grid):
        return -self.alpha[:, None] * torch.cat([torch.ones_like(self.alpha[:, None]), -self.center], -1)


def partition(alphas):
    """What seven keys an axis weigh, relative to the target in their middle: less than the lattice."""
    return math.prod(proof["L2c"].lattice_sum(Rational(alpha), 3) for alpha in alphas)


def leak_of_grids(leak):
    for alpha, n in product(ALPHAS, (1, 2, 3)):
        bound, z, e = Rational(leak(alpha, n)), partition([alpha] * n), sympy.exp(Rational(alpha))
        elementary = (e + 1) ** n - (e - 1) ** n  # 1 - (1 + 2/(e - 1))^-n, times (e + 1)^n
        if not (below(z - 1, bound * z) and below(bound * (e + 1) ** n, elementary * (1 + Rational(1, 2**50)))):
            return False
    return True


def leak_vanishes(leak):
    return all(
        leak(math.nextafter(math.log(1 + 2 * n / eps), math.inf), n) <= eps
        for n in (1, 2, 3)
        for eps in (2.0**-k for k in (1, 4, 20, 50))
    )


def leak_by_axes(leak):
    pairs = [(1.0, 3.0), (0.5, 46.0), (2.0, 2.0)]
    return all(below(partition(pair) - 1, Rational(leak(pair)) * partition(pair)) for pair in pairs)


def separable(mixing):
    sides, centre, alpha = (3, 4), (0.5, 1.25), 0.75  # dyadic: the scores are exact
    images = torch.eye(12, dtype=torch.float64).reshape(12, *sides)
    mixed = mixing(family(QuadraticSoftmax, [centre], [alpha]), images, sides).reshape(12, 12)
    one_axis = Rational(softmax_error(4, "float64"))
    allowed = 2 * one_axis + one_axis**2 + Rational(1, 2**52)
    for q in range(12):
        away = [
            sum((Rational(d) - Rational(c)) ** 2 for d, c in zip(displacement(q, k), centre, strict=True))
            for k in range(12)
        ]
        weights = [sympy.exp(-Rational(alpha) * square) for square in away]
        for k in range(12):
            computed = Rational(mixed[k, q].item())
            if not (
                below((computed - allowed) * sum(weights), weights[k])
                and below(weights[k], (computed + allowed) * sum(weights))
            ):
                return False
    return True


def absolute_features(features):
    asking, answering = features(family(QuadraticSoftmax), GRID, torch.float64)
    inner = (asking @ answering.mT)[0]
    for h, q in product((0, 1), range(12)):
        dropped = set()
        for k in range(12):
            values = {"n": 2, "alpha": Rational(SHARPNESS[h]), "Delta": CENTRES[h]}
            score = exact(proof["L2e"].score, k=divmod(k, 4), q=divmod(q, 4), **values)
            dropped.add(score - Rational(inner[h, q, k].item()))
        if len(dropped) != 1:
            return False
    return True


def doubled_norm(encoding, grid, dtype):
    asking, answering = sdpa.features(encoding, grid, dtype)
    return asking, torch.cat([answering[..., :-1], 2 * answering[..., -1:]], -1)


def theorem(attention_for):
    generator = torch.Generator().manual_seed(5)
    weight = torch.randint(-4, 5, (3, 2, 2, 3), generator=generator).double()
    bias = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    image = torch.randint(-4, 5, (1, 2, 5, 7), generator=generator).double()
    stride, dilation, before, after = (2, 1), (1, 2), (1, 0), (0, 2)
    answer = attention_for(Convolution(weight, bias, stride, dilation, Padding(before, after)))(image)[0]
    for o, i, j in product(*map(range, answer.shape)):
        total = int(bias[o])
        for c, t, u in product(range(2), range(2), range(3)):
            at = [
                int(exact(proof["L1"].key, q=q, t=tap, s=s, d=d)) - lo
                for q, tap, s, d, lo in zip((i, j), (t, u), stride, dilation, before, strict=True)
            ]
            if 0 <= at[0] < 5 and 0 <= at[1] < 7:
                total += int(weight[o, c, t, u]) * int(image[0, c, at[0], at[1]])
        if total != answer[o, i, j].item():
            return False
    return True


def flipped(convolution, **options):
    return construction.attention_for(replace(convolution, weight=convolution.weight.flip(2, 3)), **options)


def worst_mixing(effect):
    p, z, r = sympy.symbols("p z r", real=True)
    attained = exact(p * z + (1 - p) * (z + r) - z, p=Rational(3, 4), z=-2, r=4)
    return Rational(effect(0.25, 2.0)) >= attained


def head_width(width):
    for d_in, d_out in [(2, 5), (5, 2), (3, 3), (1, 4)]:
        convolution = Convolution(torch.zeros(d_out, d_in, 1), None, (1,), (1,), Padding.none(1))
        if width(convolution, None) != min(d_in, d_out):
            return False
        if d_in > 1 < d_out:
            with pytest.raises(HeadSizeError, match="C2A105"):
                width(convolution, min(d_in, d_out) - 1)
    return True


def exact_factors(factors):
    for d_in, d_out, extra, stored in product((1, 2, 5), (1, 3, 5), (0, 1, 4), (False, True)):
        taps = torch.arange(4 * d_out * d_in).reshape(4, d_out, d_in).double() - 7
        value, output = factors(taps, 1, min(d_in, d_out) + extra, stored)
        made = output if value is None else value if output is None else output @ value
        if not torch.equal(made, taps):
            return False
    return True


def transposed_output(taps, groups, width, stored):
    value, output = construction.factors(taps, groups, width, stored)
    return value, None if output is None else output.flip(1)


def enumerated(kind):
    encoding, rows = family(kind, [[1.0, -2.0], [0.0, 3.0]]), torch.arange(12)
    far, near = radix(GRID)
    apart = {far * a + near * b for a in range(-2, 3) for b in range(-3, 4)}
    inner = torch.einsum("qkp,hp->hqk", encoding.vectors(GRID, rows), encoding.position_bias(GRID))
    v_r = proof["D2"].CLAIM.steps[0].question.args[0]
    for h, (q, k) in product((0, 1), PAIRS):
        t, centre = ((far * a + near * b) for a, b in (displacement(q, k), encoding.center[h].tolist()))
        if exact(v_r, alpha=Rational(SHARPNESS[h]), t=t, t_Delta=Rational(centre)) != Rational(inner[h, q, k].item()):
            return False
    return len(apart) == 5 * 7


class EnumeratedTooClose(EnumeratedSoftmax):
    def position_bias(self, grid):
        return super().position_bias(AttentionGrid((grid.keys[0], grid.keys[1] - 1), grid.sites))


def replicated(continued):
    sides, offsets = (3, 4), ((-2, 1), (0, 0), (5, -7))
    padding, moved = continued(Sites.everywhere(2), sides, offsets)
    for axis, side in enumerate(sides):
        source = padding.source(axis, side).tolist()
        for offset, q in product(offsets, range(side)):
            if source[moved.before[axis] + q + offset[axis]] != min(max(q + offset[axis], 0), side - 1):
                return False
    return True


def zeros_instead(sites, keys, offsets):
    padding, moved = gather.continued(sites, keys, offsets)
    return replace(padding, mode="zeros"), moved


def strided_queries(without_stride):
    for side, k, s, d in [(11, 3, 2, 3), (9, 4, 3, 1), (10, 1, 4, 1)]:
        sites = Sites.of_kernel((k,), (s,), (d,))
        every, some = (AttentionGrid((side,), each).site(0).tolist() for each in (without_stride(sites), sites))
        if every[::s] != some:
            return False
    return True


def covariance_leak(leak):
    matrix = ((1.0, -0.5), (-0.5, 2.0))
    grid = product(range(-2, 3), repeat=2)
    z = sum(sympy.exp(-sum(Rational(matrix[i][j]) * d[i] * d[j] for i in (0, 1) for j in (0, 1))) for d in grid)
    return below(z - 1, Rational(leak(matrix)) * z)


def composition(composed):
    generator = torch.Generator().manual_seed(6)

    def layer(weights, bias):
        mixes = torch.randint(-3, 4, (2, 3, 3), generator=generator).double()
        return basis_of(Dense(mixes, (3,)), Weights(None, weights, bias), 1)

    weights = torch.randint(-3, 4, (2, 2, 2, 2), generator=generator).double()
    first, second = (
        layer(weights[0], torch.tensor([1.0, -2.0]).double()),
        layer(weights[1], torch.tensor([3.0, 5.0]).double()),
    )
    (a, b), (c, d) = as_affine_map(first, (3,)), as_affine_map(second, (3,))
    whole, shift = as_affine_map(composed(second, first, (3,)), (3,))
    return torch.equal(whole, c @ a) and torch.equal(shift, c @ b + d)


def one_hot_alphas(threshold):
    return all(Rational(threshold(name)) == first for name, first in proof["A46"].FIRST.items())


def target_one(threshold):
    a46 = proof["A46"]
    asked = [a46.rounds_to_one(Rational(threshold(name)), p) for name, (p, _) in a46.FORMATS.items()]
    return all(method(*arguments) is Verdict.HOLDS for method, *arguments in asked)


def float_bound(alpha, n):
    return 1 - (1 + 2 / (math.exp(alpha) - 1)) ** -n


# (claim, function): (what is compared, a mutant of the function)
def swapped_heads():
    """Two heads that read their own pixel and the next, and exchange roles at every other query (E2 d)."""
    own, following = torch.eye(6).double(), torch.eye(6).double().roll(1, 1)
    even = (torch.arange(6) % 2 == 0)[:, None]
    return torch.stack([torch.where(even, own, following), torch.where(even, following, own)])


def one_mixing_for_all_queries(check):
    """The joint condition holds exactly where the stacked rows of the shift lie in the span of the stacked heads."""
    shift = torch.eye(6).double()
    for heads in (shift[None], shift.roll(1, 1)[None], torch.stack([shift, shift.roll(1, 1)]), swapped_heads()):
        rows = sympy.Matrix([[int(x) for x in head.flatten()] for head in heads])
        spans = rows.rank() == rows.col_join(sympy.Matrix([[int(x) for x in shift.flatten()]])).rank()
        verdict = check(heads, offsets=[(0,)], grid=6).condition("joint").verdict
        if verdict is not (Verdict.HOLDS if spans else Verdict.REFUTED):
            return False
    return True


def per_query_is_not_enough(check):
    """What the paper prints holds for heads that exchange roles, and yet there is no one Phi."""
    row = check(swapped_heads(), offsets=[(0,)], grid=6)
    return (row.condition("per-query").verdict, row.condition("joint").verdict) == (Verdict.HOLDS, Verdict.REFUTED)


def joint(*arguments, **options):
    """The one row of check_span."""
    return check_span(*arguments, **options).rows[0]


class PerQueryForAll:
    """A row whose every condition is the one that the paper prints."""

    def __init__(self, *arguments, **options):
        self.row = check_span(*arguments, **options).rows[0]

    def condition(self, name):
        return self.row.condition("per-query")


def rows_of(check):
    """`check` by its first row, if it is check_span itself."""
    return joint if check is check_span else check


def counted_heads(fewest):
    """[1, 2, 1], of rank 1 with a positive pattern, needs one head; [-1, 0, 1], of rank 1 without one, needs two."""
    found = []
    for taps in ([1.0, 2.0, 1.0], [-1.0, 0.0, 1.0]):
        weight = torch.tensor(taps).reshape(1, 1, 3)
        found.append(fewest(Convolution(weight, None, (1,), (1,), Padding.none(1))).free)
    return found == [1, 2]


class RankAlone:
    """Counts the rank of the taps, which is 1 here, whatever their signs."""

    def __init__(self, convolution):
        self.free = 1


CHECKS = {
    ("L3", "span.check_span"): (lambda check: one_mixing_for_all_queries(rows_of(check)), PerQueryForAll),
    ("L3p", "span.check_span"): (lambda check: per_query_is_not_enough(rows_of(check)), PerQueryForAll),
    ("HEADS", "span.fewest_heads"): (counted_heads, RankAlone),
    ("L1", "basis.Sites.of_kernel"): (sites_of_kernel, lambda k, s, d: Sites.of_kernel(k, d, s)),
    ("L1", "basis.Padding.source"): (zero_padding, lambda padding, axis, side: padding.source(axis, side).roll(1)),
    ("L2a", "basis.QuadraticSoftmax"): (quadratic, QuadraticWithoutTwo),
    ("L2b", "bounds.leaked_mass"): (leak_vanishes, lambda alpha, n: leaked_mass(alpha, 2 * n)),
    ("L2c", "bounds.leaked_mass"): (leak_of_grids, float_bound),
    ("L2c", "bounds.leaked_mass_diagonal"): (leak_by_axes, lambda alphas: leaked_mass(max(alphas), len(alphas))),
    ("L2d", "basis.apply"): (
        separable,
        lambda p, x, sides: apply(QuadraticSoftmax(p.center.flip(1), p.alpha), x, sides),
    ),
    ("L2e", "attention.engines.sdpa.features"): (absolute_features, doubled_norm),
    ("T1", "theorem.construction.attention_for"): (theorem, flipped),
    ("T1", "bounds.mixing_effect"): (worst_mixing, lambda leak, radius: mixing_effect(leak, radius) / 2),
    ("T1p", "theorem.construction.head_width"): (head_width, lambda convolution, d_head: convolution.d_out),
    ("T1p", "theorem.construction.factors"): (exact_factors, transposed_output),
    ("D2", "basis.EnumeratedSoftmax"): (enumerated, EnumeratedTooClose),
    ("A46", "bounds.auto_alpha"): (
        lambda auto: all(auto(name) == alpha for name, alpha in proof["A46"].AUTO.items()),
        lambda name: max(46.0, auto_alpha(name) / 2),
    ),
    ("A46", "bounds.one_hot_threshold"): (one_hot_alphas, lambda name: one_hot_threshold(name, flush_to_zero=True)),
    ("A46", "bounds.target_rounds_to_one_threshold"): (
        target_one,
        lambda name: target_rounds_to_one_threshold(name) - 0.25,
    ),
    ("PAD", "attention.engines.gather.continued"): (replicated, zeros_instead),
    ("STR", "basis.Sites.without_stride"): (strided_queries, lambda sites: sites),
    ("GQ", "bounds.leaked_mass_covariance"): (
        covariance_leak,
        lambda matrix: leaked_mass(max(matrix[0][0], matrix[1][1])),
    ),
    ("AND", "basis.compose"): (composition, lambda second, first, sides: compose(first, second, sides)),
}


def resolve(name):
    """The object with this full name: the longest importable module, then attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[end:], found)
    raise ModuleNotFoundError(name)


def test_every_licence_is_checked_and_nothing_else():
    assert {(claim, f"conv2attn.{name}") for claim, name in CHECKS} == set(LICENCES)


@pytest.mark.parametrize(("claim", "name"), LICENCES)
def test_the_licensed_function_is_the_proved_expression(claim, name):
    compared, mutant = CHECKS[claim, name.removeprefix("conv2attn.")]
    assert compared(resolve(name))
    assert not compared(mutant)


def test_a_name_that_does_not_resolve_is_an_error():
    with pytest.raises(AttributeError):
        resolve("conv2attn.bounds.no_such_bound")
