"""Images that show what is refuted of whole networks: only if they do, and of no other fault."""

import json
import math
from dataclasses import replace

import pytest
import torch
from equivalence import planted
from equivalence.planted import image, pair
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.equivalence import certify, replay
from conv2attn.equivalence.calls import MetCall, compare_calls
from conv2attn.equivalence.compared import compare_layers
from conv2attn.equivalence.computed.rounding import difference_bounds
from conv2attn.equivalence.evidence.images import TRIED, Look, looks, search
from conv2attn.equivalence.evidence.inputs import NETWORK, PARTS, Witness
from conv2attn.equivalence.evidence.pointwise import rounding_allowed
from conv2attn.equivalence.readings.reading import reading_of, reading_of_convolution
from conv2attn.errors import UsageError
from conv2attn.theorem import attention_for, read
from conv2attn.verdicts import Verdict


def kept(report):
    """What `verify --save-witness` writes."""
    return {"witnesses": [vars(witness) for witness in report.witnesses]}


def right(net):
    """Nothing planted."""


def look(plant=right, given=None):
    """The networks of the planted errors, compared on one image."""
    return Look.at(*pair(plant), image()[1] if given is None else given, "an image")


OF_OUTPUTS = {
    "NaN in an output": "output: 1 number of the second not finite, the first at image 0, class 2; "
    "output, class 2 is nan, not",
    "an output of another shape": "output has shape (1, 1), not (1, 5)",
    "an output that broadcasts": "output has shape (5,), not (1, 5)",
    "an output of another dtype": "output has dtype torch.float64, not torch.float32",
    "an empty output": "output has shape (0, 5), not (1, 5)",
    "an output missing": "output is missing",
    "an output too many": "output is missing; output[0] is new; output[1] is new",
}


@pytest.mark.parametrize("error", planted.OUTPUTS)
def test_an_error_in_the_outputs_is_shown_by_an_image_and_not_by_the_corrected_network(error):
    original, converted = pair(planted.PLANTED[error].plant)
    report = certify(original, converted, images=image())
    structure, outputs = report.witnesses
    assert (structure.layer, structure.part) == (NETWORK, "structure")
    assert (outputs.layer, outputs.part, outputs.index) == (NETWORK, "outputs", 0)
    assert torch.equal(outputs.image, image()[0])
    assert OF_OUTPUTS.get(error, "") in outputs.in_words()
    assert outputs.shows
    assert not outputs.exceeds
    assert report.unshown == ()
    again = replay(kept(report), "shown.pt", original, converted)
    assert [each.verdict for each in again.shown] == [Verdict.REFUTED] * 2
    assert [each.layer for each in again.shown] == ["(network) structure", "(network) outputs"]
    assert [each.sentence for each in again.shown] == [structure.fact, outputs.fact]
    after = replay(kept(report), "shown.pt", original, pair(right)[1])
    assert (after.exit_code, [each.verdict for each in after.shown]) == (3, [Verdict.UNDECIDED] * 2)


SHOWN = {
    "an argument changed",
    "a layer replaced",
    "training mode",
    "a hook on a layer",
    "a forward replaced",
    "a hook that scales by little",
}


@pytest.mark.parametrize("error", planted.BETWEEN)
def test_an_error_of_structure_is_shown_where_an_output_shows_it(error):
    original, converted = pair(planted.PLANTED[error].plant)
    report = certify(original, converted, images=image())
    assert report.verdict is Verdict.REFUTED
    assert {each.part for each in report.between if each.verdict is Verdict.REFUTED} >= {"structure"}
    if error not in SHOWN:
        assert (report.witnesses, report.unshown) == ((), ("structure: no output shows it on the 2 images tried",))
        assert "structure: no output shows it on the 2 images tried\n" in report.to_text()
        assert json.loads(report.to_json())["unshown"] == list(report.unshown)
        return
    assert report.unshown == ()
    assert report.witnesses[0].part == "structure"
    assert "shows it: with the layers of the first in both, output" in report.witnesses[0].in_words()
    assert replay(kept(report), "shown.pt", original, converted).exit_code == 1
    again = replay(kept(report), "shown.pt", original, pair(right)[1])
    assert again.exit_code == 3
    assert again.shown[0].sentence.startswith("with the layers of the first in both, output, class ")
    assert again.shown[0].sentence.endswith(" in both: this input shows no difference")


