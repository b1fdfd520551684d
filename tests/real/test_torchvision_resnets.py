"""Our ResNets are torchvision's: keys, shapes, arithmetic; and a state dict tells which one it is."""

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from conv2attn.models.zoo.resnet import ResNetPlan, build_resnet, recognise_resnet

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
        theirs, ours = torchvision.models.get_model(name).state_dict(), build_resnet(PLANS[name]).state_dict()
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
    ours, image = build_resnet(plan).eval(), torch.randn(2, plan.channels, 40, 56)
    ours.load_state_dict(theirs.state_dict())
    expected = theirs(image)
    assert torch.isfinite(expected).all()
    assert torch.equal(ours(image), expected)
