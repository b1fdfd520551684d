"""The bound that passes through operators: for every rule never below what is measured, and not far above it."""

import copy
import functools

import pytest
import torch
from equivalence.rules.cases import CASES, LOOSE, Opaque
from torch import nn

from conv2attn.bounds.activations import Activation
from conv2attn.equivalence.domain import Carried
from conv2attn.equivalence.graph import graph_of
from conv2attn.equivalence.interpreter import propagate
from conv2attn.equivalence.opaque import Calls
from conv2attn.equivalence.rules import RULES
from conv2attn.equivalence.rules.activations import activated

SHAPE = (1, 4, 6, 5)


@functools.cache
def exported(module, dtype, shape):
    """The graph of `module` behind the opaque node of a layer, and images for it: exported once."""
    images = torch.ones(shape, dtype=dtype)
    return graph_of(
        nn.Sequential(Opaque(), copy.deepcopy(module)).to(dtype), {}, images, Calls(), every_size=False
    ), images


def carried_through(module, size, error, dtype=torch.float32, shape=SHAPE):
    """The bound behind `module` and where it stops, for numbers up to `size` that are off by up to `error`."""

    def off(before):
        return Carried(torch.full_like(before.size, size), torch.full_like(before.error, error))

    graph, images = exported(module, dtype, shape)
    return propagate(graph, {0: off}, images, size)


def worst_found(module, size, error, dtype=torch.float32, shape=SHAPE, seed=0):
    """The largest difference behind `module` of pairs of numbers up to `size`, `error` apart, as computed."""
    module = module.to(dtype)
    generator = torch.Generator().manual_seed(seed)
    worst = 0.0
    count = torch.Size(shape).numel()
    for trial in range(60):
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        near = torch.linspace(-1, 1, count, dtype=torch.float64).reshape(shape) * [1.0, 0.3, 0.1, 0.01][trial % 4]
        first = [drawn, drawn.sign(), near, torch.zeros_like(drawn), drawn * 10.0 ** -(trial % 7)][trial % 5] * size
        step = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        step = [step, step.sign(), torch.ones_like(step), -torch.ones_like(step)][trial // 5 % 4] * error
        first = first.to(dtype)
        second = (first.double() + step).to(dtype)
        second = torch.where((second.double() - first.double()).abs() <= error, second, first)
        with torch.no_grad():
            outputs = [module(each.clone()) for each in (first, second)]
        flat = [torch.cat([t.flatten().double() for t in pieces(out)]) for out in outputs]
        worst = max(worst, (flat[0] - flat[1]).abs().max().item())
    return worst


def pieces(output):
    return [output] if isinstance(output, torch.Tensor) else [t for t in output if t.is_floating_point()]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("size", "error"), [(1.0, 1e-3), (20.0, 0.5), (3.0, 1e-7), (1e3, 30.0), (1.0, 0.0)])
def test_no_rule_is_exceeded(name, size, error):
    bound, stop = carried_through(CASES[name], size, error)
    assert stop == ""
    assert worst_found(CASES[name], size, error) <= bound


@pytest.mark.parametrize("name", sorted(set(CASES) - LOOSE))
def test_every_rule_is_close_to_what_is_found(name):
    """Hence a constant lowered by a tenth would be exceeded."""
    size, error = (3.0, 0.01)
    if name in ("tanh", "method tanh", "sigmoid", "erf", "atan", "sin"):
        size = 0.05
    bound, _ = carried_through(CASES[name], size, error, torch.float64)
    assert worst_found(CASES[name], size, error, torch.float64) > 0.9 * bound


PLANTED = {
    "relu": lambda call: activated(call.given, Activation(0.9), call.dtype),
    "gelu": lambda call: activated(call.given, Activation(1.0), call.dtype),
    "max_pool2d": lambda call: Carried(call.given.size, call.given.error * 0.9),
    "flatten": lambda call: Carried.of_constant(call.value),
    "mul": lambda call: Carried(call.given.size, call.given.error),
}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_wrong_rule_is_exceeded(name, monkeypatch):
    """A slope of 0.9 for relu, that of relu for gelu, a pooling that shrinks errors, and one that forgets them."""
    monkeypatch.setitem(RULES, name, PLANTED[name])
    case = {"max_pool2d": "F.max_pool", "mul": "mul number"}.get(name, name)
    bound, stop = carried_through(CASES[case], 3.0, 0.01)
    assert stop == ""
    assert worst_found(CASES[case], 3.0, 0.01) > bound
