"""The paper's model sizes and operation counts, counted again from the architecture."""

from .claim import Claim, refutation, step
from .core import finite

D, HIDDEN, LAYERS, HEADS, TOKENS, SIDE = 400, 512, 6, 9, 256, 16
SHIFTS = 2 * SIDE - 1  # displacements an axis


def linear(d_in, d_out):
    """Parameters of a Linear with bias."""
    return d_in * d_out + d_out


def parameters(positions, heads=HEADS, content=0):
    """Parameters of the attention network: stem, six blocks with `positions` and `content` of their own, classifier."""
    block = linear(heads * D, D) + linear(D, D) + linear(D, HIDDEN) + linear(HIDDEN, D) + 2 * 2 * D
    return linear(12, D) + LAYERS * (block + positions + content) + linear(D, 10)


def learned(per_axis):
    """Positions of a learned layer: a table of shifts for each axis, and a key vector for each head and axis."""
    return tables(per_axis) + HEADS * 2 * per_axis


def tables(per_axis):
    """Positions of a learned layer whose queries meet them: the tables alone."""
    return 2 * SHIFTS * per_axis


CONTENT = 2 * linear(D, HEADS * D)  # query and key, with bias
PRUNED = (2, 4, 1, 2, 6, 0)
STAGES = ((64, 64, 32), (64, 128, 16), (128, 256, 8), (256, 512, 4))  # channels in, out, side


def resnet_convolutions():
    """(kernel side, channels in, channels out, output side) of each convolution of a CIFAR ResNet-18."""
    yield 3, 3, 64, 32
    for d_in, d_out, side in STAGES:
        yield from [(3, d_in, d_out, side), *[(3, d_out, d_out, side)] * 3]
        yield from [(1, d_in, d_out, side)] * (d_in != d_out)


RESNET = sum(k * k * i * o + 2 * o for k, i, o, _ in resnet_convolutions()) + linear(512, 10)
RESNET_OPERATIONS = 2 * (sum(k * k * i * o * s * s for k, i, o, s in resnet_convolutions()) + 512 * 10)

MIX = HEADS * TOKENS * TOKENS * D  # multiplications of the attention with the tokens, in one layer
BLOCK = TOKENS * (HEADS * D * D + D * D + 2 * D * HIDDEN)
LINEARS = TOKENS * 12 * D + LAYERS * BLOCK + D * 10
QUERY_KEY = 2 * TOKENS * D * HEADS * D


def operations(scores, content=0):
    """Two for each multiplication: the Linears, the mixing, and `scores` and `content` a layer."""
    return 2 * (LINEARS + LAYERS * (MIX + scores + content))


def rounded(number, unit):
    """`number` to the nearest whole `unit`, in units."""
    return (2 * number + unit) // (2 * unit)


COUNTS = (
    (parameters(3 * HEADS), 12_086_844),
    (parameters(6 * HEADS), 12_087_006),
    (parameters(3 * 16, heads=16), 18_806_970),
    (parameters(6 * HEADS) - sum(PRUNED) * (D * D + 6), 9_686_916),
    (parameters(learned(400)), 12_278_682),
    (parameters(learned(200)), 12_182_682),
    (parameters(learned(400)) - (LAYERS - 1) * tables(400), 12_154_682),
    (parameters(tables(200), content=CONTENT), 29_484_282),
    (parameters(learned(400), content=CONTENT), 29_601_882),
    (parameters(learned(200), content=CONTENT), 29_505_882),
    (RESNET, 11_173_962),
)
TABLE = (("ResNet18", RESNET), ("quadratic", COUNTS[0][0]), ("generalised", COUNTS[1][0]), ("pruned", COUNTS[3][0]))
PRINTED = {"ResNet18": 112, "quadratic": 121, "generalised": 121, "pruned": 97}  # units of 100,000
POSITION_ONLY = ((400, True), (200, False))  # numbers an axis, whether they give the printed 12.3M


def is_printed(per_axis):
    """Whether this width of the learned tables gives 12.3M without content."""
    return rounded(parameters(learned(per_axis)), 100_000) == 123


