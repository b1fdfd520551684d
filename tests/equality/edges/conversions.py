"""Conversions whose code looks at its layers, or shares objects: no wrong verdict at the size that runs, no crash.

At another size nothing but the printed premise excuses a difference.
"""

import collections
import functools
import itertools
import operator
import weakref

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.verdicts import Strength, Verdict

SMALL = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A convolution, and a function of the network and of what it returns."""

    def __init__(self, after, **attributes):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 4, 3)
        self.after = after
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, image):
        return self.after(self, self.conv(image))


@functools.singledispatch
def kind(layer):
    return 1


kind.register(nn.Conv2d)(lambda layer: 2)
BY_IDENTITY = {}


class Keyed(Net):
    def __init__(self, after):
        super().__init__(after)
        BY_IDENTITY[id(self)] = 2.0


class Capturing(nn.Module):
    """A closure that holds the network itself."""

    def __init__(self):
        super().__init__()
        self.conv, self.size = nn.Conv2d(3, 4, 3), 6
        self.scale = lambda out: out * self.size

    def forward(self, image):
        out = self.conv(image)
        self.size = out.shape[-1]
        return self.scale(out)


class Child(nn.Module):
    def __init__(self, parent):
        super().__init__()
        self.parent = weakref.ref(parent)

    def forward(self, out):
        return out * self.parent().size


class Parent(nn.Module):
    """A child that holds its parent weakly."""

    def __init__(self):
        super().__init__()
        self.conv, self.size = nn.Conv2d(3, 4, 3), 6
        self.child = Child(self)

    def forward(self, image):
        out = self.conv(image)
        self.size = out.shape[-1]
        return self.child(out)


class Bound(nn.Module):
    """A bound method of a buffer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("scale", torch.tensor(6.0))
        self.by = self.scale.mul

    def forward(self, image):
        out = self.conv(image)
        self.scale.fill_(out.shape[-1])
        return self.by(out)


def where_large(function):
    """A network that looks at its layers for large images alone."""
    return Net(lambda net, out: function(net, out) if out.shape[-1] > 10 else out)


def tries(net, out):
    try:
        _ = net.conv.sites
    except AttributeError:
        return out
    return out * 2


LOOKING = {
    "isinstance": lambda: where_large(lambda net, out: out * (2 if isinstance(net.conv, nn.Conv2d) else 1)),
    "an attribute that is tried": lambda: where_large(tries),
    "an f-string": lambda: where_large(lambda net, out: out * len(f"{net.conv}")),
    "its name": lambda: where_large(lambda net, out: out * len(net.conv._get_name())),
    "counted modules": lambda: where_large(lambda net, out: out * sum(1 for _ in net.modules())),
    "counted buffers": lambda: where_large(lambda net, out: out * (1 + len(list(net.buffers())))),
    "a state dict": lambda: where_large(lambda net, out: out * len(net.state_dict())),
    "the function of a forward": lambda: where_large(
        lambda net, out: out * (2 if net.conv.forward.__func__ is nn.Conv2d.forward else 1)
    ),
    "attrgetter": lambda: where_large(lambda net, out: out * len(operator.attrgetter("extra_repr")(net.conv)())),
    "singledispatch": lambda: where_large(lambda net, out: out * kind(net.conv)),
    "a table by identity": lambda: Keyed(
        lambda net, out: out * BY_IDENTITY.get(id(net), 1.0) if out.shape[-1] > 10 else out
    ),
    "a closure over the network": Capturing,
    "a weak reference": Parent,
    "a method of a buffer": Bound,
    "its kernel, which both have": lambda: Net(lambda net, out: out * net.conv.kernel_size[0] * net.conv.stride[0]),
    "the class at every size": lambda: Net(lambda net, out: out * (2 if type(net.conv) is nn.Conv2d else 1)),
    "requires_grad": lambda: Net(lambda net, out: out * (2 if out.requires_grad else 1)),
    "inference mode": lambda: Net(lambda net, out: out * (2 if torch.is_inference_mode_enabled() else 1)),
}


