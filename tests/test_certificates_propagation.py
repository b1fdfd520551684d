"""The bound that passes through layers: for every rule never below what is measured, and not far above it."""

import pytest
import torch
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.bounds import activations as known
from conv2attn.bounds.activations import Activation
from conv2attn.certificates.propagation import Carried, propagate
from conv2attn.certificates.propagation.activation_rules import PLAIN, activated
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


def slope_of(name, x):
    """The derivative of an activation, on a ball."""
    half = arb(1) / 2
    if name == "GELU":
        return half * (1 + (x / arb(2).sqrt()).erf()) + x * (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
    if name == "GELU_TANH":
        root, cubic = (2 / arb.pi()).sqrt(), arb("0.044715")
        t = (root * (x + cubic * x * x * x)).tanh()
        return half * (1 + t) + half * x * (1 - t * t) * root * (1 + 3 * cubic * x * x)
    sigmoid = 1 / (1 + (-x).exp())
    if name == "SILU":
        return sigmoid + x * sigmoid * (1 - sigmoid)
    t = (1 + x.exp()).log().tanh()
    return t + x * sigmoid * (1 - t * t)


def exceeded(name, slope, reach=30.0):
    """Whether some point of +-reach has a larger slope, or one that is not certified smaller."""
    pending = [(-reach, reach)]
    while pending:
        low, high = pending.pop()
        found = slope_of(name, arb((low + high) / 2, (high - low) / 2))
        if not abs(found) < slope:
            if high - low < 1e-9:
                return True
            middle = (low + high) / 2
            pending += [(low, middle), (middle, high)]
    return False


@pytest.mark.parametrize("name", ["GELU", "GELU_TANH", "SILU", "MISH"])
def test_slopes_are_certified_by_balls(name):
    """Beyond 30 the slope is off from that of relu by less than x e^(-x) times a small number, and 1 is enough."""
    slope = getattr(known, name).slope
    with ctx.workprec(80):
        assert not exceeded(name, slope)
        assert exceeded(name, slope - 2e-7)


def device_cases():
    cases = {name: (functions(name), activation) for name, activation in PLAIN.items() if functions(name)}
    cases["gelu none"] = F.gelu, known.GELU
    cases["gelu tanh"] = (lambda x: F.gelu(x, approximate="tanh")), known.GELU_TANH
    cases["elu"] = (lambda x: F.elu(x, 2.5)), known.elu(2.5)
    cases["celu"] = (lambda x: F.celu(x, 0.7)), known.elu(0.7, 1.0, 1 / 0.7)
    cases["softplus"] = (lambda x: F.softplus(x, 0.5, 30)), known.softplus(0.5, 30)
    cases["softshrink"] = (lambda x: F.softshrink(x, 0.3)), known.softshrink(0.3)
    cases["leaky_relu"] = (lambda x: F.leaky_relu(x, 0.3)), known.leaky(0.3)
    return cases


def functions(name):
    return getattr(F, name, None) or getattr(torch, name, None) or getattr(torch.special, name, None)


@pytest.mark.parametrize("name", sorted(device_cases()))
def test_activations_are_as_accurate_on_this_device_as_is_assumed(name):
    """Every number of float16, and as many of float32, against float64."""
    function, activation = device_cases()[name]
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    every = every[every.isfinite() & (every.abs() < 1e4)]
    noisy = every * torch.linspace(1, 1.001, len(every))
    for dtype, u in ((torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        numbers = torch.cat([every, noisy]).to(dtype)
        off = (function(numbers.clone()).double() - function(numbers.double())).abs()
        size = 1 if activation.saturates else numbers.double().abs() + 1
        allowed = activation.roundings * (u * size + 2.0**-24) + 2 * activation.jump
        assert bool((off <= allowed).all()), (dtype, (off / allowed).max())


def test_a_gate_does_not_grow_with_what_it_is_asked():
    """The rounding of a sigmoid is that of a number below 1, however large its argument."""
    bound, _ = carried_through(Apply(lambda x: torch.sigmoid(1e30 * x)), 1.0, 1.0)
    assert 1 <= bound < 1.0001


STOPS = {
    "cumsum": Apply(lambda x: torch.cumsum(x, 1)),
    "conv2d": nn.Conv2d(4, 4, 1),
    "layer_norm (where the variance": nn.LayerNorm(5),
    "group_norm (where the variance": nn.GroupNorm(2, 4),
    "batch_norm in training mode": nn.BatchNorm2d(4),
    "dropout in training mode": nn.Dropout(),
    "__bool__": Apply(lambda x: x if x.max() else -x),
    "item": Apply(lambda x: x * x.max().item()),
    "gt": Apply(lambda x: x[x > 0]),
    "a quotient by what is computed, which may vanish": Apply(lambda x: x / x),
    "interpolate by bicubic": Apply(lambda x: F.interpolate(x, 3, mode="bicubic", antialias=True)),
    "rand_like": Apply(lambda x: x + torch.rand_like(x)),
    "which is random": Apply(lambda x: x + torch.rand(5)),
    "a mean over the images": Apply(lambda x: x.mean()),
    "in place of a part": Apply(lambda x: x.__setitem__(0, 1.0)),
    "numpy": Apply(lambda x: torch.from_numpy(x.numpy())),
    "a tensor of unknown origin": Apply(lambda x: x + OUTSIDE),
    "threshold": nn.Threshold(0.1, 1.0),
    "scaled_dot_product_attention": Apply(lambda x: F.scaled_dot_product_attention(x, x, x)),
    "lp_pool2d of power 3.0, which is not 1, 2 or infinite": nn.LPPool2d(3, 2),
    "an output without tensors": Apply(lambda x: None),
    "an infinite bound": Apply(lambda x: F.pad(x, (1, 1), value=float("inf")) * 0.5),
}
OUTSIDE = torch.ones(5)


@pytest.mark.parametrize("reason", sorted(STOPS))
def test_where_no_rule_exists_it_stops_and_says_so(reason):
    bound, stop = carried_through(STOPS[reason], 1.0, 0.1)
    assert bound is None
    assert reason in stop


def test_the_place_is_told_even_if_the_network_goes_on():
    class Deaf(nn.Module):
        def forward(self, image):
            try:
                return torch.cumsum(image, 1)
            except Exception:
                return image

    bound, stop = carried_through(nn.Sequential(nn.ReLU(), Deaf()), 1.0, 0.1)
    assert (bound, stop) == (None, "cumsum in 1.1")


def test_a_view_of_what_was_changed_is_not_taken_for_what_it_was():
    def forward(image):
        image = image.clone()
        before = image[:, :1]
        image += 100 * image
        return before

    bound, stop = carried_through(Apply(forward), 1.0, 0.1)
    assert bound is None
    assert "unknown origin" in stop


class Functional(nn.Module):
    """Branches, joins, gates and resizings, all of them functional."""

    def __init__(self, width, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Conv2d(3, 2 * width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.gate, self.last = nn.Conv2d(width, width, 1), nn.Linear(2 * width, 3)
        self.norm = nn.BatchNorm2d(2 * width).eval()
        self.scale = nn.Parameter(torch.randn(width, 1, 1))

    def forward(self, image):
        low, high = F.gelu(self.norm(self.first(image))).chunk(2, 1)
        low = F.interpolate(F.max_pool2d(self.second(low), 2), size=high.shape[-2:], mode="bilinear")
        high = high * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(high, 1))) - self.scale * low
        joined = torch.cat([F.silu(low) / 2, high], 1).permute(0, 2, 3, 1).mean((1, 2))
        return F.softmax(self.last(joined), 1)


@given(st.integers(0, 10**6), st.sampled_from(["auto", 20, 3, 0.5]), st.sampled_from([1e-2, 1.0, 30.0]))
def test_functional_networks_are_bounded_to_the_end(seed, alpha, reach):
    original = Functional(seed % 3 + 1, seed)
    converted = conv2attn.convert(original, alpha=alpha)
    images = (torch.randint(0, 2, (3, 3, 8, 9)) * 2.0 - 1) * reach
    outputs = conv2attn.certify(original, converted, images=images, input_range=reach).outputs
    assert outputs.bound is not None
    assert 0 <= outputs.max_difference <= outputs.bound


def test_the_outputs_may_be_many():
    bound, _ = carried_through(Apply(lambda x: {"a": x, "b": [2 * x, torch.zeros(3)]}), 1.0, 0.1)
    assert 0.2 <= bound < 0.21


def test_where_softplus_changes_to_a_line_it_jumps():
    module = nn.Softplus(2.0, 3.0)
    near = torch.tensor([1.5 - 2.0**-12, 1.5 + 2.0**-12], dtype=torch.float64)
    jump = module(near).diff().abs().item()
    assert 10 * 2.0**-11 < 0.02 < jump
    assert jump <= carried_through(module, 2.0, 2.0**-11)[0]
