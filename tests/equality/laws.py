"""Laws of certificates: what differs never holds, what is the same is proved, and a guess is never a proof."""

import copy
import functools

import pytest
import torch
from equality.cases import ERRORS, TWINS, Autocast, Branching, ByValue, Functional, made, parametrised, recurrent
from equality.pairs import once
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.equality.context import bound
from conv2attn.verdicts import Strength, Verdict

IMAGES = torch.randn(2, 4, 14, 11, generator=torch.Generator().manual_seed(3))


@functools.cache
def original_of(kind):
    return once(made(kind))


def pair_of(case):
    kind, change = case
    original = original_of(kind)
    converted = conv2attn.convert(original, example_input=IMAGES)
    change(converted)
    return original, converted


@pytest.mark.parametrize("name", ERRORS)
def test_a_changed_context_never_holds(name):
    report = certify(*pair_of(ERRORS[name]), images=IMAGES)
    assert report.verdict in (Verdict.REFUTED, Verdict.UNDECIDED), report.to_text()
    assert all(finding.sentence for finding in report.between if finding.verdict is not Verdict.HOLDS)


READ = ["what dropout reads", "slope of an activation", "statistics of the batch", "arguments of a block"]


@pytest.mark.parametrize("name", READ)
def test_what_an_operator_reads_is_part_of_its_graph(name):
    report = certify(*pair_of(ERRORS[name]), images=IMAGES)
    assert report.verdict is Verdict.REFUTED
    assert len(set(report.context.digests)) == 2


@pytest.mark.parametrize("name", TWINS)
def test_a_harmless_twin_is_proved(name):
    report = certify(*pair_of(TWINS[name]), images=IMAGES)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


@pytest.mark.parametrize("kind", [Functional, Branching, Autocast, recurrent, parametrised])
def test_a_network_is_proved_to_be_itself_and_its_copy(kind):
    network = original_of(kind)
    for second in (network, copy.deepcopy(network)):
        report = certify(network, second, images=IMAGES)
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


def test_a_branch_on_values_leaves_the_context_undecided_and_names_the_line():
    original = made(ByValue)
    report = certify(original, conv2attn.convert(original), images=IMAGES)
    assert report.verdict is Verdict.UNDECIDED
    assert [row.verdict for row in report.rows] == [Verdict.HOLDS]
    assert "cases.py" in report.between[0].sentence
    assert "hidden.sum() > 0" in report.between[0].sentence


def test_a_claim_names_the_sizes_that_it_is_made_for():
    volumes = nn.Sequential(nn.Conv3d(1, 1, 1))
    converted = conv2attn.convert(volumes)
    for net in (volumes, converted):
        net.register_forward_hook(lambda module, given, out: out if given[0].shape[4] <= 9 else -out)
    assert "width <= 9" in certify(volumes, converted, input_size=(1, 5, 6, 7)).claim
    original = original_of(Branching)
    assert "height <= 20" in certify(original, conv2attn.convert(original), images=IMAGES).claim
    original = original_of(Functional)
    assert "sizes" not in certify(original, original, images=IMAGES).claim


def test_a_hook_that_changes_no_number_is_undecided_since_the_graphs_differ():
    original, converted = pair_of(TWINS["nothing"])
    converted.norm.register_forward_hook(lambda module, args, output: output + 0)
    report = certify(original, converted, images=IMAGES)
    assert report.verdict is Verdict.UNDECIDED
    assert "add in norm" in report.between[0].sentence


def test_the_first_node_that_differs_is_named_with_its_line():
    original, converted = pair_of(ERRORS["slope of an activation"])
    sentence = certify(original, converted, images=IMAGES).between[0].sentence
    assert sentence.startswith("in the second leaky_relu (cases.py:")


@pytest.mark.parametrize(("limit", "seen"), [(1e3, "(both compute the same numbers here)"), (0.1, "it computes 0.1")])
def test_the_numbers_of_the_first_node_that_differs_are_compared(limit, seen):
    original = nn.Sequential(nn.Conv2d(4, 2, 1), nn.Hardtanh(0.0, 1e4))
    converted = conv2attn.convert(original)
    converted[1].max_val = limit
    assert seen in certify(original, converted, images=IMAGES, tolerance=1e-3).between[0].sentence


