"""The bound that passes through layers: for every rule never below what is measured, and not far above it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn.bounds.activations import Activation
from conv2attn.certificates.propagation import Carried, propagate
from conv2attn.certificates.propagation.activation_rules import activated
from conv2attn.certificates.propagation.rules import RULES

SHAPE = (1, 4, 6, 5)


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, image):
        return self.function(image)


def carried_through(module, size, error, dtype=torch.float32, shape=SHAPE):
    """The bound behind `module` and where it stops, for numbers up to `size` that are off by up to `error`."""

    def off(before):
        return Carried(torch.full_like(before.size, size), torch.full_like(before.error, error))

    network = nn.Sequential(nn.Identity(), module).to(dtype)
    return propagate(network, {"0": off}, torch.ones(shape, dtype=dtype), size)


def worst_found(module, size, error, dtype=torch.float32, shape=SHAPE, seed=0):
    """The largest difference behind `module` of pairs of numbers up to `size`, `error` apart, as computed."""
    module = module.to(dtype)
    generator = torch.Generator().manual_seed(seed)
    worst = 0.0
    count = torch.Size(shape).numel()
    for trial in range(60):
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        near = torch.linspace(-1, 1, count, dtype=torch.float64).reshape(shape) * [1.0, 0.3, 0.1, 0.01][trial % 4]
        first = [drawn, drawn.sign(), near, torch.zeros_like(drawn), drawn * 10.0 ** -(trial % 7)][trial % 5] * size
        step = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        step = [step, step.sign(), torch.ones_like(step), -torch.ones_like(step)][trial // 5 % 4] * error
        first = first.to(dtype)
        second = (first.double() + step).to(dtype)
        second = torch.where((second.double() - first.double()).abs() <= error, second, first)
        with torch.no_grad():
            outputs = [module(each.clone()) for each in (first, second)]
        flat = [torch.cat([t.flatten().double() for t in pieces(out)]) for out in outputs]
        worst = max(worst, (flat[0] - flat[1]).abs().max().item())
    return worst


def pieces(output):
    return [output] if isinstance(output, torch.Tensor) else [t for t in output if t.is_floating_point()]


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
    "softsign": nn.Softsign(),
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
    "sums": nn.LPPool2d(1, 2),
    "norms": nn.LPPool2d(2, (3, 2), stride=2),
    "norms, cut off": nn.LPPool2d(2, (3, 2), stride=2, ceil_mode=True),
    "norms of rows": Apply(lambda x: F.lp_pool1d(x.flatten(2), 2, 4)),
    "norms of bodies": Apply(lambda x: F.lp_pool3d(x, 2, 2)),
    "sums of bodies": Apply(lambda x: F.lp_pool3d(x, 1, 2, 1)),
    "largest magnitudes": nn.LPPool2d(float("inf"), 2),
    "smallest magnitudes": Apply(lambda x: F.lp_pool2d(x, -float("inf"), 2)),
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
LOOSE |= {name for name in WINDOWS if "cubic" in name or "norms" in name}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("size", "error"), [(1.0, 1e-3), (20.0, 0.5), (3.0, 1e-7), (1e3, 30.0), (1.0, 0.0)])
def test_no_rule_is_exceeded(name, size, error):
    bound, stop = carried_through(CASES[name], size, error)
    assert stop == ""
    assert worst_found(CASES[name], size, error) <= bound


@pytest.mark.parametrize("name", sorted(set(CASES) - LOOSE))
def test_every_rule_is_close_to_what_is_found(name):
    """Hence a constant lowered by a tenth would be exceeded."""
    size, error = (3.0, 0.01)
    if name in ("tanh", "method tanh", "sigmoid", "erf", "softsign", "atan", "sin"):
        size = 0.05
    bound, _ = carried_through(CASES[name], size, error, torch.float64)
    assert worst_found(CASES[name], size, error, torch.float64) > 0.9 * bound


PLANTED = {
    "relu": lambda call: activated(call.given, Activation(0.9), call.dtype),
    "gelu": lambda call: activated(call.given, Activation(1.0), call.dtype),
    "max_pool2d": lambda call: Carried(call.given.size, call.given.error * 0.9),
    "flatten": lambda call: Carried.of_constant(call.value),
    "mul": lambda call: Carried(call.given.size, call.given.error),
}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_wrong_rule_is_exceeded(name, monkeypatch):
    """A slope of 0.9 for relu, that of relu for gelu, a pooling that shrinks errors, and one that forgets them."""
    for function in (getattr(space, name) for space in (torch, F, torch.Tensor) if hasattr(space, name)):
        monkeypatch.setitem(RULES, function, PLANTED[name])
    case = {"max_pool2d": "F.max_pool", "mul": "mul number"}.get(name, name)
    bound, stop = carried_through(CASES[case], 3.0, 0.01)
    assert stop == ""
    assert worst_found(CASES[case], 3.0, 0.01) > bound
