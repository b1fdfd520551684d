"""The sharpness from which attention is one-hot in a floating-point format."""

from flint import arb, ctx

from conv2attn.bounds.directed import BALL_PRECISION, up
from conv2attn.bounds.formats import accumulator_of, storage_of

SMALLEST_AUTO_ALPHA = 46.0  # the paper's; raises float16 alone, whose weights a fused kernel may keep in float32


def one_hot_threshold(format_name: str, flush_to_zero: bool = False) -> float:
    """From this alpha on, every off-target weight of a head with an integer offset is exactly 0 in the format.

    An off-target score is at most -alpha, since alpha times an integer >= 1 rounds to no less than alpha. exp(-alpha)
    becomes 0 when it is at most half of the smallest subnormal 2^e, so from alpha = (1 - e) ln 2 on; under
    flush-to-zero already below the smallest normal number of the format that softmax is computed in. The division by
    the sum, which is at least 1, and the cast to storage keep a 0.

    Args:
        format_name: format of the attention weights.
        flush_to_zero: whether subnormal results of the softmax are flushed; a cast to float16 is not.
    Returns:
        The smallest number of the format (of its storage) that is not below the threshold.
    Holds when the target is a key, alpha is a number of the format, and exp underflows as rounding to nearest would;
    the last is a fact about a device, to be measured on it. When the target is no key, alpha must be a power of two.
    Source: IEEE 754-2019, 4.3.1 and 7.5; Cordonnier et al. 2020, remark after Lemma 2 (46, which is not enough: E1).
    """
    storage, inner = storage_of(format_name), accumulator_of(format_name)
    halvings = 1 - storage.smallest_subnormal_exponent
    if flush_to_zero:
        halvings = min(halvings, -inner.smallest_normal_exponent)
    with ctx.workprec(BALL_PRECISION):
        return storage.round_up(up(halvings * arb.const_log2()))


def auto_alpha(format_name: str) -> float:
    """The least power of two that is at least 46 and `one_hot_threshold`; under flush-to-zero less would do.

    A power of two, because alpha times an integer is then exact. 1024, 128, 128, 64 for float64, float32, bfloat16,
    float16.
    """
    needed = max(SMALLEST_AUTO_ALPHA, one_hot_threshold(format_name))
    alpha = 1.0
    while alpha < needed:
        alpha *= 2
    return alpha