def test_one_ulp_between_the_layers_is_told_from_rounding():
    torch.manual_seed(0)
    original = nn.Sequential(nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5), nn.Conv2d(5, 3, 3)).eval()
    converted = conv2attn.convert(original)
    planted.ulp(converted[1].weight.data, (2,))
    report = certify(original, converted, images=image())
    [witness] = report.witnesses
    assert (witness.part, witness.allowed, witness.output) == ("structure", 0.0, "output")
    assert 0 < witness.difference < 1e-6
    assert (len(witness.place), witness.count > 0) == (4, True)
    assert list(witness.axes) == ["channel", "row", "column"]
    assert replay(kept(report), "f.pt", original, converted).exit_code == 1
    assert replay(kept(report), "f.pt", original, conv2attn.convert(original)).exit_code == 3


def test_what_replaces_a_function_between_the_layers_is_shown():
    torch.manual_seed(0)
    original = nn.Sequential(nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Conv2d(5, 3, 3), nn.Flatten(), nn.Linear(210, 7))
    converted = conv2attn.convert(original)
    converted[1] = nn.GELU()
    [witness] = certify(original, converted, images=image()).witnesses
    assert list(witness.axes) == ["class"]
    assert witness.difference > 0.01
    given = witness.image[None]
    assert witness.original == original(given)[witness.place].item()
    with torch.no_grad():
        assert abs(witness.converted - converted(given)[witness.place].item()) < 1e-5
    assert witness.count == 7


def test_images_are_looked_at_from_the_one_that_differs_most():
    original = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(36, 4))
    converted = conv2attn.convert(original)
    converted.register_forward_hook(lambda module, args, output: output + torch.arange(len(output))[:, None])
    given = torch.rand(6, 2, 5, 6, generator=torch.Generator().manual_seed(0))
    compared = compare_layers(original, converted, given, "images", exactly=True)
    found = list(looks(original, converted, given, compared))
    assert ([index for index, _ in found], TRIED) == ([5, 4, 3, 2], 4)
    for index, each in found:
        assert torch.equal(each.image, given[index])
        assert each.compared.first.shape == (1, 4)
    [(index, only)] = looks(original, converted, given[:1], compared)
    assert (index, only.compared) == (0, compared)
    assert torch.equal(only.image, given[0])
    report = certify(original, converted, images=given)
    assert report.unshown == ("structure: no output shows it on the 4 images tried",)


