"""Which layers are compared on which inputs, and what the certificate of a network is made of."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.equivalence import certify
from conv2attn.equivalence.compared import MOST_WITNESSES, Compared, compare_layers, conversion_rows, distinct
from conv2attn.equivalence.computed.measure import Measured, refusal
from conv2attn.equivalence.computed.overflow import overflow
from conv2attn.equivalence.computed.rounding import difference_bounds
from conv2attn.equivalence.network import ASSUMPTIONS, LARGEST_IMAGE, at_most_bounded, random_images
from conv2attn.equivalence.readings.finding import holds, refuted
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.errors import UsageError
from conv2attn.verdicts import Strength, Verdict


def layer(seed=0, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(2, 2, 3, **{"padding": 1, **kwargs})


def images(count=1, sides=(5, 6)):
    return torch.rand(count, 2, *sides, generator=torch.Generator().manual_seed(0)) - 0.5


def pairs_of(*names, alpha=128, wrong=()):
    """What comparing a layer with its conversion under each of these names gives."""
    original = {name: layer(number) for number, name in enumerate(names)}
    converted = {name: conv2attn.convert(each, alpha=alpha) for name, each in original.items()}
    for name in wrong:
        converted[name].bias.data[1] += 1.0
    return {name: (original[name], converted[name]) for name in names}


def compared(*names, alpha=128, wrong=(), seen=(), **fields):
    """A comparison made by hand; `seen` changes what was seen of each layer, and `fields` the comparison."""
    pairs = pairs_of(*names, alpha=alpha, wrong=wrong)
    made = compare_layers(*pairs[names[0]], images(), "images", exactly=True)
    row, met = made.rows["(root)"], made.seen[""]
    rows = {name or "(root)": replace(row, name=name or "(root)") for name in names}
    for name in wrong:
        rows[name or "(root)"] = replace(row, findings=(*row.findings, refuted("weights", "C2A402", "x")))
    shown = {name: replace(met, **dict(seen).get(name, {})) for name in names}
    readings = {name: (reading_of(ours), reading_of(theirs)) for name, (ours, theirs) in pairs.items()}
    values = {"pairs": pairs, "readings": readings, "seen": shown, "rows": rows, "first": 1, "second": 1, "failure": ""}
    return Compared(**{**values, **fields})


def test_sides_are_those_of_the_padded_image():
    assert compared("a").sides("a") == (7, 8)


def test_sides_are_those_of_the_second_and_overflow_is_that_of_the_first():
    made = compared("")
    ours, theirs = made.readings[""]
    wider = replace(theirs, padding=theirs.padding.extended((2, 3)))
    assert compared("", readings={"": (ours, wider)}).sides("") == (9, 11)
    weights = replace(theirs.weights, output=theirs.weights.output * 1e30)
    large = replace(theirs, weights=weights, taps=weights.output)
    seen = {"": {"input_range": 1e9}}
    assert compared("", readings={"": (ours, large)}, seen=seen).overflow() == ""
    assert compared("", readings={"": (large, ours)}, seen=seen).overflow() != ""
    assert "nothing is proved" not in compared("", readings={"": (ours, large)}).judge_layer(1.0, 1e9)[0].sentence
    assert "nothing is proved" in compared("", readings={"": (large, ours)}).judge_layer(math.inf, 1e9)[0].sentence


def test_a_bound_is_one_of_direct_sums_at_the_same_places():
    assert compared("").bounded("")
    assert compared("a").bounded("a")
    assert not compared("a", seen={"a": {"spread": 0.5}}).bounded("a")
    moved = compared("a")
    moved.rows["a"] = replace(moved.rows["a"], findings=(refuted("geometry", "C2A401", "x"),))
    assert not moved.bounded("a")


def test_the_first_layer_that_overflows_is_named():
    assert compared("", "a").overflow() == ""
    seen = {"a": {"input_range": 2e38}, "b": {"input_range": 3e38}}
    many = compared("", "a", "b", seen=seen)
    assert many.overflow() == f"a: {overflow(many.readings['a'][0], 2e38)}"
    assert "2e+38" in many.overflow()
    assert compared("", seen={"": {"input_range": math.inf}}).overflow() == "(root): its inputs are not finite"
    assert compared("a", seen={"a": {"input_range": 2e38, "calls": 0}}).overflow() == ""


def test_layers_that_were_met_and_are_bounded_carry_bounds_on():
    seen = {"b": {"calls": 0}, "c": {"spread": 1.0}}
    assert list(compared("a", "b", "c", "", seen=seen).rules({"a": 0, "b": 1, "c": 2, "": 3})) == [0, 3]


def test_a_single_layer_is_decided_by_its_bound_and_a_witness_within_the_range():
    soft = compared("", alpha=3)
    bound = max(difference_bounds(*soft.readings[""], 2.0, (7, 8)))
    finding, witnesses = soft.judge_layer(bound, 2.0)
    assert (finding.verdict, finding.strength) == (Verdict.HOLDS, Strength.BOUNDED)
    assert witnesses == ()
    finding, [witness] = soft.judge_layer(0.01, 2.0)
    assert finding.verdict is Verdict.REFUTED
    assert (witness.layer, witness.allowed, witness.image.abs().max().item()) == ("(root)", 0.01, 2.0)
    assert soft.judge_layer(math.nextafter(bound, 0), 2.0)[0].verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("seen", [{"spread": 1.0}, {"input_range": 1.0}])
def test_without_a_bound_a_single_layer_is_undecided(seen):
    reach = 1.0 if "spread" in seen else 3e38
    finding, witnesses = compared("", seen={"": seen}).judge_layer(1e30, reach)
    assert (finding.verdict, witnesses) == (Verdict.UNDECIDED, ())
    assert finding.sentence == "nothing is proved; no input found shows more than 1e+30"


def test_a_pair_that_cannot_be_read_has_neither_bound_nor_witness():
    finding, witnesses = compared("", readings={}).judge_layer(1.0, 1.0)
    assert (finding.verdict, witnesses) == (Verdict.UNDECIDED, ())


def test_sums_that_are_too_long_or_none_have_no_bound_or_one_of_zero(monkeypatch):
    for bounds, verdict in ((None, Verdict.UNDECIDED), ([], Verdict.HOLDS)):
        monkeypatch.setattr("conv2attn.equivalence.compared.difference_bounds", lambda *args, bounds=bounds: bounds)
        assert compared("").judge_layer(0.0, 1.0)[0].verdict is verdict


def test_the_first_layers_that_are_refuted_have_a_witness():
    assert MOST_WITNESSES == 4
    names = [*map(str, range(MOST_WITNESSES + 1)), ""]
    found = compared(*names, wrong=names[1:]).witnesses(1.5)
    assert [witness.layer for witness in found] == names[1 : MOST_WITNESSES + 1]
    assert compared("", "a", wrong=[""]).witnesses(1.0)[0].layer == "(root)"
    assert all(witness.image.abs().max() in (0, 1.5) for witness in found)
    assert {witness.allowed is None for witness in found} == {False}
    assert compared("a").witnesses(1.0) == ()
    alike = compared("a")
    alike.rows["a"] = replace(alike.rows["a"], findings=(refuted("leak", "C2A403", "x"),))
    assert alike.witnesses(1.0) == ()


def test_rows_of_one_name_are_numbered():
    assert distinct("a:conv2d", {"a": 1, "b:conv2d": 1}) == "a:conv2d"
    assert distinct("a:conv2d", {"a:conv2d": 1}) == "a:conv2d#2"
    assert distinct("a:conv2d", {"a:conv2d": 1, "a:conv2d#2": 1}) == "a:conv2d#3"


def test_what_the_conversion_says_is_read_from_the_network():
    net = nn.Sequential(layer(), layer(1))
    converted = conv2attn.convert(net, skip="1")
    assert [row.name for row in conversion_rows(converted)] == ["0", "1"]
    assert conversion_rows(net) == ()
    vars(net)["_conv2attn_conversion"] = "a text"
    assert conversion_rows(net) == ()


def test_layers_are_compared_by_name_and_what_both_return_is_kept():
    net = nn.Sequential(layer(), nn.ReLU(), layer(1))
    converted = conv2attn.convert(net, skip="2")
    found = compare_layers(net, converted, images(), "images", exactly=True)
    assert list(found.pairs) == list(found.readings) == list(found.seen) == list(found.rows) == ["0", "2"]
    assert [row.skipped for row in found.rows.values()] == [False, True]
    assert torch.equal(found.first, net(images()))
    assert torch.allclose(found.second, found.first, atol=1e-5)
    assert found.failure == ""
    assert found.rows["0"].part("weights") == holds("weights")
    assert compare_layers(net, converted, images(), "images", exactly=False).rows["0"].part("weights") is None


def test_networks_that_nobody_converted_are_compared():
    net = nn.Sequential(layer(), nn.ReLU())
    found = compare_layers(net, nn.Sequential(layer(), nn.ReLU()), images(), "images", exactly=True)
    assert [(row.name, row.skipped, row.verdict) for row in found.rows.values()] == [("0", False, Verdict.HOLDS)]


def test_a_pair_that_cannot_be_read_is_a_row_without_a_reading():
    net = nn.Sequential(layer())
    converted = conv2attn.convert(net)
    converted[0].encoding.center.data[0] = torch.nan
    found = compare_layers(net, converted, images(), "images", exactly=True)
    assert (list(found.pairs), list(found.readings)) == (["0"], [])
    assert found.rows["0"].verdict is Verdict.UNSUPPORTED


class Twice(nn.Module):
    """Two functional convolutions of two geometries."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2, 3, 3))

    def forward(self, image):
        once = nn.functional.conv2d(image, self.weight, padding=1)
        return nn.functional.conv2d(once, self.weight, padding=2)


