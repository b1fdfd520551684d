"""Residual networks whose state-dict keys are torchvision's, and their recognition from a state dict alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor, nn

DEPTHS_OF_NAMES: dict[tuple[str, tuple[int, ...]], str] = {
    ("basic", (2, 2, 2, 2)): "18",
    ("basic", (3, 4, 6, 3)): "34",
    ("bottleneck", (3, 4, 6, 3)): "50",
    ("bottleneck", (3, 4, 23, 3)): "101",
    ("bottleneck", (3, 8, 36, 3)): "152",
}
TWINS = {
    "resnet18": ("timm:resnetblur18",),
    "resnet50": ("timm:resnetblur50", "timm:resnetaa50"),
}
"""Models of timm 1.0 with a low-pass filter before each stride, which leaves no trace in a state dict."""
EXPANSION = {"basic": 1, "bottleneck": 4}


@final
@dataclass(frozen=True)
class ResNetPlan:
    """The hyper-parameters of a residual network.

    Args:
        block: two 3x3 convolutions (basic), or 1x1, 3x3, 1x1 (bottleneck, stride in the 3x3 one).
        depths: blocks in each stage.
        width: channels after the stem; each stage doubles it.
        classes: outputs of the last layer; 0 for a backbone, which ends with the pooled features.
        channels: channels of the input image.
        stem: 7x7 stride 2 and a maximum over 3x3 (imagenet), or 3x3 stride 1 and nothing else (cifar).
        inner: channels inside the first stage's blocks; `width` except in wide and ResNeXt bottlenecks.
        groups: groups of the 3x3 convolutions; 1 except in ResNeXt.
    Source: He et al. 2016, Table 1; Goyal et al. 2017 for the stride; torchvision.models.resnet for the keys.
    """

    block: Literal["basic", "bottleneck"] = "basic"
    depths: tuple[int, ...] = (2, 2, 2, 2)
    width: int = 64
    classes: int = 1000
    channels: int = 3
    stem: Literal["imagenet", "cifar"] = "imagenet"
    inner: int | None = None
    groups: int = 1

    @property
    def name(self) -> str:
        """The name in torchvision whatever the width and stem; the depths, for a network without a name there.

        >>> ResNetPlan("bottleneck", (3, 4, 6, 3), width=16).name
        'resnet50'
        >>> ResNetPlan("bottleneck", (3, 4, 6, 3), inner=128, groups=32).name
        'resnext50_32x4d'
        """
        depth = DEPTHS_OF_NAMES.get((self.block, self.depths), "-" + "-".join(map(str, (self.block, *self.depths))))
        if self.groups > 1:
            return f"resnext{depth}_{self.groups}x{64 * (self.inner or self.width) // (self.width * self.groups)}d"
        if self.inner in (None, self.width):
            return f"resnet{depth}"
        return f"wide_resnet{depth}_{self.inner / self.width:g}"

    @property
    def read_as(self) -> str:
        """The assumptions of a plan that follows from keys and shapes, which show neither strides nor activations."""
        stride = "stride in the 3x3, " if self.block == "bottleneck" else ""
        head = "" if self.classes else ", no fc: a backbone that gives the pooled features"
        return f"torchvision's {self.name}, {stride}ReLU{head}"

    @property
    def twins(self) -> tuple[str, ...]:
        """The published models that have the same keys and shapes, and compute something else."""
        return TWINS.get(self.name, ()) if (self.width, self.stem) == (64, "imagenet") else ()

    @property
    def input_size(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the images that networks with this stem are published for."""
        side = {"imagenet": 224, "cifar": 32}[self.stem]
        return self.channels, side, side


