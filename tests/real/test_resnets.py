"""Our ResNets are torchvision's: keys, shapes, arithmetic; and a state dict tells which one it is."""

from functools import cache

import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torchvision.models.resnet import BasicBlock, Bottleneck

from conv2attn.networks.zoo import ResNet, ResNetPlan, recognise_resnet

PLANS = {
    "resnet18": ResNetPlan("basic", (2, 2, 2, 2)),
    "resnet34": ResNetPlan("basic", (3, 4, 6, 3)),
    "resnet50": ResNetPlan("bottleneck", (3, 4, 6, 3)),
    "resnet101": ResNetPlan("bottleneck", (3, 4, 23, 3)),
    "resnet152": ResNetPlan("bottleneck", (3, 8, 36, 3)),
    "resnext50_32x4d": ResNetPlan("bottleneck", (3, 4, 6, 3), inner=128, groups=32),
    "wide_resnet50_2": ResNetPlan("bottleneck", (3, 4, 6, 3), inner=128),
}
NETWORKS = {
    "two basic blocks": (ResNetPlan("basic", (2, 1, 1, 2), classes=5), {}),
    "without a pool": (ResNetPlan("basic", (1, 2, 1, 1), classes=5, stem="cifar", channels=1), {}),
    "bottlenecks": (ResNetPlan("bottleneck", (1, 2, 1, 1), classes=5), {}),
    "groups": (ResNetPlan("bottleneck", (1, 1, 1, 1), classes=5, inner=128, groups=4), {"width_per_group": 32}),
}


@pytest.mark.parametrize("name", PLANS)
def test_keys_and_shapes_are_torchvisions(name):
    with torch.device("meta"):
        theirs, ours = torchvision.models.get_model(name).state_dict(), ResNet(PLANS[name]).state_dict()
    assert [(key, each.shape) for key, each in ours.items()] == [(key, each.shape) for key, each in theirs.items()]
    assert recognise_resnet(theirs) == PLANS[name]
    assert PLANS[name].name == name


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_forward_is_torchvisions_bit_for_bit(name):
    torch.manual_seed(0)
    plan, options = NETWORKS[name]
    block = BasicBlock if plan.block == "basic" else Bottleneck
    theirs = torchvision.models.ResNet(block, plan.depths, plan.classes, groups=plan.groups, **options).eval()
    if plan.stem == "cifar":
        theirs.conv1, theirs.maxpool = nn.Conv2d(plan.channels, 64, 3, padding=1, bias=False), nn.Identity()
    for module in theirs.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                tensor.uniform_(0.5, 1.5)
    ours, image = ResNet(plan).eval(), torch.randn(2, plan.channels, 40, 56)
    ours.load_state_dict(theirs.state_dict())
    expected = theirs(image)
    assert torch.isfinite(expected).all()
    assert torch.equal(ours(image), expected)


PLAIN = ("resnet26", "resnet200")
"""Plain ResNets of depths that torchvision does not have: they are what their keys say."""


class OtherModel(Exception):
    """A parameter was registered that no ResNet of torchvision has."""


@cache
def resnet_parameters():
    """Last names and shapes of the parameters of torchvision's ResNets."""
    named = [each for each in torchvision.models.list_models() if each.startswith(("resnet", "resnext", "wide_resnet"))]
    with torch.device("meta"):
        networks = [torchvision.models.get_model(each) for each in named]
    return {(key.rpartition(".")[2], each.shape) for net in networks for key, each in net.named_parameters()}


def state_of_a_resnet(name):
    """The state dict of timm's model on the meta device; None as soon as a parameter is of no ResNet."""
    known = resnet_parameters()

    def check(module, own, parameter):
        if parameter is not None and (own, parameter.shape) not in known:
            raise OtherModel

    handle = register_module_parameter_registration_hook(check)
    try:
        with torch.device("meta"):
            return timm.create_model(name).state_dict()
    except OtherModel:
        return None
    finally:
        handle.remove()


def test_every_model_of_timm_that_shares_keys_and_shapes_with_a_resnet_is_known():
    named = [name for name in timm.list_models() if "resnet" in name or "resnext" in name]
    found: dict[str, list[str]] = {}
    for name in named:
        state = state_of_a_resnet(name)
        plan = recognise_resnet(state) if state else None
        if plan is not None and plan.name != name and name not in PLAIN:
            found.setdefault(plan.name, []).append(f"timm:{name}")
    known = {name: sorted(plan.twins) for name, plan in PLANS.items() if plan.twins}
    assert {name: sorted(each) for name, each in found.items()} == known
