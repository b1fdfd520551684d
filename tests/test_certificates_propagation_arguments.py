"""What the arguments of an activation choose, by place, by name and by default, and which of them stop."""

import pytest
import torch
from test_certificates_propagation_exact import BX, S, X
from torch.nn import functional as F

from conv2attn.bounds import activations as known
from conv2attn.bounds.activations import Activation
from conv2attn.certificates.propagation.activation_rules import activated
from conv2attn.certificates.propagation.carried import Stop
from conv2attn.certificates.propagation.rules import RULES, Call, stored

NEAR = [abs(each) for each in stored(-0.3, torch.float32)]
ARGUMENTS = [
    (F.relu6, (), {}, Activation(1.0, 0.0, 6.0, 6.0)),
    (torch.selu, (), {}, known.elu(1.6732632423543772, 1.0507009873554805)),
    (torch.selu_, (), {}, known.elu(1.6732632423543772, 1.0507009873554805)),
    (F.softshrink, (0.25,), {}, Activation(1.0, roundings=1)),
    (F.hardtanh, (-0.5, 0.25), {}, known.clipped(-0.5, 0.25)),
    (F.hardtanh, (), {"min_val": -0.5, "max_val": 0.25}, known.clipped(-0.5, 0.25)),
    (F.hardtanh, (), {}, known.clipped(-1, 1)),
    (torch.clamp, (-0.5, 0.25), {}, known.clipped(-0.5, 0.25)),
    (torch.clamp, (), {"min": -0.5, "max": 0.25}, known.clipped(-0.5, 0.25)),
    (torch.clamp, (-0.5,), {}, known.clipped(-0.5, torch.inf)),
    (torch.clamp, (), {"max": 0.25}, known.clipped(-torch.inf, 0.25)),
    (torch.clamp, (0.25, 0.25), {}, known.clipped(0.25, 0.25)),
    (torch.clamp, (0.5, -0.25), {}, Activation(0.0, 0.25, 0.25, 0.0)),
    (torch.clamp, (0.5, -0.3), {}, Activation(0.0, max(NEAR), max(NEAR), 0.0)),
    (torch.clamp_max, (-0.25,), {}, known.clipped(-torch.inf, -0.25)),
    (torch.clamp_max_, (), {"max": -0.25}, known.clipped(-torch.inf, -0.25)),
    (torch.clamp_max_, (-0.25,), {}, known.clipped(-torch.inf, -0.25)),
    (torch.clamp_min, (0.25,), {}, known.clipped(0.25, torch.inf)),
    (torch.clamp_min, (), {"min": 0.25}, known.clipped(0.25, torch.inf)),
    (F.leaky_relu, (3.0,), {}, known.leaky(3.0)),
    (F.leaky_relu, (), {"negative_slope": 3.0}, known.leaky(3.0)),
    (F.leaky_relu, (), {}, known.leaky(0.01)),
    (F.rrelu, (3.0, 5.0), {}, known.leaky(4.0 * S)),
    (F.rrelu, (), {"lower": 3.0, "upper": 5.0}, known.leaky(4.0 * S)),
    (F.rrelu, (), {}, known.leaky(0.25)),
    (F.rrelu, (), {"upper": 5.0}, known.leaky((5 + 1 / 8) / 2 * S)),
    (F.rrelu, (5.0,), {}, known.leaky((5 + 1 / 3) / 2 * S)),
    (F.rrelu, (3.0, 5.0, False), {}, known.leaky(4.0 * S)),
    (F.elu, (3.0,), {}, known.elu(3.0)),
    (F.elu, (), {"alpha": 3.0}, known.elu(3.0)),
    (F.elu, (), {}, known.elu()),
    (F.celu, (0.25,), {}, known.elu(0.25, 1.0, 4.0)),
    (F.celu, (), {"alpha": 3.0}, known.elu(3.0, 1.0, 1 / 3)),
    (F.celu, (), {}, known.elu()),
    (F.gelu, (), {}, known.GELU),
    (F.gelu, (), {"approximate": "tanh"}, known.GELU_TANH),
    (F.softplus, (0.25, 3.0), {}, known.softplus(0.25, 3.0)),
    (F.softplus, (), {"beta": 0.25, "threshold": 3.0}, known.softplus(0.25, 3.0)),
    (F.softplus, (), {}, known.softplus()),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "activation"), ARGUMENTS)
def test_arguments_choose_the_activation(function, args, kwargs, activation, monkeypatch):
    monkeypatch.setattr(f"{activated.__module__}.activated", lambda given, chosen, dtype: (given, chosen, dtype))
    given = torch.ones(2)
    call = Call(function, (given, *args), kwargs, given, lambda tensor: "bounds", None)
    assert RULES[function](call) == ("bounds", activation, torch.float32)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "told"),
    [
        (F.rrelu, (0.1, 0.2, True), {}, "rrelu in training mode"),
        (F.rrelu, (), {"training": True}, "rrelu in training mode"),
        (F.celu, (0.0,), {}, "celu that grows like exp"),
        (F.celu, (-1.0,), {}, "celu that grows like exp"),
        (torch.clamp, (torch.ones(()),), {}, "clamp to tensors"),
        (torch.clamp, (), {"max": torch.ones(())}, "clamp to tensors"),
    ],
)
def test_arguments_without_a_bound_stop(function, args, kwargs, told):
    with pytest.raises(Stop, match=told):
        RULES[function](Call(function, (X, *args), kwargs, X, lambda tensor: BX, None))
