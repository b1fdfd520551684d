"""Networks of one operator each, for the rules that carry a bound through it."""

import torch
from torch import nn
from torch.nn import functional as F

from conv2attn.equivalence.opaque import LAYER


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, image):
        return self.function(image)


class Opaque(nn.Module):
    """The opaque node of a compared layer that keeps the shape of an image."""

    def __init__(self, number=0):
        super().__init__()
        self.number = number

    def forward(self, image):
        axes = image.ndim - 2
        return LAYER(image, self.number, [1] * axes, [0] * axes, [1] * axes, image.shape[1], None)


def norm():
    layer = nn.BatchNorm2d(4).eval()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, -2.0, 0.5, 3.0]))
        layer.running_var.copy_(torch.tensor([1.0, 2.0, 0.1, 4.0]))
        layer.running_mean.copy_(torch.tensor([1.0, -2.0, 0.1, 4.0]))
        layer.bias.copy_(torch.tensor([1.0, -2.0, 0.1, 4.0]))
    return layer


def linear():
    torch.manual_seed(0)
    return nn.Linear(5, 3)


def prelu():
    layer = nn.PReLU(4)
    layer.weight.data = torch.tensor([0.1, -2.0, 0.5, 1.5])
    return layer


ACTIVATIONS = {
    "relu": nn.ReLU(),
    "relu in place": nn.ReLU(inplace=True),
    "F.relu": Apply(F.relu),
    "torch.relu": Apply(torch.relu),
    "method relu": Apply(lambda x: x.relu()),
    "relu6": nn.ReLU6(),
    "F.relu6": Apply(F.relu6),
    "leaky_relu": nn.LeakyReLU(1.7),
    "prelu": prelu(),
    "rrelu": nn.RReLU().eval(),
    "elu": nn.ELU(1.3),
    "selu": nn.SELU(),
    "celu": nn.CELU(0.6),
    "gelu": nn.GELU(),
    "gelu tanh": nn.GELU("tanh"),
    "F.gelu": Apply(F.gelu),
    "silu": nn.SiLU(),
    "mish": nn.Mish(),
    "hardswish": nn.Hardswish(),
    "hardsigmoid": nn.Hardsigmoid(),
    "hardtanh": nn.Hardtanh(-2.0, 1.5),
    "clamp": Apply(lambda x: x.clamp(-0.5, 2)),
    "clamp_min": Apply(lambda x: torch.clamp_min(x, 0.5)),
    "clamp max": Apply(lambda x: x.clamp(max=-0.5)),
    "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(),
    "method tanh": Apply(lambda x: x.tanh()),
    "softplus": nn.Softplus(2.0, 3.0),
    "logsigmoid": nn.LogSigmoid(),
    "tanhshrink": nn.Tanhshrink(),
    "softshrink": nn.Softshrink(0.3),
    "abs": Apply(torch.abs),
    "neg": Apply(lambda x: -x),
    "sin": Apply(torch.sin),
    "cos": Apply(torch.cos),
    "atan": Apply(torch.atan),
    "erf": Apply(torch.erf),
    "glu": nn.GLU(1),
    "softmax": nn.Softmax(1),
    "log_softmax": nn.LogSoftmax(1),
}

SUMS = {
    "linear": linear(),
    "batch norm": norm(),
    "add": Apply(lambda x: x + x),
    "add number": Apply(lambda x: 3 + x),
    "add twice": Apply(lambda x: torch.add(x, x, alpha=2)),
    "sub": Apply(lambda x: x - x.flip(1)),
    "rsub": Apply(lambda x: 1 - x),
    "mul number": Apply(lambda x: 2.5 * x),
    "mul constant": Apply(lambda x: x * torch.tensor([1.0, -2.0, 0.5, 3.0]).reshape(4, 1, 1).to(x.dtype)),
    "mul": Apply(lambda x: x * x.flip(1)),
    "square": Apply(torch.square),
    "gated": Apply(lambda x: x * torch.sigmoid(x)),
    "div": Apply(lambda x: x / 0.3),
    "maximum": Apply(lambda x: torch.maximum(x, x.flip(2))),
    "max of two": Apply(lambda x: torch.max(x, x.flip(2))),
    "max": Apply(lambda x: x.max(1)[0]),
    "amin": Apply(lambda x: x.amin((2, 3))),
    "mean": Apply(lambda x: x.mean((2, 3))),
    "torch.mean": Apply(lambda x: torch.mean(x, 1, keepdim=True)),
    "sum": Apply(lambda x: x.sum(-1)),
    "in place": Apply(lambda x: x.clone().add_(x).mul_(0.5)),
}

