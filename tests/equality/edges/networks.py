"""Whole networks: which layers are compared with which, and what is said where nothing can be."""

from collections import OrderedDict

import pytest
import torch
from changes import changing
from equality.cases import made, shared
from equality.pairs import Net, layer, row_of
from equality.planted import image, network, original, taps, ulp
from equality.reports import PROVED, outcome, rows
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

HOLDS, REFUTED, UNDECIDED, UNSUPPORTED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED, Verdict.UNSUPPORTED


def test_a_network_beside_itself_has_rows_of_no_attention():
    report = certify(original(), original(), images=image())
    told = {(row.max_error, row.heads, row.alpha) for row in report.rows}
    assert told == {(0.0, None, None)}


@pytest.mark.filterwarnings("ignore:C2A132")
@pytest.mark.parametrize("second", [
    {"encoding": "enumerated"}, {"stride_by": "pooling"}, {"trainable": True}, {"alpha": 200},
])  # fmt: skip
def test_two_conversions_compute_each_other_and_the_network_either_way(second):
    networks = [original(), conv2attn.convert(original()), conv2attn.convert(original(), **second)]
    for first, other in ((0, 2), (2, 1)):
        assert outcome(certify(networks[first], networks[other], images=image())) == PROVED
    ulp(taps(networks[2].oblong), (0, 1, 2))
    assert rows(certify(*networks[1:], images=image()), REFUTED) == ["oblong"]


@pytest.mark.parametrize(
    ("alpha", "strength"), [(128, Strength.PROVED), (60, Strength.BOUNDED), (46, Strength.BOUNDED)]
)
def test_strength_follows_alpha_and_not_what_is_measured(alpha, strength):
    report = certify(original(), conv2attn.convert(original(), alpha=alpha), images=image())
    assert outcome(report) == (HOLDS, strength)
    whole = certify(original(), conv2attn.convert(original()), images=image())
    assert [row.max_error for row in report.rows] == [row.max_error for row in whole.rows]


def test_a_weight_that_is_not_finite_is_refused_by_the_name_of_its_layer():
    original = network()
    original.oblong.weight.data[0, 0, 0, 0] = torch.nan
    report = certify(original, conv2attn.convert(original), images=image())
    assert (report.exit_code, rows(report, UNSUPPORTED)) == (3, ["oblong"])
    assert UNDECIDED in {finding.verdict for finding in report.between}


def test_a_shared_layer_is_one_row_and_may_be_two_layers():
    original = made(shared)
    converted = conv2attn.convert(original)
    report = certify(original, converted, images=image())
    assert (outcome(report), rows(report)) == (PROVED, ["first"])
    converted.second = conv2attn.convert(original.first)
    report = certify(original, converted, images=image())
    assert (report.verdict, report.strength, rows(report)) == (HOLDS, Strength.IDENTIFIED, ["first", "second"])
    ulp(taps(converted.second), (0, 0, 0))
    assert rows(certify(original, converted, images=image()), REFUTED) == ["second"]
    two = nn.Sequential(layer(), layer(seed=1))
    one = conv2attn.convert(two)
    one[1] = one[0]
    assert rows(certify(two, one, images=image()), REFUTED) == ["1"]


def test_a_layer_that_no_input_met_is_compared_and_not_measured():
    original = Net(lambda net, given: given, conv=layer())
    (row,) = certify(original, conv2attn.convert(original), images=image()).rows
    assert (row.grid, row.max_error, row.bound, row.heads) == (None, None, None, 9)
    assert [finding.part for finding in row.findings] == ["geometry", "weights", "leak"]


def test_a_skipped_layer_does_not_count_unless_it_was_touched():
    converted = conv2attn.convert(original(), skip="oblong")
    report = certify(original(), converted, images=image())
    assert (outcome(report), [row.skipped for row in report.rows]) == (PROVED, [False, True, False])
    ulp(converted.oblong.weight.data, (1, 1, 0, 0))
    assert rows(certify(original(), converted, images=image()), REFUTED) == ["oblong"]


def test_where_nothing_was_checked_nothing_holds():
    left = conv2attn.convert(original(), skip="*")
    report = certify(original(), left, images=image())
    assert (report.exit_code, report.verdict) == (3, UNDECIDED)


def test_equal_graphs_without_convolutions_are_proved():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4 * 14 * 11, 3))
    assert outcome(certify(plain, plain, images=image())) == PROVED


def test_the_order_of_modules_that_run_one_after_another_counts():
    layers = {"a": nn.Conv2d(4, 4, 1), "b": nn.ReLU()}
    first = nn.Sequential(OrderedDict(layers))
    second = nn.Sequential(OrderedDict(b=nn.ReLU(), a=conv2attn.convert(layers["a"])))
    report = certify(first, second, images=image())
    assert (report.verdict, report.between[0].part) == (REFUTED, "numbers")


def test_a_row_has_all_its_numbers():
    original = layer(2, 3, stride=(2, 1))
    converted = conv2attn.convert(original, alpha=60)
    with changing(converted, "alpha") as numbers:
        numbers[3] = 50.0
    (row,) = certify(original, converted, input_size=(2, 126, 254)).rows
    assert (row.convolution, row.grid, row.heads) == ("Conv2d 2->3 k3 s2x1", (63, 254), 9)
    assert row.alpha == 50.0
    assert 0 < row.leak < 1e-15
    assert row.max_error <= row.bound


def test_equal_maps_in_other_groups_hold():
    grouped, whole = nn.Conv2d(4, 6, 3, groups=2), nn.Conv2d(4, 6, 3)
    with torch.no_grad():
        whole.weight.zero_()
        whole.weight[:3, :2], whole.weight[3:, 2:] = grouped.weight[:3], grouped.weight[3:]
        whole.bias.copy_(grouped.bias)
    for first, second in ((grouped, whole), (whole, grouped)):
        assert outcome(certify(first, conv2attn.convert(second), images=image())) == PROVED
    whole.weight.data[5, 3, 1, 1] += 1
    told = row_of(grouped, conv2attn.convert(whole), image()).part("weights").sentence
    assert "output channel 5, input channel 3" in told


def test_a_hook_that_computes_a_weight_computes_it_anew():
    with pytest.warns(FutureWarning, match="weight_norm"):
        original = nn.utils.weight_norm(layer())
    other = conv2attn.convert(original)
    assert certify(original, other, images=image()).verdict is HOLDS
    with torch.no_grad():
        original.weight_g.mul_(2)
    assert certify(original, other, images=image()).verdict is REFUTED


def test_the_certificate_says_what_it_is_of():
    asked = {"images": image(), "labels": torch.tensor([0, 1]), "circumstances": [("files", "two")]}
    report = certify(original(), conv2attn.convert(original()), **asked)
    assert dict(report.circumstances)["files"] == "two"
    assert report.outputs.images == "2 given images"
    assert sum(report.outputs.correct) in range(5)
    assert [finding.part for finding in report.between] == ["structure", "outputs"]
    assert certify(original(), original(), images=image(), described="two of ours").outputs.images == "two of ours"


def test_an_attribute_of_a_network_s_own_says_nothing_about_its_operators():
    """ONNX models name who computes them in an attribute of their class: another network may have one of that name."""
    network = nn.Sequential(nn.ReLU())
    network.operators_of = nn.Identity()
    found = certify(nn.Sequential(nn.ReLU(), nn.Identity()), network, input_size=(3, 4, 5))
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), found.to_text()
