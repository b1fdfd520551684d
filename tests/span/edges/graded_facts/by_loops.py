"""Every fact of a head, of a span and of a nearest convolution beside its definition, written out in loops.

Without bias means: every pair of different images, one after the other. An error is what the estimates without one
image, or of two images without one query, spread.
"""

from copy import copy
from functools import cache, cached_property
from itertools import product

import numpy as np
import pytest
from scipy.special import stdtrit

from conv2attn import heads
from conv2attn.span import rows_of
from conv2attn.span.graded_facts import nearest_convolutions, sums_of

NEVER = 1e-30


def drawn(seed, images, count, queries, keys, sharp=0.4):
    return np.random.default_rng(seed).dirichlet(np.full(keys, sharp), (images, count, queries))


def causal(images, count, tokens):
    """Rows of which every later key is masked; the first query has nothing to vary."""
    attention = drawn(5, images, count, tokens, tokens) * np.tri(tokens)
    return attention / attention.sum(-1, keepdims=True)


def every(sides, step=1):
    return list(product(*(range(0, side, step) for side in sides)))


def cells(sides, cell):
    return [tuple(x // cell for x in at) for at in every([side * cell for side in sides])]


CASES = {
    "an image": (drawn(0, 1, 2, 12, 12), every((3, 4)), (3, 4), 0),
    "images": (drawn(1, 4, 2, 12, 12), every((3, 4)), (3, 4), 0),
    "two images on a line": (drawn(2, 2, 3, 8, 8), every((8,)), (8,), 0),
    "leading tokens": (drawn(3, 3, 2, 14, 14), every((4, 3)), (4, 3), 2),
    "space": (drawn(4, 3, 1, 12, 12), every((2, 3, 2)), (2, 3, 2), 0),
    "masked": (causal(3, 2, 6), every((6,)), (6,), 0),
    "pooled keys": (drawn(6, 3, 2, 24, 6), cells((2, 3), 2), (2, 3), 0),
    "strided queries": (drawn(7, 3, 2, 6, 24), every((4, 6), 2), (4, 6), 0),
    "one key": (np.ones((3, 2, 1, 1)), every((1, 1)), (1, 1), 0),
}
"""Attention (images, heads, queries, keys), the key at which each query stands, the sides of the keys, and how many
tokens lead."""
SHARP, TWICE = np.eye(12)[drawn(8, 1, 2, 12, 12).argmax(-1)], drawn(9, 1, 1, 12, 12).repeat(2, 1)
NEAREST = CASES | {
    "one-hot": (SHARP, every((3, 4)), (3, 4), 0),
    "heads that nearly cancel": (TWICE, every((3, 4)), (3, 4), 0),
}


class Layer:
    """The attention of a case, its leading tokens behind, of some images and at some queries."""

    def __init__(self, name, images=None, queries=None):
        attention, self.sites, self.sides, self.extra = NEAREST[name]
        attention = attention[:, :, self.extra :]
        self.whole = np.concatenate([attention[..., self.extra :], attention[..., : self.extra]], -1)
        self.readable = (self.whole > NEVER).any((0, 1))
        if images is not None:
            self.whole = self.whole[images]
        if queries is not None:
            self.whole, self.readable = self.whole[:, :, queries], self.readable[queries]
            self.sites = [self.sites[q] for q in queries]
        self.images, self.heads, self.queries, _ = self.whole.shape
        self.places = every(self.sides)
        self.rows = self.images * self.queries

    @cached_property
    def pairs(self):
        """Queries, keys that are pixels, and the displacement between them."""
        both = product(enumerate(self.sites), enumerate(self.places))
        return [(q, k, tuple(b - a for a, b in zip(site, key, strict=True))) for (q, site), (k, key) in both]

    @cached_property
    def places_of(self):
        """The pairs (query, key) of each displacement."""
        found = {}
        for q, k, d in self.pairs:
            found.setdefault(d, []).append((q, k))
        return found

    def of(self, images):
        """The layer of some of its images."""
        part = copy(self)
        part.whole, part.images, part.rows = self.whole[images], len(images), len(images) * self.queries
        return part

    def replicates(self, name):
        """The layer without each image; of two images without each query."""
        if self.images > 2:
            return [Layer(name, [i for i in range(self.images) if i != left]) for left in range(self.images)]
        if self.images == 2:
            return [Layer(name, None, [q for q in range(self.queries) if q != left]) for left in range(self.queries)]
        return []


def summed(numbers):
    """Sums of (key, number) by key."""
    found = {}
    for key, number in numbers:
        found[key] = found.get(key, 0.0) + number
    return found


def without_bias(products, images):
    """The mean of products over pairs of different images; of one image that of it with itself."""
    if images == 1:
        return products(0, 0)
    apart = [(i, j) for i, j in product(range(images), repeat=2) if i != j]
    return sum(products(i, j) for i, j in apart) / len(apart)


def facts(layer, head):
    """The facts of a head but for its shares, by their names in the document."""
    whole = layer.whole[:, head]
    mass = summed((d, whole[:, q, k].sum() / layer.rows) for q, k, d in layer.pairs)
    away = {(q, k): d for q, k, d in layer.pairs}
    best = summed((away[q, int(whole[i, q, : len(layer.places)].argmax())], 1) for i, q in layer_rows(layer))
    peak = max(mass, key=mass.get)
    lines = [summed((d[axis], m) for d, m in mass.items()).values() for axis in range(len(layer.sides))]
    entropies = [-sum(x * np.log(x) for x in whole[i, q] if x) for i, q in layer_rows(layer)]
    room = [np.log(layer.readable[q].sum()) for q in range(layer.queries)]
    readers = layer.readable.sum(0) * layer.images
    return {
        "peak": peak,
        "peak_mass": mass[peak],
        "argmax": max(best.values()) / layer.rows,
        "argmax_at": max(sorted(best), key=best.get),
        "around": sum(m for d, m in mass.items() if max(abs(a - b) for a, b in zip(d, peak, strict=True)) < 2),
        "bar": max(map(max, lines)) if len(lines) > 1 else None,
        "distance": sum(m * np.hypot.reduce(np.array(d)) for d, m in mass.items()),
        "keys_in_use": np.exp(np.mean(entropies)),
        "evenness": np.exp(np.mean(entropies) - np.mean(room)),
        "largest": np.mean([whole[i, q].max() for i, q in layer_rows(layer)]),
        "sink": max(x / n for x, n in zip(whole.sum((0, 1)), readers, strict=True) if 2 * n >= readers.max()),
        "extra": whole[..., len(layer.places) :].sum() / layer.rows,
    }


def layer_rows(layer):
    return product(range(layer.images), range(layer.queries))


@cache
def patterns(layer):
    """Of each head the attention to pixels by displacement, as shares of all its attention to pixels."""
    totals = layer.whole.sum(0)
    sums = [{d: sum(own[q, k] for q, k in pairs) for d, pairs in layer.places_of.items()} for own in totals]
    return [{d: value / sum(found.values()) for d, value in found.items()} for found in sums]


def mirrored(found, axis):
    """What a pattern has in common with itself turned round along an axis."""
    turned = {tuple(-x if a == axis else x for a, x in enumerate(d)): value for d, value in found.items()}
    return sum(min(value, turned.get(d, 0.0)) for d, value in found.items())


def of_patterns(layer, head):
    """The measures of a head's pattern, beside those of the other heads."""
    own, axes = patterns(layer)[head], len(layer.sides)
    others = [each for each in range(layer.heads) if each != head]
    mean = [sum(d[a] * value for d, value in own.items()) for a in range(axes)]
    second = [
        [sum((d[a] - mean[a]) * (d[b] - mean[b]) * value for d, value in own.items()) for a in range(axes)]
        for b in range(axes)
    ]
    variances = sorted(np.roots(np.poly(np.array(second))).real)
    flat = [layer.whole[:, each].ravel() for each in range(layer.heads)]
    alike = [flat[head] @ flat[g] / np.sqrt((flat[head] @ flat[head]) * (flat[g] @ flat[g])) for g in others]
    common = [sum(min(value, patterns(layer)[g][d]) for d, value in own.items()) for g in others]
    return {
        "horizontal": mirrored(own, axes - 1),
        "vertical": mirrored(own, axes - 2) if axes > 1 else None,
        "anisotropy": 1 - variances[0] / variances[-1] if axes > 1 and variances[-1] > 1e-12 else None,
        "overlap": max(common, default=None),
        "likeness": max(alike, default=None),
    }


def shares(layer, head):
    """Shares of relative position, of other position and of content; NaN for none."""
    centred = np.zeros((layer.images, layer.queries, len(layer.places)))
    for i, q in layer_rows(layer):
        row, allowed = layer.whole[i, head, q, : len(layer.places)], layer.readable[q, : len(layer.places)]
        centred[i, q, allowed] = row[allowed] - row.sum() / allowed.sum()
    readable = {d: [pair for pair in pairs if layer.readable[pair]] for d, pairs in layer.places_of.items()}
    kinds = {d: pairs for d, pairs in readable.items() if pairs}
    energy = (centred**2).sum() / layer.images
    if energy < 1e-12:
        return [np.nan] * 3

    def relative(i, j):
        sums = [[sum(centred[image, q, k] for q, k in pairs) for image in (i, j)] for pairs in kinds.values()]
        return sum(a * b / len(pairs) for (a, b), pairs in zip(sums, kinds.values(), strict=True))

    if layer.images > 1:
        shared = without_bias(relative, layer.images)
        position = without_bias(lambda i, j: (centred[i] * centred[j]).sum(), layer.images)
        return [shared / energy, (position - shared) / energy, 1 - position / energy]
    different = 0.0
    for pairs in kinds.values():
        for one, other in product(pairs, repeat=2):
            different += centred[0][one] * centred[0][other] / (len(pairs) - 1) if one != other else 0.0
    return [different / energy, np.nan, np.nan]


def at_offset(layer, offset):
    """The places (query, key) of an offset."""
    return layer.places_of.get(offset, [])


def kernel_of(size, step, axes):
    return list(product([step * (t - size // 2) for t in range(size)], repeat=axes))


def reached(layer, offset):
    """R^2 of the span of the heads for one shift."""
    gram = np.einsum("ihqk,igqk->hg", layer.whole, layer.whole) / layer.images
    places = at_offset(layer, offset)
    if not places:
        return 0.0
    along = np.array([[sum(head[q, k] for q, k in places) for head in image] for image in layer.whole])
    inverse = np.linalg.pinv(gram, rcond=1e-12)
    return without_bias(lambda i, j: along[i] @ inverse @ along[j], layer.images) / len(places)


def error_of(values):
    """The standard error from replicates, enlarged so that three cover 99 of 100."""
    n = len(values)
    spread = np.sqrt((n - 1) / n * ((values - np.mean(values, 0)) ** 2).sum(0))
    return spread * max(1.0, stdtrit(n - 1, 0.995) / 3)


def agree(found, expected, what):
    assert (found is None) == (expected is None or bool(np.isnan(expected))), what
    if found is not None:
        assert found == pytest.approx(float(expected), rel=1e-5, abs=1e-9), what


@cache
def measured(name):
    attention, _, sides, extra = CASES[name]
    return heads(attention, grid=sides, extra_tokens=extra).layers[0]


@pytest.mark.parametrize("name", CASES)
def test_facts_of_heads_are_their_definitions(name):
    layer, found = Layer(name), measured(name)
    assert (found.images, found.grid, len(found.heads)) == (layer.images, layer.sides, layer.heads)
    for number, head in enumerate(found.heads):
        assert head.head == number
        for what, expected in facts(layer, number).items():
            value = getattr(head, what)
            if isinstance(expected, tuple):
                assert value == expected, what
            else:
                agree(value, expected, what)
        for displacement, pairs in layer.places_of.items():
            at = tuple(d + side - 1 for d, side in zip(displacement, layer.sides, strict=True))
            mass = sum(layer.whole[:, number, q, k].sum() for q, k in pairs)
            assert found.mass[number][at] == pytest.approx(mass / layer.rows, abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_shares_and_their_errors_are_means_over_pairs_of_images_and_spreads_without_one(name):
    layer, found = Layer(name), measured(name)
    least = layer.replicates(name)
    every_head = np.array([shares(layer, head) for head in range(layer.heads)])
    without = np.array([[shares(each, head) for head in range(layer.heads)] for each in least])
    for at, what in enumerate(("relative", "absolute", "content")):
        for head, value in zip(found.heads, every_head[:, at], strict=True):
            agree(getattr(head, what), value, what)
        agree(getattr(found.means, what), every_head[:, at].mean(), what)
        for number, head in enumerate(found.heads):
            agree(getattr(head.errors, what), error_of(without[:, number, at]) if least else None, what)
        agree(getattr(found.errors, what), error_of(without[:, :, at].mean(1)) if least else None, what)
    for number, head in enumerate(found.heads):
        masses = [
            sum(each.whole[:, number, q, k].sum() for q, k in at_offset(each, head.peak)) / each.rows for each in least
        ]
        agree(head.errors.peak_mass, error_of(np.array(masses)) if least else None, "peak_mass")


def without_bias_of_few(layer, measure):
    """The jackknife's correction of a measure: n times it, less n - 1 times its mean without one image."""
    n, plain = layer.images, measure(layer)
    if n == 1 or plain is None:
        return plain
    least = [measure(layer.of([i for i in range(n) if i != left_out])) for left_out in range(n)]
    return None if None in least else n * plain - (n - 1) * np.mean(least)


CORRECTED = ("horizontal", "vertical", "anisotropy", "overlap")


@pytest.mark.parametrize("name", CASES)
def test_patterns_and_their_errors_are_those_of_sums_by_displacement(name):
    layer, found = Layer(name), measured(name)
    least = layer.replicates(name)

    def every_head(layer):
        return [
            {
                what: without_bias_of_few(layer, lambda each: of_patterns(each, head)[what])  # noqa: B023
                if what in CORRECTED
                else value
                for what, value in of_patterns(layer, head).items()
            }
            for head in range(layer.heads)
        ]

    heads, without = every_head(layer), [every_head(each) for each in least]
    for what in heads[0]:
        for number, (head, expected) in enumerate(zip(found.heads, heads, strict=True)):
            agree(getattr(head, what), expected[what], what)
            known = least and None not in [each[number][what] for each in without]
            error = error_of(np.array([each[number][what] for each in without])) if known else None
            agree(getattr(head.errors, what), error, what)
        known = least and None not in [each[what] for image in without for each in image]
        error = error_of(np.array([np.mean([each[what] for each in image]) for image in without])) if known else None
        agree(getattr(found.errors, what), error, what)
    agree(found.coverage, without_bias_of_few(layer, covered), "coverage")
    errors = error_of(np.array([without_bias_of_few(each, covered) for each in least])) if least else None
    agree(found.coverage_error, errors, "coverage")


def covered(layer):
    """exp of the entropy of the mean of the heads' patterns."""
    mean = [np.mean([each[d] for each in patterns(layer)]) for d in layer.places_of]
    return np.exp(-sum(x * np.log(x) for x in mean if x))


@pytest.mark.parametrize("name", CASES)
def test_spans_are_those_of_least_squares_over_pairs_of_images(name):
    layer, found = Layer(name), measured(name)
    sizes = [(1, 1), *product((3, 5, 7), (1, 2, 3))]
    fitting = [(size, step) for size, step in sizes if step * (size // 2) < min(layer.sides)]
    assert [(fact.kernel_size, fact.dilation) for fact in found.spans] == fitting
    for fact in found.spans:
        offsets = kernel_of(fact.kernel_size, fact.dilation, len(layer.sides))
        values = [reached(layer, offset) for offset in offsets]
        middle = reached(layer, (0,) * len(layer.sides))
        for said, expected in ((fact.center, middle), (fact.mean, np.mean(values)), (fact.best, max(values))):
            agree(said, expected, fact)
        without = [np.mean([reached(each, offset) for offset in offsets]) for each in layer.replicates(name)]
        agree(fact.error, error_of(np.array(without)) if without else None, fact)


@pytest.mark.parametrize("name", NEAREST)
def test_nearest_convolutions_of_images_that_differ_are_those_of_least_squares(name):
    layer = Layer(name)
    matrices = np.random.default_rng(9).standard_normal((layer.heads, 3, 2))
    if name == "heads that nearly cancel":
        matrices[1] = -(1 + 1e-8) * matrices[0]
    attention, _, sides, extra = NEAREST[name]
    rows = rows_of("x", attention, sides, extra_tokens=extra)
    found = nearest_convolutions(rows, sums_of(rows), matrices)
    assert [fact.kernel_size for fact in found] == [size for size in (1, 3, 5, 7) if size < 2 * min(sides)]
    for fact in found:
        offsets = kernel_of(fact.kernel_size, 1, len(sides))
        maps = np.einsum("ihqk,hoc->iqkoc", layer.whole, matrices)
        left, share = maps.copy(), explained(layer, maps, offsets)
        for taps, offset in zip(fact.taps, offsets, strict=True):
            places = at_offset(layer, offset)
            for q, k in places:
                left[:, q, k] -= taps
            mean = sum(maps[:, q, k].mean(0) for q, k in places) / len(places) if places else 0
            assert np.allclose(taps, mean)
        agree(fact.share, share, "share")
        for said, exact in ((fact.error, left), (fact.norm, maps)):
            largest = np.sqrt((exact**2).sum((3, 4))).sum(2).max()
            assert largest * (1 - 1e-12) <= said <= largest * (1 + 1e-9) + 1e-13
        without = []
        for each in layer.replicates(name):
            without.append(explained(each, np.einsum("ihqk,hoc->iqkoc", each.whole, matrices), offsets))
        agree(fact.share_error, error_of(np.array(without)) if without else None, "share_error")


def explained(layer, maps, offsets):
    """The share of a layer's map that the nearest convolution explains, over pairs of images."""
    total = 0.0
    for offset in offsets:
        places = at_offset(layer, offset)
        sums = [sum(image[q, k] for q, k in places) for image in maps]
        total += (
            without_bias(lambda i, j, sums=sums: (sums[i] * sums[j]).sum(), layer.images) / len(places) if places else 0
        )
    return total / ((maps**2).sum() / layer.images)
