"""A softmax is exp over a sum, and a maximum of maxima is one of all: spellings of both are one formula."""

import pytest
import torch
import torch.nn.functional as F

from conv2attn.equality.fingerprint import identify

SCORES = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(1, 2, 9, 8, generator=torch.Generator().manual_seed(0))


def over_its_sum(x, dim=-1):
    return x / x.sum(dim, keepdim=True)


def less(z, dim=-1):
    return z - z.amax(dim, keepdim=True)


def pool(size, stride=1, padding=None):
    return lambda x: F.max_pool2d(x, size, stride, size // 2 if padding is None else padding)


def chain(*functions):
    def composed(x):
        for function in functions:
            x = function(x)
        return x

    return composed


def pyramid(x):
    once = pool(5)(x)
    twice = pool(5)(once)
    return torch.cat([once, twice, pool(5)(twice)], 1)


SOFTMAXES = {
    "exp over its sum": lambda z: over_its_sum(z.exp()),
    "less its maximum": lambda z: over_its_sum(less(z).exp()),
    "less its maximum, each for itself": lambda z: less(z).exp() / less(z).exp().sum(-1, keepdim=True),
    "of scores less their maximum": lambda z: less(z).softmax(-1),
    "normalised once more": lambda z: over_its_sum(z.softmax(-1)),
    "normalised twice more": lambda z: over_its_sum(over_its_sum(z.softmax(-1))),
    "by a sum without its axis": lambda z: z.softmax(-1) / z.softmax(-1).sum(-1)[..., None],
    "exp of log_softmax": lambda z: z.log_softmax(-1).exp(),
    "less the logarithm of the sum": lambda z: (z - z.logsumexp(-1, keepdim=True)).exp(),
}
NO_SOFTMAXES = {
    "less the maximum of another axis": lambda z: over_its_sum(less(z, -2).exp()),
    "of scores less the maximum of another axis": lambda z: less(z, -2).softmax(-1),
    "over the sum of another axis": lambda z: over_its_sum(z.softmax(-1), -2),
    "less half of the maximum below": lambda z: less(z).exp() / (z - z.amax(-1, True) / 2).exp().sum(-1, keepdim=True),
    "exp of log_softmax of another axis": lambda z: z.log_softmax(-2).exp(),
    "turned": lambda z: less(z).mT.reshape(z.shape).softmax(-1),
}
MAXIMA = {
    "two of three are one of five": (chain(pool(3), pool(3)), pool(5)),
    "pyramids": (pyramid, lambda x: torch.cat([pool(5)(x), pool(9)(x), pool(13)(x)], 1)),
    "without padding": (chain(pool(2, padding=0), pool(3, padding=0)), pool(4, padding=0)),
    "padded once": (chain(pool(3), pool(3, padding=0)), pool(5, padding=1)),
    "with a stride behind": (chain(pool(3), pool(3, 2)), pool(5, 2)),
    "relu before and behind": (chain(F.relu, pool(3)), chain(pool(3), F.relu)),
    "relu between": (chain(F.relu, pool(3), F.relu, pool(3)), chain(pool(5), F.relu)),
}
NO_MAXIMA = {
    "a stride in front": (chain(pool(3, 2), pool(3)), pool(5, 2)),
    "seven": (chain(pool(3), pool(3)), pool(7)),
    "without relu": (chain(F.relu, pool(3)), pool(3)),
    "zeros around": (chain(pool(3), pool(3, padding=0)), chain(lambda x: F.pad(x, (1,) * 4), pool(5, padding=0))),
    "turned between": (
        chain(lambda x: F.max_pool2d(x, (3, 1), 1, (1, 0)), lambda x: x.mT, pool(3)),
        chain(lambda x: x.mT, lambda x: F.max_pool2d(x, (5, 3), 1, (2, 1))),
    ),
}


def softmax(z):
    return z.softmax(-1)


PAIRS = {
    **{name: (softmax, other, SCORES, True) for name, other in SOFTMAXES.items()},
    **{name: (softmax, other, SCORES, False) for name, other in NO_SOFTMAXES.items()},
    **{name: (*pair, IMAGES, True) for name, pair in MAXIMA.items()},
    **{name: (*pair, IMAGES, False) for name, pair in NO_MAXIMA.items()},
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_softmax_is_exp_over_a_sum_and_maxima_of_maxima_are_one(name):
    *pair, images, equal = PAIRS[name]
    found = identify(*pair, images)
    assert found.equal is equal, found.reason


def test_a_softmax_of_a_wider_difference_is_as_wide():
    def apart(z):
        return (z[..., :1] - z[..., :1, :]).softmax(-2)

    assert identify(apart, lambda z: z[..., :1].softmax(-2).expand_as(z), SCORES).reason == ""
    assert identify(apart, apart, SCORES).equal
