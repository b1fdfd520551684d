"""Layers as single operators: each call of a convolution has the shape and the numbers of torch, in every format."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.equality.context.graph import graph_of
from conv2attn.equality.context.normal_form import normal_form
from conv2attn.equality.context.opaque import OpaqueCalls
from conv2attn.equality.context.terms import Terms
from conv2attn.equality.context.walk import Walk, own, softened_output
from conv2attn.equality.difference import FormatWalk, convolved

DRAWN = 6
SIDES = (7, 8, 6)


def seeded(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def called(chosen, axes, turned):
    """The arguments of a call, in the order of torch.nn.functional."""
    groups = chosen.choice((1, 2))
    kernel = [chosen.randint(1, 3) for _ in range(axes)]
    weight = seeded(4, 6, *kernel) if turned else seeded(6, 4 // groups, *kernel)
    bias = chosen.choice((None, seeded(6 * groups if turned else 6)))
    stride, padding = ([chosen.randint(*ends) for _ in range(axes)] for ends in ((1, 3), (0, 1)))
    dilation = [chosen.randint(1, 2) for _ in range(axes)]
    if turned:
        more = [chosen.randrange(s) if s > 1 else 0 for s in stride]
        return weight, bias, stride, padding, more, groups, dilation
    return weight, bias, stride, padding, dilation, groups


def ways(axes, turned, image, weight, bias, stride, padding, *rest):
    """All ways to call one convolution."""
    more, groups, dilation = rest if turned else ([0] * axes, rest[1], rest[0])
    name = f"conv{'_transpose' * turned}{axes}d"
    function, operator = getattr(F, name), getattr(torch.ops.aten, name)
    options = {"stride": stride, "padding": padding, "groups": groups, "dilation": dilation}
    options |= {"output_padding": more} if turned else {}
    general = stride, padding, dilation, turned, more, groups
    yield lambda: function(image, weight, bias, **options)
    yield lambda: function(image, weight, bias, stride, padding, *rest)
    yield lambda: function(input=image, weight=weight, bias=bias, **options)
    yield lambda: getattr(operator, operator.overloads()[0])(image, weight, bias, stride, padding, *rest)
    yield lambda: torch.convolution(image, weight, bias, *general)
    yield lambda: torch.ops.aten.convolution.default(image, weight, bias, *general)
    yield lambda: function(image[0], weight, bias, stride, padding, *rest)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_every_way_to_call_a_convolution_is_a_layer_of_its_shape_and_numbers(axes, turned):
    chosen, image = random.Random(axes), seeded(2, 4, *SIDES[:axes])
    for _ in range(DRAWN):
        weight, bias, *options = called(chosen, axes, turned)
        for call in ways(axes, turned, image, weight, bias, *options):
            expected, layers = call(), []
            with OpaqueCalls(layers):
                shape = call().shape
            (layer,) = layers
            read = image if expected.ndim == image.ndim else image[0]
            numbers = [each if each is None else each.double() for each in (weight, bias)]
            found = convolved(layer.convolution(*numbers), read.double(), None)
            assert shape == found.shape == expected.shape
            torch.testing.assert_close(found.float(), expected)
            torch.testing.assert_close(own(layer, read, weight, bias), expected)


class Layers(nn.Module):
    """Convolutions of all kinds, and zeros and other numbers around what functions read."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.plain, self.strided = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Conv2d(3, 4, (2, 3), stride=2, padding_mode="circular"),
        )
        self.turned = nn.ConvTranspose2d(3, 4, (3, 2), stride=(2, 3), padding=1, output_padding=(1, 2))
        self.grouped, self.weight = nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.Parameter(torch.randn(2, 3, 2, 3))
        self.line, self.wide = nn.Parameter(torch.randn(2, 3, 3)), nn.Parameter(torch.randn(2, 4, 2, 2))

    def forward(self, image):
        read = self.plain(image), self.strided(image), self.turned(image), self.grouped(self.plain(image))
        zeros = [F.conv2d(F.pad(image, around), self.weight) for around in AROUND]
        more = [F.conv2d(F.pad(image, around), self.weight, padding=(2, 1), stride=(1, 2)) for around in AROUND]
        lines = [F.conv1d(F.pad(image.flatten(2), around), self.line) for around in ((1, 0), (0, 2), (-1, 3))]
        shared, changed = F.pad(image, (1, 2, 0, 1)), image.clone()
        before = F.pad(changed, (1, 0, 2, 1))
        changed.mul_(2)
        other = [
            F.conv2d(F.pad(image, (1, 0, 2, 1), value=1.5), self.weight),
            F.conv2d(F.pad(image, (1, 0, 2, 1), mode="replicate"), self.weight),
            F.conv2d(F.pad(image, (0, 1, 0, 0, 1, 0)), self.wide),
            F.conv2d(F.pad(image[0], (0, 1, 2, 0)), self.weight),
            F.conv2d(F.pad(image[0], (0, 1, 2, 0, 0, 1)), self.wide),
            F.conv_transpose2d(F.pad(image, (0, 1, 2, 0)), self.weight.transpose(0, 1)),
            F.conv2d(shared, self.weight) + F.conv2d(shared, self.weight * 2),
            F.conv2d(image, self.weight, padding="same"),
            F.conv2d(before, self.weight),
        ]
        return [*read, *zeros, *more, *lines, *other]


