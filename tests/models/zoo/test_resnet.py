"""Our ResNets are torchvision's: keys, shapes, parameter counts, arithmetic; and a state dict tells which one it is."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, batch_norm, conv2d, linear, max_pool2d, relu

from conv2attn.models.zoo.resnet import ResNetPlan, build, recognise

PLANS = {
    "resnet18": (ResNetPlan("basic", (2, 2, 2, 2)), 11_689_512),
    "resnet34": (ResNetPlan("basic", (3, 4, 6, 3)), 21_797_672),
    "resnet50": (ResNetPlan("bottleneck", (3, 4, 6, 3)), 25_557_032),
    "resnet101": (ResNetPlan("bottleneck", (3, 4, 23, 3)), 44_549_160),
    "resnet152": (ResNetPlan("bottleneck", (3, 8, 36, 3)), 60_192_808),
    "resnext50_32x4d": (ResNetPlan("bottleneck", (3, 4, 6, 3), inner=128, groups=32), 25_028_904),
    "wide_resnet50_2": (ResNetPlan("bottleneck", (3, 4, 6, 3), inner=128), 68_883_240),
}
NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def shapes_of(plan: ResNetPlan) -> dict[str, Tensor]:
    with torch.device("meta"):
        return build(plan).state_dict()


def torchvision_keys(block: str, depths: tuple[int, ...]) -> list[str]:
    """The keys in torchvision's own order, written down from its source."""
    convolutions = 2 if block == "basic" else 3
    keys = ["conv1.weight", *(f"bn1.{name}" for name in NORM)]
    for stage, depth in enumerate(depths, 1):
        for n in range(depth):
            for i in range(1, convolutions + 1):
                keys += [f"layer{stage}.{n}.conv{i}.weight", *(f"layer{stage}.{n}.bn{i}.{name}" for name in NORM)]
            if n == 0 and (stage > 1 or block == "bottleneck"):
                down = f"layer{stage}.{n}.downsample"
                keys += [f"{down}.0.weight", *(f"{down}.1.{name}" for name in NORM)]
    return [*keys, "fc.weight", "fc.bias"]


@pytest.mark.parametrize("name", PLANS)
def test_parameter_counts_and_keys_are_torchvisions(name):
    plan, count = PLANS[name]
    with torch.device("meta"):
        network = build(plan)
    assert plan.name == name
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert list(network.state_dict()) == torchvision_keys(plan.block, plan.depths)


@pytest.mark.parametrize(("width", "stem"), [(64, "imagenet"), (16, "cifar")])
@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"])
def test_every_resnet_is_recognised_at_two_widths_and_both_stems(name, width, stem):
    block, depths = PLANS[name][0].block, PLANS[name][0].depths
    plan = ResNetPlan(block, depths, width=width, classes=7, channels=2, stem=stem)
    state = shapes_of(plan)
    assert recognise(state) == plan
    assert plan.name == name
    assert plan.input_size == ((2, 224, 224) if stem == "imagenet" else (2, 32, 32))
    old = {key: tensor for key, tensor in state.items() if not key.endswith("num_batches_tracked")}
    assert recognise(old) == plan


@pytest.mark.parametrize("name", ["resnext50_32x4d", "wide_resnet50_2"])
def test_wide_and_grouped_bottlenecks_are_recognised(name):
    assert recognise(shapes_of(PLANS[name][0])) == PLANS[name][0]


def test_unofficial_depths_are_recognised_and_named_by_their_depths():
    plan = ResNetPlan("bottleneck", (4, 4, 4, 4), width=8)
    assert recognise(shapes_of(plan)) == plan
    assert plan.name == "resnet-bottleneck-4-4-4-4"


def tiny_state() -> dict[str, Tensor]:
    return dict(shapes_of(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=3)))


@pytest.mark.parametrize("key", list(tiny_state()))
def test_a_state_dict_with_one_entry_changed_is_not_recognised(key):
    state = tiny_state()
    tensor = state.pop(key)
    if not key.endswith("num_batches_tracked"):
        assert recognise(state) is None
    assert recognise(state | {key: tensor.new_empty((*tensor.shape, 2))}) is None
    assert recognise(tiny_state() | {key + "_extra": tensor}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"conv1.weight": (4, 3, 5, 5)},
        {"conv1.weight": (0, 3, 7, 7)},
        {"layer1.0.conv2.weight": (4, 0, 3, 3)},
        {"layer1.0.conv2.weight": (4, 3, 3, 3)},
        {"fc.weight": (3,)},
        {"layer5.0.conv1.weight": (64, 32, 3, 3)},
        {"layer1.999999999999.conv1.weight": (4, 4, 3, 3)},
    ],
)
def test_shapes_that_are_no_resnets_are_not_recognised(change):
    state = tiny_state() | {key: torch.empty(shape, device="meta") for key, shape in change.items()}
    assert recognise(state) is None


def test_nothing_is_not_recognised():
    assert recognise({}) is None


def reference(plan: ResNetPlan, state: dict[str, Tensor], image: Tensor) -> Tensor:
    """torchvision's forward in evaluation mode, written with functions alone."""

    def conv_norm(image: Tensor, conv: str, norm: str, stride: int = 1, groups: int = 1) -> Tensor:
        weight = state[f"{conv}.weight"]
        mean, variance, scale, shift = (state[f"{norm}.{n}"] for n in ("running_mean", "running_var", "weight", "bias"))
        image = conv2d(image, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)
        return batch_norm(image, mean, variance, scale, shift, eps=1e-5)

    imagenet = plan.stem == "imagenet"
    image = relu(conv_norm(image, "conv1", "bn1", 2 if imagenet else 1))
    image = max_pool2d(image, 3, 2, 1) if imagenet else image
    for stage, depth in enumerate(plan.depths, 1):
        for n in range(depth):
            at, stride = f"layer{stage}.{n}", 2 if stage > 1 and n == 0 else 1
            identity = image
            if f"{at}.downsample.0.weight" in state:
                identity = conv_norm(image, f"{at}.downsample.0", f"{at}.downsample.1", stride)
            strides = (stride, 1) if plan.block == "basic" else (1, stride, 1)
            for i, step in enumerate(strides, 1):
                groups = plan.groups if i == 2 and plan.block == "bottleneck" else 1
                image = conv_norm(image, f"{at}.conv{i}", f"{at}.bn{i}", step, groups)
                image = relu(image) if i < len(strides) else relu(image + identity)
    return linear(adaptive_avg_pool2d(image, 1).flatten(1), state["fc.weight"], state["fc.bias"])


@pytest.mark.parametrize(
    "plan",
    [
        ResNetPlan("basic", (2, 1, 1, 2), width=4, classes=5),
        ResNetPlan("basic", (1, 2, 1, 1), width=4, classes=5, stem="cifar", channels=1),
        ResNetPlan("bottleneck", (1, 2, 1, 1), width=4, classes=5),
        ResNetPlan("bottleneck", (1, 1, 1, 1), width=4, classes=5, inner=8, groups=4),
    ],
)
@torch.no_grad()
def test_forward_is_torchvisions_bit_for_bit(plan):
    generator = torch.Generator().manual_seed(0)
    network = build(plan).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                tensor.uniform_(0.5, 1.5, generator=generator)
    image = torch.randn(2, plan.channels, 40, 56, generator=generator)
    expected = reference(plan, network.state_dict(), image)
    assert torch.isfinite(expected).all()
    assert torch.equal(network(image), expected)