@pytest.mark.parametrize("exactly", [True, False])
def test_functional_calls_have_rows_too(exactly):
    net = Twice()
    converted = conv2attn.convert(net, example_input=images())
    found = compare_layers(net, converted, images(), "images", exactly=exactly)
    assert list(found.rows) == ["(root):conv2d", "(root):conv2d#2"]
    assert [row.name for row in found.rows.values()] == list(found.rows) == list(found.calls)
    assert [call.convolution.padding.before for call in found.calls.values()] == [(1, 1), (2, 2)]
    assert all((row.part("weights") is not None) is exactly for row in found.rows.values())


class Idle(nn.Module):
    """A convolution that nothing reaches."""

    def __init__(self):
        super().__init__()
        self.conv = layer()

    def forward(self, image):
        return image


def test_a_convolution_that_no_input_met_was_not_compared():
    net = Idle()
    found = compare_layers(net, conv2attn.convert(net), images(), "images", exactly=True)
    assert list(found.rows) == ["conv"]
    assert (found.seen["conv"].calls, found.rules({"conv": 0})) == (0, {})


def test_what_the_conversion_left_out_has_a_row_unless_it_has_one():
    single = layer()
    assert list(compare_layers(single, conv2attn.convert(single), images(), "images", exactly=True).rows) == ["(root)"]
    functional = Twice()
    skipped = conv2attn.convert(functional, example_input=images(), skip="*")
    rows = compare_layers(functional, skipped, images(), "images", exactly=True).rows
    assert list(rows) == [row.name for row in conversion_rows(skipped)]
    assert all(row.skipped for row in rows.values())


