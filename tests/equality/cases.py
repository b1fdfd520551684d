"""Networks whose context was changed: errors that must never hold, and harmless twins that must be proved the same."""

import copy
import functools

import torch
from equality.pairs import After, Net
from equality.planted import Small, permuted, ulp
from torch import fx, nn
from torch.nn import functional as F

import conv2attn


class Functional(nn.Module):
    """Calls a convolution as a function, with a weight of its own that is standardised on the way."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 6, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(5, 6, 3, 2) / 6)
        self.stride, self.padding, self.slope, self.dropout = 1, 1, 0.1, nn.Dropout(0.5)
        self.register_buffer("scale", torch.rand(5, 1, 1) + 0.5, persistent=False)
        self.norm = nn.BatchNorm2d(6, momentum=0.2)

    def forward(self, image):
        weight = (self.weight - self.weight.mean()) / self.weight.std()
        hidden = F.leaky_relu(self.norm(self.first(image)), self.slope)
        return self.dropout(F.conv2d(hidden, weight, stride=self.stride, padding=self.padding) * self.scale).mean(
            (2, 3)
        )


def shared():
    """One convolution under two names."""
    layer = nn.Conv2d(4, 4, 3, padding=1)
    return Net(lambda net, image: net.second(torch.relu(net.first(image))), first=layer, second=layer)


def choosing():
    """Dropout, which evaluation leaves out, of one of two tensors."""

    def code(net, hidden):
        active = hidden.relu()
        return hidden - active + net.dropout(hidden if net.first else active)

    return After(code, channels=(4, 4), dropout=nn.Dropout(), first=True)


def autocast():
    """Subtracts in another dtype, which is a graph inside the graph."""

    def code(net, first):
        second = first.sigmoid()
        with torch.autocast("cpu", torch.bfloat16):
            return second - 2 * first if net.turned else first - 2 * second

    return After(code, channels=(4, 4), turned=False)


def branching():
    """Goes another way for large images."""
    code = lambda net, hidden: hidden * net.sign if hidden.shape[2] > net.limit else hidden  # noqa: E731
    return After(code, channels=(4, 4), limit=20, sign=1.0)


def by_value():
    """Branches on the value of a number."""
    return After(lambda net, hidden: hidden if hidden.sum() > 0 else -hidden, channels=(4, 4))


def ending(last):
    """A convolution, and a layer that torch builds from several parameters."""

    def code(net, hidden):
        found = net.last(hidden.mean(2).transpose(1, 2))
        return found[0] if isinstance(found, tuple) else found

    return After(code, channels=(4, 4), last=last)


def recurrent():
    return ending(nn.LSTM(4, 3, batch_first=True))


def parametrised():
    return ending(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))


def traced():
    return fx.symbolic_trace(Functional().eval())


def root():
    return nn.Conv2d(4, 3, 3)


def annotated():
    """Reads an attribute of a parameter, which no state dict holds."""
    return After(lambda net, hidden: hidden * getattr(net.conv.bias, "gain", 1.0), channels=(4, 4))


def made(kind):
    """A network in evaluation mode with seeded weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind().eval()


def scaled(factor):
    return lambda module, args, output: output * factor


def unshared(net):
    net.second = copy.deepcopy(net.first)


def unshared_and_changed(net):
    unshared(net)
    ulp(net.second.weight.data, (1, 1, 1, 1))


class Slotted:
    """A callable with a slot that no attribute dictionary shows."""

    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, module, args, output):
        return output * self.factor


def multiplied(module, args, output, factor):
    return output * factor


def noisy():
    """A hook with noise of its own."""
    generator = torch.Generator().manual_seed(0)
    return lambda module, args, output: output + torch.rand(output.shape, generator=generator).to(output)


def hooked(module):
    module.register_forward_hook(scaled(2.0))
    return module


def by_identity(net):
    """A registry of modules by identity, which no copy of the network is in."""
    registry = {id(net.norm): 2.0}
    net.norm.register_forward_hook(lambda module, args, output: output * registry.get(id(module), 1.0))


def everywhere(chosen):
    """A hook of all modules of all networks, which doubles what the chosen ones return."""
    nn.modules.module.register_module_forward_hook(
        lambda module, args, output: output * 2 if chosen(module) else output
    )


def forget_hooks_on_all_modules():
    """Hooks on all modules are of the process; a test that registered some ends with them."""
    nn.modules.module._global_forward_hooks.clear()


