"""Where the second look could have let something through."""

import pytest
import torch
from test_certificates_recheck import PLAN, TOLD, Foreign, files, found, states  # noqa: F401  files is a fixture

from conv2attn.equivalence.evidence.recheck import Recheck, look, recheck
from conv2attn.equivalence.evidence.recheck_files import objections
from conv2attn.equivalence.evidence.recheck_forms import Objection
from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict

NAME = "layer1.0.conv1."
FORMS = {NAME: TOLD, "soft.": TOLD}


def test_what_was_not_asked_leaves_it_undecided():
    assert Recheck("c", "holds", 2, (), ("a is not looked at",)).verdict is Verdict.UNDECIDED


def test_layers_that_were_skipped_are_not_counted(files):  # noqa: F811
    for path, place in ((files.folder / "a.pt", ()), (files.folder / "b.pt", ("state_dict",))):
        kept = torch.load(path, weights_only=True)
        (kept[place[0]] if place else kept)["left.weight"] = torch.ones(1)
        torch.save(kept, path)
    path = files()
    assert recheck(path) == Recheck(path, "holds", 1, ())


def test_an_error_is_told_in_one_line(files):  # noqa: F811
    torch.save({"state_dict": {}, "more": Foreign()}, files.folder / "b.pt")
    with pytest.raises(UsageError) as error:
        recheck(files())
    assert "\n" not in str(error.value)
    assert "no networks (Weights only load failed" in str(error.value)


def seen(first, second, name=NAME, proved=True):
    return look("c", "holds", {name: proved}, [name], {name: TOLD}, first, second)


def test_a_convolution_on_both_sides_is_compared():
    ours, _ = states()
    assert seen(ours, ours) == Recheck("c", "holds", 1, ())
    ours["fc.weight"] = torch.ones(1)
    other = {**ours, "fc.weight": torch.zeros(1)}
    assert seen(ours, other) == Recheck("c", "holds", 1, ("fc.weight differs",))


def test_names_of_layers_may_end_in_any_letter():
    ours, theirs = ({key.replace(NAME, "layerX."): x for key, x in side.items()} for side in states())
    second = {"state_dict": theirs, "layers": {"layerX": {**PLAN}}}
    for pair in ((ours, second), (second, second)):
        assert seen(*pair, "layerX.") == Recheck("c", "holds", 1, ())
    back = seen(second, ours, "layerX.")
    assert (back.checked, len(back.unknown), back.wrong) == (0, 1, ())


def test_what_cannot_be_told_leaves_it_undecided():
    ours, theirs = states()
    second = {"state_dict": theirs, "layers": {NAME.rstrip("."): {**PLAN, "encoding": "learned"}}}
    told = "layer1.0.conv1: an encoding that is learned is not looked at again"
    assert seen(ours, second) == Recheck("c", "holds", 1, (), (told,))
    assert seen(ours, second).verdict is Verdict.UNDECIDED
    second["state_dict"] = {**theirs, "more": torch.ones(1)}
    assert seen(ours, second) == Recheck("c", "holds", 1, ("more differs",), (told,))
    assert seen(ours, second).verdict is Verdict.REFUTED


def test_layers_that_were_left_out_are_looked_at_and_not_counted():
    ours, theirs = states()
    second = {"state_dict": theirs, "layers": {NAME.rstrip("."): PLAN}}
    assert look("c", "holds", {NAME: True}, [], FORMS, ours, second) == Recheck("c", "holds", 0, ())
    moved = {**second, "state_dict": {**theirs, f"{NAME}bias": theirs[f"{NAME}bias"] + 1}}
    assert look("c", "holds", {NAME: True}, [], FORMS, ours, moved).wrong == ("layer1.0.conv1: bias differs",)
    assert look("c", "holds", {NAME: True, "soft.": True}, [NAME, "soft."], FORMS, ours, second).checked == 1


def test_attention_without_its_plan_or_its_sharpness_differs():
    _, theirs = states()
    first = {"state_dict": theirs, "layers": {NAME.rstrip("."): PLAN}}
    without = {key: x for key, x in theirs.items() if not key.endswith("alpha")}
    told = [Objection("layer1.0.conv1: encoding.alpha in its plan is not what its tensors have")]
    assert list(objections(first, {**first, "state_dict": without}, {NAME: True}, FORMS)) == told
    assert seen(first, {"state_dict": theirs}).verdict is Verdict.UNDECIDED


def test_a_leak_is_counted_where_any_head_leaks():
    def change(ours, theirs):
        theirs[f"{NAME}encoding.alpha"][4] = 3.0

    assert found(change) == [f"{NAME}encoding.alpha is 3"]