@pytest.mark.parametrize("failure", [RuntimeError, ValueError, IndexError, TypeError])
def test_an_original_that_does_not_run_is_told_with_the_inputs(failure):
    def fail(image):
        raise failure("no such image\nat all")

    net = nn.Sequential(layer())
    net[0].register_forward_pre_hook(lambda module, args: fail(args))
    with pytest.raises(UsageError, match=r"the original does not run on three images: no such image\."):
        compare_layers(net, conv2attn.convert(nn.Sequential(layer())), images(), "three images", exactly=True)


def test_the_certificate_tells_what_it_was_made_of():
    net = nn.Sequential(layer(), nn.Flatten(), nn.Linear(60, 3))
    converted = conv2attn.convert(net)
    report = certify(net, converted, images=images(2), circumstances=[("files", "two")], labels=torch.tensor([0, 1]))
    known = dict(report.circumstances)
    assert (report.verdict, report.strength, report.assumptions) == (Verdict.HOLDS, Strength.PROVED, ASSUMPTIONS)
    assert (known["files"], known["device"], known["dtypes"]) == ("two", "cpu", "float32")
    assert report.outputs.images == "2 given images"
    assert sum(report.outputs.correct) in range(5)
    assert [finding.part for finding in report.between] == ["structure", "outputs"]
    assert report.outputs.bound is not None
    assert certify(net, converted, images=images(2), described="two of ours").outputs.images == "two of ours"
    assert certify(net, converted, input_size=(2, 5, 6)).outputs.images == "1 random image 2x5x6 within +-1 (seed 0)"
    seen = certify(net, converted, input_size=(2, 5, 6), input_range=0.5, seed=3)
    assert seen.outputs.images == "1 random image 2x5x6 within +-0.5 (seed 3)"
    assert 0.4 < seen.rows[0].input_range <= 0.5


