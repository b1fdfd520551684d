"""The condition for one given convolution: only the combinations of shifts that its weights use, and its head width."""

from dataclasses import replace
from fractions import Fraction

import msgspec
import numpy as np
from torch import nn

from conv2attn.errors import UsageError
from conv2attn.span.conditions import check
from conv2attn.span.limits import ROUNDOFF, Limits
from conv2attn.span.results import Condition
from conv2attn.span.rows import Array, AttentionRows
from conv2attn.span.targets import Targets, shifts
from conv2attn.theorem import Convolution, read
from conv2attn.verdicts import Verdict


def as_convolution(convolution: nn.Module | Convolution) -> Convolution:
    """A convolution layer as what it computes.

    Raises:
        UnsupportedError: it is no convolution (C2A101).
        UsageError: its weights are not finite (C2A408).
    """
    found = convolution if isinstance(convolution, Convolution) else read(convolution)
    if not bool(found.weight.isfinite().all()):
        raise UsageError("C2A408", "the weights of the convolution are not finite")
    return found


def tap_matrix(convolution: Convolution) -> Array:
    """The taps as rows: (taps, channel pairs), in float64."""
    matrix: Array = convolution.taps().detach().cpu().double().flatten(1).numpy()
    return matrix


def combinations(matrix: Array, roundoff: float) -> Array:
    """Columns that span the column space of `matrix` (taps, pairs), to rounding of its weights: (taps, rank).

    The longest column is taken, all are made orthogonal to it, and so on. Each is scaled by a power of two to a largest
    entry between 1/2 and 1, which is exact.
    """
    rest, largest = matrix.copy(), float(np.linalg.norm(matrix, axis=0).max(initial=0.0))
    picked: list[int] = []
    for _ in range(len(matrix)):
        lengths = np.linalg.norm(rest, axis=0)
        if not lengths.max(initial=0.0) > 4 * len(matrix) * roundoff * largest:
            break
        picked.append(int(lengths.argmax()))
        direction = rest[:, picked[-1]] / lengths.max()
        for _again in range(2):
            rest = rest - np.outer(direction, direction @ rest)
    columns = matrix[:, picked]
    return columns / 2.0 ** np.frexp(np.abs(columns).max(0, initial=0.0))[1]


def kernel_targets(attention: AttentionRows, convolution: Convolution, roundoff: float) -> Targets:
    """The combinations that the weights use; taps that are zero throughout ask for nothing."""
    matrix = tap_matrix(convolution)
    used = np.flatnonzero(np.abs(matrix).max(1) > 0)
    columns = combinations(matrix[used], roundoff)
    one_for_each = shifts(attention.grid, [convolution.offsets[t] for t in used])
    labels = tuple(f"combination {j}" for j in range(columns.shape[1]))
    return replace(one_for_each, coefficients=columns.T.copy(), labels=labels)


def check_kernel(attention: AttentionRows, convolution: Convolution, limits: Limits) -> Condition:
    """Whether one Phi serves this convolution at its interior queries, in heads of the width that they have.

    Where the Phi that was found needs wider heads another might not, hence undecided (E7 of docs/errata.md).
    """
    roundoff = ROUNDOFF[str(convolution.weight.dtype).removeprefix("torch.")]
    targets = kernel_targets(attention, convolution, roundoff)
    found = check("kernel", attention, targets, limits)
    if found.verdict is not Verdict.HOLDS or attention.d_head is None:
        return found
    mixing = np.array([[float(Fraction(w)) for w in target.weights] for target in found.targets])
    width = widest(convolution, targets, mixing, roundoff)
    allowed = attention.d_head // convolution.groups
    if width <= allowed:
        sentence = f"the widest head has rank {width}, of {allowed} allowed"
        return msgspec.structs.replace(found, sentence=sentence)
    sentence = f"the Phi found needs a head of width {width}, and there are {allowed}"
    return msgspec.structs.replace(found, verdict=Verdict.UNDECIDED, sentence=sentence)


def head_taps(convolution: Convolution, targets: Targets, mixing: Array) -> Array:
    """`W_val W_out` of each head for a mixing (targets, heads): (heads, d_out, d_in / groups)."""
    matrix = tap_matrix(convolution)
    places = {offset: t for t, offset in enumerate(convolution.offsets)}
    used = matrix[[places[offset] for offset in targets.offsets]]
    parts = used if targets.plain else np.linalg.lstsq(targets.coefficients.T, used, rcond=None)[0]
    taps: Array = (mixing.T @ parts).reshape(mixing.shape[1], convolution.d_out, -1)
    return taps


def widest(convolution: Convolution, targets: Targets, mixing: Array, roundoff: float) -> int:
    """The largest rank, to rounding of the weights, of a head's channel matrix within a group."""
    taps = head_taps(convolution, targets, mixing)
    blocks = taps.reshape(len(taps), convolution.groups, -1, taps.shape[2])
    singular = np.linalg.svd(blocks, compute_uv=False)
    threshold = 4 * max(blocks.shape[2:]) * roundoff * singular.max(initial=0.0)
    return int((singular > threshold).sum(-1).max(initial=0))
