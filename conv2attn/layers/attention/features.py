"""The accuracy of absolute features of quadratic heads, which the engine sdpa uses."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from conv2attn.errors import EngineError
from conv2attn.layers.attention.hardness import FORMAT_NAMES
from conv2attn.layers.attention.tracing import readable
from conv2attn.theory.basis import HeadNumbers, Operator
from conv2attn.theory.bounds import absolute_score_error, exact_absolute_features
from conv2attn.torch_internals import is_batchedtensor

LARGEST_SCORE_ERROR = 2.0**-10  # chosen: every weight then has TF32's relative accuracy or better
LONGEST_SIDE = 2**20


@lru_cache(maxsize=1024)
def score_error(numbers: HeadNumbers, side: int, dtype: torch.dtype) -> float:
    """Upper bound on the error of a score; 0 if centres are integers and every sum fits the significand.

    A quadratic form in n axes has n (n + 3) / 2 features, whose products add up in absolute value to at most `3 n
    sharpness L^2`, as for an isotropic head; the number of features matters only for the number of roundings.
    """
    if not numbers.finite or not (numbers.centers or numbers.axes):
        return math.inf
    if numbers.axes:
        features = numbers.axes * (numbers.axes + 3) // 2
        share = math.nextafter(numbers.sharpness * numbers.axes / features, math.inf)
        return absolute_score_error(share, side / 2 + numbers.reach, features, FORMAT_NAMES[dtype])
    axes, precision = len(numbers.centers[0]), FORMAT_NAMES[dtype]
    reach = side / 2 + max(abs(x) for center in numbers.centers for x in center)
    exact = (exact_absolute_features(a, math.ceil(reach), axes, precision) for a in set(numbers.alphas))
    if numbers.on_pixels and all(exact):
        return 0.0
    return absolute_score_error(max(map(abs, numbers.alphas)), reach, axes, precision)


def check_scores(name: str, numbers: HeadNumbers, side: int, dtype: torch.dtype) -> None:
    """Refuses features in a dtype that is too coarse for the scores of these heads.

    Raises:
        EngineError: the error of a score may exceed `LARGEST_SCORE_ERROR` (C2A201).
    """
    bounded = dtype in (torch.float32, torch.float64)
    error = score_error(numbers, side, dtype) if bounded else math.inf
    if not error <= LARGEST_SCORE_ERROR:
        wrong = f"wrong by up to {error:.2g} at this side" if bounded else "too coarse for squares of distances"
        remedy = "Cast the layer to float64 with layer.double(), or pass a smaller side."
        raise EngineError("C2A201", f"{name}: positions in {dtype} are {wrong}", remedy)


def few_features(operators: Operator, padded: Tensor, dtype: torch.dtype) -> bool:
    """Whether quadratic features are accurate enough for positions on the `padded` image, in scores of `dtype`.

    False if values cannot be read now.

    They are added after the features of content, so q.k rounds as in every engine.
    """
    if not operators.reads_content or not readable(padded) or is_batchedtensor(padded):
        return False
    numbers = operators.numbers_on(padded)
    return numbers is not None and score_error(numbers, max(padded.shape[2:]), dtype) <= LARGEST_SCORE_ERROR


def longest_side(numbers: HeadNumbers, dtype: torch.dtype) -> int:
    """The longest side of a key grid on which the features of these heads are accurate enough; 0 if there is none."""
    low, high = 0, LONGEST_SIDE
    while low < high:
        middle = (low + high + 1) // 2
        good = score_error(numbers, middle, dtype) <= LARGEST_SCORE_ERROR
        low, high = (middle, high) if good else (low, middle - 1)
    return low
