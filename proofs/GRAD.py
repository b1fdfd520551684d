"""Gradients: hard heads have the convolution's, and sharp heads hardly move their centres."""

from sympy import IndexedBase, Rational, Sum, symbols

from .claim import Claim, step
from .core import identity, index_sums

H, N, C, K = symbols("H N C K", integer=True)
h, k, c = symbols("h k c", integer=True)
P, X, dX, M, dM, w, y, x = map(IndexedBase, ["P", "X", "X_d", "M", "M_d", "w", "y", "x"])
alpha, centre, Z, Sx, Sy, Sxy = symbols("alpha u Z S_x S_y S_xy", real=True)
dN, dZ = 2 * alpha * (Sxy - centre * Sy), 2 * alpha * (Sx - centre * Z)
covariance = Sxy / Z - Sx * Sy / Z**2
slope = (dN * Z - dZ * Sy) / Z**2
p = symbols("p", real=True)


def layer(attention, image, matrices):
    return Sum(attention[h, k] * image[k, c] * matrices[h, c], (h, 1, H), (k, 1, N), (c, 1, C))


CLAIM = Claim(
    name="GRAD",
    title="Gradients of hard and of soft heads",
    words="Hard heads whose positions are frozen have the convolution's derivative along every curve of images, "
    "weights and biases: training the weights of the layer is training the convolution. The mean that a "
    "quadratic head reads of any numbers y of the keys moves with its centre by 2 alpha times the covariance "
    "of the coordinate and y under its attention. That covariance is at most what leaks from any one key times "
    "the spreads of the coordinate and of y: sharp heads hardly move their centres, and one-hot ones not at all.",
    formula=r"\frac{\partial}{\partial\Delta_a}\sum_k p_k y_k = 2\alpha\Bigl(\sum_k p_k x_{ka} y_k - "
    r"\sum_k p_k x_{ka}\,\sum_k p_k y_k\Bigr),\quad p = \operatorname{softmax}(-\alpha|x - \Delta|^2)",
    conditions=(
        "hard heads: the attention stays as it is along the curve, and W_val W_out stays the matrix of the tap",
        "soft heads: at least one key; real arithmetic",
    ),
    source="this project; Cordonnier et al. 2020, Sec. 3, for the layers",
    not_shown="What an optimiser makes of it, gradients in floats, and those of alpha.",
    licenses={},
    formal="whole",
    steps=(
        step(
            "With attention that stays, the layer's derivative is that of its tokens and of its matrices M = W_val "
            "W_out, by linearity; with M the taps both are those of the convolution (L1).",
            index_sums,
            Sum(P[h, k] * (dX[k, c] * M[h, c] + X[k, c] * dM[h, c]), (h, 1, H), (k, 1, N), (c, 1, C)),
            layer(P, dX, M) + layer(P, X, dM),
        ),
        step(
            "A soft head: the square of the step cancels, so the score of key k moves by 2 alpha (x_k - u) at first "
            "order, and a sum of weights times y by these times the weights.",
            index_sums,
            Sum(2 * alpha * (x[k] - centre) * w[k] * y[k], (k, 1, K)),
            2 * alpha * (Sum(w[k] * x[k] * y[k], (k, 1, K)) - centre * Sum(w[k] * y[k], (k, 1, K))),
        ),
        step(
            "The mean is a quotient of two such sums, the second with y = 1; the centre cancels in its derivative.",
            identity,
            slope,
            2 * alpha * covariance,
        ),
        step(
            "A head that is one-hot at key 0 has no covariance: p = 1, so x y - x y = 0.",
            identity,
            covariance.subs({Z: 1, Sxy: x[0] * y[0], Sx: x[0], Sy: y[0]}),
            0,
        ),
        step(
            "Two keys at 0 and 1, y their place: p (1 - p), which is a quarter where the head stands between them.",
            identity,
            (p - p * p).subs(p, Rational(1, 2)),
            Rational(1, 4),
        ),
    ),
    mutants=(
        step("The centre moves the mean by alpha times the covariance.", identity, slope, alpha * covariance),
        step("It moves it the other way.", identity, slope, -2 * alpha * covariance),
        step("It moves it by the second moment.", identity, slope, 2 * alpha * Sxy / Z),
        step(
            "The derivative is that of the tokens alone.",
            index_sums,
            Sum(P[h, k] * (dX[k, c] * M[h, c] + X[k, c] * dM[h, c]), (h, 1, H), (k, 1, N), (c, 1, C)),
            layer(P, dX, M),
            instance={H: 1, N: 1, C: 1},
        ),
        step("Two keys have the covariance p.", identity, p - p * p, p),
    ),
)
