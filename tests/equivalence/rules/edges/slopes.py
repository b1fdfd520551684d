"""What is known of activations: slopes certified by balls, and roundings measured on this device."""

import pytest
import torch
from equivalence.rules.cases import Apply
from equivalence.rules.laws import carried_through
from flint import arb, ctx
from torch import nn
from torch.nn import functional as F

from conv2attn.bounds import activations as known
from conv2attn.equivalence.rules.activations import PLAIN


def slope_of(name, x):
    """The derivative of an activation, on a ball."""
    half = arb(1) / 2
    if name == "GELU":
        return half * (1 + (x / arb(2).sqrt()).erf()) + x * (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
    if name == "GELU_TANH":
        root, cubic = (2 / arb.pi()).sqrt(), arb("0.044715")
        t = (root * (x + cubic * x * x * x)).tanh()
        return half * (1 + t) + half * x * (1 - t * t) * root * (1 + 3 * cubic * x * x)
    sigmoid = 1 / (1 + (-x).exp())
    if name == "SILU":
        return sigmoid + x * sigmoid * (1 - sigmoid)
    t = (1 + x.exp()).log().tanh()
    return t + x * sigmoid * (1 - t * t)


def exceeded(name, slope, reach=30.0):
    """Whether some point of +-reach has a larger slope, or one that is not certified smaller."""
    pending = [(-reach, reach)]
    while pending:
        low, high = pending.pop()
        found = slope_of(name, arb((low + high) / 2, (high - low) / 2))
        if not abs(found) < slope:
            if high - low < 1e-9:
                return True
            middle = (low + high) / 2
            pending += [(low, middle), (middle, high)]
    return False


@pytest.mark.parametrize("name", ["GELU", "GELU_TANH", "SILU", "MISH"])
def test_slopes_are_certified_by_balls(name):
    """Beyond 30 the slope is off from that of relu by less than x e^(-x) times a small number, and 1 is enough."""
    slope = getattr(known, name).slope
    with ctx.workprec(80):
        assert not exceeded(name, slope)
        assert exceeded(name, slope - 2e-7)


def device_cases():
    cases = {name: (functions(name), activation) for name, activation in PLAIN.items() if functions(name)}
    cases["gelu none"] = F.gelu, known.GELU
    cases["gelu tanh"] = (lambda x: F.gelu(x, approximate="tanh")), known.GELU_TANH
    cases["elu"] = (lambda x: F.elu(x, 2.5)), known.elu(2.5)
    cases["celu"] = (lambda x: F.celu(x, 0.7)), known.elu(0.7, 1.0, 1 / 0.7)
    cases["softplus"] = (lambda x: F.softplus(x, 0.5, 30)), known.softplus(0.5, 30)
    cases["softshrink"] = (lambda x: F.softshrink(x, 0.3)), known.softshrink(0.3)
    cases["leaky_relu"] = (lambda x: F.leaky_relu(x, 0.3)), known.leaky(0.3)
    return cases


def functions(name):
    name = {"log_sigmoid": "logsigmoid"}.get(name, name)
    return getattr(F, name, None) or getattr(torch, name, None) or getattr(torch.special, name, None)


@pytest.mark.parametrize("name", sorted(device_cases()))
def test_activations_are_as_accurate_on_this_device_as_is_assumed(name):
    """Every number of float16, and as many of float32, against float64."""
    function, activation = device_cases()[name]
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    every = every[every.isfinite() & (every.abs() < 1e4)]
    noisy = every * torch.linspace(1, 1.001, len(every))
    for dtype, u in ((torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        numbers = torch.cat([every, noisy]).to(dtype)
        off = (function(numbers.clone()).double() - function(numbers.double())).abs()
        size = 1 if activation.saturates else numbers.double().abs() + 1
        allowed = activation.roundings * (u * size + 2.0**-24) + 2 * activation.jump
        assert bool((off <= allowed).all()), (dtype, (off / allowed).max())


def test_a_gate_does_not_grow_with_what_it_is_asked():
    """The rounding of a sigmoid is that of a number below 1, however large its argument."""
    bound, _ = carried_through(Apply(lambda x: torch.sigmoid(1e30 * x)), 1.0, 1.0)
    assert 1 <= bound < 1.0001


def test_where_softplus_changes_to_a_line_it_jumps():
    module = nn.Softplus(2.0, 3.0)
    near = torch.tensor([1.5 - 2.0**-12, 1.5 + 2.0**-12], dtype=torch.float64)
    jump = module(near).diff().abs().item()
    assert 10 * 2.0**-11 < 0.02 < jump
    assert jump <= carried_through(module, 2.0, 2.0**-11)[0]