def test_a_second_that_fails_or_follows_an_overflow_is_judged_so():
    net = nn.Sequential(layer(), nn.Flatten(), nn.Linear(60, 3))
    broken = conv2attn.convert(net)
    broken[2].register_forward_pre_hook(lambda module, args: 1 / "no number")
    told = certify(net, broken, images=images()).between[-1]
    assert "the second does not run where the first does: TypeError" in told.sentence
    wrong = conv2attn.convert(net)
    wrong[0].bias.data[0] += 1.0
    report = certify(net, wrong, images=images())
    assert ([witness.layer for witness in report.witnesses], report.unshown) == (["0"], ())
    assert certify(layer(), conv2attn.convert(layer()), images=images()).rows[0].part("tolerance") is None
    endless = nn.Sequential(layer())
    spoilt = conv2attn.convert(endless)
    spoilt.register_forward_hook(lambda module, args, output: output * torch.inf)
    loud = images() * 4e38
    told = certify(endless, spoilt, images=loud.clamp(-3e38, 3e38)).between[-1]
    assert told.verdict is Verdict.UNDECIDED


def test_the_bound_at_the_outputs_is_for_the_larger_of_both_ranges():
    net = nn.Sequential(layer(), nn.ReLU())
    converted = conv2attn.convert(net)
    bounds = [
        certify(net, converted, images=images() * scale, input_range=reach).outputs.bound
        for scale, reach in ((1.0, 0.1), (1.0, 7.0), (20.0, 7.0), (20.0, 1.0))
    ]
    assert bounds[0] < bounds[1] < bounds[2] == bounds[3]


def test_a_tolerance_is_asked_of_a_layer_at_its_own_row_and_of_a_network_between():
    single, net = layer(), nn.Sequential(layer(), nn.ReLU())
    report = certify(single, conv2attn.convert(single, alpha=3), images=images(), tolerance=9.0, input_range=1.5)
    assert [f.part for f in report.rows[0].findings] == ["geometry", "measured", "tolerance"]
    assert (report.verdict, report.strength, report.witnesses) == (Verdict.HOLDS, Strength.BOUNDED, ())
    size = "x".join(map(str, images().shape[1:]))
    assert report.claim == f"the outputs differ by at most 9 for all finite inputs {size} within +-1.5"
    assert [f.part for f in report.between] == ["structure", "outputs"]
    report = certify(net, conv2attn.convert(net), images=images(), tolerance=0.0)
    assert [f.part for f in report.between] == ["structure", "outputs", "tolerance"]
    assert report.rows[0].strength is Strength.BOUNDED
    assert certify(net, conv2attn.convert(net), images=images()).claim.startswith("the second is the same map")
    for tolerance in (-1.0, math.inf, math.nan):
        with pytest.raises(UsageError, match=rf"tolerance={tolerance!r} is not a finite number of at least 0"):
            certify(net, net, images=images(), tolerance=tolerance)


def test_what_a_bound_leaves_of_a_strength():
    expected = {None: Strength.BOUNDED, Strength.PROVED: Strength.BOUNDED, Strength.BOUNDED: Strength.BOUNDED,
                Strength.SAMPLED: Strength.SAMPLED}  # fmt: skip
    assert {strength: at_most_bounded(strength) for strength in expected} == expected


