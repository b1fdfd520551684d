"""What is written in place is seen by views and aliases, and by nothing else."""

import pytest
import torch
import torch.nn.functional as F
from equality.pairs import Net
from torch import nn

from conv2attn.equality.worlds import compare_sections


def between(function):
    """A function between two products."""
    torch.manual_seed(0)
    code = lambda net, x: net.second(function(net.first(x)).tanh())  # noqa: E731
    return Net(code, first=nn.Linear(8, 8), second=nn.Linear(8, 4))


def filled(x, factor=1.0):
    """A buffer of zeros, one half of which is written through a view."""
    buffer = torch.zeros(x.shape)
    view = buffer[:, :4]
    view += factor * x[:, :4]
    buffer[:, 4:].copy_(x[:, 4:])
    return buffer


def seen_by_an_alias(x):
    alias = x.detach()
    x.mul_(2)
    return alias


def not_seen_by_a_copy(x):
    copy = x.clone()
    x.mul_(2)
    return copy


def seen_by_an_earlier_view(x):
    view = x.view(-1, 2, 4)
    x.add_(1).relu_()
    return view.flatten(1)


def maximum_into_a_part(x):
    x = x.clone()
    x[:, :1] = x.amax(-1, keepdim=True)
    return x


def into_a_constant(x):
    constant = torch.linspace(1, 2, 8) * torch.ones(3, 1)
    constant.copy_(x)
    return constant


def product_with_the_tensor_before(x):
    double = x * 2
    x.add_(1)
    return double * x


def turned(x):
    turned = x.unflatten(1, (2, 4)).clone()
    view = turned.flatten()
    turned.transpose_(1, 2)
    view += 1
    return turned.flatten(1)


def into_a_part(x):
    constant = torch.linspace(1, 2, 16) * torch.ones(3, 1)
    part, rest = constant.unsafe_chunk(2, 1)
    part += x
    return part * rest


SAME = {
    filled: lambda x: x,
    seen_by_an_alias: lambda x: 2 * x,
    not_seen_by_a_copy: lambda x: x,
    seen_by_an_earlier_view: lambda x: F.relu(x + 1),
    maximum_into_a_part: lambda x: torch.cat([x.amax(-1, keepdim=True), x[:, 1:]], 1),
    into_a_constant: lambda x: x,
    product_with_the_tensor_before: lambda x: 2 * x * (x + 1),
    turned: lambda x: 1 + x.unflatten(1, (2, 4)).transpose(1, 2).flatten(1),
    into_a_part: lambda x: (x + torch.linspace(1, 2, 16)[:8]) * torch.linspace(1, 2, 16)[8:],
}
DIFFERENT = {
    (lambda x: filled(x, 1.001)): lambda x: x,
    not_seen_by_a_copy: lambda x: 2 * x,
    seen_by_an_alias: lambda x: x,
    seen_by_an_earlier_view: F.relu,
    into_a_constant: lambda x: 1.001 * x,
    product_with_the_tensor_before: lambda x: 2 * (x + 1) * (x + 1),
    turned: lambda x: 1 + x,
    into_a_part: lambda x: (x + torch.linspace(1, 2, 16)[:8]) * torch.linspace(1, 2, 16)[:8],
}


@pytest.mark.parametrize(
    ("in_place", "plain", "equal"),
    [(*pair, True) for pair in SAME.items()] + [(*pair, False) for pair in DIFFERENT.items()],
)
def test_writing_in_place_is_what_it_is_without(in_place, plain, equal):
    images = (torch.randn(3, 8, generator=torch.Generator().manual_seed(2)),)
    for networks in ((in_place, plain), (plain, in_place)):
        answer = compare_sections(*map(between, networks), images)
        assert answer.equal is equal, answer.reason
