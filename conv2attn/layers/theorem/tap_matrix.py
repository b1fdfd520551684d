"""The taps of a convolution as a matrix, and the combinations of them that its weights use."""

import numpy as np
from numpy.typing import NDArray
from torch import nn

from conv2attn.errors import UsageError
from conv2attn.layers.theorem.convolution import Convolution, read_convolution

TapMatrix = NDArray[np.float64]


def as_convolution(convolution: nn.Module | Convolution) -> Convolution:
    """A convolution layer as a `Convolution`.

    Raises:
        UnsupportedError: the layer is not a convolution (C2A101).
        UsageError: weights are not finite (C2A408).
    """
    layer = convolution if isinstance(convolution, Convolution) else read_convolution(convolution)
    if not bool(layer.weight.isfinite().all()):
        raise UsageError("C2A408", "the weights of the convolution are not finite", "Train or load it again.")
    return layer


def tap_matrix(convolution: Convolution) -> TapMatrix:
    """The taps as rows: (taps, channel pairs), in float64."""
    matrix: TapMatrix = convolution.taps().detach().cpu().double().flatten(1).numpy()
    return matrix


def combinations(matrix: TapMatrix, roundoff: float) -> TapMatrix:
    """Columns that span the column space of `matrix` (taps, pairs), to rounding of its weights: (taps, rank).

    Each column is scaled by a power of two to a largest entry between 1/2 and 1, which is exact.
    """
    from scipy.linalg import qr

    # Before the QR, so that no length overflows or underflows.
    matrix = np.ldexp(matrix, -np.frexp(np.abs(matrix).max(initial=0.0))[1])
    if not matrix.any():
        return matrix[:, :0]
    # Pivoting takes the longest column, then the one with the longest remainder, and so on: the diagonal of R
    # decreases.
    triangle, order = qr(matrix, mode="r", pivoting=True)
    lengths = np.abs(np.diag(triangle))
    columns = matrix[:, order[: int((lengths > 4 * len(matrix) * roundoff * lengths[0]).sum())]]
    return columns / 2.0 ** np.frexp(np.abs(columns).max(0))[1]