class Wants(nn.Module):
    """A network that takes two images and no fewer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(4, 5, 3)

    def forward(self, images):
        if len(images) < 2:
            raise RuntimeError("too few")
        return self.layer(images).sum((2, 3))


def test_where_no_image_can_be_looked_at_by_itself_none_shows_it():
    original = Wants()
    converted = conv2attn.convert(original)
    converted.register_forward_hook(lambda module, args, output: output * math.nan)
    report = certify(original, converted, images=image())
    assert report.witnesses == ()
    assert report.unshown == tuple(
        f"{part}: no output shows it on the 2 images tried" for part in ("structure", "outputs")
    )
    single = certify(original, original, images=image())
    assert (single.verdict, single.unshown) == (Verdict.HOLDS, ())


def test_nothing_is_looked_for_where_nothing_is_refuted(monkeypatch):
    original, converted = pair(right)
    compared = compare_layers(original, converted, image(), "images", exactly=True)

    def fail(*args):
        raise AssertionError("looked")

    monkeypatch.setattr("conv2attn.equivalence.evidence.images.looks", fail)
    assert search(original, converted, image(), compared, []) == ((), ())
    with pytest.raises(AssertionError, match="looked"):
        search(original, converted, image(), compared, ["outputs"])


def test_no_more_images_are_looked_at_than_it_takes(monkeypatch):
    original, converted = pair(planted.PLANTED["training mode"].plant)
    compared = compare_layers(original, converted, image(), "images", exactly=True)
    asked = []
    before = Look.at

    def counted(*arguments):
        asked.append(arguments[3])
        return before(*arguments)

    monkeypatch.setattr(Look, "at", staticmethod(counted))
    shown, unshown = search(original, converted, image(), compared, ["structure", "structure"])
    assert (len(shown), unshown, asked) == (1, (), ["an image by itself"])
    first = shown[0].index
    shown, unshown = search(original, converted, image(), compared, ["outputs", "structure"])
    assert ([(each.part, each.index) for each in shown], len(asked)) == ([("structure", first)], 3)
    assert unshown == ("outputs: no output shows it on the 2 images tried",)
    alone = compare_layers(original, pair(right)[1], image()[:1], "images", exactly=True)
    assert search(original, pair(right)[1], image()[:1], alone, ["structure"])[1] == (
        "structure: no output shows it on the 1 image tried",
    )


def cancelling(layer):
    """Head 0 in three that add up to it exactly, two of them large, so that much is rounded."""
    planted.heads(layer, [0, 0, *range(layer.heads)])
    whole = planted.taps(layer)[0].clone()
    coarse = (whole * 2**12).round() / 2**12
    for head, part in enumerate((coarse + 2**11, whole - coarse, torch.full_like(whole, -(2**11)))):
        planted.taps(layer)[head] = part


def test_rounding_refutes_no_network():
    at = look(planted.on("border", cancelling))
    outputs, structure, bare = at.witness("outputs"), at.witness("structure"), at.witness("tolerance")
    assert [(each.layer, each.part) for each in (outputs, structure, bare)] == [
        ("(network)", "outputs"),
        ("(network)", "structure"),
        ("(network)", "tolerance"),
    ]
    assert [each.shows for each in (outputs, structure, bare)] == [False] * 3
    assert outputs.difference > 0
    assert (outputs.allowed, outputs.told, outputs.count) == (None, "", 0)
    assert (structure.allowed, structure.difference, structure.told, structure.count) == (0.0, 0.0, "", 0)
    assert bare.allowed is None
    assert torch.equal(outputs.image, image()[1])


def test_what_is_not_finite_behind_exchanged_layers_is_shown():
    original, converted = pair(lambda net: nn.init.constant_(net.norm.weight, math.inf))
    (structure,) = [each for each in certify(original, converted, images=image()).witnesses if each.part == "structure"]
    assert " of the second not finite" in structure.told


def test_a_second_that_does_not_run_is_shown():
    def fail(*args):
        raise RuntimeError("broken\nin two")

    original, converted = pair(lambda net: net.last.register_forward_pre_hook(fail))
    structure, outputs = certify(original, converted, images=image()).witnesses
    told = "the second does not run where the first does: RuntimeError: broken"
    assert (outputs.told, outputs.fact, structure.told) == (told, told, told)
    assert structure.fact == f"with the layers of the first in both, {told}"
    assert outputs.in_words().endswith(f" shows it: {told}")


def test_after_an_overflow_in_the_first_an_infinity_of_the_second_shows_nothing():
    torch.manual_seed(0)
    original = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1))
    spoilt = conv2attn.convert(original)
    spoilt.register_forward_hook(lambda module, args, output: output * torch.inf)
    quiet = torch.rand(2, 5, 6)
    assert Look.at(original, spoilt, quiet, "an image").witness("outputs").told != ""
    assert Look.at(original, spoilt, quiet * 3e38, "an image").witness("outputs").told == ""


def test_a_tolerance_is_one_for_the_numbers_and_for_nothing_else():
    at = look(planted.on("last", lambda layer: layer.bias.data[3].add_(1.0)))
    within, beyond = at.witness("tolerance", 2.0), at.witness("tolerance", 0.5)
    assert (within.shows, within.count, within.allowed) == (False, 0, 2.0)
    assert (beyond.shows, beyond.count, beyond.allowed, beyond.axes) == (True, 1, 0.5, {"class": 3})
    assert not at.witness("outputs", 0.5).shows
    assert at.witness("structure", 9.0).shows
    assert at.witness("outputs", 0.5).allowed is None


def test_a_tolerance_that_images_exceed_has_a_witness():
    original, _ = pair(right)
    soft = conv2attn.convert(original, alpha=2)
    report = certify(original, soft, images=image(), tolerance=1e-3)
    [witness] = report.witnesses
    assert (witness.part, witness.allowed, witness.count) == ("tolerance", 1e-3, 5)
    assert "output, class " in witness.in_words()
    assert replay(kept(report), "f.pt", original, soft, 1e-3).exit_code == 1
    corrected = conv2attn.convert(original)
    corrected.last.bias.data += 5e-4
    after = replay(kept(report), "f.pt", original, corrected, 1e-3)
    assert (after.exit_code, "the tolerance allows 0.001: this input shows nothing" in after.to_text()) == (3, True)
    bare = replay(kept(report), "f.pt", original, soft)
    assert bare.exit_code == 3
    assert "off by" in bare.shown[0].sentence
    assert bare.shown[0].sentence.endswith("what the tolerance allows is not known: this input shows nothing")


class Shared(nn.Module):
    """Two layers, or one in the place of both."""

    def __init__(self, once):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.scale = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), 1.0
        self.two.load_state_dict(self.one.state_dict())
        if once:
            self.two = self.one

    def forward(self, images):
        return self.two(self.one(images)) * self.scale


class Noisy(nn.Module):
    """A network that computes other numbers each time."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.scale, self.calls = nn.Conv2d(4, 4, 1), 1.0, []

    def forward(self, images):
        self.calls.append(len(CALLS))
        CALLS.append(1)
        return self.layer(images) * self.scale + self.calls[-1]