ERRORS = {
    "running statistics": (Functional, lambda net: ulp(net.norm.running_var, (2,))),
    "eps": (Functional, lambda net: setattr(net.norm, "eps", 2e-5)),
    "a bias that is left out": (Functional, lambda net: setattr(net.norm, "bias", None)),
    "a buffer that is changed and not read": (
        Functional,
        lambda net: net.norm.register_forward_hook(lambda m, args, out: (m.num_batches_tracked.add_(1), None)[1]),
    ),
    "a check of values": (
        Functional,
        lambda net: net.norm.register_forward_hook(lambda m, args, out: torch._assert_async(out.max() < 1e9)),
    ),
    "dropout in training mode": (Functional, lambda net: net.dropout.train()),
    "what dropout reads": (choosing, lambda net: setattr(net, "first", False)),
    "arguments of a block": (autocast, lambda net: setattr(net, "turned", True)),
    "slope of an activation": (Functional, lambda net: setattr(net, "slope", 0.11)),
    "weight of a function by one ulp": (Functional, lambda net: ulp(net.weight.data, (1, 2, 1, 1))),
    "stride of a function": (Functional, lambda net: setattr(net, "stride", 2)),
    "a buffer that is not persistent": (Functional, lambda net: ulp(net.scale, (1, 0, 0))),
    "a hook that scales by 1 + 1e-7": (Functional, lambda net: net.norm.register_forward_hook(scaled(1 + 1.2e-7))),
    "a hook with a slot": (Functional, lambda net: net.norm.register_forward_hook(Slotted(1.5))),
    "a hook that knows the module by its identity": (Functional, by_identity),
    "a global hook that knows the module by its identity": (
        Functional,
        lambda net: everywhere(lambda module: module is net.norm),
    ),
    "a global hook on attention": (
        Functional,
        lambda net: everywhere(lambda module: isinstance(module, conv2attn.MultiHeadSelfAttention)),
    ),
    "a hook with an argument": (
        Functional,
        lambda net: net.norm.register_forward_hook(functools.partial(multiplied, factor=1.5)),
    ),
    "a hook with noise of its own": (Functional, lambda net: net.norm.register_forward_hook(noisy())),
    "a hook of a single layer": (root, lambda net: net.register_forward_hook(scaled(1.5))),
    "an attribute of a parameter": (annotated, lambda net: setattr(net.conv.bias, "gain", 2.0)),
    "an attribute of a parameter, of the size of rounding": (
        annotated,
        lambda net: setattr(net.conv.bias, "gain", 1 + 3e-7),
    ),
    "a recurrent weight": (recurrent, lambda net: ulp(net.last.weight_hh_l0.data, (2, 1))),
    "a shared module unshared and changed": (shared, unshared_and_changed),
    "a branch that small images do not take": (branching, lambda net: setattr(net, "limit", 12)),
    "code for certain batch sizes": (
        Functional,
        lambda net: net.norm.register_forward_hook(lambda m, args, out: out * 2 if len(out) == 7 else out),
    ),
    "training mode of a compared layer that a hook asks": (
        Functional,
        lambda net: net.first.register_forward_hook(lambda m, args, out: out + 1.0 * (m.groups == 1)),
    ),
}
TWINS = {
    "nothing": (Functional, lambda net: None),
    "save and load": (Functional, lambda net: net.load_state_dict(copy.deepcopy(net.state_dict()))),
    "heads permuted": (Functional, lambda net: (permuted(net.first), conv2attn.set_engine(net, "auto"))),
    "another engine": (Functional, lambda net: conv2attn.set_engine(net, "gather")),
    "a graph module": (traced, lambda net: None),
    "a recurrent layer": (recurrent, lambda net: None),
    "a parametrised layer": (parametrised, lambda net: None),
}
"""The same code with layers that are the same maps."""
SAME = {
    "momentum, which evaluation does not read": (Functional, lambda net: setattr(net.norm, "momentum", 0.3)),
    "a counter that no operator reads": (Functional, lambda net: net.norm.num_batches_tracked.add_(1)),
    "a layer that nothing calls": (Functional, lambda net: net.add_module("more", nn.Linear(3, 3))),
    "an attribute that nothing reads": (Functional, lambda net: setattr(net, "note", "hello")),
    "a module unshared": (shared, unshared),
    "channels last": (Functional, lambda net: net.to(memory_format=torch.channels_last)),
    "a hook on a module that nothing calls": (Small, lambda net: net.add_module("more", hooked(nn.Identity()))),
    "a global hook on both": (
        Functional,
        lambda net: everywhere(lambda module: isinstance(module, Functional | nn.BatchNorm2d)),
    ),
}
"""The same function by other objects or other numbers that nothing reads."""
