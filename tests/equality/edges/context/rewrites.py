"""Networks that are written in two ways hold; with one operator, constant, axis or edge changed they never do."""

import functools
import random

import pytest
import torch
from equality.pairs import once
from equality.written_twice import ALIKE, IMAGES, SAME, Many, Written, last
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.equality import certify
from conv2attn.equality.context.rewrites import REWRITES
from conv2attn.equality.context.terms import fits_a_float
from conv2attn.equality.matching import match
from conv2attn.verdicts import Strength, Verdict


def terms_of(pairs):
    """What both functions of each pair are in the normal forms of two networks that compute all of them."""
    matching = match(*(Many(each).eval() for each in zip(*pairs, strict=True)), IMAGES)
    return list(zip(*(form.returned for form in matching.forms), strict=True))


@pytest.fixture(scope="module")
def terms():
    """The terms of each pair of both tables, by name."""
    every = SAME | ALIKE
    return dict(zip(every, terms_of(every.values()), strict=True))


def test_every_rule_serves_a_pair_of_networks_that_differ(monkeypatch):
    """A rule that no such pair needs could leave out what makes a difference."""
    rules, called = set(REWRITES.values()), set()

    def recorded(rule):
        return lambda call: (called.add(rule), rule(call))[1]

    for name, rule in REWRITES.copy().items():
        monkeypatch.setitem(REWRITES, name, recorded(rule))
    terms_of(ALIKE.values())
    assert rules - called == set()


def test_every_alias_is_an_operator_of_graphs_and_one_term_with_another_way_of_writing_it(monkeypatch):
    """What no graph of torch.export shows, even where it is called by its name, has no rule."""
    used = set()

    def recorded(name, rule):
        return lambda call: (term := rule(call), used.add(name) if term is not None else None)[0]

    for name, rule in REWRITES.copy().items():
        monkeypatch.setitem(REWRITES, name, recorded(name, rule))
    terms_of(SAME.values())
    assert {*REWRITES} - used == set()


@pytest.mark.parametrize("name", SAME)
def test_two_ways_of_writing_one_map_are_one_term(terms, name):
    assert terms[name][0] is terms[name][1]


@pytest.mark.parametrize("name", ["in place", "linear as einsum", "zeros before a convolution with some"])
def test_two_ways_of_writing_one_map_are_proved(name):
    report = certify(*(Written(each).eval() for each in SAME[name]), images=IMAGES)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


@pytest.mark.parametrize("name", SAME)
def test_two_ways_of_writing_one_map_compute_the_same_on_random_inputs(name):
    first, second = (Written(each).double().eval() for each in SAME[name])
    for seed in range(3):
        given = torch.randn(2, 3, 7, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        torch.testing.assert_close(first(given), second(given), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ALIKE)
def test_what_only_looks_alike_is_another_term(terms, name):
    assert terms[name][0] is not terms[name][1]


def test_all_that_is_one_term_computes_the_same_on_random_inputs(terms):
    """Of both tables: an operator under the rule of another would be one term with it."""
    functions = {}
    for name, pair in (SAME | ALIKE).items():
        for function, term in zip(pair, terms[name], strict=True):
            functions.setdefault(term, []).append(function)
    given = torch.randn(2, 3, 7, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for first, *others in functions.values():
        for other in others:
            pair = (Written(each).double().eval()(given) for each in (first, other))
            torch.testing.assert_close(*pair, rtol=1e-12, atol=1e-12)


ENDS = (
    *("order of a difference", "a maximum with some numbers", "ones before a convolution", "dropout in training"),
    *("a split at places out of order", "bits for numbers"),
)


@pytest.mark.parametrize("name", ENDS)
def test_what_only_looks_alike_never_holds(name):
    report = certify(*(Written(each).eval() for each in ALIKE[name]), images=IMAGES)
    assert report.verdict is not Verdict.HOLDS, report.to_text()
    assert report.between[0].verdict is not Verdict.HOLDS, "equal graphs, which the outputs alone contradict"
    assert "rules of the normal form" not in report.between[0].sentence, "equal graphs, which float64 alone contradicts"


@pytest.mark.parametrize("order", ["same", "other"])
def test_networks_in_one_order_are_written_alike(order):
    def function(n, x, y):
        return x.relu() + y.sigmoid()

    def other(n, x, y):
        gate = y.sigmoid()
        return x.relu() + gate

    original = Written(function).eval()
    network = conv2attn.convert(original)
    network.function = function if order == "same" else other
    matching = match(original, network, IMAGES)
    assert matching.same
    assert matching.written_alike is (order == "same")


UNREAD = {
    "gelu": (lambda x: F.gelu(x), lambda x: F.gelu(x, approximate="tanh")),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.01), lambda x: F.leaky_relu(x, 0.0100001)),
    "elu": (lambda x: F.elu(x, 1.0), lambda x: F.elu(x, 1.0000001)),
    "softmax": (lambda x: x.softmax(1), lambda x: x.softmax(2)),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-6)),
    "roll": (lambda x: x.roll(1, 2), lambda x: x.roll(1, 3)),
    "round": (lambda x: x.round(decimals=9), lambda x: x.round(decimals=8)),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_rule_that_reads_too_little_makes_no_graphs_equal(monkeypatch, name):
    monkeypatch.setitem(REWRITES, f"aten::{name}", lambda call: call.term(call.name, call.first))
    first, second = (Written(lambda n, x, y, function=each: function(x + y)).eval() for each in UNREAD[name])
    report = certify(first, second, images=IMAGES)
    assert report.verdict is Verdict.UNDECIDED, report.to_text()
    assert "in float64 they compute other numbers" in report.between[0].sentence


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("amounts", "same"), [((0, 1), True), ((1, 0), False), ((0, 1, 0, 0), True), ((0, 0), False)])
def test_zeros_before_a_convolution_are_part_of_its_geometry(amounts, same):
    pair = (
        lambda n, x, y: F.conv2d(x, n.short, padding="same"),
        lambda n, x, y: F.conv2d(F.pad(x, amounts), n.short),
    )
    report = certify(*(Written(each).eval() for each in pair), images=IMAGES)
    assert report.verdict is (Verdict.HOLDS if same else Verdict.REFUTED), report.to_text()
    assert [row.part("geometry").verdict for row in report.rows] == [Verdict.HOLDS, Verdict.HOLDS, report.verdict]