def test_a_difference_above_the_bound_of_equal_graphs_is_undecided(monkeypatch):
    monkeypatch.setattr(bound.BoundWalk, "error_of", lambda walk, node: 0.0)
    original = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU())
    report = certify(original, conv2attn.convert(original, alpha=8.0), images=IMAGES, tolerance=1.0)
    assert report.outputs.max_difference > report.outputs.bound == 0.0
    assert [each.code for each in report.between if each.verdict is Verdict.UNDECIDED] == ["C2A404"]


HOOKS = {
    "the code of the second network is for width <= 100": lambda out: out * 2 if out.shape[-1] > 100 else out,
    "in the second the structure of what is returned differs": lambda out: {"only": out},
    "the second cannot be exported as a graph: its code branches on values": lambda out: out if out.max() > 1 else -out,
}


@pytest.mark.parametrize("told", HOOKS)
def test_a_difference_of_graphs_is_told_in_a_sentence_and_nothing_else_is_printed(told, capfd):
    original = torch.nn.Sequential(torch.nn.Conv2d(4, 2, 1))
    converted = conv2attn.convert(original)
    converted.register_forward_hook(lambda module, args, out: HOOKS[told](out))
    assert certify(original, converted, images=IMAGES).between[0].sentence.startswith(told)
    assert capfd.readouterr() == ("", "")


class Residual(nn.Module):
    """An activation beside what it reads."""

    def __init__(self):
        super().__init__()
        self.layer, self.active, self.beside = nn.Conv2d(4, 4, 3, padding=1), nn.LeakyReLU(0.3), True
        self.norm, self.dropout = nn.BatchNorm2d(4), nn.Dropout()

    def forward(self, image):
        hidden = self.dropout(self.norm(self.layer(image))) + 1
        return self.active(hidden) + hidden if self.beside else self.active(hidden)


HARMLESS = {
    "in place": lambda net: setattr(net.active, "inplace", True),
    "copy": lambda net: net.active.register_forward_hook(lambda module, given, out: out.clone()),
    "detached": lambda net: net.layer.register_forward_hook(lambda module, given, out: out.detach()),
    "plain layout": lambda net: net.active.register_forward_pre_hook(lambda module, given: given[0].contiguous()),
}


@pytest.mark.parametrize(
    ("name", "beside", "verdict"),
    [
        ("in place", False, Verdict.HOLDS),
        ("in place", True, Verdict.REFUTED),
        *((name, True, Verdict.HOLDS) for name in ("copy", "detached", "plain layout")),
    ],
)
def test_copies_and_updates_in_place_are_no_difference_unless_something_reads_what_they_change(name, beside, verdict):
    original = Residual().eval()
    original.beside = beside
    converted = conv2attn.convert(original)
    HARMLESS[name](converted)
    report = certify(original, converted, images=IMAGES)
    assert report.verdict is verdict, report.to_text()
    assert len(set(report.context.digests)) == (1 if report else 2)


def test_what_shows_on_odd_sides_alone_is_refuted_and_refusing_them_is_not():
    original = nn.Sequential(nn.Conv2d(4, 2, 1), nn.MaxPool2d(2))
    rounded, refusing = conv2attn.convert(original), conv2attn.convert(original)
    rounded[1].ceil_mode = True
    even = IMAGES[..., :10]
    found = certify(original, rounded, images=even).between[0]
    assert found.verdict is Verdict.REFUTED, found

    def refuse(module, given):
        assert given[0].shape[-1] == 10

    refusing[1].register_forward_pre_hook(refuse)
    refusing[1].register_forward_hook(lambda module, given, out: out + 0)
    assert certify(original, refusing, images=even).between[0].verdict is Verdict.UNDECIDED
    sized = nn.Sequential(nn.Conv2d(4, 2, 1), nn.Flatten(), nn.Linear(280, 3))
    converted = conv2attn.convert(sized, example_input=even)
    converted[0].register_forward_hook(lambda module, given, out: out + 0)
    assert certify(sized, converted, images=even).between[0].verdict is Verdict.UNDECIDED


def test_the_users_networks_are_as_they_were():
    original = made(Functional)
    converted = conv2attn.convert(original, example_input=IMAGES)
    before = [{name: dict(vars(module)) for name, module in side.named_modules()} for side in (original, converted)]
    certify(original, converted, images=IMAGES)
    after = [{name: dict(vars(module)) for name, module in side.named_modules()} for side in (original, converted)]
    for first, second in zip(before, after, strict=True):
        assert first.keys() == second.keys()
        for name in first:
            assert first[name].keys() == second[name].keys(), name
            for key, held in first[name].items():
                assert held is second[name][key] or held == second[name][key], (name, key)
