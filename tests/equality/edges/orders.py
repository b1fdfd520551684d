"""Networks that sort, choose the largest and reduce groups, section by section."""

import pytest
import torch
from equality.pairs import Net
from torch import nn

from conv2attn.equality.worlds import compare_sections

IMAGES = (torch.randn(4, 6, generator=torch.Generator().manual_seed(3)),)
GROUPS = torch.tensor([0, 0, 1, 2])


def routing(choose, scale=1.0):
    """Numbers, scores beside them, and code that chooses by scores; the scores may be scaled."""

    def code(net, x):
        h = net.stem(x).relu()
        return net.head(choose(net.scores(h) * scale, h))

    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Net(code, stem=nn.Linear(6, 8), scores=nn.Linear(8, 5), head=nn.Linear(8, 3))


def largest_two(scores, h):
    best, places = scores.topk(2, -1)
    return h.gather(-1, places).sum(-1, keepdim=True) * h + best.relu().sum(-1, keepdim=True)


def first_two(scores, h):
    ordered, places = scores.sort(-1, descending=True)
    return h.gather(-1, places[:, :2]).sum(-1, keepdim=True) * h + ordered[:, :2].relu().sum(-1, keepdim=True)


def smallest_two(scores, h):
    best, places = scores.topk(2, -1, largest=False)
    return h.gather(-1, places).sum(-1, keepdim=True) * h + best.relu().sum(-1, keepdim=True)


def at_the(name):
    return lambda scores, h: h.gather(-1, getattr(scores, name)(-1, keepdim=True)) * h


def reduced(name, **options):
    index = GROUPS[:, None].expand(4, 8)
    return lambda scores, h: torch.zeros(3, 8).scatter_reduce(0, index, h, name, **options)


def put(scores, h):
    return torch.zeros(3, 8).index_put_((GROUPS,), h, accumulate=True)


def by_slices(reduce):
    return lambda scores, h: torch.stack([reduce(h[:2]), h[2], h[3]])


SAME = {
    "the largest two, and the first two in order": (largest_two, first_two),
    "the largest": (at_the("argmax"), at_the("argmax")),
    "sums of groups": (reduced("sum"), by_slices(lambda h: h.sum(0))),
    "sums of groups, put": (put, by_slices(lambda h: h.sum(0))),
    "means of groups": (reduced("mean", include_self=False), by_slices(lambda h: h.mean(0))),
    "maxima of groups": (reduced("amax", include_self=False), by_slices(lambda h: h.amax(0))),
}
DIFFERENT = {
    "the smallest two": (largest_two, smallest_two),
    "the smallest": (at_the("argmax"), at_the("argmin")),
    "minima of groups": (reduced("amax", include_self=False), reduced("amin", include_self=False)),
    "means with the zeros that were there": (reduced("mean"), reduced("mean", include_self=False)),
}


@pytest.mark.parametrize("name", SAME)
def test_choices_and_groups_in_another_spelling_are_one_map(name):
    answer = compare_sections(*map(routing, SAME[name]), IMAGES)
    assert answer.equal, answer.reason


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_choices_part(name):
    answer = compare_sections(*map(routing, DIFFERENT[name]), IMAGES)
    assert answer.equal is False
    assert answer.place is not None


def test_scores_of_which_the_order_alone_is_used_count():
    """Scaled by one thousandth their order stays, and every output with it: the numbers that are compared differ."""
    networks = routing(at_the("argmax")), routing(at_the("argmax"), 1.001)
    assert torch.equal(*(network(*IMAGES) for network in networks))
    assert compare_sections(*networks, IMAGES).equal is False
