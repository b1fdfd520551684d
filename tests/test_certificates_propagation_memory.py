"""What is known of a tensor as it is, and what a run of the network tells: from its start to its reason to stop."""

import pytest
import torch
from torch import nn

from conv2attn.certificates.propagation import Carried, propagate
from conv2attn.certificates.propagation.carried import Stop
from conv2attn.certificates.propagation.memory import Memory

ONE = Carried(torch.ones(1).double(), torch.ones(1).double())


def test_a_tensor_is_known_as_it_was_noted():
    memory, tensor = Memory(), torch.zeros(4)
    with pytest.raises(Stop, match="a tensor of unknown origin"):
        memory.of(tensor)
    memory.note(tensor, ONE)
    assert memory.of(tensor) is ONE
    for change in (lambda: tensor.add_(1), lambda: tensor.resize_(2), lambda: tensor.set_(torch.zeros(2))):
        memory.note(tensor, None)
        assert memory.of(tensor) is None
        change()
        with pytest.raises(Stop, match="a tensor that was changed unseen"):
            memory.of(tensor)


def test_views_of_what_changed_are_known_no_longer():
    memory, tensor, other = Memory(), torch.zeros(4), torch.zeros(4)
    view = tensor[:2]
    for each in (tensor, view, other):
        memory.note(each, ONE)
    memory.forget_views([tensor], tensor)
    assert memory.of(tensor) is memory.of(other) is ONE
    with pytest.raises(Stop, match="a tensor of unknown origin"):
        memory.of(view)
    with pytest.raises(Stop, match="a change in place of a part of a tensor"):
        memory.forget_views([view], tensor)


def test_views_of_constants_stay_constants_and_others_do_not():
    memory, tensor, other = Memory(), torch.zeros(4), torch.zeros(4)
    view, carried = tensor[:2], tensor[2:]
    for each, bounds in ((tensor, None), (view, None), (carried, ONE), (other, None)):
        memory.note(each, bounds)
    tensor.add_(1)
    other.add_(1)
    memory.see_changes([tensor])
    assert memory.of(tensor) is memory.of(view) is None
    for each in (carried, other):
        with pytest.raises(Stop, match="a tensor that was changed unseen"):
            memory.of(each)


class Hiding(nn.Module):
    """Hides a reason to stop."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, image):
        try:
            return torch.cumsum(image, 1)
        except Stop:
            return self.output(image)


def test_the_first_reason_is_told_whatever_the_network_makes_of_it():
    for output in (lambda image: image, lambda image: None, lambda image: image / 0):
        assert propagate(Hiding(output), {}, torch.ones(3, 2), 1.0) == (None, "cumsum")
    assert propagate(nn.Identity(), {}, torch.ones(2, 2), 1.0) == (0.0, "")
    assert propagate(Nothing(), {}, torch.ones(2, 2), 1.0) == (None, "an output without tensors")


class Nothing(nn.Module):
    """Returns nothing."""

    def forward(self, image):
        return None


def test_a_layer_under_two_names_has_the_rules_of_both():
    layer = nn.Identity()
    network = nn.Sequential(layer, nn.ReLU(), layer)
    for name in ("0", "2"):
        found = propagate(network, {name: lambda given: Carried(given.size, given.error + 1)}, torch.ones(1, 2), 1.0)
        assert 2 <= found[0] < 2.001
    both = {
        name: lambda given, more=more: Carried(given.size, given.error + more) for name, more in (("0", 1), ("2", 3))
    }
    assert 6 <= propagate(network, both, torch.ones(1, 2), 1.0)[0] < 6.001


class OneOnly(nn.Module):
    """Takes a single image."""

    def forward(self, image):
        if image.shape[0] != 1:
            raise ValueError
        return image


def test_only_one_image_is_run():
    assert propagate(OneOnly(), {}, torch.ones(3, 2), 1.0) == (0.0, "")
