"""Each planted error is refuted by the part whose business it is; what only looks different is not."""

import copy

import pytest
import torch
from equality.pairs import Rows, row_of
from equality.planted import IN_KINDS, KINDS, PLANTED, TWINS, image, pair, right
from equality.reports import at_most_rounded

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict
from tests.equality.reports import decisive

LAYERS = {name: error for name, error in PLANTED.items() if error.layer}
CHANNELS = {"square": 4, "oblong": 8, "border": 6}


def layers(plant, name):
    """A layer of the network and its conversion with something planted, and an image for both."""
    original, converted = (side.get_submodule(name) for side in pair(plant))
    return original, converted, torch.rand(2, CHANNELS[name], 14, 11)


@pytest.fixture(scope="module")
def rows():
    """The rows of layers with each error or harmless change, and of layers of other kinds."""
    made = {("planted", name): layers(error.plant, error.layer) for name, error in LAYERS.items()}
    made |= {("twins", name): layers(twin, name.rpartition(" ")[2]) for name, twin in TWINS.items()}
    made |= {("right", name): layers(right, name) for name in CHANNELS}
    for kind, (layer, size) in KINDS.items():
        for name in ("nothing", *IN_KINDS):
            converted = conv2attn.convert(layer)
            IN_KINDS.get(name, (right, ""))[0](converted)
            made[kind, name] = copy.deepcopy(layer), converted, torch.rand(1, *size)
    return Rows(made)


@pytest.mark.parametrize("name", LAYERS)
def test_a_planted_error_is_refuted_by_its_part(rows, name):
    error, row = LAYERS[name], rows["planted", name]
    assert (row.verdict, row.part(error.part).verdict) == (Verdict.REFUTED, Verdict.REFUTED), row.findings
    assert decisive(row).sentence
    assert rows["right", error.layer].verdict is Verdict.HOLDS


@pytest.mark.rotated
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", IN_KINDS)
def test_a_planted_error_is_refuted_in_layers_of_every_kind(rows, kind, name):
    assert rows[kind, "nothing"].verdict is Verdict.HOLDS
    row = rows[kind, name]
    assert (row.verdict, row.part(IN_KINDS[name][1]).verdict) == (Verdict.REFUTED, Verdict.REFUTED), row.findings


@pytest.mark.parametrize("name", TWINS)
def test_what_only_looks_different_is_proved(rows, name):
    row = rows["twins", name]
    assert (row.verdict, row.strength) == (Verdict.HOLDS, Strength.PROVED), row.findings
    assert row.max_error <= row.bound


SOME = (
    "axes swapped",
    "weights through float16",
    "one bias by one ulp",
    "leak above the roundoff",
    "reflect replaced by replicate",
    "NaN in one output",
    "padding grown by one",
    "stride that shows at some sizes only",
)


@pytest.mark.rotated
@pytest.mark.float64
@pytest.mark.parametrize("name", [each for each in SOME if each in LAYERS])
def test_a_planted_error_is_refuted_by_its_part_on_every_device(name, device):
    error = LAYERS[name]
    original, converted, images = (each.to(device) for each in layers(error.plant, error.layer))
    row = row_of(original, converted, images)
    assert (row.verdict, row.part(error.part).verdict) == (Verdict.REFUTED, Verdict.REFUTED), row.findings


SMALL = {
    "a hook that scales by little": "this proves nothing",
    "an output missing": "the tensors of the outputs cannot be paired",
}  # between the layers, which calls or packaging do not decide
ROUNDINGS = ("an unrelated layer by one ulp", "a buffer by one ulp")


@pytest.mark.parametrize("name", [*SMALL, *ROUNDINGS])
def test_a_difference_that_rounding_or_packaging_explains_never_holds(name):
    """But for rounding, that is: one last place is a rounding, and the strength says so."""
    report = certify(*pair(PLANTED[name].plant), images=image())
    assert at_most_rounded(report), report.to_text()
    if name in ROUNDINGS:
        assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.ROUNDED)
        assert "A sample, not a proof." in report.claim
    else:
        assert (report.verdict, report.exit_code) == (Verdict.UNDECIDED, 3), report.to_text()
        assert any(SMALL[name] in finding.sentence for finding in report.between), report.to_text()


def test_another_mode_that_shows_on_the_image_is_refuted_and_named():
    report = certify(*pair(PLANTED["training mode"].plant), images=image())
    assert (report.verdict, report.strength) == (Verdict.REFUTED, Strength.SAMPLED)
    assert "mixed mode" in report.between[0].sentence


IN_ONE_LAYER = ("weights through float16", "one bias by one ulp", "leak above the roundoff")


@pytest.mark.parametrize("name", IN_ONE_LAYER)
def test_an_error_that_outputs_hardly_show_refutes_its_row_and_keeps_the_network_from_holding(name):
    """Exact sums see one last place in a layer; two plain calls of the whole network do not."""
    error = PLANTED[name]
    report = certify(*pair(error.plant), images=image())
    assert (report.verdict, report.exit_code) == (Verdict.UNDECIDED, 3), report.to_text()
    assert report.to_text().startswith(f"undecided; row {error.layer} refuted; ")
    (row,) = [row for row in report.rows if row.verdict is Verdict.REFUTED]
    assert (row.name, row.part(error.part).verdict) == (error.layer, Verdict.REFUTED)


LARGE = [name for name in PLANTED if name not in {*LAYERS, *SMALL, *ROUNDINGS, "training mode"}]


@pytest.mark.rotated
@pytest.mark.parametrize("name", [*(name for name in SOME if name not in IN_ONE_LAYER), *LARGE])
def test_a_planted_error_is_shown_by_an_input_and_not_by_the_corrected_network(name):
    error = PLANTED[name]
    original, converted = pair(error.plant)
    report = certify(original, converted, images=image())
    assert (report.verdict, report.exit_code) == (Verdict.REFUTED, 1), report.to_text()
    refuted = {row.name: row for row in report.rows if row.verdict is Verdict.REFUTED}
    between = {finding.part for finding in report.between if finding.verdict is Verdict.REFUTED}
    assert set(refuted) == ({error.layer} if error.layer else set())
    assert error.layer or between
    assert all(decisive(row).sentence in report.to_text() for row in refuted.values())
    assert all(row.part(error.part).verdict is Verdict.REFUTED for row in refuted.values())
    shown = report.input_shown[None]
    assert certify(original, converted, images=shown).verdict is Verdict.REFUTED
    assert certify(original, pair(right)[1], images=shown).verdict is Verdict.HOLDS