def test_random_images_are_seeded_and_fill_the_range():
    made, told = random_images(layer(), (2, 30, 40), 3.0, 5)
    assert (made.shape, made.dtype, told) == (
        (1, 2, 30, 40),
        torch.float32,
        "1 random image 2x30x40 within +-3 (seed 5)",
    )
    assert -3 <= made.min() < -2.9
    assert 2.9 < made.max() <= 3
    assert torch.equal(made, random_images(layer(), (2, 30, 40), 3.0, 5)[0])
    assert not torch.equal(made, random_images(layer(), (2, 30, 40), 3.0, 6)[0])
    assert random_images(layer().double(), (2, 3, 4), 1.0, 0)[0].dtype == torch.float64
    assert random_images(nn.ReLU(), (2, 3, 4), 1.0, 0)[0].dtype == torch.float32
    whole = nn.ReLU()
    whole.number = nn.Parameter(torch.tensor(1), requires_grad=False)
    whole.real = nn.Parameter(torch.tensor(1.0).bfloat16())
    assert random_images(whole, (2, 3, 4), 1.0, 0)[0].dtype == torch.bfloat16


def test_the_size_of_random_images_is_given_or_that_of_the_plan():
    class Planned(nn.Module):
        plan = Measured()

    planned = Planned()
    planned.plan.input_size = (1, 2, 3)
    assert random_images(planned, None, 1.0, 0)[0].shape == (1, 1, 2, 3)
    assert random_images(planned, (2, 2), 1.0, 0)[0].shape == (1, 2, 2)
    with pytest.raises(UsageError, match="nothing says how large an image the networks take") as refused:
        random_images(layer(), None, 1.0, 0)
    assert "Pass an input size." in str(refused.value)
    for size in ((2, 0, 3), (2, -1, 3), (2, 1.5, 3)):
        with pytest.raises(UsageError, match="is not positive whole numbers"):
            random_images(layer(), size, 1.0, 0)
    assert random_images(layer(), (1, 1, 1), 1.0, 0)[0].numel() == 1


def test_random_images_have_an_end(monkeypatch):
    assert LARGEST_IMAGE == 2**26
    monkeypatch.setattr("conv2attn.equivalence.network.LARGEST_IMAGE", 24)
    assert random_images(layer(), (2, 3, 4), 1.0, 0)[0].numel() == 24
    with pytest.raises(UsageError, match=r"an image 5x5 has more than 2\^26 numbers.*Pass a smaller input size"):
        random_images(layer(), (5, 5), 1.0, 0)
    with pytest.raises(UsageError, match=r"an input range of 70000 is beyond torch.float16"):
        random_images(layer().half(), (2, 3, 4), 7e4, 0)
    with pytest.raises(UsageError, match=r"an input range of 1e\+39 is beyond torch.float32"):
        random_images(layer(), (2, 3, 4), 1e39, 0)


@pytest.mark.parametrize(("alpha", "engine", "runs"), [(128, "conv", True), (46, "conv", False), (46, "dense", True)])
def test_a_layer_whose_engine_refuses_does_not_run(alpha, engine, runs):
    converted = conv2attn.set_engine(conv2attn.convert(layer(), alpha=alpha), engine)
    report = certify(layer(), converted, input_size=(2, 5, 6))
    assert report.verdict is (Verdict.HOLDS if runs else Verdict.REFUTED)
    found = report.rows[0].part("measured")
    told = f"on an input on which the original runs, the second refuses by its engine {engine}: "
    assert found.sentence.startswith(told) is not runs


def test_only_attention_that_was_met_and_set_to_an_engine_can_refuse():
    like = torch.empty(0)
    met = Measured(like=like, sides=(5, 6))
    soft = conv2attn.convert(layer(), alpha=46)
    assert refusal(layer(), met) == refusal(soft, met) == ""
    conv2attn.set_engine(soft, "conv")
    assert refusal(soft, met)
    assert refusal(soft, Measured(sides=(5, 6))) == ""
