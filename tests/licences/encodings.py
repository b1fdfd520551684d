"""Licences of the encodings and of what computes with them: scores, features, and mixing axis by axis."""

import math
from fractions import Fraction

import torch
from flint import arb, ctx
from licences.cases import Licence, ball, exact, grid_of
from softmax_rounding import softmax_error

import proofs.D2 as D2
import proofs.L2a as L2a
import proofs.L2e as L2e
from conv2attn.theory.basis import AttentionGrid, QuadraticSoftmax
from conv2attn.theory.basis.operators.enumerated import radix


def heads_on_a_grid(centres, alphas, *geometry):
    """A grid, two heads, and the first, a middle and the last query and key of each."""
    grid = grid_of(*geometry)
    queries, keys = ((0, count // 2, count - 1) for count in grid.shape)
    pairs = [(h, q, k) for h in range(len(alphas)) for q, k in zip(queries, keys[::-1], strict=True)]
    return grid, centres, alphas, [*pairs, (0, queries[1], keys[2])]


def place(index, sides):
    """The coordinates of a token, row-major."""
    out = []
    for side in reversed(sides):
        index, at = divmod(index, side)
        out.insert(0, at)
    return out


def positions(grid, query, key):
    """The site of a query and the coordinates of a key."""
    axes = zip(place(query, grid.queries), grid.sites.before, grid.sites.stride, strict=True)
    return [b + s * q for q, b, s in axes], place(key, grid.keys)


def displacement(grid, query, key):
    site, at = positions(grid, query, key)
    return [k - q for q, k in zip(site, at, strict=True)]


def inner_products(encoding, grid, vectors):
    """The inner products of one vector a head with the positions, and the scores."""
    rows = torch.arange(grid.shape[0])
    toward = torch.tensor(vectors)[:, None].expand(-1, len(rows), -1)
    inner = encoding.directed_scores(toward, grid, rows)
    return inner, encoding.scores(grid, rows, torch.float64)[0]


def quadratic(kind, case):
    grid, centres, alphas, pairs = case
    vectors = [[-alpha, *(2 * alpha * x for x in centre)] for centre, alpha in zip(centres, alphas, strict=True)]
    inner, scores = inner_products(kind(torch.tensor(centres), torch.tensor(alphas)), grid, vectors)
    for h, q, k in pairs:
        values = {
            "n": len(grid.keys),
            "alpha": Fraction(alphas[h]),
            "delta": displacement(grid, q, k),
            "Delta": centres[h],
        }
        if exact(L2a.score, **values) != Fraction(inner[h, q, k].item()):
            return False
        if exact(-L2a.alpha * L2a.distance, **values) != Fraction(scores[h, q, k].item()):
            return False
    return True


def enumerated(kind, case):
    """Inner products and scores are -alpha (t - t_Delta)^2 up to a constant, and t tells all displacements apart."""
    grid, centres, alphas, pairs = case
    encoding = kind(torch.tensor(centres), torch.tensor(alphas))
    far, v_r = AttentionGrid(grid.keys, grid.sites.everywhere(len(grid.keys))), D2.CLAIM.steps[0].question.args[0]
    numbers = encoding.enumeration(far, torch.arange(far.shape[0]))
    if not tells_apart(numbers, grid.keys):
        return False
    numbered = [sum(r * int(c) for r, c in zip(radix(grid), centre, strict=True)) for centre in centres]
    vectors = [[2 * alpha * number, -alpha] for number, alpha in zip(numbered, alphas, strict=True)]
    inner, scores = inner_products(encoding, grid, vectors)
    at = encoding.enumeration(grid, torch.arange(grid.shape[0]))
    for h, q, k in pairs:
        t = at[q, k].item()
        site, key = (sum(p * math.prod(grid.keys[a + 1 :]) for a, p in enumerate(at)) for at in positions(grid, q, k))
        if t != numbers[site, key].item():
            return False
        values = {"alpha": Fraction(alphas[h]), "t": t, "t_Delta": numbered[h]}
        if exact(v_r, **values) != Fraction(inner[h, q, k].item()):
            return False
        if Fraction(scores[h, q, k].item()) != -Fraction(alphas[h]) * (t - numbered[h]) ** 2:
            return False
    return True


def tells_apart(numbers, sides):
    """Whether displacements within a box and these numbers are in bijection."""
    tokens = torch.cartesian_prod(*map(torch.arange, sides)).reshape(-1, len(sides))
    places = tokens @ torch.tensor([(2 * max(sides)) ** axis for axis in range(len(sides))])
    displacements, which = (places[None] - places[:, None]).unique(return_inverse=True)
    number = numbers.new_empty(len(displacements)).scatter_(0, which.flatten(), numbers.flatten())
    return torch.equal(number[which], numbers) and len(number.unique()) == len(number)


def absolute_features(features, case):
    """The score is the inner product of the features up to a term of the query alone, at up to nine keys."""
    grid, centres, alphas, pairs = case
    asking, answering = features(QuadraticSoftmax(torch.tensor(centres), torch.tensor(alphas)), grid, torch.float64)
    inner = (asking @ answering.mT)[0]
    for h, q, _ in pairs:
        dropped = set()
        for k in range(0, grid.shape[1], 1 + grid.shape[1] // 9):
            site, key = positions(grid, q, k)
            values = {"n": len(site), "alpha": Fraction(alphas[h]), "Delta": centres[h]}
            dropped.add(exact(L2e.score, k=key, q=site, **values) - Fraction(inner[h, q, k].item()))
        if len(dropped) != 1:
            return False
    return True


def mixes_by_the_softmax(mixing, case):
    """Each weight is within the rounding of an axis' softmax, once for each axis."""
    sides, centre, alpha = case
    tokens = torch.Size(sides).numel()
    heads = QuadraticSoftmax(torch.tensor([centre], dtype=torch.float64), torch.tensor([alpha], dtype=torch.float64))
    mixed = mixing(heads, torch.eye(tokens, dtype=torch.float64).reshape(-1, *sides), sides)
    one = 1 + Fraction(softmax_error(max(sides), "float64")) + Fraction(1, 2**50)
    allowed = ball(one ** len(sides) - 1)
    with ctx.workprec(200):
        for q in range(tokens):
            scores = []
            for k in range(tokens):
                axes = zip(place(k, sides), place(q, sides), centre, strict=True)
                scores.append(-Fraction(alpha) * sum((kk - qq - Fraction(c)) ** 2 for kk, qq, c in axes))
            weights = [(ball(score - max(scores))).exp() for score in scores]
            total = sum(weights, arb(0))
            for k, weight in enumerate(weights):
                away = ball(mixed.reshape(tokens, tokens)[k, q].item()) - weight / total
                if not (away <= allowed and -away <= allowed):
                    return False
    return True


LICENCES = {
    ("L2a", "theory.basis.QuadraticSoftmax"): Licence(
        quadratic,
        shape=heads_on_a_grid,
    ),
    ("D2", "theory.basis.EnumeratedSoftmax"): Licence(
        enumerated,
        shape=heads_on_a_grid,
    ),
    ("L2e", "theory.basis.QuadraticSoftmax.features"): Licence(
        absolute_features,
        shape=heads_on_a_grid,
    ),
    ("L2d", "theory.basis.apply"): Licence(
        mixes_by_the_softmax,
        examples=30,
        shape=lambda centre, alpha, sides: (sides, centre, alpha),
    ),
}