AROUND = ((1, 0), (0, 2), (1, 2, 0, 3), (0, 0, 2, 1), (-1, 2), (1, 1, -1, 0), (0, 0))


@pytest.fixture(scope="module")
def networks():
    """The network and its conversion, each with its graph."""
    image = seeded(2, 3, 7, 8)
    original = Layers().eval()
    both = original, conv2attn.convert(original, example_input=image)
    return image, [(net, graph_of(net, image, every_size=False)) for net in both]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("side", [0, 1])
def test_a_graph_computes_the_numbers_of_its_network_in_every_format(networks, side):
    image, pairs = networks
    network, graph = pairs[side]
    expected = [pairs[0][0].double()(image.double()), pairs[0][0].float()(image)]
    for compute in (own, softened_output):
        torch.testing.assert_close(Walk(graph, compute).on(image), network(image))
    for dtype, numbers in zip((torch.float64, torch.float32), expected, strict=True):
        found = FormatWalk(graph, {}, (), dtype).outputs(image)
        assert {each.dtype for each in found} == {dtype}
        exact = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {}
        torch.testing.assert_close(found, numbers, **exact)


class Sized(nn.Module):
    """A transposed convolution that is asked for the size of its outputs."""

    def __init__(self, size):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.size = nn.ConvTranspose2d(3, 4, (3, 2), stride=(2, 3), padding=1), size

    def forward(self, image):
        return self.layer(image, output_size=self.size).relu()


@pytest.mark.parametrize("size", [(13, 21), (14, 23), (2, 4, 14, 22)])
@pytest.mark.parametrize("every_size", [False, True])
def test_a_layer_has_the_size_that_is_asked_for(size, every_size):
    image, network = seeded(2, 3, 7, 8), Sized(size).eval()
    graph = graph_of(network, image, every_size=every_size)
    (shape,) = (node.meta["val"].shape for node, _ in graph.opaque)
    assert (len(shape), *shape[1:]) == (4, 4, *size[-2:])
    torch.testing.assert_close(Walk(graph, own).on(image), network(image))


def test_layers_that_are_asked_for_other_sizes_are_other_terms():
    image, terms = seeded(2, 3, 7, 8), Terms()
    sizes = (13, 21), (13, 22), (14, 21), (13, 21)
    graphs = [graph_of(Sized(size).eval(), image) for size in sizes]
    forms = [normal_form(graph, terms, lambda number, layer, read: terms("layer", read)) for graph in graphs]
    returned = [form.returned for form in forms]
    assert returned[0] == returned[3]
    assert len(set(returned)) == 3