CALLS: list[int] = []


def test_where_layers_cannot_be_exchanged_structure_is_not_told_from_rounding():
    for original, network in ((Shared(once=False), Shared(once=True)), (Noisy(), Noisy())):
        network.scale = 2.0
        found = Look.at(original, network, image()[0], "an image").witness("structure")
        assert (found.part, found.allowed, found.told, found.premise, found.shows) == ("structure", None, "", "", False)
        assert found.difference > 0.1
        [shown] = replay({"witnesses": [vars(found)]}, "f.pt", original, network).shown
        assert shown.verdict is Verdict.UNDECIDED
        assert shown.sentence.endswith("what rounding allows is not known: this input shows nothing")
    network.register_forward_hook(lambda module, args, output: output.double())
    assert Look.at(original, network, image()[0], "an image").witness("structure").told == ""
    same = Shared(once=True)
    same.scale = 2.0
    assert Look.at(Shared(once=True), same, image()[0], "an image").witness("structure").shows


def test_the_layers_of_the_first_take_the_place_of_those_of_the_second():
    original, converted = pair(planted.on("square", planted.alpha_lowered))
    at = Look.at(original, converted, image()[0], "an image")
    exchanged = at.with_layers_exchanged()
    with torch.no_grad():
        assert torch.equal(exchanged(image()), original(image()))
        assert not torch.equal(converted(image()), original(image()))
    assert not at.witness("structure").shows
    named = dict(original.named_modules())
    assert "forward" not in vars(named["square"])
    assert "forward" not in vars(converted.square)


def test_hooks_that_both_have_on_a_layer_run_once_in_the_exchanged_network():
    original, _ = pair(right)
    original.square.register_forward_hook(lambda module, args, output: 2 * output)
    converted = conv2attn.convert(original)
    converted.add_module("more", nn.Identity())
    report = certify(original, converted, images=image())
    assert (report.verdict, report.witnesses, report.unshown) == (Verdict.HOLDS, (), ())


def test_functional_convolutions_are_left_to_torch_in_the_exchanged_network():
    original, converted = calls(lambda net: (moved(net), softened(net)))
    exchanged = Look.at(original, converted, image()[0], "an image").with_layers_exchanged()
    with torch.no_grad():
        ours, theirs, wrong = (net(image()) for net in (original, exchanged, converted))
    assert all(torch.equal(ours[key], theirs[key]) and not torch.equal(ours[key], wrong[key]) for key in ours)


