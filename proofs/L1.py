"""Lemma 1: hard heads compute a convolution, as PyTorch defines it, in any number of dimensions."""

from sympy import Function, IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, refutation, step
from .core import identity, index_sums, sign
from .domain import DILATION, KERNEL, SPARE, STRIDE, Domain, Each, Integers

# per axis: stride, dilation, kernel size, centre floor((K-1)/2), padded side, output index, tap
s, d, K, m, P, q, t = symbols("s d K m P q t", integer=True)
site, offset, key = q * s + d * m, d * (t - m), q * s + d * t

# index sets of any finite size: heads H, taps T, keys N, pixels J, channels C, groups G
H, T, N, J, C, G = symbols("H T N J C G", integer=True)
h, tap, query, k, j, c, o, g, u, v = symbols("h tap query k j c o g u v", integer=True)
reads, tap_of = Function("reads"), Function("tap_of")  # the key that a tap reads; the tap that a head serves
placed = Function("placed")  # the key that a pixel becomes by padding, j + lo
X, W, V, Z, b = map(IndexedBase, "XWVZb")
each_tap_once = Sum(KroneckerDelta(tap_of(h), tap), (h, 1, H)) - 1

hard_heads = Sum(
    KroneckerDelta(k, reads(query, tap_of(h))) * X[k, c] * W[tap_of(h), c, o], (h, 1, H), (k, 1, N), (c, 1, C)
)
convolution = Sum(X[reads(query, tap), c] * W[tap, c, o], (tap, 1, T), (c, 1, C))
one_tap = Sum(X[reads(query, tap), c] * W[tap, c, o], (c, 1, C))

last = P - d * (K - 1) - 1  # the last site at which the kernel still fits, counted from its first tap
Q = symbols("Q", integer=True)


def can_pad(mode, before, after, side, spacing):
    """Whether a mode reaches so far beyond a grid of spaced pixels, of which one stays."""
    spread = (side - 1) * spacing + 1
    most = {"reflect": side - 1, "circular": side}.get(mode, max(before, after))
    stays = min(before, after, before + after) > -spread
    return stays and max(before, after) <= most and (spacing == 1 or mode == "zeros")


