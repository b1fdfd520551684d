"""Conversions of networks that share objects, and what was changed beside their layers: never proved, no crash."""

import collections
import itertools
import weakref

import pytest
import torch
from equality.pairs import After, Net
from torch import nn

import conv2attn
from conv2attn.verdicts import Strength, Verdict

SMALL = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


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


class Parent(nn.Module):
    """A child that holds its parent weakly."""

    def __init__(self):
        super().__init__()
        self.conv, self.size = nn.Conv2d(3, 4, 3), 6
        self.child = Net(lambda net, out: out * net.parent().size, parent=weakref.ref(self))

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


@pytest.mark.parametrize("make", [Capturing, Parent, Bound])
def test_a_network_whose_copy_would_still_hold_parts_of_it_is_not_run_in_its_place(make):
    original = make().eval()
    report = conv2attn.certify(original, conv2attn.convert(original), images=SMALL)
    assert (report.verdict, report.between[0].code) == (Verdict.UNSUPPORTED, "C2A106")


def remembering():
    """A network with a list that a queue holds too."""
    numbers = [2.0]
    return After(lambda net, out: out * net.a[0], a=numbers, past=collections.deque([numbers]))


CHANGED = {
    "a number of an attribute": (
        lambda: After(lambda net, out: out * net.a, a=2.0),
        lambda net: setattr(net, "a", 2.5),
    ),
    "the sign of zero": (lambda: After(lambda net, out: out / net.a, a=0.0), lambda net: setattr(net, "a", -0.0)),
    "a buffer no longer shared": (Bound, lambda net: setattr(net, "scale", net.scale.clone())),
    "a list no longer shared": (remembering, lambda net: setattr(net, "a", [2.0])),
    "a class": (lambda: After(lambda net, out: out, a=nn.ReLU), lambda net: setattr(net, "a", nn.GELU)),
    "a type of lists": (lambda: After(lambda net, out: out, a=list[int]), lambda net: setattr(net, "a", list[str])),
    "another lambda": (lambda: After(lambda net, out: out * 2), lambda net: setattr(net, "code", lambda n, y: y * 2.1)),
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
    def scaled(net, image):
        with torch.no_grad():
            out = net.conv(image)
        out *= net.gain
        return out

    original = Net(scaled, conv=nn.Conv2d(3, 4, 3), gain=nn.Parameter(torch.ones(4, 1, 1))).eval()
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
