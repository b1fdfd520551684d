"""Nothing is within a tolerance of 0 that runs in another order, draws numbers, or has one number changed."""

import pytest
import torch
from equality.pairs import Net, layer
from equality.planted import ulp

from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict


def named(name, after):
    """A convolution under a name that no layer of the other network has, and a function of its output."""
    code = lambda net, image: net.after(next(net.children())(image))  # noqa: E731
    return Net(code, **{name: layer(3, 4, bias=False)}, after=after)


def last_in(layout):
    return lambda y: torch.conv2d(y.contiguous(memory_format=layout), torch.ones(5, 4, 3, 3) / 7)


def unaligned(net):
    """The weights one number further in memory, where sums may be formed in another order."""
    weight = net.b.weight.data
    net.b.weight.data = torch.empty(weight.numel() + 1)[1:].view_as(weight).copy_(weight)


ALONE = {
    "dropout in training mode": (lambda y: torch.dropout(y, 0.5, True), lambda net: None),
    "random summands": (lambda y: y + torch.rand(y.shape), lambda net: None),
    "one ulp": (lambda y: y, lambda net: ulp(net.b.weight.data, (1, 2, 0, 1))),
}
IN_MEMORY = {
    "an address of weights": (lambda y: y, unaligned),
    "a layout of weights": (lambda y: y, lambda net: net.to(memory_format=torch.channels_last)),
    "a layout": (
        last_in(torch.contiguous_format),
        lambda net: setattr(net, "after", last_in(torch.channels_last)),
    ),
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_what_lies_elsewhere_in_memory_is_one_formula(name):
    after, change = IN_MEMORY[name]
    first, second = named("a", after), named("b", after)
    change(second)
    report = certify(first, second, images=torch.rand(1, 3, 9, 8))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), report.to_text()


@pytest.mark.parametrize("name", ALONE)
def test_no_such_network_holds(name):
    after, change = ALONE[name]
    first, second = named("a", after), named("b", after)
    change(second)
    one_hot = torch.zeros(1, 3, 9, 8)
    one_hot[0, 2, 4, 4] = 1.0
    report = certify(first, second, images=one_hot)
    assert report.verdict is not Verdict.HOLDS if name != "one ulp" else report.strength is Strength.ROUNDED
