"""Whole networks: bounded to the end, or stopped where no rule exists, and then told so."""

import pytest
import torch
from equivalence.rules.cases import Apply
from equivalence.rules.laws import carried_through
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import conv2attn

STOPS = {
    "cumsum": Apply(lambda x: torch.cumsum(x, 1)),
    "call": nn.Conv2d(4, 4, 1),
    "layer_norm (where the variance": nn.LayerNorm(5),
    "group_norm (where the variance": nn.GroupNorm(2, 4),
    "a change in place of what does not come from the image": nn.BatchNorm2d(4),
    "dropout in training mode": nn.Dropout(),
    "item": Apply(lambda x: x * x.max().item()),
    "gt": Apply(lambda x: x[x > 0]),
    "a quotient by what is computed, which may vanish": Apply(lambda x: x / x),
    "_upsample_bicubic2d_aa": Apply(lambda x: F.interpolate(x, 3, mode="bicubic", antialias=True)),
    "rand_like": Apply(lambda x: x + torch.rand_like(x)),
    "which is random": Apply(lambda x: x + torch.rand(5)),
    "a mean over the images": Apply(lambda x: x.mean()),
    "in place of a part": Apply(lambda x: (x[0].mul_(2), x)[1]),
    "threshold": nn.Threshold(0.1, 1.0),
    "scaled_dot_product_attention": Apply(lambda x: F.scaled_dot_product_attention(x, x, x)),
    "an output without tensors": Apply(lambda x: None),
    "an infinite bound": Apply(lambda x: F.pad(x, (1, 1), value=float("inf")) * 0.5),
}


class Counting(nn.Module):
    """Counts its calls in a buffer, and scales by their number."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.ones(()))

    def forward(self, image):
        self.calls.add_(1)
        return image * self.calls


def test_the_networks_own_numbers_are_not_changed_by_the_interpreter():
    network = Counting()
    bound, stop = carried_through(network, 1.0, 0.1)
    assert bound is None
    assert "a change in place" in stop
    assert network.calls == 1


@pytest.mark.parametrize("reason", sorted(STOPS))
def test_where_no_rule_exists_it_stops_and_says_so(reason):
    bound, stop = carried_through(STOPS[reason], 1.0, 0.1)
    assert bound is None
    assert reason in stop


def test_the_place_is_told_even_if_the_network_goes_on():
    class Deaf(nn.Module):
        def forward(self, image):
            try:
                return torch.cumsum(image, 1)
            except Exception:
                return image

    bound, stop = carried_through(nn.Sequential(nn.ReLU(), Deaf()), 1.0, 0.1)
    assert (bound, stop) == (None, "cumsum in 1.1")


def test_a_view_of_what_was_changed_is_not_taken_for_what_it_was():
    def forward(image):
        image = image.clone()
        before = image[:, :1]
        image += 100 * image
        return before

    bound, stop = carried_through(Apply(forward), 1.0, 0.1)
    assert bound is None
    assert "in place of a part" in stop


class Functional(nn.Module):
    """Branches, joins, gates and resizings, all of them functional."""

    def __init__(self, width, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Conv2d(3, 2 * width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.gate, self.last = nn.Conv2d(width, width, 1), nn.Linear(2 * width, 3)
        self.norm = nn.BatchNorm2d(2 * width).eval()
        self.scale = nn.Parameter(torch.randn(width, 1, 1))

    def forward(self, image):
        low, high = F.gelu(self.norm(self.first(image))).chunk(2, 1)
        low = F.interpolate(F.max_pool2d(self.second(low), 2), size=high.shape[-2:], mode="bilinear")
        high = high * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(high, 1))) - self.scale * low
        joined = torch.cat([F.silu(low) / 2, high], 1).permute(0, 2, 3, 1).mean((1, 2))
        return F.softmax(self.last(joined), 1)


@settings(max_examples=3)
@given(st.integers(0, 10**6), st.sampled_from(["auto", 20, 3, 0.5]), st.sampled_from([1e-2, 1.0, 30.0]))
def test_functional_networks_are_bounded_to_the_end(seed, alpha, reach):
    original = Functional(seed % 3 + 1, seed)
    converted = conv2attn.convert(original, alpha=alpha)
    images = (torch.randint(0, 2, (3, 3, 8, 9)) * 2.0 - 1) * reach
    outputs = conv2attn.certify(original, converted, images=images, input_range=reach).outputs
    assert outputs.bound is not None
    assert 0 <= outputs.max_difference <= outputs.bound


def test_the_outputs_may_be_many():
    bound, _ = carried_through(Apply(lambda x: {"a": x, "b": [2 * x, torch.zeros(3)]}), 1.0, 0.1)
    assert 0.2 <= bound < 0.21
