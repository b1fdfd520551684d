"""Rows of a certificate: which layers are pairs, what each row says, and which convolutions have one all the same."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.equivalence.calls import MetCall
from conv2attn.equivalence.certificate import Row
from conv2attn.equivalence.computed.measure import Measured
from conv2attn.equivalence.layer import LayerCertificate, certify_layer
from conv2attn.equivalence.readings.finding import Finding, holds, refuted, unsupported
from conv2attn.equivalence.readings.reading import reading_of
from conv2attn.equivalence.rows import (
    avoided,
    filled,
    pair_layers,
    readable,
    row_of,
    row_of_call,
    rows_of_the_rest,
    rows_of_the_unmet,
    sharpness,
    signature_of,
)
from conv2attn.models.conversion.outcomes import CONVERTED, SKIPPED, UNSUPPORTED, ConversionRow
from conv2attn.theorem import read
from conv2attn.verdicts import Strength, Verdict


def layer(seed=0, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(2, 3, 3, **{"padding": 1, **kwargs})


def seen(**changes):
    told = {
        "input_range": 2.0,
        "sides": (5, 7),
        "grid": (5, 7),
        "calls": 1,
        "like": torch.empty(0),
        "shape": (1, 2, 5, 7),
    }
    return Measured(**{**told, **changes})


def content():
    return MultiHeadSelfAttention(2, 3, conv2attn.convert(layer()).encoding, content=True)


def test_pairs_are_layers_of_one_name_where_both_are_convolutions_or_attention():
    first = nn.ModuleDict({"a": layer(), "b": nn.ReLU(), "c": layer(), "d": layer(), "e": conv2attn.convert(layer())})
    first["f"] = nn.ReLU()
    second = nn.ModuleDict({"a": conv2attn.convert(first["a"]), "b": nn.ReLU(), "c": nn.ReLU(), "e": first["e"]})
    second["f"] = conv2attn.convert(layer())
    pairs = pair_layers(first, second)
    assert list(pairs) == ["a", "e"]
    assert pairs["a"] == (first["a"], second["a"])
    assert list(pair_layers(first["a"], second["a"])) == [""]
    assert list(pair_layers(second, first)) == ["a", "e"]


def test_a_pair_of_several_names_comes_once_and_is_known_by_all():
    one, other = layer(), conv2attn.convert(layer())
    first = nn.ModuleDict({"a": one, "b": one, "c": one, "d": layer(1)})
    second = nn.ModuleDict({"a": other, "b": other, "c": conv2attn.convert(one), "d": first["d"]})
    pairs = pair_layers(first, second)
    assert list(pairs) == ["a", "c", "d"]


def test_one_second_for_two_layers_is_two_pairs():
    shared = conv2attn.convert(layer())
    first, second = nn.ModuleDict({"a": layer(), "b": layer(1)}), nn.ModuleDict({"a": shared, "b": shared})
    pairs = pair_layers(first, second)
    assert list(pairs) == ["a", "b"]


def test_layers_that_cannot_be_read_are_compared_only_with_attention():
    first = nn.ModuleDict({"a": content(), "b": content()})
    second = nn.ModuleDict({"a": layer(), "b": conv2attn.convert(layer())})
    assert list(pair_layers(first, second)) == ["b"]
    assert [readable(each) for each in (layer(), content(), conv2attn.convert(layer()))] == [True, False, True]


def test_convolutions_that_attend_by_themselves_are_no_pairs():
    class Attending(nn.Conv2d):
        def forward(self, image):
            return super().forward(image) * 2

    first = nn.Sequential(Attending(2, 3, 3))
    second = conv2attn.convert(first, example_input=torch.ones(1, 2, 5, 6))
    assert pair_layers(first, second) == {}
    assert pair_layers(second, second) == {}


def test_the_row_of_a_pair_has_all_its_numbers():
    ours = layer()
    theirs = conv2attn.convert(ours, alpha=60)
    row, readings = row_of("a", ours, theirs, seen(max_error=1e-6), skipped=False, exactly=True)
    found = certify_layer(reading_of(ours), reading_of(theirs), seen(max_error=1e-6))
    assert [form.starts for form in row.forms] == [reading_of(ours).starts, reading_of(theirs).starts]
    assert replace(row, forms=None) == Row(
        *("a", "Conv2d 2->3 k3", found.findings, Strength.BOUNDED, (5, 7), 9, theirs.d_head, 60.0),
        sum(parameter.numel() for parameter in theirs.parameters()),
        avoided(theirs, (5, 7)),
        *(found.leak, 2.0, 1e-6, found.bound),
    )
    assert (readings[0].positions, readings[1].positions.alphas) == (None, (60.0,) * 9)
    assert [finding.part for finding in row.findings] == ["geometry", "weights", "leak", "measured"]
    lax, _ = row_of("a", ours, theirs, seen(), skipped=False, exactly=False)
    assert [finding.part for finding in lax.findings] == ["geometry", "measured"]
    assert row_of("", ours, theirs, seen(), skipped=False, exactly=True)[0].name == "(root)"


def test_a_row_of_two_convolutions_says_nothing_of_attention():
    row, _ = row_of("a", layer(), layer(), seen(), skipped=False, exactly=True)
    told = (row.heads, row.d_head, row.alpha, row.parameters, row.attention_avoided)
    assert (row.verdict, told) == (Verdict.HOLDS, (None,) * 5)
    back, _ = row_of("a", conv2attn.convert(layer()), layer(), seen(), skipped=False, exactly=True)
    assert (back.verdict, back.convolution) == (Verdict.HOLDS, "attention 2->3")


def test_a_pair_that_no_input_met_has_no_measurement():
    row, _ = row_of("a", layer(), conv2attn.convert(layer()), Measured(), skipped=False, exactly=True)
    assert (row.grid, row.attention_avoided, row.max_error, row.heads) == (None, None, None, 9)
    assert [finding.part for finding in row.findings] == ["geometry", "weights", "leak"]


def test_a_pair_that_cannot_be_read_is_unsupported():
    theirs = content()
    row, readings = row_of("a", layer(), theirs, seen(), skipped=True, exactly=True)
    assert (row.verdict, row.decisive.code, readings, row.skipped) == (Verdict.UNSUPPORTED, "C2A101", None, False)
    assert "attention that depends on the content is no convolution" in row.decisive.sentence
    assert not row.decisive.sentence.startswith("C2A101")


def test_skipped_rows_are_those_that_hold():
    row, readings = row_of("a", layer(), layer(), seen(), skipped=True, exactly=True)
    assert row == Row("a", "Conv2d 2->3 k3", (Finding("support", Verdict.HOLDS, sentence="on request"),), skipped=True)
    assert readings is not None
    wrong, _ = row_of("a", layer(), layer(1), seen(), skipped=True, exactly=True)
    assert (wrong.verdict, wrong.skipped) == (Verdict.REFUTED, False)


def test_the_spread_is_that_of_convolutions_that_were_met(monkeypatch):
    monkeypatch.setattr("conv2attn.equivalence.rows.spread_of", lambda *args: 0.5)
    attention = conv2attn.convert(layer())
    for ours, calls, spread in ((layer(), 1, 0.5), (layer(), 0, 0.0), (attention, 1, 0.0)):
        met = seen(calls=calls)
        row_of("a", ours, attention, met, skipped=False, exactly=True)
        assert met.spread == spread


def call(name="f:conv2d", **changes):
    return MetCall(name, read(layer()), conv2attn.convert(layer()), seen(**changes))


def test_the_row_of_a_functional_call_is_sampled():
    met = call()
    met.layer.value = met.layer.output = met.layer.bias = None
    row = row_of_call("f:conv2d#2", met, exactly=True)
    assert (row.name, row.convolution, row.verdict, row.strength) == (
        *("f:conv2d#2", met.signature, Verdict.HOLDS),
        Strength.SAMPLED,
    )
    assert (row.heads, row.grid, row.input_range, row.bound > 0) == (9, (5, 7), 2.0, True)
    assert [f.part for f in row_of_call("f", met, exactly=False).findings] == ["geometry", "measured"]
    off = call(max_error=1.0)
    off.convolution.bias.data.add_(1.0)
    assert row_of_call("f", off, exactly=True).part("weights") == holds("weights")
    moved = call()
    moved.layer.encoding.center.data[0] += 1
    assert row_of_call("f", moved, exactly=True).part("geometry").verdict is Verdict.REFUTED


def test_a_functional_call_that_cannot_be_read_is_unsupported():
    met = call()
    vars(met.layer)["forward"] = print
    row = row_of_call("f", met, exactly=True)
    assert (row.name, row.convolution, row.verdict, row.decisive.code) == (
        "f",
        met.signature,
        Verdict.UNSUPPORTED,
        "C2A106",
    )
    assert "forward was replaced" in row.decisive.sentence


def test_transposed_calls_store_their_partial_sums():
    met = MetCall("f:conv_transpose2d", read(layer().bfloat16()), conv2attn.convert(layer().bfloat16()), seen())
    more = row_of_call("f:conv_transpose2d", met, exactly=True).bound
    assert more > row_of_call("f:conv2d", replace(met, name="f:conv2d"), exactly=True).bound


def test_numbers_of_attention_are_read_where_there_are_any():
    attention = conv2attn.convert(layer())
    attention.encoding.alpha.data[3] = 50.0
    assert sharpness(attention) == 50.0
    attention.encoding.alpha = None
    assert sharpness(attention) is None
    del attention.encoding._parameters["alpha"]
    assert sharpness(attention) is None
    assert (signature_of(attention), signature_of(nn.ReLU())) == ("attention 2->3", "ReLU")
    empty = filled("a", "b", LayerCertificate((), 0.5), None, Measured(), Strength.PROVED)
    assert empty == Row("a", "b", (), Strength.PROVED, leak=0.5)


def test_the_attention_avoided_is_that_of_heads_queries_and_keys():
    attention = conv2attn.convert(layer(stride=(2, 1)))
    assert avoided(attention, (126, 254)) == f"{9 * 63 * 254 * 128 * 256 * 4 / 2**30:.1f} GiB"
    half, double = (conv2attn.convert(layer().to(dtype)) for dtype in (torch.bfloat16, torch.float64))
    assert (avoided(half, (6, 6)), avoided(double, (6, 6))) == (avoided(conv2attn.convert(layer()), (6, 6)), "162 KiB")
    assert avoided(half, (6, 6)) == "81 KiB"


REST = {
    "converted": (
        ConversionRow("a", "s", CONVERTED),
        unsupported("C2A406", "no input met it, so it was not compared"),
        False,
    ),
    "skipped": (
        ConversionRow("a", "s", SKIPPED, "on request"),
        Finding("support", Verdict.HOLDS, sentence="on request"),
        True,
    ),
    "unsupported": (
        ConversionRow("a", "s", UNSUPPORTED, "C2A104 a: no such mode"),
        unsupported("C2A104", "a: no such mode"),
        False,
    ),
    "for no rule": (ConversionRow("a", "s", UNSUPPORTED, "it is odd"), unsupported("", "it is odd"), False),
}


@pytest.mark.parametrize("case", REST)
def test_a_convolution_that_was_not_compared_has_a_row_with_the_reason(case):
    told, finding, skipped = REST[case]
    assert list(rows_of_the_rest({"a": told}, {})) == [Row("a", "s", (finding,), skipped=skipped)]
    assert [row.name for row in rows_of_the_rest({"": told}, {})] == ["(root)"]


def test_a_convolution_with_a_row_has_no_second():
    told = {name: ConversionRow(name, "s", CONVERTED) for name in ("a", "b", "c:conv2d", "d", "")}
    rows = dict.fromkeys(("a", "b:conv2d", "c:conv2d#2"), Row("x", "y", (refuted("weights", "C2A402", "x"),)))
    assert [row.name for row in rows_of_the_rest(told, rows)] == ["d", "(root)"]
    assert [row.name for row in rows_of_the_rest(told, {"(root):conv2d": rows["a"]})] == ["a", "b", "c:conv2d", "d"]


class Branching(nn.Module):
    """A convolution by a layer, and on wide images one by a function."""

    def __init__(self):
        super().__init__()
        self.narrow, self.weight = layer(), nn.Parameter(torch.rand(2, 2, 3, 3))

    def forward(self, image):
        passed = self.narrow(image)
        return F.conv2d(passed[:, :2], self.weight) if image.shape[-1] > 8 else passed


@pytest.mark.parametrize("wrapped", [False, True])
def test_attention_to_functional_convolutions_that_no_input_met_has_a_row(wrapped):
    original, wide = Branching(), torch.rand(1, 2, 9, 9)
    network = conv2attn.convert(original, example_input=wide)
    if wrapped:  # so that nothing says what became of its convolutions
        original, network = nn.Sequential(original), nn.Sequential(network)
    owner = "0" if wrapped else "(root)"
    for side, met in ((8, False), (9, True)):
        report = conv2attn.certify(original, network, images=wide[..., :side])
        assert report.verdict is (Verdict.HOLDS if met else Verdict.UNSUPPORTED), report.to_text()
        unmet = [row for row in report.rows if row.name.partition(":")[0] == owner and row.findings[0].code == "C2A406"]
        assert bool(unmet) is not met
    assert list(rows_of_the_unmet(original, network, {row.name: row for row in report.rows})) == []
    assert [row.name for row in rows_of_the_unmet(original, network, {})] == [owner]


def test_attention_to_functional_convolutions_in_place_of_them_is_not_read_the_other_way_round():
    network, image = Branching(), torch.rand(1, 2, 9, 9)
    original = conv2attn.convert(network, example_input=image)
    with torch.no_grad():
        original.get_submodule("attending_calls.layers.0").encoding.center += 1
    report = conv2attn.certify(original, network, images=image)
    assert report.verdict is Verdict.UNSUPPORTED, report.to_text()
    assert [row.name for row in report.rows if row.verdict is Verdict.UNSUPPORTED] == ["(root)"]
