"""A state dict tells which ResNet it is; tests/real compares with torchvision's own."""

import pytest
import torch
from torch import Tensor

from conv2attn.networks.zoo import ResNet, ResNetPlan, recognise_resnet


def shapes_of(plan: ResNetPlan) -> dict[str, Tensor]:
    with torch.device("meta"):
        return dict(ResNet(plan).state_dict())


TINY = shapes_of(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=3))


@pytest.mark.parametrize(
    ("plan", "name", "size"),
    [
        (ResNetPlan("basic", (2, 2, 2, 2), width=16, classes=7, channels=2), "resnet18", (2, 224, 224)),
        (ResNetPlan("bottleneck", (3, 4, 6, 3), width=16, classes=7, stem="cifar"), "resnet50", (3, 32, 32)),
        (ResNetPlan("bottleneck", (4, 4, 4, 4), width=8), "resnet-bottleneck-4-4-4-4", (3, 224, 224)),
    ],
)
def test_other_sizes_are_recognised_and_named(plan, name, size):
    state = shapes_of(plan)
    old = {key: tensor for key, tensor in state.items() if not key.endswith("num_batches_tracked")}
    assert recognise_resnet(state) == recognise_resnet(old) == plan
    assert (plan.name, plan.input_size) == (name, size)


@pytest.mark.parametrize("key", TINY)
def test_a_state_dict_with_one_entry_changed_is_not_recognised(key):
    assert recognise_resnet(TINY | {key: TINY[key].new_empty((*TINY[key].shape, 2))}) is None
    if not key.endswith("num_batches_tracked"):
        assert recognise_resnet({each: tensor for each, tensor in TINY.items() if each != key}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"conv1.weight": (4, 3, 5, 5)},
        {"conv1.weight": (0, 3, 7, 7)},
        {"layer1.0.conv2.weight": (4, 0, 3, 3)},
        {"layer1.0.conv2.weight": (4, 3, 3, 3)},
        {"fc.weight": (3,)},
        {"fc.weight_extra": (3, 32)},
        {"layer5.0.conv1.weight": (64, 32, 3, 3)},
        {"layer1.999999999999.conv1.weight": (4, 4, 3, 3)},
    ],
)
def test_shapes_that_are_no_resnets_are_not_recognised(change):
    assert recognise_resnet(TINY | {key: torch.empty(shape, device="meta") for key, shape in change.items()}) is None


def test_nothing_is_not_recognised():
    assert recognise_resnet({}) is None
