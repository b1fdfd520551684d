"""Lemma 3 as printed is false: exact counterexamples, and the assumption on the scores that it does not state."""

from fractions import Fraction
from itertools import product

from .claim import Claim, refutation, step
from .core import finite, spans
from .domain import HEADS_ON_A_LINE


def attention(scores):
    """Softmax at base 2 (alpha = ln 2) of integer scores: exact."""
    weights = [Fraction(2) ** score for score in scores]
    return [weight / sum(weights) for weight in weights]


def one_hot(size, *places):
    """The mean of the unit vectors at `places`; the zero vector if there are none."""
    return [Fraction(places.count(k), max(1, len(places))) for k in range(size)]


def stacked(rows_of_query, queries):
    """The rows [A_q1 A_q2 ...]: one row a head, all queries side by side."""
    return [[x for row in rows for x in row] for rows in zip(*map(rows_of_query, queries), strict=True)]


def per_query(heads, shifts, queries):
    """The printed condition: at every query its shifts lie in the span of its attention rows."""
    return finite, queries, lambda q: spans(heads(q), shifts(q)).value == "holds", len(queries)


def joint(heads, shifts, queries):
    """The condition of L3: the shifts stacked over all queries lie in the span of the stacked attention rows."""
    return spans, stacked(heads, queries), stacked(shifts, queries)


# (a) two pixels, K = 1, quadratic heads at 0 and 1, alpha = ln 2
PAIR = range(2)


def pair_heads(q):
    return [attention([-((k - q - centre) ** 2) for k in PAIR]) for centre in (0, 1)]


def pair_shift(q):
    return [one_hot(2, q)]


# (b) a 3 x 3 image, K = 3, nine heads, unpadded; hard heads read the clamp, soft heads have alpha = ln 2
IMAGE = list(product(range(3), repeat=2))
KERNEL = list(product((-1, 0, 1), repeat=2))


def clamp(x):
    return min(max(x, 0), 2)


def hard_heads(q):
    return [one_hot(9, 3 * clamp(q[0] + a) + clamp(q[1] + b)) for a, b in KERNEL]


def soft_heads(q):
    return [attention([-((k - q[0] - a) ** 2) - (j - q[1] - b) ** 2 for k, j in IMAGE]) for a, b in KERNEL]


def image_shifts(q):
    return [one_hot(9, *(3 * k + j for k, j in IMAGE if (k, j) == (q[0] + a, q[1] + b))) for a, b in KERNEL]


# (c) six tokens, K = 1, box heads {q-1, q, q+1} and {q-1, q+1}, cut at the border
ROW = range(6)


def box_heads(q):
    return [one_hot(6, *(k for k in ROW if k - q in box)) for box in ((-1, 0, 1), (-1, 1))]


def row_shift(q):
    return [one_hot(6, q)]


# (d) six tokens in a circle, two heads that swap the shifts 0 and 1 from query to query
def swap_heads(q):
    return [one_hot(6, (q + (q + h) % 2) % 6) for h in (0, 1)]


def fixed_heads(q):
    return [one_hot(6, (q + h) % 6) for h in (0, 1)]


swap_shifts = fixed_heads


# E12: two pixels, K = 1, a content head with score ln 2 * x_q x_k, and a uniform head
def content_heads(x):
    return lambda q: [attention([x[q] * x[k] for k in PAIR]), [Fraction(1, 2)] * 2]


def mixed_values(x, q):
    return [sum(p * v for p, v in zip(row, x, strict=True)) for row in content_heads(x)(q)]


IMAGES = [(1, -1), (2, -2)]