def returned(network, images):
    try:
        with torch.no_grad():
            return network(images.clone())
    except Exception as error:
        return str(type(error))


@pytest.mark.parametrize("name", LOOKING)
def test_a_conversion_whose_code_looks_never_holds_wrongly(name):
    original = LOOKING[name]().eval()
    converted = conv2attn.convert(original)
    report = conv2attn.certify(original, converted, images=SMALL)
    if report.verdict is Verdict.HOLDS:
        torch.testing.assert_close(returned(original, SMALL), returned(converted, SMALL))
        assert any("it calls its layers and asks nothing else of them" in line for line in report.assumptions)


def remembering():
    """A network with a list that a queue holds too."""
    numbers = [2.0]
    return Net(lambda net, out: out * net.a[0], a=numbers, past=collections.deque([numbers]))


CHANGED = {
    "a number of an attribute": (lambda: Net(lambda net, out: out * net.a, a=2.0), lambda net: setattr(net, "a", 2.5)),
    "the sign of zero": (lambda: Net(lambda net, out: out / net.a, a=0.0), lambda net: setattr(net, "a", -0.0)),
    "a buffer no longer shared": (Bound, lambda net: setattr(net, "scale", net.scale.clone())),
    "a list no longer shared": (remembering, lambda net: setattr(net, "a", [2.0])),
    "a class": (lambda: Net(lambda net, out: out, a=nn.ReLU), lambda net: setattr(net, "a", nn.GELU)),
    "a type of lists": (lambda: Net(lambda net, out: out, a=list[int]), lambda net: setattr(net, "a", list[str])),
    "another lambda": (lambda: Net(lambda net, out: out * 2), lambda net: setattr(net, "after", lambda n, y: y * 2.1)),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_was_changed_beside_the_layers_is_never_proved(name):
    make, change = CHANGED[name]
    original = make().eval()
    converted = conv2attn.convert(original)
    change(converted)
    report = conv2attn.certify(original, converted, images=SMALL)
    assert report.verdict is not Verdict.HOLDS or report.strength is Strength.IDENTIFIED, report.to_text()


def test_a_lazy_layer_stays_lazy():
    original = nn.Sequential(nn.LazyConv2d(4, 3))
    report = conv2attn.certify(original, original, images=SMALL)
    assert report.verdict is Verdict.UNSUPPORTED
    assert type(original[0]) is nn.LazyConv2d


def test_in_place_code_after_a_layer_runs_in_both_for_channels_last():
    class InPlace(Net):
        def forward(self, image):
            with torch.no_grad():
                out = self.conv(image)
            out *= self.gain
            return out

    original = InPlace(None, gain=nn.Parameter(torch.ones(4, 1, 1))).eval()
    images = SMALL.to(memory_format=torch.channels_last)
    assert conv2attn.certify(original, conv2attn.convert(original), images=images).verdict is Verdict.HOLDS


def test_views_of_a_circular_convolution_run_in_both():
    original = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"))
    original.register_forward_hook(lambda module, args, out: out.view(len(out), -1))
    report = conv2attn.certify(original, conv2attn.convert(original), images=SMALL)
    assert report.verdict is Verdict.HOLDS, report.to_text()


def test_a_set_of_words_is_the_same_in_any_order():
    """Of two words with one place in the table of hashes the first that was put in comes first: BERT has such a set."""
    words = [str(number) for number in range(100)]
    one, other = next(pair for pair in itertools.permutations(words, 2) if [*{*pair}] != [*{*pair[::-1]}])
    networks = [nn.Sequential(nn.Conv2d(1, 1, 1)).eval() for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    networks[0].words, networks[1].words = {one, other}, {other, one}
    assert conv2attn.certify(*networks, input_size=(1, 2, 2)).verdict is Verdict.HOLDS
    networks[1].words = {one}
    assert conv2attn.certify(*networks, input_size=(1, 2, 2)).strength is not Strength.PROVED
