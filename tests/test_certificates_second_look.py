"""Where the second look and the code between the layers could have let something through."""

import itertools
import math

import pytest
import torch
from test_certificates_between import SIZE, Looking
from test_certificates_recheck import PLAN, Foreign, files, found, states  # noqa: F401  files is a fixture
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.certificates.evidence.recheck import Recheck, disagreements, look, recheck
from conv2attn.certificates.evidence.recheck_layers import of_alpha
from conv2attn.certificates.readings.finding import unsupported
from conv2attn.certificates.surroundings.between import all_same, compiled, departure_between, findings_between
from conv2attn.errors import UsageError
from conv2attn.models.redirection import CHILD
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


def test_a_convolution_on_both_sides_is_compared():
    ours, _ = states()
    assert look("c", "holds", {NAME: True}, ours, ours) == Recheck("c", "holds", 1, ())
    ours["fc.weight"] = torch.ones(1)
    other = {**ours, "fc.weight": torch.zeros(1)}
    assert list(disagreements(ours, other, {NAME: True})) == ["fc.weight differs"]


def test_names_of_layers_may_end_in_any_letter():
    ours, theirs = ({key.replace(NAME, "layerX."): x for key, x in side.items()} for side in states())
    second = {"state_dict": theirs, "layers": {"layerX": {**PLAN}}}
    assert look("c", "holds", {"layerX.": True}, ours, second) == Recheck("c", "holds", 1, ())
    assert list(disagreements(second, second, {"layerX.": True})) == []
    back = look("c", "holds", {"layerX.": True}, second, ours)
    assert (back.checked, len(back.unknown)) == (0, 1)


def test_attention_without_its_plan_or_its_sharpness_differs():
    _, theirs = states()
    first = {"state_dict": theirs, "layers": {NAME.rstrip("."): PLAN}}
    without = {key: x for key, x in theirs.items() if not key.endswith("alpha")}
    assert list(disagreements(first, {**first, "state_dict": without}, {NAME: True})) == [
        f"{NAME}encoding.alpha differs"
    ]
    told = list(disagreements(first, {"state_dict": theirs}, {NAME: True}))
    assert set(told) == {f"{NAME}{key} differs" for key in PLAN}


def test_one_infinite_sharpness_is_wrong_beside_finite_ones():
    def change(ours, theirs):
        theirs[f"{NAME}encoding.alpha"][4] = torch.inf

    assert found(change) == [f"{NAME}encoding.alpha is 128"]


@pytest.mark.parametrize(("encoding", "enough"), [("enumerated", 17.36), ("quadratic", 18.05)])
def test_a_leak_is_counted_along_each_axis_of_the_head(encoding, enough):
    """2.04 n exp(-alpha) is at most the roundoff 2^-24 of float32."""
    for kept in ("value", "output"):
        theirs = {"encoding.center": torch.zeros(3, 2), f"{kept}": torch.zeros(3, 1, 1)}
        for alpha, wrong in ((enough, 0), (enough - 0.02, 1)):
            theirs["encoding.alpha"] = torch.full((3,), alpha)
            assert len([*of_alpha("", {"encoding": encoding}, theirs, proved=False)]) == wrong


@pytest.mark.parametrize(
    ("dtype", "bits"), [(torch.float64, 53), (torch.float32, 24), (torch.bfloat16, 8), (torch.float16, 11)]
)
def test_a_leak_is_held_to_the_roundoff_of_the_dtype(dtype, bits):
    enough = math.log(2.04 * 2 * 2**bits)
    theirs = {"encoding.center": torch.zeros(3, 2), "value": torch.zeros(3, 1, 1, dtype=dtype)}
    for alpha, wrong in ((enough + 1e-9, 0), (enough - 1e-9, 1)):
        theirs["encoding.alpha"] = torch.full((3,), alpha, dtype=torch.float64)
        assert len([*of_alpha("", {"encoding": "quadratic"}, theirs, proved=False)]) == wrong


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


def test_nothing_is_asked_of_a_layer_alone_or_of_functional_attention():
    conv, behind = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
    behind.register_forward_hook(lambda module, given, output: output + 1)
    assert departure_between(conv, behind, [""], IMAGES) == ""
    first, second = nn.Sequential(conv), nn.Sequential(conv, nn.Tanh())
    assert departure_between(first, second, ["0"], IMAGES) == "the outputs are other numbers"
    second[1].add_module(CHILD, nn.Identity())
    assert departure_between(first, second, ["0"], IMAGES) == ""


def test_a_structure_that_is_refuted_is_told():
    conv = nn.Conv2d(3, 4, 3)
    told = findings_between(nn.Sequential(conv, nn.Tanh()), nn.Sequential(conv, nn.ReLU()), {"0"}, ["0"], IMAGES)
    assert Verdict.REFUTED in [each.verdict for each in told]


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
