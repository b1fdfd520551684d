"""Code between the layers that looks at them, compiled code, hooks, autocast: what bits alone do not show."""

import copy
import math
import warnings
from contextvars import ContextVar

import numpy as np
import pytest
import torch
from equality.pairs import After, Net
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.equality import certify, symmetric
from conv2attn.networks.copies import evaluating
from conv2attn.verdicts import Strength, Verdict

SIZE = (3, 8, 9)


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def looking(after):
    """A convolution, and code that may look at what it is."""

    def code(net, image):
        net.count += 1
        return net.after(net, image)

    return Net(code, conv=nn.Conv2d(3, 4, 3, padding=1), after=after, count=0)


LOOKING = {
    "at the class": lambda net, x: net.conv(x) * (2 if isinstance(net.conv, nn.Conv2d) else 1),
    "and calling twice": lambda net, x: net.conv(x) if isinstance(net.conv, nn.Conv2d) else net.conv(x) + net.conv(x),
    "and not calling": lambda net, x: net.conv(x) if isinstance(net.conv, nn.Conv2d) else x.new_ones(1, 4, 8, 9),
    "by keyword": lambda net, x: net.conv(input=x) * (2 if isinstance(net.conv, nn.Conv2d) else 1),
    "and failing": lambda net, x: net.conv(x) if isinstance(net.conv, nn.Conv2d) else net.conv(x).view(3),
}


@pytest.mark.parametrize("after", LOOKING.values(), ids=LOOKING)
def test_code_that_looks_at_its_layers_is_refuted(after):
    original = looking(after)
    report = certify(original, conv2attn.convert(original), input_size=SIZE)
    assert report.verdict is Verdict.REFUTED, report.to_text()
    assert any(each.verdict is Verdict.REFUTED for each in report.between)
    assert report.rows[0].verdict is Verdict.HOLDS


def test_code_that_looks_and_changes_less_than_rounding_holds_as_rounded_alone():
    """Plain calls cannot see one last place; a run with the layers exchanged can."""
    original = looking(lambda net, x: net.conv(x) * (1 if isinstance(net.conv, nn.Conv2d) else 1 + 2**-23))
    report = certify(original, conv2attn.convert(original), input_size=SIZE)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.ROUNDED), report.to_text()


def test_code_that_looks_at_a_size_that_was_not_run_is_refuted_there_and_the_claim_says_where_it_ran():
    original = looking(lambda net, x: net.conv(x) * (2 if x.shape[-1] > 20 and isinstance(net.conv, nn.Conv2d) else 1))
    converted = conv2attn.convert(original)
    report = certify(original, converted, input_size=SIZE)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()
    assert "at other sizes than 3x8x9, if their own code does the same there" in report.claim
    assert any("at sizes and in modes of gradients that were not run" in each for each in report.assumptions)
    assert certify(original, converted, input_size=SIZE, also_sizes=[(3, 8, 21)]).verdict is Verdict.REFUTED


def test_the_claim_of_a_layer_alone_names_no_size():
    conv = nn.Conv2d(3, 4, 3)
    assert "other sizes" not in certify(conv, conv2attn.convert(conv), input_size=SIZE).claim


ALIKE = {
    "at the parameters": lambda net, x: net.conv(x) * sum(p.sum() for p in net.parameters()),
    "before the call": lambda net, x: net.conv(x + len(list(net.conv.parameters()))),
    "shared layers": lambda net, x: net.conv(net.conv(x)[:, :3]),
    "noise": lambda net, x: net.conv(x) + torch.rand(4, 8, 9),
    "a state": lambda net, x: net.conv(x) * min(net.count, 1),
    "by keyword": lambda net, x: net.conv(input=x),
    "in place": lambda net, x: net.conv(x).relu_().mul_(3),
}


@pytest.mark.parametrize("after", ALIKE.values(), ids=ALIKE)
def test_code_that_does_not_look_is_not_refuted(after):
    original = looking(after).eval()
    report = certify(original, conv2attn.convert(original), input_size=SIZE)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


