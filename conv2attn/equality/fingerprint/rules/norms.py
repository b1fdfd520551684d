"""The rule of batch normalisation: those of other norms are torch's own decompositions; see `families`.

Torch's decomposition of this one rounds one over the deviation where the statistics are constants.
"""

from typing import Any

from conv2attn.equality.fingerprint.formulas import add, inverse_root, mul, sub
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import NOTHING, Call, rule
from conv2attn.equality.fingerprint.rules.sums import mean_and_variance


@rule("native_batch_norm", "_native_batch_norm_legit_no_training")
def _(
    c: Call,
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
    training: bool = False,
) -> tuple[Any, ...]:
    if training is not (running_mean is None):
        raise Undecided("batch norm in training, which changes its statistics, or without any")
    numbers = c.operand(input)
    shape = [-1] + [1] * (len(numbers.shape) - 2)
    if training:  # of the batch, as instance norm asks for them
        middle, spread = mean_and_variance(c, numbers, [0, *range(2, len(numbers.shape))], 0, True)
    else:
        middle, spread = (c.operand(each).laid(shape) for each in (running_mean, running_var))
        c.field.usable(middle, "means")
    scale = inverse_root(c.field, add(c.field, spread, c.operand(eps)))
    numbers = mul(c.field, sub(c.field, numbers, middle), scale)
    numbers = numbers if weight is None else mul(c.field, numbers, c.operand(weight).laid(shape))
    numbers = numbers if bias is None else add(c.field, numbers, c.operand(bias).laid(shape))
    return (numbers, None, None) if training else (numbers, NOTHING, NOTHING)