CLAIM = Claim(
    name="L1",
    title="Lemma 1: hard heads are a convolution",
    words="If the heads are in bijection with the taps, and the head of tap t puts all attention of output q on the "
    "key q * stride + dilation * t of the padded grid, and W_val W_out of that head is the tap's matrix, then the "
    "multi-head self-attention equals the convolution as PyTorch computes it, for every input: any number of axes, "
    "stride, dilation, padding, groups, bias, and every finite size.",
    formula=r"\sum_h \sum_k [k = s(q, f(h))] X_k W_{f(h)} + b = \sum_t X_{s(q, t)} W_t + b,\quad s(q, t) = q s + d t",
    conditions=(
        "f, from heads to taps, is a bijection",
        "the site map is total: every key q s + d t lies in the padded grid (a row of a softmax without keys would sum "
        "to 0); keys are the padded grid and padding is an explicit linear map in front of it",
        "stride > 0, dilation > 0, kernel size >= 1, dilation (K - 1) < padded size, Q = floor((P - d(K-1) - 1)/s) + 1",
        "the attention is the one-hot one of Eq. (10) for every X; how the scores come about does not matter",
        "offset = key - query; PyTorch's convolution is a cross-correlation",
    ),
    source="Cordonnier et al. 2020, Lemma 1, Eqs. (5), (11)-(13), (17); PyTorch's Conv1d/2d/3d for the site map",
    not_shown="That a softmax is one-hot (L2b, L2c, A46); anything about rounding of the channel product. Axes are "
    "independent, so the geometry is stated for one axis of unnamed index; that n axes together are n such statements "
    "is read by a person.",
    licenses={
        "conv2attn.theory.basis.Sites.of_kernel": Domain(
            {"kernel": KERNEL, "stride": STRIDE, "dilation": DILATION}, beside={"keys to spare": SPARE}
        ),
        "conv2attn.theory.basis.Padding.source": Domain(
            {
                "mode": Each(("zeros", "reflect", "replicate", "circular")),
                "before": Integers(-12, 12),
                "after": Integers(-12, 12),
                "side": Integers(1, 12),
                "spacing": Integers(1, 4),
            },
            ("a spacing in zeros alone, as far as the mode reaches, and a pixel stays", can_pad),
        ),
    },
    formal="whole",
    errata=("E4", "E6"),
    steps=(
        step(
            "Heads in bijection with taps, each one-hot at its key, compute the sum over taps of X[key] W[tap], plus "
            "bias.",
            index_sums,
            hard_heads + b[o],
            convolution + b[o],
            sizes={reads: N, tap_of: T},
            given=(Sum(one_tap * each_tap_once, (tap, 1, T)),),
        ),
        step("The query site q s + d m plus the offset d (t - m) is the key q s + d t.", identity, site + offset, key),
        step("The key is at least 0.", sign, key, ((q, s), (d, t)), given=(q, t), positive=(s, d)),
        step(
            "The key is at most P - 1, when q <= Q - 1, t <= K - 1 and (Q - 1) s <= P - d (K-1) - 1.",
            sign,
            P - 1 - key,
            ((last - (Q - 1) * s,), (s, Q - 1 - q), (d, K - 1 - t)),
            given=(last - (Q - 1) * s, Q - 1 - q, K - 1 - t),
            positive=(s, d),
        ),
        step(
            "No output is forgotten: the last tap of output Q would read beyond P - 1, when Q s > P - d (K-1) - 1.",
            sign,
            key.subs({q: Q, t: K - 1}) - (P - 1),
            ((Q * s - last,),),
            positive=(Q * s - last,),
            strict=True,
        ),
        step(
            "Padding is a linear map Z in front of the keys: heads on Z X are the convolution of Z X.",
            index_sums,
            Sum(KroneckerDelta(k, reads(query, tap)) * Z[k, j] * X[j, c], (k, 1, N), (j, 1, J)),
            Sum(Z[reads(query, tap), j] * X[j, c], (j, 1, J)),
            sizes={reads: N},
        ),
        step(
            "Zero padding, Z[k, j] = [k = j + lo]: output q is the sum over the pixels j with j + lo = q s + d t; "
            "where there is none it is 0.",
            index_sums,
            Sum(KroneckerDelta(k, reads(query, tap)) * KroneckerDelta(k, placed(j)) * X[j, c], (k, 1, N), (j, 1, J)),
            Sum(KroneckerDelta(placed(j), reads(query, tap)) * X[j, c], (j, 1, J)),
            sizes={reads: N, placed: N},
        ),
        step(
            "Groups: taps that are block-diagonal in the group read only the channels (g, u) of the output's group g.",
            index_sums,
            Sum(KroneckerDelta(v, g) * X[k, v, u] * W[tap, g, u, o], (v, 1, G), (u, 1, C)),
            Sum(X[k, g, u] * W[tap, g, u, o], (u, 1, C)),
            sizes={g: G},
        ),
        step(
            "E6: the set {-floor(K/2), ..., floor(K/2)} has K elements an axis for odd K = 2 m + 1 ...",
            identity,
            m - (-m) + 1,
            2 * m + 1,
        ),
        refutation("... but not for even K = 2 m: there it has K + 1.", identity, m - (-m) + 1, 2 * m),
        step(
            "E4: in an odd kernel K = 2 m + 1 the tap K - 1 - t has the opposite offset, so Lemma 1, which asks for "
            "some "
            "W_val, is true as printed: the head of shift f(h) takes the tap of -f(h).",
            identity,
            offset.subs(t, 2 * m - t),
            -offset,
        ),
        refutation(
            "E4: with f(h) = q - k and the tap of the same shift, the heads read X[q - t] where Eq. (5) reads X[q + "
            "t].",
            index_sums,
            Sum(KroneckerDelta(k, query - tap) * X[k], (k, 1, N)),
            Sum(KroneckerDelta(k, query + tap) * X[k], (k, 1, N)),
            instance={N: 3, query: 2, tap: 1},
        ),
    ),
    mutants=(
        step(
            "The same with every head one key too far.",
            index_sums,
            Sum(KroneckerDelta(k, reads(query, tap) + 1) * X[k] * W[tap], (tap, 1, T), (k, 1, N)),
            Sum(X[reads(query, tap)] * W[tap], (tap, 1, T)),
            instance={N: 4, T: 2, query: 1, reads: lambda query, tap: query + tap},
        ),
        step("Stride and dilation exchanged.", identity, d * q + s * t, key),
        step(
            "One head serves two taps (no bijection).",
            index_sums,
            hard_heads,
            convolution,
            instance={
                H: 1,
                T: 2,
                N: 3,
                C: 1,
                query: 1,
                o: 1,
                tap_of: lambda h: h,
                reads: lambda query, tap: query + tap,
            },
        ),
        step("The offset is query - key.", identity, site - offset, key),
        step(
            "The keys end one earlier: one tap, one output, one key.",
            sign,
            P - 2 - key,
            given=(last - (Q - 1) * s, Q - 1 - q, K - 1 - t),
            positive=(s, d),
            witness={P: 1, Q: 1, K: 1, s: 1, d: 1, q: 0, t: 0},
        ),
        step(
            "Groups forgotten: an output reads the channels of all groups.",
            index_sums,
            Sum(X[k, v, u] * W[tap, v, u, o], (v, 1, G), (u, 1, C)),
            Sum(X[k, g, u] * W[tap, g, u, o], (u, 1, C)),
            sizes={g: G},
            instance={G: 2, C: 1, k: 1, g: 1, tap: 1, o: 1},
        ),
        step(
            "Padding moves each pixel by one more.",
            index_sums,
            Sum(
                KroneckerDelta(k, reads(query, tap)) * KroneckerDelta(k, placed(j) + 1) * X[j, c], (k, 1, N), (j, 1, J)
            ),
            Sum(KroneckerDelta(placed(j), reads(query, tap)) * X[j, c], (j, 1, J)),
            instance={N: 3, J: 2, query: 1, tap: 1, c: 1, reads: lambda query, tap: query + tap, placed: lambda j: j},
        ),
    ),
)
