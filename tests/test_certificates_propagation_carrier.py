"""The carrier of bounds by itself: names, facts about tensors that are no numbers, and where it was."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from test_certificates_propagation_exact import BX
from torch import nn

from conv2attn.certificates.propagation import Carried, propagate
from conv2attn.certificates.propagation.carrier import SHAPES, Carrier, largest, name_of
from conv2attn.certificates.propagation.rules import RULES
from conv2attn.errors import UsageError


def test_functions_and_attributes_have_names():
    assert name_of(torch.relu) == "relu"
    assert name_of(torch.Tensor.shape.__get__) == "shape"
    assert name_of(SimpleNamespace(__name__="__get__", __self__=5)) == "__get__"
    assert name_of(made := partial(torch.relu)) == str(made)


@pytest.mark.parametrize("name", ["shape", "ndim", "dtype", "device", "layout", "is_cuda", "is_sparse", "is_quantized",
                                  "requires_grad", "is_leaf"])  # fmt: skip
def test_facts_about_a_tensor_are_no_numbers_of_it(name):
    assert getattr(torch.Tensor, name).__get__ in SHAPES


def test_the_largest_of_each_number_counts_and_whole_numbers_have_bounds_too():
    assert largest([torch.tensor([1.0, 5.0, 2.0]), torch.tensor([3.0, 4.0, 2.5])]).tolist() == [3.0, 5.0, 2.5]
    carrier, whole = Carrier(), torch.ones(2).long()
    carrier.note(whole, BX)
    assert carrier.bounds(whole) is BX


class After(nn.Module):
    """Runs a layer, and then what has no rule."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Tanh())

    def forward(self, image):
        return torch.cumsum(self.layer(image), dim=1)


def test_a_module_that_has_returned_is_not_where_it_stopped():
    assert propagate(After(), {}, torch.ones(1, 2), 1.0) == (None, "cumsum")


def test_inside_of_a_compared_layer_nothing_is_carried():
    network = nn.Sequential(After())
    found = propagate(network, {"0": lambda given: Carried(given.size, given.error + 0.5)}, torch.ones(1, 2), 1.0)
    assert found[1] == ""
    assert 0.5 <= found[0] < 0.501


def test_roundings_of_which_nothing_is_known_stop(monkeypatch):
    def unknown(call):
        raise UsageError("C2A001", "too many")

    monkeypatch.setitem(RULES, torch.tanh, unknown)
    assert propagate(nn.Sequential(nn.Tanh()), {}, torch.ones(1, 2), 1.0) == (None, "the roundings of tanh in 0")


def test_shapes_are_compared_without_what_takes_long_to_import(monkeypatch):
    """torch.broadcast_shapes imports sympy."""
    monkeypatch.delattr(torch, "broadcast_shapes")
    network = nn.Sequential(nn.ReLU(), Joined())
    assert propagate(network, {}, torch.ones(1, 2), 1.0) == (0.0, "")


class Joined(nn.Module):
    """Joins tensors whose bounds are not all written out."""

    def forward(self, image):
        return torch.cat([image, image.amax(1, keepdim=True).expand(-1, 2)], 1)
