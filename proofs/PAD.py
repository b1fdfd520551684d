"""Padding: unpadded hard heads are replicate padding; zero padding must be explicit."""

from itertools import product

from sympy import Function, IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, refutation, step
from .core import finite, identity, index_sums, sign
from .domain import DILATION, KERNEL, SPARE, STRIDE, Domain, Integers, Many

y, x, lo, hi, z = symbols("y x lo hi z", real=True)
weight = symbols("a", positive=True)
n, N = symbols("n N", integer=True)
i, j, k = symbols("i j k", integer=True)
q, d, m, S = symbols("q d m S", integer=True)
key, point, clamp, a, X = map(IndexedBase, ["y", "x", "clamp", "a", "X"])
nearest = Function("nearest")  # the key nearest to the target, a key of the box

cross = 2 * Sum(a[i] * (key[i] - clamp[i]) * (clamp[i] - point[i]), (i, 1, n))  # what PAD's one-axis step makes >= 0


def squared(matrix, u, w):
    """(u - w)' matrix (u - w), in integers."""
    e = [s - t for s, t in zip(u, w, strict=True)]
    return sum(matrix[r][c] * e[r] * e[c] for r in range(2) for c in range(2))


def enumerated_gap(u):
    """|t - t_Delta| for the query (0, 3) and the offset (0, 3), numbered by t = 7 d_1 + d_2."""
    return abs(7 * u[0] + (u[1] - 3) - 3)


TILTED = ((1, -1), (-1, 2))  # positive definite, not axis-aligned
BOX = list(product(range(4), repeat=2))

