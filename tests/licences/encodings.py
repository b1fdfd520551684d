"""Licences of the encodings and of what computes with them: scores, features, and mixing axis by axis."""

import math
from fractions import Fraction

import torch
from flint import arb, ctx
from licences.cases import Licence, ball, exact, grid_of

import proofs.D2 as D2
import proofs.L2a as L2a
import proofs.L2e as L2e
from conv2attn.theory.basis import AttentionGrid, EnumeratedSoftmax, QuadraticSoftmax, apply
from conv2attn.theory.basis.operators.enumerated import radix
from conv2attn.theory.bounds import softmax_error


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


def answering(kind, method, wrong):
    """`kind` with another result of a method: `wrong` of the operator, the right result and the arguments."""
    right = getattr(kind, method)
    return type("Wrong", (kind,), {method: lambda self, *given: wrong(self, right(self, *given), *given)})


def reading(kind, method, wrong):
    """`kind` with other arguments of a method."""
    right = getattr(kind, method)
    return type("Wrong", (kind,), {method: lambda self, *given: right(self, *wrong(*given))})


def at_stride_one(toward, grid, queries):
    return toward, AttentionGrid(grid.keys, grid.sites.without_stride()), queries


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


def changed(asking=lambda x: x, answering=lambda x: x):
    """`features` whose results are changed afterwards."""

    def features(operators, grid, dtype):
        queries, keys = QuadraticSoftmax.features(operators, grid, dtype)
        return asking(queries), answering(keys)

    return features


def without_stride(operators, grid, dtype):
    queries, keys = QuadraticSoftmax.features(operators, AttentionGrid(grid.keys, grid.sites.without_stride()), dtype)
    return queries[:, :, : grid.shape[0]], keys


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


def head(centre=lambda c: c, alpha=lambda a: a):
    """`apply` for a head with another centre or sharpness."""
    return lambda p, image, sides: apply(QuadraticSoftmax(centre(p.center), alpha(p.alpha)), image, sides)


def of_keys(operators, image, sides):
    """The transposed map: queries mixed for keys."""
    return apply(operators, image, sides).reshape(len(image), -1).T.reshape(1, *image.shape)


LICENCES = {
    ("L2a", "theory.basis.QuadraticSoftmax"): Licence(
        quadratic,
        {
            "the 2 forgotten": reading(
                QuadraticSoftmax, "directed_scores", lambda t, *on: (torch.cat([t[..., :1], t[..., 1:] / 2], -1), *on)
            ),
            "one head for all": reading(QuadraticSoftmax, "directed_scores", lambda t, *on: (t[:1].expand_as(t), *on)),
            "the norm forgotten": reading(
                QuadraticSoftmax, "directed_scores", lambda t, *on: (torch.cat([0 * t[..., :1], t[..., 1:]], -1), *on)
            ),
            "the stride forgotten": reading(QuadraticSoftmax, "directed_scores", at_stride_one),
            "query - key": reading(QuadraticSoftmax, "axis_scores", lambda d, *rest: (-d, *rest)),
            "alpha on one axis": answering(
                QuadraticSoftmax,
                "axis_scores",
                lambda own, v, d, axis, *rest: v / (own.alpha[:, None, None] if axis else 1),
            ),
            "the axes of the centre reversed": lambda centres, alphas: QuadraticSoftmax(centres.flip(1), alphas),
            "alphas beyond 8": lambda centres, alphas: QuadraticSoftmax(centres, alphas.clamp(max=8)),
            "centres beyond 3": lambda centres, alphas: QuadraticSoftmax(centres.clamp(-3, 3), alphas),
        },
        shape=heads_on_a_grid,
    ),
    ("D2", "theory.basis.EnumeratedSoftmax"): Licence(
        enumerated,
        {
            "numbers too close": answering(EnumeratedSoftmax, "enumeration", lambda own, v, *on: v // 2),
            "one axis alone": answering(
                EnumeratedSoftmax, "enumeration", lambda own, v, grid, queries: grid.displacement_rows(queries)[..., -1]
            ),
            "the stride forgotten": reading(EnumeratedSoftmax, "directed_scores", at_stride_one),
            "the axes of the centre reversed": answering(
                EnumeratedSoftmax,
                "center_number",
                lambda own, v, *on: EnumeratedSoftmax(own.center.flip(1), own.alpha).center_number(*on),
            ),
            "the 2 forgotten": reading(
                EnumeratedSoftmax, "directed_scores", lambda t, *on: (t * torch.tensor([0.5, 1.0]), *on)
            ),
            "alpha forgotten in the scores": answering(
                EnumeratedSoftmax, "scores", lambda own, v, *on: v / own.alpha[:, None, None]
            ),
            "one head for all": answering(
                EnumeratedSoftmax, "scores", lambda own, v, *on: v[:, :1].expand(-1, own.heads, -1, -1)
            ),
        },
        shape=heads_on_a_grid,
    ),
    ("L2e", "theory.basis.QuadraticSoftmax.features"): Licence(
        absolute_features,
        {
            "the norm doubled": changed(answering=lambda k: torch.cat([k[..., :-1], 2 * k[..., -1:]], -1)),
            "the norm forgotten": changed(answering=lambda k: torch.cat([k[..., :-1], 0 * k[..., -1:]], -1)),
            "the 2 forgotten": changed(asking=lambda q: torch.cat([q[..., :-1] / 2, q[..., -1:]], -1)),
            "norms about another origin": changed(
                answering=lambda k: torch.cat([k[..., :-1], (k[..., :-1] + 1).square().sum(-1, True)], -1)
            ),
            "axes of the queries reversed": changed(
                asking=lambda q: torch.cat([q[..., :-1].flip(-1), q[..., -1:]], -1)
            ),
            "one head for all": changed(asking=lambda q: q[:, :1].expand_as(q)),
            "the stride forgotten": without_stride,
        },
        shape=heads_on_a_grid,
    ),
    ("L2d", "theory.basis.apply"): Licence(
        mixes_by_the_softmax,
        {
            "axes of the centre reversed": head(centre=lambda c: c.flip(1)),
            "query - key": head(centre=lambda c: -c),
            "sharper by 1 in 1000": head(alpha=lambda a: 1.001 * a),
            "the first axis alone": head(centre=lambda c: c[:, :1].expand_as(c)),
            "centre rounded": head(centre=lambda c: c.round()),
            "keys mixed for queries": of_keys,
            "alphas beyond 8": head(alpha=lambda a: a.clamp(max=8)),
        },
        examples=30,
        shape=lambda centre, alpha, sides: (sides, centre, alpha),
    ),
}
