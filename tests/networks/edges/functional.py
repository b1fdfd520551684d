"""Convolutions called as functions: found, converted or listed, and told from those that were to be left alone."""

import pytest
import torch
from networks.cases import IMAGE
from networks.laws import native_calls
from networks.networks import Calls, StaticSame
from networks.parametrisations import Doubled
from torch import nn
from torch.nn import functional as F
from whole import assert_equal, image_of, whole

from conv2attn import conversion_of, convert, set_engine
from conv2attn.errors import Conv2AttnWarning
from conv2attn.layers.attention import spread_of_kernels
from conv2attn.networks.conversion.redirection import AttendingCalls


class Skipping(nn.Module):
    """Calls convolutions itself, around children that do too."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(image_of(3, 3, 1, 1, seed=3))
        self.plain = nn.Conv2d(3, 3, 3, padding=1)
        self.doubled = nn.Conv2d(3, 3, 1)
        nn.utils.parametrize.register_parametrization(self.doubled, "weight", Doubled())
        self.own = StaticSame(3, 3, 4)
        self.complex = nn.Conv2d(3, 3, 1, dtype=torch.complex64)

    def forward(self, image):
        image = F.conv2d(self.own(self.plain(image)), self.weight)
        image = F.conv_transpose2d(image, self.weight) + self.complex(image.to(torch.complex64)).real
        return self.doubled(image)


def test_a_skipped_layer_beside_functional_calls_stays_a_convolution():
    model = whole(Skipping())
    assert native_calls(model, IMAGE) == ["conv2d"] * 5 + ["conv_transpose2d"]
    for skip in ([], ["plain"], ["own"], ["doubled"], ["(root)"], ["(root):conv_transpose2d"], ["*"]):
        network = convert(model, example_input=IMAGE, skip=skip)
        left = [row.signature.split()[0].lower() for row in conversion_of(network).remaining]
        assert native_calls(network, IMAGE) == sorted(left), skip
        assert torch.equal(network(IMAGE), model(IMAGE))


@pytest.mark.parametrize("engine", ["auto", "conv", "gather", "separable", "sdpa", "dense"])
def test_convolutions_inside_attention_are_not_redirected(engine):
    """Also what it measures once for a device: the direct sums of a convolution, not those of the attention for it."""
    spread_of_kernels.cache_clear()
    network = set_engine(convert(whole(Skipping()), example_input=IMAGE), engine)
    network(IMAGE)
    assert [len(module.later_layers) for module in network.modules() if isinstance(module, AttendingCalls)] == [0, 0]


def test_only_can_name_a_functional_call():
    network = convert(whole(Calls()), example_input=IMAGE, only="(root):conv1d")
    converted = {row.name for row in conversion_of(network).rows if row.outcome == "converted"}
    assert converted == {"(root):conv1d"}
    assert_equal(whole(Calls()), network, IMAGE)


class Residual(nn.Sequential):
    """Runs its children, and calls a convolution beside them."""

    def forward(self, image):
        return super().forward(image) + F.conv2d(image, torch.ones(3, 3, 1, 1))


def child_with_a_hook() -> nn.Sequential:
    child = nn.Conv2d(3, 3, 1)
    child.register_forward_hook(lambda module, args, result: F.conv2d(result, module.weight))
    return nn.Sequential(child)


def raw_call() -> nn.Sequential:
    child = nn.ReLU()
    child.register_forward_hook(lambda module, args, result: torch.convolution(
        result, torch.ones(3, 3, 1, 1), None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1
    ))  # fmt: skip
    return nn.Sequential(nn.Conv2d(3, 3, 1), child)


@pytest.mark.parametrize("make", [lambda: Residual(nn.Conv2d(3, 3, 1)), child_with_a_hook, raw_call])
def test_a_container_that_runs_its_children_gets_no_other_child(make):
    model = whole(make())
    network = convert(model, example_input=IMAGE)
    assert [(row.name.split(":")[0], row.outcome) for row in conversion_of(network).rows] == [
        ("0", "converted"),
        ("(root)", "unsupported"),
    ]
    assert list(network._modules) == list(model._modules)
    assert_equal(model, network, IMAGE)


def test_only_an_example_shows_a_call_behind_a_condition():
    class Branching(nn.Module):
        def forward(self, image):
            return image if image.sum() > 0 else F.conv2d(image, torch.ones(3, 3, 1, 1))

    model = Branching()
    with pytest.warns(Conv2AttnWarning, match=r"C2A109 .* has no convolution.*example_input if it calls them"):
        conversion = conversion_of(convert(model))
    assert (conversion.rows, conversion.functional_calls) == ((), "not searched, without an example input")
    conversion = conversion_of(convert(model, example_input=-IMAGE.abs()))
    assert conversion.functional_calls == "checked on the example input"
    assert conversion.rows[0].outcome == "converted"


def test_torch_convolution_and_hooks_of_the_network_are_listed():
    class Raw(nn.Module):
        def forward(self, image):
            return torch.convolution(image, torch.ones(3, 3, 1, 1), None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)

    model = Raw()
    model.register_forward_hook(lambda module, args, result: F.conv2d(result, torch.ones(1, 3, 1, 1)))
    with pytest.warns(Conv2AttnWarning, match="C2A109 no convolution of the Raw was converted: C2A107"):
        rows = conversion_of(convert(model, example_input=IMAGE)).rows
    assert [row.name for row in rows] == ["(root):convolution", "(root):conv2d"]
    assert {row.outcome for row in rows} == {"unsupported"}
    assert "calls torch.convolution" in rows[0].reason
    assert "in a hook" in rows[1].reason


def test_kernels_are_measured_on_their_device_under_another_default_one():
    measured = spread_of_kernels(torch.float32, "cpu", (True,))
    spread_of_kernels.cache_clear()
    with torch.device("meta"):
        assert spread_of_kernels(torch.float32, "cpu", (True,)) == measured


def test_a_forward_may_call_its_arguments_as_the_recorder_does():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(image_of(3, 3, 2, 2, seed=3))

        def forward(self, module, forward):
            return F.conv2d(module, self.weight) + forward.sum()

    model, images = whole(Named()), {"module": IMAGE, "forward": IMAGE}
    network = convert(model, example_input=images)
    assert [row.outcome for row in conversion_of(network).rows] == ["converted"]
    assert torch.equal(network(**images), model(**images))