CLAIM = Claim(
    name="PAD",
    title="Unpadded hard heads replicate borders",
    words="In a box, the key nearest to any lattice point in an axis-aligned quadratic distance is its clamp, and it "
    "is the only one; so an unpadded hard head reads the replicate-padded image, not zeros. For a full covariance and "
    "for the enumerated encoding the nearest key is another one. Zero padding by floor(K/2) and cropping gives the "
    "convolution with SAME padding. Nor is any network of softmax attention a zero-padded shift that sees a pixel at "
    "one output and none at another: equal tokens stay equal through it, whatever its scores read, without a token "
    "beside those of the image.",
    formula=r"\sum_i a_i (y_i - x_i)^2 \ge \sum_i a_i (y_i - \bar x_i)^2 + \sum_i a_i (\bar x_i - x_i)^2,\quad "
    r"\bar x = \operatorname{clamp}(x),\ y \in \prod_i [lo_i, hi_i]",
    conditions=(
        "the key set is a box; the weights a_i of the axes are positive (isotropic or axis-aligned)",
        "for the strict peak the keys are distinct points; lattice keys differ from the clamp by at least 1 in an axis",
    ),
    source="Cordonnier et al. 2020, Section 3, Padding, made precise by this project; Luo et al. 2022 for equal tokens",
    not_shown="Real centres between two keys: there the clamp per axis of the real point is no key, and two keys can "
    "tie.",
    licenses={
        "conv2attn.layers.attention.engines.gather.continued": Domain(
            {
                "kernel": KERNEL,
                "stride": STRIDE,
                "dilation": DILATION,
                "keys to spare": SPARE,
                "offsets": Many(Many(Integers(-40, 40), 1, 3), 1, 3, "heads"),
            }
        ),
    },
    formal="whole",
    errata=("E8",),
    steps=(
        step(
            "One axis, x beyond hi (clamp hi): (y-x)^2 - (y-hi)^2 - (hi-x)^2 >= 0 for y <= hi.",
            sign,
            (y - x) ** 2 - (y - hi) ** 2 - (hi - x) ** 2,
            ((2, hi - y, x - hi),),
            given=(hi - y, x - hi),
        ),
        step(
            "One axis, x before lo (clamp lo), for y >= lo.",
            sign,
            (y - x) ** 2 - (y - lo) ** 2 - (lo - x) ** 2,
            ((2, y - lo, lo - x),),
            given=(y - lo, lo - x),
        ),
        step("One axis, x inside (clamp x): equality.", identity, (y - x) ** 2, (y - x) ** 2 + (x - x) ** 2),
        step(
            "n axes: the difference is the weighted sum over axes of what was just shown to be >= 0.",
            index_sums,
            Sum(a[i] * (key[i] - point[i]) ** 2, (i, 1, n)),
            Sum(a[i] * (key[i] - clamp[i]) ** 2, (i, 1, n)) + Sum(a[i] * (clamp[i] - point[i]) ** 2, (i, 1, n)) + cross,
        ),
        step(
            "Unique: a lattice key other than the clamp differs from it by z >= 1 (or -z) on some axis, so by a_i z^2 "
            ">= a_i > 0.",
            sign,
            weight * z**2 - weight,
            ((weight, z - 1, z - 1), (2, weight, z - 1)),
            given=(z - 1,),
            positive=(weight,),
        ),
        step(
            "So the hard head reads the clamp, which is what replicate padding puts there.",
            index_sums,
            Sum(KroneckerDelta(k, nearest(j)) * X[k], (k, 1, N)),
            X[nearest(j)],
            sizes={nearest: N},
        ),
        refutation(
            "Zero padding is another map: the head reads X at the border, not 0.",
            index_sums,
            Sum(KroneckerDelta(k, nearest(j)) * X[k], (k, 1, N)),
            0,
            instance={N: 2, j: 3, nearest: lambda j: j * 0 + 2},
        ),
        step(
            "A full covariance picks another pixel: for the target (-2, 0) of a 4 x 4 box no key is nearer than (0, 1) "
            "...",
            finite,
            BOX,
            lambda u: squared(TILTED, u, (-2, 0)) >= squared(TILTED, (0, 1), (-2, 0)),
            count=16,
        ),
        refutation(
            "... and its clamp (0, 0) is farther.",
            finite,
            [(0, 0)],
            lambda u: squared(TILTED, u, (-2, 0)) <= squared(TILTED, (0, 1), (-2, 0)),
            count=1,
        ),
        step(
            "The enumerated encoding t = 7 d_1 + d_2 on 4 x 4 pixels picks another one: at query (0, 3), offset (0, "
            "3), the only nearest key in t is (1, 0), not the clamp (0, 3).",
            finite,
            BOX,
            lambda u: u == (1, 0) or enumerated_gap(u) > enumerated_gap((1, 0)),
            count=16,
        ),
        step(
            "Pad by m = floor(K/2) and crop: output q of the crop asks from q + m and reads q + d in image "
            "coordinates.",
            identity,
            (q + m) + d - m,
            q + d,
        ),
        step("Its keys are in the padded grid, from 0 ...", sign, (q + m) + d, ((q,), (d + m,)), given=(q, d + m)),
        step(
            "... to S + 2 m - 1, for |d| <= m and 0 <= q <= S - 1.",
            sign,
            S + 2 * m - 1 - (q + m + d),
            ((S - 1 - q,), (m - d,)),
            given=(S - 1 - q, m - d),
        ),
    ),
    mutants=(
        step(
            "The clamp is nearest for every positive definite distance.",
            finite,
            BOX,
            lambda u: squared(TILTED, u, (-2, 0)) >= squared(TILTED, (0, 0), (-2, 0)),
            count=16,
        ),
        step(
            "Cropping without shifting by the padding.",
            identity,
            q + d - m,
            q + d,
        ),
        step(
            "The three squares inequality for a key outside the box (y > hi).",
            sign,
            (y - x) ** 2 - (y - hi) ** 2 - (hi - x) ** 2,
            given=(x - hi,),
            witness={y: 2, x: 2, hi: 1},
        ),
        step(
            "The clamp is nearest for a weight a <= 0.",
            sign,
            z * (y - x) ** 2 - z * (y - hi) ** 2,
            given=(hi - y, x - hi, -z),
            witness={z: -1, y: 0, hi: 1, x: 2},
        ),
        step(
            "Two keys at the clamp's distance: z = 0 is allowed, so the peak is not strict.",
            sign,
            weight * z**2 - weight,
            given=(z,),
            positive=(weight,),
            witness={weight: 1, z: 0},
        ),
    ),
)