WINDOWS = {
    "max_pool": nn.MaxPool2d(3, 2, 1),
    "F.max_pool": Apply(lambda x: F.max_pool2d(x, 2)),
    "max_pool with indices": Apply(lambda x: F.max_pool2d(x, 2, return_indices=True)[0]),
    "max_pool1d": Apply(lambda x: F.max_pool1d(x.flatten(2), 4)),
    "adaptive max": nn.AdaptiveMaxPool2d((2, 1)),
    "avg_pool": nn.AvgPool2d(3, 2, 1),
    "avg_pool1d": Apply(lambda x: F.avg_pool1d(x.flatten(2), 4)),
    "adaptive avg": nn.AdaptiveAvgPool2d((2, 1)),
    "F.adaptive avg": Apply(lambda x: F.adaptive_avg_pool2d(x, 1)),
    "nearest": nn.Upsample(scale_factor=2),
    "bilinear": nn.Upsample((9, 11), mode="bilinear"),
    "bilinear, corners": nn.UpsamplingBilinear2d((4, 11)),
    "bicubic": nn.Upsample((11, 9), mode="bicubic", align_corners=True),
    "bicubic, half pixels": nn.Upsample(scale_factor=2, mode="bicubic"),
    "bicubic, smaller": nn.Upsample((4, 4), mode="bicubic"),
    "area": Apply(lambda x: F.interpolate(x, size=(3, 4), mode="area")),
    "zero pad": nn.ZeroPad2d((1, 0, 2, 1)),
    "constant pad": nn.ConstantPad2d(1, 7.0),
    "reflect pad": nn.ReflectionPad2d(1),
    "crop": Apply(lambda x: F.pad(x, (-1, 0))),
    "dropout": nn.Dropout().eval(),
    "dropout2d": nn.Dropout2d().eval(),
    "no dropout": nn.Dropout(0.0),
}

MOVES = {
    "flatten": nn.Flatten(),
    "torch.flatten": Apply(lambda x: torch.flatten(x, 1)),
    "reshape": Apply(lambda x: x.reshape(1, 2, -1)),
    "view": Apply(lambda x: x.view(x.size(0), -1)),
    "unflatten": nn.Unflatten(1, (2, 2)),
    "permute": Apply(lambda x: x.permute(0, 2, 3, 1)),
    "transpose": Apply(lambda x: x.transpose(1, 2).contiguous()),
    "mT": Apply(lambda x: x.mT),
    "cat": Apply(lambda x: torch.cat([x, 3 * x.mean(1, keepdim=True)], 1)),
    "cat of another axis": Apply(lambda x: torch.concatenate((x, x), axis=-1)),
    "stack": Apply(lambda x: torch.stack([x, 2 * x])),
    "chunk": Apply(lambda x: x.chunk(2, 1)[1] * x.chunk(2, 1)[0]),
    "split": Apply(lambda x: torch.split(x, [1, 3], dim=1)[1] + 1),
    "unbind": Apply(lambda x: x.unbind(1)),
    "getitem": Apply(lambda x: x[:, 1:, ::2, -1]),
    "index": Apply(lambda x: x[:, torch.tensor([2, 0])]),
    "squeeze": Apply(lambda x: x[:, :1].squeeze(1).unsqueeze(-1)),
    "expand": Apply(lambda x: x[:, :1].expand(-1, 4, -1, -1)),
    "repeat": Apply(lambda x: x.repeat(1, 2, 1, 1)),
    "roll": Apply(lambda x: torch.roll(x, (1, 2), (2, 3))),
    "where": Apply(lambda x: torch.where(torch.ones(5).bool(), x, 2 * x)),
    "pixel_shuffle": nn.PixelShuffle(2),
    "pixel_unshuffle": Apply(lambda x: F.pixel_unshuffle(x[..., :4], 2)),
    "channel_shuffle": nn.ChannelShuffle(2),
    "unfold": Apply(lambda x: x.unfold(2, 2, 1)),
    "clone": Apply(lambda x: x.clone().detach()),
    "cast": Apply(lambda x: x.double()),
    "cast down": Apply(lambda x: x.half().float()),
    "identity": nn.Identity(),
}
CASES = {**ACTIVATIONS, **SUMS, **WINDOWS, **MOVES}
LOOSE = {"softmax", "log_softmax", "glu", "square", "gated", "mul", "rrelu", "div", "sub", "cast down", "softplus"}
LOOSE |= {"tanhshrink", *(name for name in WINDOWS if "cubic" in name)}
