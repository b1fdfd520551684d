"""Layers whose code, class or parameters somebody replaced: what they compute is not known, so nothing is proved."""

import copy
import dataclasses
import reprlib

import pytest
import torch
from equality.pairs import Net, layer, rows_of
from torch import nn
from torch.nn.utils import parametrize, prune

import conv2attn
from conv2attn.equality import certify
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.theory.basis import Padding, Sites
from conv2attn.verdicts import Verdict
from tests.equality.reports import decisive

with torch.random.fork_rng():
    torch.manual_seed(0)
    ORIGINAL = nn.Conv2d(4, 6, 3, padding=1)


class Loose(Encoding):
    """An encoding that looks quadratic and is not."""

    def operators(self, like=None):
        return super().operators(like)


class OtherAttention(MultiHeadSelfAttention):
    """Attention of another class."""


class OtherEncoding(Encoding):
    """An encoding of another class."""


class OtherPadding(Padding):
    """A padding of another class."""


class Weight(nn.Parameter):
    """A parameter that could multiply in its own way."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


def held(place, name, what):
    """Puts something where an object holds its own things."""

    def plant(layer):
        part = layer.get_submodule(place) if place == "encoding" else getattr(layer, place) if place else layer
        vars(part)[name] = what(part, name) if callable(what) else what

    return plant


def same(part, name):
    """The very method of the class, held by the object."""
    return getattr(part, name)


def nothing(*_):
    """Another function."""
    return lambda *args, **kwargs: args[0]


def unregistered(place, name):
    """A plain tensor in the place of a parameter."""

    def plant(layer):
        part = layer.get_submodule(place)
        vars(part)[name] = part._parameters.pop(name).detach()

    return plant


def few_heads(layer):
    encoding = layer.encoding
    layer.encoding = Encoding.of("quadratic", encoding.operators().center[:4].float(), encoding.alpha[0].item())


PATCHES = {
    "forward": held("", "forward", nothing),
    "forward by itself": held("", "forward", same),
    "evaluate": held("", "evaluate", same),
    "operators of the encoding": held("encoding", "operators", same),
    "pad of the padding": held("image_padding", "pad", same),
    "a property of the padding": held("image_padding", "is_identity", True),
    "count of the sites": held("sites", "count", same),
    "the class of the layer": lambda layer: setattr(layer, "__class__", OtherAttention),
    "the class of the encoding": lambda layer: setattr(layer.encoding, "__class__", Loose),
    "another encoding": lambda layer: setattr(layer, "encoding", OtherEncoding(layer.positions)),
    "the class of the padding": lambda layer: setattr(
        layer, "image_padding", OtherPadding(layer.image_padding.before, layer.image_padding.after)
    ),
    "a parametrised centre": lambda layer: parametrize.register_parametrization(
        layer.encoding.learn(), "center", nn.Identity()
    ),
    "a pruned centre": lambda layer: prune.identity(layer.encoding.learn(), "center"),
    "a tensor for a weight": unregistered("", "weight"),
    "a parameter that is not registered": held("", "extra", nn.Parameter(torch.ones(1))),
    "a parameter of another class": lambda layer: layer._parameters.update(bias=Weight(layer.bias.detach())),
    "a missing weight": lambda layer: setattr(layer, "weight", None),
    "a deleted weight": lambda layer: delattr(layer, "weight"),
    "fewer centres than heads": few_heads,
}


@pytest.fixture(scope="module")
def rows():
    """The rows of layers that were replaced in each way, and of one that was not, certified at once."""
    layers = {way: conv2attn.convert(ORIGINAL) for way in ("none", *PATCHES)}
    for way, plant in PATCHES.items():
        plant(layers[way])
    return rows_of({way: (copy.deepcopy(ORIGINAL), layer) for way, layer in layers.items()})


@pytest.mark.parametrize("way", PATCHES)
@pytest.mark.filterwarnings("ignore:C2A132")
def test_a_layer_whose_code_was_replaced_is_unsupported(rows, way):
    assert rows["none"].verdict is Verdict.HOLDS
    assert rows[way].verdict is Verdict.UNSUPPORTED, rows[way].findings
    assert decisive(rows[way]).code == ("C2A105" if way == "fewer centres than heads" else "C2A106")


@dataclasses.dataclass
class AnyRepr:
    """A dataclass whose repr another library writes, as Python 3.13's `reprlib` does."""


def test_a_repr_made_by_another_module_is_no_replacement(monkeypatch):
    """Python 3.13 makes a dataclass's repr in `reprlib`: a list of trusted packages had refused every conversion."""
    monkeypatch.setattr(Sites, "__repr__", reprlib.recursive_repr()(AnyRepr.__repr__))
    report = certify(ORIGINAL, conv2attn.convert(ORIGINAL), input_size=(4, 6, 7))
    assert report.verdict is Verdict.HOLDS
    assert any("only methods replaced on an instance are detected" in line for line in report.assumptions)


def test_a_functional_call_whose_code_was_replaced_is_unsupported():
    code, weight = lambda net, x: nn.functional.conv2d(x, net.weight), nn.Parameter(layer(4, 6).weight.detach())
    original, image = Net(code, weight=weight), torch.rand(1, 4, 6, 7)
    converted = conv2attn.convert(original, example_input=image)
    PATCHES["evaluate"](converted.attending_calls.layers[0])
    report = certify(original, converted, images=image)
    assert [(row.name, row.verdict) for row in report.rows] == [("(root):conv2d", Verdict.UNSUPPORTED)]


def test_a_layer_with_a_parametrised_weight_is_proved_until_its_class_has_code_of_others():
    original, size = nn.Conv2d(2, 3, 3, padding=1), (2, 6, 7)
    converted = conv2attn.convert(original)
    parametrize.register_parametrization(converted, "weight", nn.Identity())
    assert certify(original, converted, input_size=size).verdict is Verdict.HOLDS
    type(converted).extra_repr = lambda self: ""
    assert certify(original, converted, input_size=size).verdict is not Verdict.HOLDS