class lock:
    """A class of a caller that has the name of Python's locks."""

    def __init__(self, number):
        self.number = number


def context(value, default=None):
    variable = ContextVar("number", default=default)
    if value is not None:
        variable.set(value)
    return variable


OBJECTS = {
    "ranges with other ends": (range(0, 3, 2), range(0, 4, 2), lambda it: it.stop),
    "NaN with another sign": (math.nan, math.copysign(math.nan, -1), lambda it: math.copysign(1, it)),
    "an object named lock": (lock(1), lock(2), lambda it: it.number),
    "context variables": (context(1), context(2), lambda it: it.get()),
    "defaults of context variables": (context(None, 1), context(None, 2), lambda it: it.get()),
    "strides of an array": (np.ones(2), np.ones((2, 2))[:, 1], lambda it: it.strides[0]),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_that_code_may_read_are_no_twins(name):
    """The numbers that were run are below 1,000, so both return the same."""
    *objects, read = OBJECTS[name]

    def reading(thing):
        def after(net, x):
            y = net.conv(x)
            return torch.where(x.amax() > 1e3, y * read(thing), y)

        return after

    first = looking(reading(objects[0]))
    second, twin = copy.deepcopy(first), copy.deepcopy(first)
    second.after, twin.after = reading(objects[1]), reading(objects[0])
    assert certify(first, twin, input_size=SIZE).strength is Strength.PROVED
    report = certify(first, second, input_size=SIZE)
    assert report.strength is not Strength.PROVED, report.to_text()


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("layered", [True, False])
def test_code_that_looks_beside_functional_convolutions_is_refuted(looks, layered):
    def calling(net, image):
        called = F.conv2d(image, net.weight)
        passed = net.conv(called) if layered else called
        changed = "forward" in vars(net) or isinstance(net.conv, conv2attn.MultiHeadSelfAttention)
        return passed * 2 if looks and changed else passed

    parts = {"weight": nn.Parameter(torch.randn(3, 3, 3, 3)), "conv": nn.Conv2d(3, 3, 1) if layered else None}
    original, image = Net(calling, **parts), torch.rand(1, *SIZE)
    report = certify(original, conv2attn.convert(original, example_input=image), images=image)
    assert report.verdict is (Verdict.REFUTED if looks else Verdict.HOLDS), report.to_text()


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("where", ["", "0"])
def test_compiled_code_is_not_read(side, where):
    original = nn.Sequential(nn.Conv2d(3, 4, 3))
    networks = [original, conv2attn.convert(original)]
    networks[side].get_submodule(where)._compiled_call_impl = lambda image: image.new_zeros(1, 4, 6, 7)
    report = certify(*networks, input_size=SIZE)
    assert report.verdict is Verdict.UNSUPPORTED
    told = f"{where or 'the network'} of the {['first', 'second'][side]} runs as compiled code"
    assert told in report.between[0].sentence
    wrapped = [original, torch.compile(conv2attn.convert(original), backend="eager")]
    assert certify(*wrapped, input_size=SIZE).verdict is Verdict.UNSUPPORTED


@pytest.mark.parametrize("compiled", [torch.jit.script, lambda network: torch.jit.trace(network, torch.rand(1, *SIZE))])
def test_a_network_of_torchscript_is_compared_section_by_section(compiled):
    original = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU()).eval()
    near, other = copy.deepcopy(original), copy.deepcopy(original)
    near[1].eps = 1e-3
    other[0].bias.data += 0.1
    with warnings.catch_warnings(action="ignore"):  # torch deprecates scripts
        scripted, near, wrong = map(compiled, (original, near, other))
    report = certify(original, scripted, input_size=SIZE)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.ROUNDED), report.to_text()
    assert certify(scripted, scripted, input_size=SIZE).verdict is Verdict.HOLDS
    report = certify(nn.Sequential(original, nn.ReLU()), nn.Sequential(scripted, nn.ReLU()), input_size=SIZE)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.ROUNDED), report.to_text()
    report = certify(scripted, near, input_size=SIZE)
    assert report.verdict is Verdict.REFUTED
    assert report.place is not None
    assert report.place.what == "its eps is 0.001, not 1e-05"
    assert certify(scripted, wrong, input_size=SIZE).verdict is Verdict.REFUTED