CLAIM = Claim(
    name="L3p",
    title="Lemma 3 as printed is false",
    words="The printed condition, that at each query the shifts lie in the span of that query's attention rows, does "
    "not suffice: there are (a) two quadratic heads on two pixels, (b) the nine unpadded heads of a 3 x 3 kernel on a "
    "3 x 3 image, hard or soft, (c) box heads on six tokens, (d) heads that swap their shifts, for which it holds at "
    "every query and no single set of weights gives the convolution. (a), on 2 x 1 pixels with K = 1, and (b) with "
    "soft heads, with K = 3, meet all that the lemma asks for: odd K, N_h >= K^2, D_h >= D_out. It is necessary "
    "(L3). It also needs attention that does not depend on X.",
    formula=r"\bigl(\forall q\,\exists\Phi_q:\ E_q = \Phi_q A_q\bigr) \not\Longrightarrow "
    r"\exists\Phi\,\forall q:\ E_q = \Phi A_q",
    conditions=("exact rationals throughout: softmax weights at alpha = ln 2 are powers of 2 over their sum",),
    source='Cordonnier et al. 2020, Lemma 3 and its proof (the step "there exists Phi"), refuted by this project',
    not_shown="How often the printed condition misleads on trained attention.",
    licenses={
        "conv2attn.span.check_span": HEADS_ON_A_LINE,
    },
    formal="whole",
    errata=("E2", "E12", "E17"),
    steps=(
        step(
            "(a) The weights are 2/3, 1/3; 1/3, 2/3 for head 0 and 1/3, 2/3; 1/9, 8/9 for head 1.",
            finite,
            [(0, 0, Fraction(2, 3)), (1, 0, Fraction(1, 3)), (0, 1, Fraction(1, 3)), (1, 1, Fraction(1, 9))],
            lambda case: pair_heads(case[0])[case[1]][0] == case[2],
            count=4,
        ),
        step("(a) The printed condition holds at both queries ...", *per_query(pair_heads, pair_shift, PAIR)),
        refutation("(a) ... but no weights w serve both.", *joint(pair_heads, pair_shift, PAIR)),
        step(
            "(b) Hard: the printed condition holds at all nine queries ...", *per_query(hard_heads, image_shifts, IMAGE)
        ),
        refutation("(b) ... but not jointly.", *joint(hard_heads, image_shifts, IMAGE)),
        step("(b) Soft, alpha = ln 2: it holds at all nine queries ...", *per_query(soft_heads, image_shifts, IMAGE)),
        refutation("(b) ... but not jointly either.", *joint(soft_heads, image_shifts, IMAGE)),
        step("(c) Boxes: it holds at all six queries ...", *per_query(box_heads, row_shift, ROW)),
        refutation("(c) ... but not jointly ...", *joint(box_heads, row_shift, ROW)),
        step(
            "(c) ... though it does over the interior: only the border's renormalisation breaks it.",
            *joint(box_heads, row_shift, range(1, 5)),
        ),
        step("(d) Swapping heads: it holds at all six queries ...", *per_query(swap_heads, swap_shifts, ROW)),
        refutation("(d) ... but not jointly.", *joint(swap_heads, swap_shifts, ROW)),
        step(
            "Heads that do not swap satisfy the joint condition on the same circle.",
            *joint(fixed_heads, swap_shifts, ROW),
        ),
        step(
            "E12: content heads satisfy even the joint condition on the image (1, -1) ...",
            *joint(content_heads(IMAGES[0]), pair_shift, PAIR),
        ),
        step("E12: ... and on the image (2, -2) ...", *joint(content_heads(IMAGES[1]), pair_shift, PAIR)),
        refutation(
            "E12: ... but no weights (a, b) give the identity convolution on these two images.",
            spans,
            [[mixed_values(x, q)[h] for x in IMAGES for q in PAIR] for h in (0, 1)],
            [[x[q] for x in IMAGES for q in PAIR]],
        ),
    ),
    mutants=(
        step("(a) holds jointly.", *joint(pair_heads, pair_shift, PAIR)),
        step(
            "The printed condition holds for (b) with one head dropped.",
            *per_query(lambda q: soft_heads(q)[:8], image_shifts, IMAGE),
        ),
        step(
            "The joint condition holds on the image (1, -1) with the content head alone.",
            *joint(lambda q: content_heads(IMAGES[0])(q)[:1], pair_shift, PAIR),
        ),
        step("(c) holds jointly with one border query added to the interior.", *joint(box_heads, row_shift, range(5))),
        step("(d) holds jointly.", *joint(swap_heads, swap_shifts, ROW)),
    ),
)