class Renamed(nn.Module):
    """The same layers under other names, in another order, inside another module."""

    def __init__(self, net):
        super().__init__()
        self.inner = nn.ModuleDict({"second": net.other, "first": net.conv})
        self.function = net.function

    def forward(self, image):
        return self.function(self, self.inner["first"](image), self.inner["second"](image))


class Called(Written):
    """The first convolution called as a function of its constants, of an image that was `padded` before or by it."""

    def __init__(self, function, padded=False):
        super().__init__(function)
        self.padded = padded

    def forward(self, image):
        around, own = (1, 0) if self.padded else (0, 1)
        padded = F.pad(image, (around,) * 4)
        first = F.conv2d(padded, self.conv.weight, self.conv.bias, padding=own)
        return self.function(self, first, self.other(image))


def joined(net, x, y):
    return (x.relu() + y).mean((2, 3))


def exported(net):
    return torch.export.export(
        net, (IMAGES,), dynamic_shapes=(dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO),)
    ).module()


WHOLE = {
    "itself": lambda net: net,
    "other names": Renamed,
    "wrapped": nn.Sequential,
    "a function of constants": lambda net: Called(joined),
    "a function of constants, padded": lambda net: Called(joined, padded=True),
    "a function of constants, padded and converted": lambda net: conv2attn.convert(Called(joined, padded=True), IMAGES),
    "traced": torch.fx.symbolic_trace,
    "its own export": exported,
    "converted": conv2attn.convert,
    "converted and renamed": lambda net: Renamed(conv2attn.convert(net)),
}


@functools.cache
def whole():
    return once(Written(joined).eval())


@pytest.mark.parametrize("name", WHOLE)
def test_a_network_in_another_form_is_proved(name):
    pair = whole(), once(WHOLE[name](whole()))
    for each in (pair, pair[::-1]):
        report = certify(*each, images=IMAGES)
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


def test_a_program_for_some_sizes_restricts_the_claim():
    net = Written(joined).eval()
    program = torch.export.export(net, (IMAGES,), dynamic_shapes=({0: torch.export.Dim.AUTO},)).module()
    for pair in ((net, program), (program, conv2attn.convert(net))):
        report = certify(*pair, images=IMAGES)
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()
        assert "of sizes with" in report.claim


# Random networks: each step is written in one of several ways, or changed.

RANDOM = 40

