"""Where the second look and the code between the layers could have let something through."""

import itertools
import warnings

import pytest
import torch
from test_certificates_between import SIZE, Looking
from test_certificates_recheck import PLAN, Foreign, files, found, states  # noqa: F401  files is a fixture
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.certificates import certify
from conv2attn.certificates.evidence.recheck import Recheck, look, recheck
from conv2attn.certificates.evidence.recheck_files import objections
from conv2attn.certificates.evidence.recheck_forms import Objection
from conv2attn.certificates.readings.finding import refuted, unsupported
from conv2attn.certificates.surroundings.between import (
    PlainLayouts,
    all_same,
    compiled,
    departure_between,
    findings_between,
    hooked,
)
from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict

NAME = "layer1.0.conv1."


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
    return look("c", "holds", {name: proved}, [name], first, second)


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
    assert look("c", "holds", {NAME: True}, [], ours, second) == Recheck("c", "holds", 0, ())
    moved = {**second, "state_dict": {**theirs, f"{NAME}bias": theirs[f"{NAME}bias"] + 1}}
    assert look("c", "holds", {NAME: True}, [], ours, moved).wrong == ("layer1.0.conv1: bias differs",)
    assert look("c", "holds", {NAME: True, "soft.": True}, [NAME, "soft."], ours, second).checked == 1


def test_attention_without_its_plan_or_its_sharpness_differs():
    _, theirs = states()
    first = {"state_dict": theirs, "layers": {NAME.rstrip("."): PLAN}}
    without = {key: x for key, x in theirs.items() if not key.endswith("alpha")}
    told = [Objection("layer1.0.conv1: encoding.alpha in its plan is not what its tensors have")]
    assert list(objections(first, {**first, "state_dict": without}, {NAME: True})) == told
    assert seen(first, {"state_dict": theirs}).verdict is Verdict.UNDECIDED


def test_a_leak_is_counted_where_any_head_leaks():
    def change(ours, theirs):
        theirs[f"{NAME}encoding.alpha"][4] = 3.0

    assert found(change) == [f"{NAME}encoding.alpha is 3"]


IMAGES = torch.rand(2, *SIZE, generator=torch.Generator().manual_seed(0))


def departure(after):
    original = Looking(after)
    return departure_between(original, conv2attn.convert(original), ["conv"], IMAGES)


def doubled(net):
    return 2 if isinstance(net.conv, nn.Conv2d) else 1


def test_layers_may_be_called_by_keyword():
    assert departure(lambda net, x: net.conv(input=x) * doubled(net)) == "the outputs are other numbers"
    assert departure(lambda net, x: net.conv(input=x)) == ""


def test_two_images_are_enough_for_statistics():
    def after(net, x):
        return F.batch_norm(net.conv(x).mean((2, 3)) * doubled(net) ** 40, None, None, training=True, eps=9.0)

    assert departure(after) == "the outputs are other numbers"


def test_nothing_is_said_of_what_fails_or_departs_by_itself():
    assert departure(lambda net, x: net.conv(x).view(3)) == ""
    ticks = itertools.count()
    assert departure(lambda net, x: net.conv(x + next(ticks)) * 0) == ""


def test_nothing_is_asked_of_a_layer_alone():
    conv, behind = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
    behind.register_forward_hook(lambda module, given, output: output + 1)
    assert departure_between(conv, behind, [""], IMAGES) == ""
    first, second = nn.Sequential(conv), nn.Sequential(conv, nn.Tanh())
    assert departure_between(first, second, ["0"], IMAGES) == "the outputs are other numbers"


def test_a_structure_that_is_refuted_is_told():
    conv = nn.Conv2d(3, 4, 3)
    told = findings_between(nn.Sequential(conv, nn.Tanh()), nn.Sequential(conv, nn.ReLU()), {"0"}, ["0"], IMAGES)
    assert Verdict.REFUTED in [each.verdict for each in told]
    original = Looking(lambda net, x: net.conv(x) * (1 if isinstance(net.conv, nn.Conv2d) else 2))
    found = findings_between(original, conv2attn.convert(original), {"conv"}, ["conv"], torch.rand(1, *SIZE))
    sentence = "although the layers return the same numbers in both, in the second the outputs are other numbers"
    assert found == [refuted("structure", "C2A405", sentence)]


@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_hooks_before_and_behind_change_a_layer(kind):
    conv = nn.Conv2d(3, 4, 3)
    assert hooked(conv) is False
    getattr(conv, f"register_{kind}_hook")(print)
    assert hooked(conv) is True


def test_lists_are_the_same_if_all_of_them_is():
    a, b = torch.zeros(2), torch.ones(2)
    assert all_same([a, b], [a, b])
    assert not all_same([a, b], [a, a])
    assert not all_same([a], [a, b])
    assert not all_same([a, b], [a])


def test_compiled_code_is_named_and_nothing_else_is():
    networks = [nn.Sequential(nn.Conv2d(3, 4, 3)) for _ in range(2)]
    assert compiled(*networks) == []
    networks[1][0]._compiled_call_impl = print
    told = "0 of the second runs as compiled code, which cannot be read: pass it uncompiled"
    assert compiled(*networks) == [unsupported("C2A106", told)]
    with warnings.catch_warnings(action="ignore"):  # torch deprecates scripts
        networks[1] = torch.jit.script(networks[0])
    told = "the network of the second runs as compiled code, which cannot be read: pass it uncompiled"
    assert compiled(*networks) == [unsupported("C2A106", told)]
    assert certify(*networks, input_size=(3, 6, 7)).verdict is Verdict.UNSUPPORTED


def test_what_is_tried_between_layers_is_convolved_in_plain_layouts():
    """With channels innermost, torch 2.13 gives noise for some convolutions in bfloat16."""
    given, weight = (torch.rand(2, 3, 5, 4).contiguous(memory_format=torch.channels_last) for _ in range(2))
    assert not F.conv2d(given, weight[..., :2, :2]).is_contiguous()
    with PlainLayouts():
        outputs = [F.conv2d(given, weight[..., :2, :2]), F.conv2d(input=given, weight=weight[..., :2, :2], padding=1)]
        kept = torch.relu(given)
    assert [each.is_contiguous() for each in outputs] == [True, True]
    assert not kept.is_contiguous()