class Calls(nn.Module):
    """Functional convolutions of two geometries beside a layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.layer = nn.Parameter(torch.randn(5, 4, 3, 3)), nn.Conv2d(5, 3, 3)
        self.norm = nn.BatchNorm2d(5).eval()

    def forward(self, images):
        near = self.layer(torch.relu(self.norm(F.conv2d(images, self.weight, padding=1))))
        return {"near": near, "far": F.conv2d(images, self.weight, stride=2).sum((2, 3))}


def calls(plant=right):
    """Such a network, and its conversion with something planted."""
    original = Calls()
    converted = conv2attn.convert(original, example_input=image())
    plant(converted)
    return original, converted


def test_between_functional_convolutions_one_ulp_is_told_from_rounding():
    for plant in (
        lambda net: planted.ulp(net.norm.weight.data, (2,)),
        lambda net: planted.ulp(net.weight.data, (2, 1, 1, 1)),
    ):
        original, converted = calls(plant)
        [witness] = certify(original, converted, images=image()).witnesses
        assert (witness.part, witness.output) == ("structure", "output['near']")
        assert 0 < witness.difference < 1e-5
        content = {"witnesses": [vars(witness)]}
        assert replay(content, "f.pt", original, converted).exit_code == 1
        assert replay(content, "f.pt", original, calls()[1]).exit_code == 3


def moved(net):
    net.attending_calls.layers[0].encoding.center.data[0, 0] += 1


def softened(net):
    net.attending_calls.layers[1].encoding.alpha.data.fill_(3)


@pytest.mark.parametrize(("plant", "name"), [(moved, "(root):conv2d"), (softened, "(root):conv2d#2")])
def test_a_functional_call_is_shown_by_an_image_of_the_network(plant, name):
    original, converted = calls(plant)
    report = certify(original, converted, images=image())
    [witness] = report.witnesses
    assert (witness.layer, witness.part, witness.exceeds, witness.exact) == (name, "call", True, None)
    assert torch.equal(witness.image, image()[witness.index])
    assert list(witness.axes) == ["output channel", "row", "column"]
    assert f"{name}: an input 4x14x11 within +-" in report.to_text()
    stride, padding = (1, 1) if plant is moved else (2, 0)
    with torch.no_grad():
        whole = F.conv2d(witness.image[None], original.weight, stride=stride, padding=padding)[0]
    assert witness.original == whole[witness.place].item()
    row = next(row for row in report.rows if row.name == name)
    assert 0 < witness.difference <= row.max_error
    again = replay(kept(report), "f.pt", original, converted)
    assert (again.exit_code, again.shown[0].layer) == (1, name)
    assert "rounding allows" in again.shown[0].sentence
    assert again.shown[0].sentence.endswith(f"({witness.count} numbers off)")
    after = replay(kept(report), "f.pt", original, calls()[1])
    assert (after.exit_code, after.shown[0].verdict) == (3, Verdict.UNDECIDED)
    assert after.shown[0].sentence.startswith("output channel ")


def test_where_nothing_is_known_of_the_rounding_of_a_call_nothing_but_exact_numbers_shows_it(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.evidence.images.rounding_allowed", lambda *args: None)
    found = Look.at(*calls(softened), image()[0], "an image").witness("(root):conv2d#2")
    assert (found.allowed, found.exact, found.shows, found.difference > 0.1) == (None, None, False, True)
    at = Look.at(*calls(softened), image()[0], "an image")
    call = at.compared.calls["(root):conv2d#2"]
    alike = torch.zeros_like(call.worst[1])
    alike[0, 0, 0] = 100.0
    other = alike.clone()
    other[1, 2, 3] = -1.0
    call.worst = (call.worst[0], alike, other)
    assert at.witness("(root):conv2d#2").place == (1, 2, 3)
    exact = Look.at(*calls(moved), image()[0], "an image").witness("(root):conv2d")
    assert (exact.allowed, exact.exceeds, exact.shows) == (None, False, True)
    assert math.isclose(exact.exact, exact.converted - exact.original, rel_tol=1e-4)


class Empty(nn.Module):
    """A functional convolution of no image."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 4, 3, 3))

    def forward(self, images):
        return images.sum((2, 3)) + F.conv2d(images[:0], self.weight).sum()


def test_a_call_of_no_image_shows_nothing():
    original = Empty()
    converted = conv2attn.convert(original, example_input=image())
    found = Look.at(original, converted, image()[0], "an image").witness("(root):conv2d")
    assert (found.layer, found.part, found.where, found.shows) == ("(root):conv2d", "call", "", False)


def test_a_call_that_fails_on_some_images_tells_both():
    original = Twice((1.0, 3.0))
    converted = conv2attn.convert(original, example_input=image())
    moved(converted)
    at = Look.at(original, converted, image()[0], "an image")
    at.compared.calls["(root):conv2d"].seen.trouble = "it fails on another image"
    found = at.witness("(root):conv2d")
    assert (found.told, found.exceeds) == ("it fails on another image", True)
    assert found.fact == f"it fails on another image; {found.numbers}"


