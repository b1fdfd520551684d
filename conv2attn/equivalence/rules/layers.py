"""Layers with weights of their own: a product with a matrix, and normalisations."""

from torch import Tensor

from conv2attn.attention.hardness import FORMATS
from conv2attn.equivalence.arithmetic import Arithmetic
from conv2attn.equivalence.domain import SLACK, Carried, Stop, affine
from conv2attn.equivalence.rules.registry import Call, rule


@rule("linear")
def _(call: Call) -> Carried:
    """Each output is a sum of `in_features` products."""
    weight, bias = call.argument("weight"), call.argument("bias")
    if any(call.computed(each) for each in (weight, bias) if each is not None):
        raise Stop("linear with a weight that is computed")
    settings, stored, terms = Arithmetic.of(weight.device.type), FORMATS[weight.dtype], weight.shape[1]
    rounding = settings.rounding(settings.format(stored), terms)
    given = call.given.along(lambda each: each.expand(*each.shape[:-1], terms).flatten())
    rows = weight.detach().cpu().double().abs()[None]
    return affine(rows, bias, given, rounding.factor, rounding.absolute)


@rule("batch_norm")
def _(call: Call) -> Carried:
    """(x - mean) weight / sqrt(variance + eps) + bias, all but x alike in both networks: six roundings, counted ten."""
    mean, variance = call.argument("running_mean"), call.argument("running_var")
    if call.argument("training") or mean is None or variance is None:
        raise Stop("batch_norm in training mode")
    weight, bias = call.argument("weight"), call.argument("bias")
    if any(call.computed(each) for each in (mean, variance, weight, bias) if each is not None):
        raise Stop("batch_norm with statistics that are computed")
    scale = (per_channel(call, variance) + call.argument("eps", 1e-5)).rsqrt() * SLACK
    scale = scale if weight is None else scale * per_channel(call, weight).abs()
    shift = scale * per_channel(call, mean).abs()
    shift = shift if bias is None else shift + per_channel(call, bias).abs()
    given = call.given
    passed = Carried((scale * given.size + shift) * SLACK, scale * given.error * SLACK)
    return passed.rounded(10, call.dtype)


def per_channel(call: Call, numbers: Tensor) -> Tensor:
    """A number for each channel, in float64."""
    return call.per_channel(numbers.detach().cpu().double())


UNBOUNDED = "where the variance may vanish, its rounding is not bounded"


@rule("layer_norm", "group_norm", "instance_norm", "rms_norm")
def _(call: Call) -> Carried:
    """Some input has numbers that are all alike: their variance is 0, and the quotient's slope and rounding are as
    large as eps allows, 1e5 times the input's and more. No bound that says anything holds for all inputs."""
    raise Stop(f"{call.name} ({UNBOUNDED})")