class BasicBlock(nn.Module):
    """`relu(x + bn2(conv2(relu(bn1(conv1(x))))))`, with x downsampled if the shape changes."""

    def __init__(self, d_in: int, inner: int, d_out: int, stride: int, groups: int):
        super().__init__()
        self.conv1 = nn.Conv2d(d_in, inner, 3, stride, padding=1, groups=groups, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(inner, d_out, 3, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(d_out)
        self.downsample = _downsample(d_in, d_out, stride)

    def forward(self, image: Tensor) -> Tensor:
        identity = image if self.downsample is None else self.downsample(image)
        image = self.relu(self.bn1(self.conv1(image)))
        return self.relu(self.bn2(self.conv2(image)) + identity)


class Bottleneck(nn.Module):
    """A residual block of 1x1, 3x3 and 1x1 convolutions, with the stride in the 3x3 one (ResNet v1.5)."""

    def __init__(self, d_in: int, inner: int, d_out: int, stride: int, groups: int):
        super().__init__()
        self.conv1 = nn.Conv2d(d_in, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, d_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(d_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(d_in, d_out, stride)

    def forward(self, image: Tensor) -> Tensor:
        identity = image if self.downsample is None else self.downsample(image)
        image = self.relu(self.bn1(self.conv1(image)))
        image = self.relu(self.bn2(self.conv2(image)))
        return self.relu(self.bn3(self.conv3(image)) + identity)


def _downsample(d_in: int, d_out: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and d_in == d_out:
        return None
    return nn.Sequential(nn.Conv2d(d_in, d_out, 1, stride, bias=False), nn.BatchNorm2d(d_out))


class ResNet(nn.Module):
    """The network of a plan; keys, shapes and arithmetic are those of `torchvision.models.ResNet`.

    Its weights are fresh (He initialisation).
    """

    def __init__(self, plan: ResNetPlan):
        super().__init__()
        self.plan = plan
        imagenet = plan.stem == "imagenet"
        stem = partial(nn.Conv2d, plan.channels, plan.width, bias=False)
        self.conv1 = stem(7, stride=2, padding=3) if imagenet else stem(3, padding=1)
        self.bn1 = nn.BatchNorm2d(plan.width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if imagenet else nn.Identity()
        block, d_in = {"basic": BasicBlock, "bottleneck": Bottleneck}[plan.block], plan.width
        for stage, depth in enumerate(plan.depths):
            inner, d_out = (plan.inner or plan.width) << stage, EXPANSION[plan.block] * plan.width << stage
            strides = [1 if stage == 0 else 2] + [1] * (depth - 1)
            widths = [d_in] + [d_out] * (depth - 1)
            blocks = (block(d, inner, d_out, stride, plan.groups) for d, stride in zip(widths, strides, strict=True))
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
            d_in = d_out
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(d_in, plan.classes) if plan.classes else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Tensor) -> Tensor:
        image = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        for stage in range(len(self.plan.depths)):
            image = self.get_submodule(f"layer{stage + 1}")(image)
        return self.fc(self.avgpool(image).flatten(1))


def recognise_resnet(state: Mapping[str, Tensor]) -> ResNetPlan | None:
    """The plan whose network has exactly these keys and shapes, or None.

    Only `num_batches_tracked` may be missing, as in files older than torch 0.4.1. Strides leave no trace in a state
    dict: torchvision's are assumed, the stem's from its kernel size.
    """
    shapes = {key: tuple(tensor.shape) for key, tensor in state.items()}
    plan = plan_of_shapes(shapes)
    if plan is None:
        return None
    with torch.device("meta"):
        expected = {key: tuple(tensor.shape) for key, tensor in ResNet(plan).state_dict().items()}
    optional = {key for key in expected if key.endswith(".num_batches_tracked")}
    return plan if expected == dict.fromkeys(optional, ()) | shapes else None


def plan_of_shapes(shapes: Mapping[str, tuple[int, ...]]) -> ResNetPlan | None:
    """The only plan that these shapes can have, from the tensors in which plans differ."""
    key_shapes = [shapes.get(key, ()) for key in ("conv1.weight", "layer1.0.conv2.weight")]
    key_shapes.append(shapes.get("fc.weight", (0, 0) if "fc.bias" not in shapes else ()))
    if [len(shape) for shape in key_shapes] != [4, 4, 2] or 0 in sum(key_shapes[:2], ()):
        return None
    (width, channels, side, _), (inner, fan_in, _, _), (classes, _) = key_shapes
    blocks = {match.groups() for key in shapes if (match := re.match(r"layer([1-4])\.(\d+)\.", key))}
    depths = tuple(sum(stage == str(n) for stage, _ in blocks) for n in range(1, 5))
    if side not in (3, 7) or inner % fan_in or 0 in depths:
        return None
    return ResNetPlan(
        block="bottleneck" if "layer1.0.conv3.weight" in shapes else "basic",
        depths=depths,
        width=width,
        classes=classes,
        channels=channels,
        stem="imagenet" if side == 7 else "cifar",
        inner=None if inner == width else inner,
        groups=inner // fan_in,
    )