def test_a_frozen_network_of_torchscript_has_no_mode_and_is_compared_all_the_same():
    original = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU()).eval()
    wrong = copy.deepcopy(original)
    wrong[0].bias.data += 0.1
    with warnings.catch_warnings(action="ignore"):  # torch deprecates scripts
        frozen, wrong = (torch.jit.freeze(torch.jit.script(network)) for network in (original, wrong))
    for pair in ((original, frozen), (frozen, original), (frozen, frozen)):
        report = certify(*pair, input_size=SIZE)
        assert report.verdict is Verdict.HOLDS, report.to_text()
    assert certify(frozen, wrong, input_size=SIZE).verdict is Verdict.REFUTED
    assert symmetric(frozen, flip=(0, 1), input_size=SIZE).verdict is Verdict.REFUTED
    with evaluating(frozen):
        pass
    assert not hasattr(frozen, "training")


def test_hooks_before_a_layer_act_once_and_those_behind_it_do_not_change_its_rounding():
    original = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    original[0].register_forward_pre_hook(lambda module, args: (args[0] * 2 + 1,))
    original[0].register_forward_hook(lambda module, args, output: output * 1e6)
    report = certify(original, conv2attn.convert(original), input_size=SIZE)
    assert report.verdict is Verdict.HOLDS, report.to_text()
    assert report.rows[0].max_error <= report.rows[0].bound < 1e-3


def test_a_layer_that_is_given_nothing_is_not_refuted():
    original = looking(lambda net, x: net.conv(x).sum() + net.conv(x[:0]).sum())
    report = certify(original, conv2attn.convert(original), input_size=SIZE)
    assert report.verdict is Verdict.HOLDS, report.to_text()
    assert report.rows[0].max_error <= report.rows[0].bound


def test_that_copies_compute_what_the_networks_do_is_a_premise():
    """Neither network itself is called, so that a table by identity, in which no copy stands, is not seen."""
    original, known = nn.Sequential(nn.Conv2d(3, 4, 3)).eval(), nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    known.load_state_dict(original.state_dict())
    scale = {id(known[0]): 2.0}
    known[0].register_forward_hook(lambda module, args, output: output * scale.get(id(module), 1.0))
    report = certify(original, known, input_size=SIZE)
    assert report.verdict is Verdict.HOLDS
    assert any(
        "in a copy, which code that compares objects by identity may notice" in line for line in report.assumptions
    )


class Scale:
    """A factor that is left out of its pickle, and so of a copy."""

    def __init__(self, factor):
        self.factor = factor

    def __getstate__(self):
        return {}

    def __setstate__(self, state):
        self.factor = 1


class SlottedScale(Scale):
    __slots__ = ("factor",)


class ReducedScale(Scale):
    def __reduce__(self):
        return type(self), (1,)


def scaling(scale):
    """Code that reads an object on inputs that are not run."""
    return After(lambda net, y: y * (net.scale.factor if y.mean() > 100 else 1), scale=scale).eval()


@pytest.mark.parametrize("kind", [Scale, SlottedScale, ReducedScale])
def test_what_an_object_leaves_out_of_its_pickle_is_compared(kind):
    original = scaling(kind(2))
    for other in (scaling(kind(1)), conv2attn.convert(original)):
        assert certify(original, other, input_size=SIZE).verdict is not Verdict.HOLDS
    assert certify(scaling(kind(1)), scaling(kind(1)), input_size=SIZE).strength is Strength.PROVED
