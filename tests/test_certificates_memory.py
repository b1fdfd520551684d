"""Bounds past changes in place, what comes from the image alone, and what overflows: never too small."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.equivalence.compared import compare_layers
from conv2attn.equivalence.context import compare_context
from conv2attn.equivalence.interpreter import propagate

SIDES = (8, 9)


class After(nn.Module):
    """A convolution, and a function of its output and of the image."""

    def __init__(self, after):
        super().__init__()
        self.conv, self.after = nn.Conv2d(3, 4, 3, padding=1), after

    def forward(self, image):
        return self.after(self.conv(image), image)


def scaled_unseen(tensor):
    with torch._C.DisableTorchFunction():
        return tensor.mul_(1000.0)


def swapped(tensor):
    other = torch.zeros_like(tensor)
    other.set_(tensor)
    return other


STOPPED = {
    "a quotient by the image": (lambda y, x: y / x[:, :1], "a quotient by what is computed"),
    "a matrix of the image": (lambda y, x: F.linear(y.flatten(2), x.flatten(2)[0]), "a weight that is computed"),
    "statistics of the image": (
        lambda y, x: F.batch_norm(y, torch.zeros(4), x[0, 0, 0, :4].abs()),
        "statistics that are computed",
    ),
    "slopes of the image": (lambda y, x: F.prelu(y, x[0, 0, 0, :4]), "a slope that is computed"),
    "a constant multiplied in place": (lambda y, x: torch.full_like(y, 1e4).mul_(y), "in place of what does not come"),
    "another's memory": (lambda y, x: swapped(y), ""),
    "celu that explodes": (lambda y, x: F.celu(y, alpha=-1.0), "grows like exp"),
    "float16 that overflows": (lambda y, x: (y * 1e5).half(), "beyond float16"),
    "float32 that overflows": (lambda y, x: y * 1e30 * 1e30 * 1e-30 * 1e-30, "beyond float32"),
}
CARRIED = {
    "code without torch functions": lambda y, x: scaled_unseen(y),
    "code without torch functions, not returned": lambda y, x: (scaled_unseen(y), y)[1],
    "a scaled subtrahend": lambda y, x: torch.rsub(y, 1.0, alpha=1000),
    "a scaled summand": lambda y, x: torch.sub(1.0 * y, y, alpha=1000),
    "a product in place": lambda y, x: y.mul_(1000.0).add_(1),
    "itself as out": lambda y, x: torch.mul(y, 1000.0, out=y),
}


def carried(after):
    """The bound, where it stopped, and the largest difference found, for weights that are off by 0.01."""
    torch.manual_seed(1)
    original = After(after).eval()
    network = conv2attn.convert(original)
    with torch.no_grad():
        off = torch.randn(network.conv.output.shape).sign() * 0.01
        network.conv.output.add_(off)
    image = torch.rand(1, 3, *SIDES) * 2 - 1
    compared = compare_layers(original, network, image, "", exactly=False)
    context = compare_context(original, network, compared.pairs, compared.readings, image)
    bound, stop = propagate(context.graphs[0], compared.rules(context.numbers), image, 1.0)
    worst, heads = 0.0, {tuple(center): head for head, center in enumerate(network.conv.encoding.center.int().tolist())}
    for channel in range(4):
        aligned = torch.zeros(1, 3, *SIDES)
        for (row, column), head in heads.items():
            aligned[0, :, 4 + row, 4 + column] = off[channel, :, head].sign()
        with torch.no_grad():
            outputs = [copy.deepcopy(net)(aligned).double() for net in (original, network)]
        worst = max(worst, (outputs[0] - outputs[1]).abs().max().item())
    return bound, stop, worst


@pytest.mark.parametrize(("after", "told"), STOPPED.values(), ids=STOPPED)
def test_no_bound_passes(after, told):
    bound, stop, _ = carried(after)
    assert bound is None
    assert told in stop


@pytest.mark.parametrize("after", CARRIED.values(), ids=CARRIED)
def test_the_bound_passes_and_is_nearly_attained(after):
    bound, stop, worst = carried(after)
    assert bound is not None, stop
    assert worst <= bound <= 1.1 * worst