STEPS = (
    ((lambda x, y: x.relu(), lambda x, y: x.clamp(min=0), lambda x, y: x.clamp_min(0)), lambda x, y: x.abs()),
    ((lambda x, y: x + y, lambda x, y: y + x, lambda x, y: x.clone().add_(y)), lambda x, y: x - y),
    ((lambda x, y: x * 2, lambda x, y: 2.0 * x, lambda x, y: x / 0.5), lambda x, y: x * 2.0000002),
    ((lambda x, y: x - 1.5, lambda x, y: x + -1.5), lambda x, y: x - 1.4999999),
    ((lambda x, y: x * x, lambda x, y: x.square(), lambda x, y: x**2), lambda x, y: x**3),
    ((lambda x, y: F.silu(x), lambda x, y: torch.sigmoid(x) * x), lambda x, y: F.gelu(x)),
    ((lambda x, y: x.softmax(1), lambda x, y: F.softmax(x, -3)), lambda x, y: x.softmax(2)),
    (
        (lambda x, y: x - x.mean((2, 3), True), lambda x, y: x - F.adaptive_avg_pool2d(x, 1)),
        lambda x, y: x - x.mean((1, 3), True),
    ),
    (
        (lambda x, y: torch.cat(x.chunk(2, 1), 1), lambda x, y: torch.cat([x[:, :2], x.narrow(1, 2, 2)], -3)),
        lambda x, y: torch.cat(x.chunk(2, 1)[::-1], 1),
    ),
    ((lambda x, y: x, lambda x, y: last(x).movedim(-1, 1), lambda x, y: x.unsqueeze(0)[0]), lambda x, y: x.flip(3)),
    (
        (lambda x, y: x.clamp(min=2), lambda x, y: torch.maximum(torch.full_like(x, 2.0), x)),
        lambda x, y: x.clamp(max=2),
    ),
    ((lambda x, y: F.avg_pool2d(x, 3, 1, 1), lambda x, y: F.avg_pool2d(x, (3, 3), (1, 1), 1)), lambda x, y: y),
)


def composed(chosen, steps, changed=None):
    """A function of these steps, each in a way that is drawn; the step of number `changed` is another."""
    functions = [
        STEPS[step][1] if place == changed else chosen.choice(STEPS[step][0]) for place, step in enumerate(steps)
    ]

    def function(net, x, y):
        for each in functions:
            x = each(x, y)
        return x

    return function


def test_random_rewrites_are_one_term_and_a_random_change_never_is():
    chosen = random.Random(0)
    drawn = [[chosen.randrange(len(STEPS)) for _ in range(chosen.randint(2, 6))] for _ in range(RANDOM)]
    for pair, steps in zip(
        terms_of([[composed(chosen, each) for _ in range(2)] for each in drawn]), drawn, strict=True
    ):
        assert pair[0] is pair[1], steps
    places = [chosen.randrange(len(each)) for each in drawn]
    changed = [(composed(chosen, each), composed(chosen, each, at)) for each, at in zip(drawn, places, strict=True)]
    for pair, steps, at in zip(terms_of(changed), drawn, places, strict=True):
        assert pair[0] is not pair[1], (steps, at)


def test_a_folded_batch_norm_is_within_a_tolerance():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
        plain[1].running_var.uniform_(0.5, 2)
    folded = nn.Sequential(nn.utils.fuse_conv_bn_eval(plain[0], plain[1]), nn.ReLU())
    assert certify(plain, folded, images=IMAGES, tolerance=1e-4).verdict is Verdict.HOLDS
    assert certify(plain, folded, images=IMAGES).verdict is not Verdict.HOLDS


class BothCalled(Written):
    """As Written, its convolutions called as functions of their weights."""

    def forward(self, image):
        first = F.conv2d(image, self.conv.weight, self.conv.bias, padding=1)
        return self.function(self, first, F.conv2d(image, self.other.weight, self.other.bias))


@pytest.mark.parametrize("function", [lambda n, x, y: x + y, lambda n, x, y: x])
def test_layers_hold_as_attention_to_functions_of_their_weights(function):
    network = conv2attn.convert(BothCalled(function).eval(), IMAGES)
    found = certify(Written(function).eval(), network, images=IMAGES)
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.PROVED), found.to_text()
    with torch.no_grad():
        network.conv.weight[0, 0, 0, 0] += 0.1
    assert certify(Written(function).eval(), network, images=IMAGES).verdict is Verdict.REFUTED


@pytest.mark.parametrize("number", [2**53 - 1, 2**53, 2**53 + 1, -(2**53), -(2**53) - 1])
def test_integers_fit_a_float_up_to_its_significand(number):
    assert fits_a_float(number) is (int(float(number)) == number)
