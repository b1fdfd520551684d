"""Networks in which convolutions stand, share, are called, and are changed in every way that is known."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from whole import image_of


class Block(nn.Module):
    """A convolution, a norm, a shortcut that is an empty Sequential, and lists that refer to its modules."""

    def __init__(self, d_in: int = 3, d_out: int = 4):
        super().__init__()
        self.conv = nn.Conv2d(d_in, d_out, 3, padding=1)
        self.norm = nn.BatchNorm2d(d_out).eval()
        self.shortcut = nn.Sequential()
        self.steps = [self.conv, self.norm]
        self.by_name = {"conv": (self.conv,)}
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, image):
        for step in (*self.by_name["conv"], self.steps[1]):
            image = step(image)
        return self.shortcut(image).relu() * self.scale


class Beside(nn.ModuleList):
    """Every network on the same image, one output each."""

    def forward(self, image):
        return [network(image) for network in self]


class Containers(nn.Module):
    """Convolutions in every kind of container."""

    def __init__(self):
        super().__init__()
        self.listed = nn.ModuleList([nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 1)])
        self.named = nn.ModuleDict({"a": nn.Sequential(nn.Conv2d(3, 3, 2))})

    def forward(self, image):
        return self.named["a"](self.listed[1](self.listed[0](image)))


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 3))
    model[0].weight.requires_grad_(False)
    model[1].bias.requires_grad_(False)
    return model


def with_parts() -> nn.Module:
    """Convolutions that hold more than a weight and a bias: buffers, a parameter, a module, and a part of attention."""
    model = Beside(nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU()) for _ in range(4))
    model[0][0].register_buffer("steps", torch.tensor(7))
    model[0][0].register_buffer("cache", torch.ones(2), persistent=False)
    model[1][0].gain = nn.Parameter(torch.ones(1))
    model[2][0].gain = nn.Linear(2, 2)
    model[3][0].register_buffer("value", torch.ones(1))
    return model


class Answer(NamedTuple):
    """A tuple in an output."""

    image: Tensor
    side: int


class Named(nn.Module):
    """Takes keywords, gives a dictionary with a tuple in it, and asks a transposed convolution for a size."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1)

    def forward(self, image, *, scale=1):
        small = self.down(input=image) * scale
        return {"small": Answer(small, 2), "large": self.up(small, output_size=image.shape[2:])}


def shared() -> nn.Module:
    once = nn.Conv2d(3, 3, 3, padding=1)
    return nn.Sequential(once, nn.Sequential(once, nn.ReLU(), once))


def sharing_parameters() -> nn.Module:
    first, second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=2, dilation=2)
    second.weight, second.bias = first.weight, first.bias
    return nn.Sequential(first, second)


def encoder_and_decoder(d_out: int) -> nn.Module:
    encoder, decoder = nn.Conv2d(3, d_out, 3, padding=1), nn.ConvTranspose2d(d_out, 3, 3, padding=1)
    decoder.weight = encoder.weight
    return nn.Sequential(encoder, decoder)


class Embedding(nn.Module):
    """Holds a convolution's weight as its own parameter."""

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.table = weight

    def forward(self, image):
        return image + self.table.sum()


def convolution_and_embedding() -> nn.Module:
    convolution = nn.Conv2d(3, 3, 3)
    return nn.Sequential(convolution, Embedding(convolution.weight))


class StaticSame(nn.Conv2d):
    """Pads more behind than in front."""

    def forward(self, image):
        return self._conv_forward(F.pad(image, (0, 1, 1, 2)), self.weight, self.bias)


class DynamicSame(nn.Conv2d):
    """Pads by an amount that depends on the input's size, as TensorFlow does."""

    def forward(self, image):
        amounts = []
        for side, k, s in zip(image.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            total = max((math.ceil(side / s) - 1) * s + k - side, 0)
            amounts += [total // 2, total - total // 2]
        return F.conv2d(F.pad(image, amounts), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class PaddingInTheCall(nn.Conv2d):
    """Chooses the convolution's own padding by the input's size."""

    def forward(self, image):
        return F.conv2d(image, self.weight, self.bias, padding=image.shape[-1] % 4)


class Standardised(nn.Conv2d):
    """Takes the mean out of its weight at each call."""

    def forward(self, image):
        weight = self.weight - self.weight.sum((1, 2, 3), keepdim=True)
        return F.conv2d(image, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Gated(nn.Conv2d):
    """Changes only the inner step of nn.Conv2d."""

    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, weight * 2, bias)


class Upsampled(nn.ConvTranspose2d):
    """Crops what a transposed convolution gives."""

    def forward(self, image):
        return super().forward(image, output_size=[2 * side + 2 for side in image.shape[2:]])[..., 1:, 1:]


class Square(nn.Conv2d):
    """Adds to a convolution without changing what it computes."""

    def __init__(self, width):
        super().__init__(width, width, 3, padding=1)
        self.label = "square"

    def area(self):
        return 9


OWN_FORWARDS = [
    lambda: StaticSame(3, 4, 4),
    lambda: DynamicSame(3, 4, 4, stride=3),
    lambda: PaddingInTheCall(3, 4, 3),
    lambda: Standardised(3, 6, 3, padding=1, groups=3),
    lambda: Gated(3, 2, 3, padding=1, padding_mode="reflect"),
    lambda: Upsampled(3, 4, 3, stride=2),
]


def own_forward_of_an_instance() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 3, 3))
    model[0].forward = OneCall(image_of(2, 3, 2, 2))
    return model


class OneCall:
    """A convolution as a function object."""

    def __init__(self, weight: Tensor):
        self.weight = weight

    def __call__(self, image):
        return F.conv2d(image, self.weight)


class Calls(nn.Module):
    """Every way of calling convolutions as functions."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=True)
        self.mix = nn.Parameter(torch.empty(3, 3, 2, 2))
        self.line = nn.Parameter(torch.empty(3, 3, 2))
        self.inner = StaticSame(3, 3, 4)

    def forward(self, image):
        image = self.conv(image) + F.conv2d(image, self.conv.weight, self.conv.bias, 1, 1)
        image = F.conv2d(input=image, weight=self.conv.weight.flip(-1), padding="same")
        image = F.conv_transpose2d(image % 3, self.mix, stride=(2, 1), padding=1, output_padding=(1, 0))
        image = self.inner(F.conv1d(image[0, :, 0] % 3, self.line)[None, :, None] + image[..., :1])
        return F.conv2d(image[0] % 2, self.mix, dilation=2, stride=2)


class Mixed(nn.Module):
    """One convolution a layer, one a call, whose padding depends on the image's width."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.weight = nn.Parameter(torch.ones(3, 3, 2, 2))
        self.fail = False

    def forward(self, image):
        image = F.conv2d(self.conv(image) % 3, self.weight, padding=image.shape[-1] % 2)
        if self.fail:
            raise KeyboardInterrupt
        return image


class Unreached(nn.Sequential):
    """A convolution that no input reaches."""

    def forward(self, image):
        return self[0](image)


def doubling(module, args, result):
    return 2 * result


def shifting(module, args):
    return (args[0] + 1,)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    model[0].register_forward_pre_hook(shifting)
    model[1].register_forward_hook(doubling)
    return model


def changed(layer: nn.Module, **attributes) -> nn.Module:
    """`layer` with attributes set after its construction."""
    vars(layer).update(attributes)
    return layer