def test_a_call_whose_leak_is_too_small_to_be_seen_is_shown_by_no_image():
    original, converted = calls(lambda net: net.attending_calls.layers[1].encoding.alpha.data.fill_(16))
    report = certify(original, converted, images=image())
    assert (report.verdict, report.witnesses) == (Verdict.REFUTED, ())
    assert report.unshown == ("(root):conv2d#2: no output shows it on the 2 images tried",)


def test_a_call_that_fails_or_cannot_be_read_is_told():
    original, converted = calls()
    vars(converted.attending_calls.layers[0])["forward"] = lambda given, weights=None: given[:, :1]
    found = Look.at(original, converted, image()[0], "an image").witness("(root):conv2d")
    assert (found.told, found.shows) == ("an output has shape (1, 1, 14, 11), not (1, 5, 14, 11)", True)
    assert (found.where, found.part, found.layer) == ("", "call", "(root):conv2d")
    assert torch.equal(found.image, image()[0])
    original, converted = calls()
    attending = converted.attending_calls.layers[0]
    vars(attending)["forward"] = attending.forward
    found = Look.at(original, converted, image()[0], "an image").witness("(root):conv2d")
    assert (found.told, found.where, found.shows) == ("", "", False)


def test_a_call_keeps_the_image_on_which_it_differs_most():
    convolution = read(nn.Conv2d(2, 3, 1))
    met = MetCall("f:conv2d", convolution, conv2attn.convert(nn.Conv2d(2, 3, 1)))
    assert met.worst is None
    given, result = torch.rand(3, 2, 4, 5), torch.rand(3, 3, 4, 5)
    theirs = result.clone()
    theirs[1, 2, 3, 4] += 1
    met.keep(given, result, theirs)
    for held, expected in zip(met.worst, (given[1], result[1].double(), theirs[1].double()), strict=True):
        assert held.dtype is expected.dtype
        assert torch.equal(held, expected)
    assert met.worst[0].untyped_storage().nbytes() == given[1].numel() * 4
    met.keep(given[2], result[2], theirs[2])
    assert torch.equal(met.worst[0], given[2])


class Twice(nn.Module):
    """The same functional convolution of two images, of which the second is the larger."""

    def __init__(self, scales):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.scales = nn.Parameter(torch.randn(5, 4, 3, 3)), scales

    def forward(self, images):
        return sum(F.conv2d(images * scale, self.weight).sum((2, 3)) for scale in self.scales)


@pytest.mark.parametrize("scales", [(1.0, 3.0), (3.0, 1.0), (3.0, -3.0)])
def test_of_several_calls_the_one_that_differs_most_is_kept(scales):
    original = Twice(scales)
    converted = conv2attn.convert(original, example_input=image())
    moved(converted)
    at = Look.at(original, converted, image()[0], "an image")
    [call] = at.compared.calls.values()
    assert torch.equal(call.worst[0], image()[0] * 3)
    assert torch.equal(at.witness("(root):conv2d").image, image()[0])


def test_calls_that_return_nothing_keep_nothing():
    original = Twice((1.0,))
    [call] = compare_calls(original, conv2attn.convert(original, example_input=image()), image()[:0])
    assert (call.seen.calls, call.seen.trouble, call.worst) == (1, "", None)


def test_a_call_is_read_as_the_convolution_and_the_attention_that_it_is():
    for name, kind in (("f:conv2d", nn.Conv2d), ("f:conv_transpose2d", nn.ConvTranspose2d)):
        layer = kind(2, 3, (3, 2))
        convolution, attention = read(layer), conv2attn.convert(layer)
        first, second = MetCall(name, convolution, attention).readings()
        expected = reading_of_convolution(convolution, transposed=kind is nn.ConvTranspose2d)
        assert (first.starts, first.partial_sums) == (expected.starts, expected.partial_sums)
        assert second.positions is not None
        assert torch.equal(second.weights.output, convolution.taps())
        right_one = reading_of(attention_for(convolution))
        given = torch.rand(2, 7, 8)
        bounds = difference_bounds(first, right_one, given.abs().max().item(), tuple(right_one.padding.sides((7, 8))))
        assert rounding_allowed(convolution, first, given) == bounds


def test_parts_are_these():
    assert PARTS == ("outputs", "structure", "tolerance", "call")