LEARNED_SCORES = 2 * HEADS * SIDE * SIDE * D  # each axis, for every pair of its positions
QUERY_POSITION = 2 * HEADS * TOKENS * SIDE * (D // 2)  # each query with the positions of each axis
OPERATIONS = (
    (operations(HEADS * TOKENS * TOKENS * 5), 9_043),
    (operations(HEADS * TOKENS * TOKENS * 3), 9_028),
    (operations(HEADS * SHIFTS * SHIFTS * 3), 9_007),
    (operations(LEARNED_SCORES), 9_029),
    (operations(QUERY_POSITION, content=QUERY_KEY + MIX), 20_863),
    (RESNET_OPERATIONS, 1_111),
)
PRUNED_LINEARS = sum(PRUNED) * TOKENS * D * D
PRUNED_PRODUCTS = sum(PRUNED) * TOKENS * TOKENS * (D + 5)
SAVED = (  # saved, of, tenths of a percent
    (COUNTS[1][0] - COUNTS[3][0], COUNTS[1][0], 199),
    (PRUNED_LINEARS, LINEARS, 199),
    (PRUNED_LINEARS + PRUNED_PRODUCTS, operations(HEADS * TOKENS * TOKENS * 5) // 2, 224),
)

CLAIM = Claim(
    name="COUNT",
    title="Model sizes and operation counts",
    words="The parameters of the networks of Tables 1 and 4 follow from the architecture. All printed sizes "
    "are right: 29.5M is learned + content with scores q.k + q.r, 12.3M is learned with 400 numbers an axis and a "
    "table for each layer. The attention networks' operation counts leave out the attention products; ResNet18's, "
    "counted alike, is 1.1B, and theirs are 9.0B to 20.9B. Pruning 15 of the 54 heads saves a fifth.",
    formula=r"6.2 \cdot 10^9 = 2\,\#\mathrm{Linear},\qquad "
    r"9.0 \cdot 10^9 = 2\,(\#\mathrm{Linear} + \#PX + \#\mathrm{scores})",
    conditions=(
        "the architecture: 3 x 32 x 32 input, 2 x 2 space to depth, Linear 12 to 400; six blocks of mixing with 9 "
        "heads, Linear 3600 to 400, Linear 400 to 400, LayerNorm, Linear 400 to 512 to 400, LayerNorm; mean, Linear "
        "400 to 10",
        "an operation is a multiplication or an addition: a multiply-add counts 2; softmax, norms and activations 0",
    ),
    source="Cordonnier et al. 2020, Tables 1, 2 and 4, Appendices E and F",
    not_shown="That the authors' code has this architecture, or what else it does: a statement about a program not "
    "held here. So E9 (the pruning threshold in the released code) is not checked by machine.",
    licenses={},
    formal="none: finite arithmetic, decided in Python alone",
    errata=("E10", "E11", "E15", "E18"),
    steps=(
        step(
            "E11, E18: the eleven parameter counts of docs/errata.md.",
            finite,
            COUNTS,
            lambda pair: pair[0] == pair[1],
            count=11,
        ),
        step(
            "Four of them round to the printed 11.2M, 12.1M, 12.1M, 9.7M.",
            finite,
            TABLE,
            lambda row: rounded(row[1], 100_000) == PRINTED[row[0]],
            count=4,
        ),
        step(
            "E11: q.k + q.r with 200 numbers an axis has the printed 29.5M.",
            finite,
            (parameters(tables(200), content=CONTENT),),
            lambda size: rounded(size, 100_000) == 295,
            count=1,
        ),
        step(
            "E11: 400 numbers an axis give the printed 12.3M, the text's 200 do not.",
            finite,
            POSITION_ONLY,
            lambda pair: is_printed(pair[0]) == pair[1],
            count=2,
        ),
        step(
            "E18: with one table for all layers the count is not the printed 12.3M.",
            finite,
            (parameters(learned(400)) - (LAYERS - 1) * tables(400),),
            lambda size: rounded(size, 100_000) == 122,
            count=1,
        ),
        step(
            "E10: the printed 6.2B and 15B are two operations for each multiplication in the Linears alone ...",
            finite,
            ((2 * LINEARS, 62), (2 * (LINEARS + LAYERS * QUERY_KEY), 150)),
            lambda pair: rounded(pair[0], 10**8) == pair[1],
            count=2,
        ),
        step(
            "E10: ... counted alike, in millions: quadratic 9,043 (five features a pair), 9,028 (three a pair), 9,007 "
            "(three a displacement), learned 9,029, learned + content 20,863, ResNet18 1,111.",
            finite,
            OPERATIONS,
            lambda pair: rounded(pair[0], 10**6) == pair[1],
            count=6,
        ),
        step(
            "E15: pruning 15 of the 54 heads saves, in tenths of a percent, 199 of the parameters, 199 of the "
            "operations "
            "of the Linears and 224 with the attention products: a fifth and not a fourth.",
            finite,
            SAVED,
            lambda row: rounded(1000 * row[0], row[1]) == row[2],
            count=3,
        ),
        refutation(
            "E10: the attention products are not in the printed 6.2B.",
            finite,
            (operations(0),),
            lambda total: rounded(total, 10**8) == 62,
            count=1,
        ),
    ),
    mutants=(
        step(
            "Each width of the learned tables gives the printed 12.3M.",
            finite,
            POSITION_ONLY,
            lambda pair: is_printed(pair[0]),
            count=2,
        ),
        step(
            "The nine heads share one value matrix.",
            finite,
            (parameters(3 * HEADS, heads=1),),
            lambda size: rounded(size, 100_000) == 121,
            count=1,
        ),
        step("Pruning 15 of 54 heads saves a fourth.", finite, SAVED, lambda row: 4 * row[0] >= row[1], count=3),
        step(
            "The attention network without biases has 12.1M parameters to the last digit.",
            finite,
            (parameters(3 * HEADS) - linear(0, D),),
            lambda size: size == COUNTS[0][1],
            count=1,
        ),
        step(
            "ResNet18's operations are multiply-adds: 1.1B without the 2.",
            finite,
            (RESNET_OPERATIONS // 2,),
            lambda total: rounded(total, 10**8) == 11,
            count=1,
        ),
    ),
)