def of_network(**changes):
    fields = {"part": "outputs", "output": "output", "place": (0, 3), "original": 1.0, "converted": 2.0}
    return Witness(NETWORK, torch.full((2, 5, 4), -3.0), **{**fields, **changes})


def test_a_witness_of_a_network_is_told_with_the_image_and_the_axes_of_the_output():
    bare = Witness("a", torch.zeros(1))
    assert (bare.place, bare.count, bare.part, bare.output, bare.told, bare.index) == ((), 0, "", "", "", None)
    assert (math.isnan(bare.original), math.isnan(bare.converted), bare.axes, bare.where) == (True, True, {}, "")
    plain = of_network()
    assert (plain.axes, plain.where, plain.premise) == ({"class": 3}, "output, class 3", "")
    assert plain.in_words() == "an input 2x5x4 within +-3 shows it: output, class 3 is 2, not 1"
    assert of_network(index=0, count=1).in_words() == (
        "an input 2x5x4 within +-3 (image 0) shows it: output, class 3 is 2, not 1 (1 number off)"
    )
    told = of_network(told="output[1] is missing", output="", place=())
    assert (told.shows, told.fact, told.numbers) == (True, "output[1] is missing", "")
    both = of_network(told="it is not finite", converted=math.nan, count=2)
    assert both.fact == "it is not finite; output, class 3 is nan, not 1 (2 numbers off)"
    deep = of_network(output="output['a']", place=(0, 1, 2, 3))
    assert deep.where == "output['a'], channel 1, row 2, column 3"
    assert of_network(place=(0,)).where == of_network(place=()).where == "output"
    between = of_network(part="structure", allowed=0.0)
    assert between.fact == "with the layers of the first in both, output, class 3 is 2, not 1"
    assert (between.premise, of_network(part="structure").premise) == ("with the layers of the first in both, ", "")
    assert of_network(allowed=0.0).premise == ""
    call = Witness("f:conv2d", torch.ones(2, 5, 4), (1, 2, 3), 1.0, 2.0, 9.0, 0.25, 0, "call", index=1)
    assert call.in_words() == (
        "an input 2x5x4 within +-1 (image 1) shows it: output channel 1, row 2, column 3 is 2, not 1, "
        "and in exact arithmetic off by 0.25"
    )
    assert not replace(told, told="").shows


def test_an_image_that_does_not_fit_the_networks_is_an_error():
    original, converted = pair(planted.PLANTED["training mode"].plant)
    content = kept(certify(original, converted, images=image()))
    entry = content["witnesses"][0]
    with pytest.raises(UsageError, match=r"the original does not run on the input in f\.pt: .*double"):
        replay({"witnesses": [{**entry, "image": entry["image"].double()}]}, "f.pt", original, converted)
    with pytest.raises(UsageError, match=r"the original does not run on the input in f\.pt: "):
        replay({"witnesses": [{**entry, "image": torch.ones(7, 3, 3)}]}, "f.pt", original, converted)
    with pytest.raises(UsageError, match=r"the original does not run on the input in f\.pt: "):
        replay({"witnesses": [{**entry, "image": torch.ones(7)}]}, "f.pt", original, converted)
    with pytest.raises(UsageError, match=r"f\.pt is of a call a:conv2d, which these networks have not"):
        replay({"witnesses": [{**entry, "layer": "a:conv2d"}]}, "f.pt", original, converted)


class Nothing(nn.Module):
    """A network whose output is no tensor."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 1)

    def forward(self, images):
        return str(self.layer(images).shape)


def test_where_nothing_is_returned_an_input_shows_nothing():
    content = {"witnesses": [{"layer": NETWORK, "part": "outputs", "image": image()[0]}]}
    [shown] = replay(content, "f.pt", Nothing(), Nothing()).shown
    assert (shown.layer, shown.verdict) == ("(network) outputs", Verdict.UNDECIDED)
    assert shown.sentence == "there is nothing to compare: this input shows nothing"


def test_a_network_without_parameters_takes_images_as_they_are():
    content = {"witnesses": [{"layer": NETWORK, "part": "outputs", "image": image()[0].double()}]}
    [shown] = replay(content, "f.pt", nn.Flatten(), nn.Flatten()).shown
    assert shown.sentence.endswith("in both: this input shows no difference")
