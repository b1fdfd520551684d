"""What the second look at a stored certificate finds, in files made by hand."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.certificates.evidence.recheck import Recheck, disagreements, recheck, sha256, unequal
from conv2attn.certificates.evidence.recheck_layers import (
    SMALLEST,
    applied,
    identical,
    of_geometry,
    of_layer,
    same_map,
    stride_of,
)
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.verdicts import Verdict


def layer(seed=0, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(2, 4, 3, **{"padding": 1, **kwargs})


PLAN = {
    "encoding": "quadratic",
    "groups": 1,
    "padding": {"before": (1, 1), "after": [1, 1], "mode": "zeros", "spacing": (1, 1)},
    "sites": {"before": (1, 1), "after": (1, 1), "stride": (1, 1)},
}


def changed(key, **parts):
    return {**PLAN, key: {**PLAN[key], **parts}}


def states(**kwargs):
    """The tensors of a layer and of its conversion, under the name layer1.0.conv1."""
    made = layer(**kwargs)
    both = made, conv2attn.convert(made)
    return tuple({f"layer1.0.conv1.{key}": value.clone() for key, value in each.state_dict().items()} for each in both)


def found(change=lambda ours, theirs: None, plan=PLAN, **kwargs):
    ours, theirs = states(**kwargs)
    change(ours, theirs)
    return list(of_layer("layer1.0.conv1.", plan, ours, theirs))


def at(key, number, *place):
    """Writes a number into a tensor of the second file."""
    return lambda ours, theirs: theirs[f"layer1.0.conv1.{key}"].__setitem__(place or ..., number)


def test_a_conversion_is_its_convolution():
    assert found() == []
    assert found(bias=False) == []
    assert found(groups=2, plan={**PLAN, "groups": 2}) == []


def test_biases_are_the_same_or_on_neither_side():
    told = ["layer1.0.conv1.bias differs"]
    assert found(at("bias", 9.0, 1)) == told
    assert found(lambda ours, theirs: theirs.pop("layer1.0.conv1.bias")) == told
    assert found(lambda ours, theirs: ours.pop("layer1.0.conv1.bias")) == told


@pytest.mark.parametrize(
    ("dtype", "least"), [(torch.float32, 150), (torch.float64, 1075), (torch.bfloat16, 134), (torch.float16, 25)]
)
def test_alphas_are_those_from_which_weights_vanish(dtype, least):
    assert 1 - SMALLEST[dtype] == least
    limit = least * 0.6931471805599453

    def alpha(number):
        def change(ours, theirs):
            for side in (ours, theirs):
                for key, tensor in side.items():
                    side[key] = tensor.to(dtype)
            theirs["layer1.0.conv1.encoding.alpha"] = torch.full((9,), 5000.0, dtype=torch.float64)
            theirs["layer1.0.conv1.encoding.alpha"][4] = number
            theirs["layer1.0.conv1.encoding.center"] = theirs["layer1.0.conv1.encoding.center"].double()

        return change

    assert found(alpha(limit)) == []
    assert found(alpha(limit * (1 - 1e-15))) == [f"layer1.0.conv1.encoding.alpha is {limit:g}"]
    assert found(at("encoding.alpha", torch.inf)) == ["layer1.0.conv1.encoding.alpha is inf"]
    assert found(alpha(torch.nan)) == ["layer1.0.conv1.encoding.alpha is nan"]


def test_a_centre_between_pixels_needs_more():
    assert found(at("encoding.center", -0.9375, 0, 0)) == []
    assert found(at("encoding.center", -0.75, 0, 0)) == ["layer1.0.conv1.encoding.alpha is 64"]
    enumerated = {**PLAN, "encoding": "enumerated"}
    assert found(plan=enumerated) == []
    lines = found(at("encoding.center", -0.9375, 0, 0), plan=enumerated)
    assert "layer1.0.conv1.encoding.center is off the taps" in lines


def test_taps_are_what_the_heads_at_their_offset_do():
    told = "layer1.0.conv1.: the tap at {} is not what heads {} do"
    assert found(at("output", 9.0, 5, 3, 1)) == [told.format((0.0, 1.0), [5])]
    assert found(at("encoding.center", torch.tensor([0.0, 0.0]), 5)) == [
        told.format((0.0, 0.0), [4, 5]),
        told.format((0.0, 1.0), []),
    ]
    away = found(at("encoding.center", torch.tensor([0.0, 2.0]), 5))
    assert away == [told.format((0.0, 1.0), []), "layer1.0.conv1.encoding.center is off the taps"]


@pytest.mark.parametrize("sides", [(1, 3), (3, 1)])
def test_a_head_beside_a_kernel_of_unequal_sides_is_off_the_taps(sides):
    """Each of its coordinates is that of a tap, and both together of none."""
    made = nn.Conv2d(2, 4, sides, padding=tuple(k // 2 for k in sides))
    ours, theirs = ({f"a.{key}": x for key, x in each.state_dict().items()} for each in (made, conv2attn.convert(made)))
    plan = {"encoding": "quadratic", "groups": 1}
    for key in ("padding", "sites"):
        half = tuple(k // 2 for k in sides)
        plan[key] = {"before": half, "after": half, "mode": "zeros", "spacing": (1, 1), "stride": (1, 1)}
    assert list(of_layer("a.", plan, ours, theirs)) == []
    more = {key: torch.cat([x, x[:1]]) if key != "a.bias" else x for key, x in theirs.items()}
    more["a.encoding.center"][-1] = torch.tensor([float(sides[0] == 1), float(sides[1] == 1)])
    assert list(of_layer("a.", plan, ours, more)) == ["a.encoding.center is off the taps"]


def test_paddings_and_strides_are_those_of_a_resnet():
    ours, _ = states()
    assert list(of_geometry("layer1.0.conv1.", PLAN, ours)) == []
    for key, part, wrong, right in (
        ("padding", "before", (2, 1), (1, 1)),
        ("padding", "after", (1, 2), (1, 1)),
        ("padding", "mode", "reflect", "zeros"),
        ("padding", "spacing", (1, 2), (1, 1)),
        ("sites", "before", (0, 1), (1, 1)),
        ("sites", "after", (1, 0), (1, 1)),
        ("sites", "stride", (2, 2), (1, 1)),
    ):
        told = f"layer1.0.conv1.{key}: {part} is {wrong}, and a ResNet needs {right}"
        assert list(of_geometry("layer1.0.conv1.", changed(key, **{part: wrong}), ours)) == [told]
        assert found(plan=changed(key, **{part: wrong})) == [told]
    strided = changed("sites", stride=(2, 2))
    assert list(of_geometry("layer2.0.conv1.", strided, {"layer2.0.conv1.weight": ours["layer1.0.conv1.weight"]})) == []


@pytest.mark.parametrize(
    ("name", "keys", "stride"),
    [
        ("conv1.", {"conv1.weight": torch.zeros(1, 1, 7, 7)}, 2),
        ("conv1.", {"conv1.weight": torch.zeros(1, 1, 3, 3)}, 1),
        ("layer1.0.conv1.", {}, 1),
        ("layer2.0.conv1.", {}, 2),
        ("layer2.0.conv2.", {}, 1),
        ("layer2.0.downsample.0.", {}, 2),
        ("layer2.1.conv1.", {}, 1),
        ("layer12.0.conv1.", {}, 1),
        ("layer4.0.conv1.", {"layer4.0.conv3.weight": 0}, 1),
        ("layer4.0.conv2.", {"layer4.0.conv3.weight": 0}, 2),
        ("layer4.0.conv3.", {"layer4.0.conv3.weight": 0}, 1),
        ("layer4.0.downsample.0.", {"layer4.0.conv3.weight": 0}, 2),
        ("fc.", {}, 1),
    ],
)
def test_strides_are_where_a_resnet_has_them(name, keys, stride):
    assert stride_of(name, keys) == stride


def test_exact_products_are_those_of_fractions():
    matrix = torch.tensor([[0.5, -2.0], [0.0, 3.0], [1.0, 0.125]])
    assert applied(matrix, [Fraction(1, 3), Fraction(7)]) == [Fraction(1, 6) - 14, 21, Fraction(1, 3) + Fraction(7, 8)]


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def test_one_plain_head_is_compared_number_for_number():
    tap, other = tensors((4, 2), (4, 2))
    heads = torch.stack([other, tap])
    assert same_map(tap, [1], None, heads, 1)
    assert same_map(tap, [1], heads, None, 1)
    assert not same_map(tap, [0], None, heads, 1)
    assert not same_map(tap, [0], heads, None, 1)
    assert not same_map(tap, [1], None, None, 1)
    assert not same_map(tap, [1], None, heads.double(), 1)
    assert not same_map(tap, [1], heads.double(), None, 1)


@pytest.mark.parametrize("groups", [1, 2])
def test_several_heads_or_factors_are_added_up_exactly(groups):
    value = torch.randint(-9, 9, (3, 3 * groups, 2), generator=torch.Generator().manual_seed(1)).float()
    output = torch.randint(-9, 9, (3, 4, 3), generator=torch.Generator().manual_seed(2)).float()
    blocks = [
        o @ v
        for o, v in zip(
            output.unflatten(1, (groups, -1)).flatten(0, 1), value.unflatten(1, (groups, -1)).flatten(0, 1), strict=True
        )
    ]
    taps = torch.stack(blocks).unflatten(0, (3, groups)).flatten(1, 2)
    assert same_map(taps[0], [0], value, output, groups)
    assert same_map(taps[0] + taps[2], [0, 2], value, output, groups)
    assert same_map(taps[0] + taps[2], [2, 0], None, taps, groups)
    assert same_map(taps[1] + taps[2], [2, 1], taps, None, groups)
    assert same_map(torch.zeros(4, 2), [], value, output, groups)
    assert not same_map(taps[0], [], value, output, groups)
    assert not same_map(taps[0], [0, 1], value, output, groups)
    for place in ((0, 0), (3, 1)):
        off = taps[0].clone()
        off[place] = torch.nextafter(off[place], torch.tensor(99.0))
        assert not same_map(off, [0], value, output, groups)


def test_numbers_are_identical_in_dtype_shape_and_value():
    numbers = torch.tensor([[0.0, torch.nan], [1.0, 2.0]])
    assert identical(numbers, numbers.clone())
    assert not identical(numbers, numbers.double())
    assert not identical(numbers, numbers[:1])
    assert not identical(numbers, numbers.nan_to_num(5.0))
    assert not identical(numbers.nan_to_num(5.0), numbers)
    assert not identical(numbers, numbers + 1)
    assert not identical(torch.ones(2), torch.tensor([1.0, 2.0]))
    assert not identical(torch.ones(1, 1), torch.ones(1))


def test_what_is_not_on_both_sides_or_not_the_same_differs():
    ours, theirs = (
        {"a": torch.ones(1), "b": torch.ones(1), "x": torch.ones(1)},
        {"a": torch.ones(1), "c": torch.ones(1)},
    )
    assert list(unequal("", ours, theirs, lambda key: key != "x")) == ["b differs", "c differs"]
    assert list(unequal("", ours, {**ours, "b": torch.zeros(1)}, lambda key: True)) == ["b differs"]
    assert list(unequal("", ours, theirs, lambda key: key == "a")) == []


def test_layers_are_looked_at_again_and_all_else_is_the_same():
    ours, theirs = states()
    ours["fc.weight"] = theirs["fc.weight"] = torch.ones(2)
    name = "layer1.0.conv1."
    second = {"state_dict": theirs, "layers": {name.rstrip("."): PLAN}}
    assert list(disagreements(ours, second, {name: True})) == []
    assert list(disagreements({"state_dict": ours}, second, {name: True})) == []
    strided = {"state_dict": theirs, "layers": {name.rstrip("."): changed("sites", stride=(2, 2))}}
    assert len(list(disagreements(ours, strided, {name: True}))) == 1
    moved = {**second, "state_dict": {**theirs, "fc.weight": torch.zeros(2)}}
    assert list(disagreements(ours, moved, {name: True})) == ["fc.weight differs"]
    assert list(disagreements(ours, ours, {name: True})) == []
    assert len(list(disagreements(ours, second, {}))) == len({*ours, *theirs}) - 2
    assert "layer1.0.conv1.weight differs" in list(disagreements(ours, {"state_dict": theirs}, {name: True}))


def test_every_layer_is_looked_at_and_one_that_is_not_there_differs():
    ours, theirs = states()
    names = [f"layer1.{block}.conv1." for block in range(3)]
    first, second = ({key.replace("layer1.0", f"layer1.{n}"): x.clone() for key, x in side.items() for n in range(3)}
                     for side in (ours, theirs))  # fmt: skip
    told = {"state_dict": second, "layers": {name.rstrip("."): PLAN for name in names}}
    assert list(disagreements(first, told, dict.fromkeys(names, True))) == []
    second[f"{names[2]}bias"] += 1
    assert list(disagreements(first, told, dict.fromkeys(names, True))) == [f"{names[2]}bias differs"]
    found = list(disagreements({}, {"state_dict": theirs, "layers": {names[0].rstrip("."): PLAN}}, {names[0]: True}))
    assert set(found) == {f"{key} differs" for key in theirs} | {f"{names[0]}{key} differs" for key in PLAN}


def test_taps_of_even_and_of_large_kernels_are_where_a_convolution_has_them():
    made = nn.Conv2d(2, 4, 2)
    ours, theirs = ({f"a.{key}": x for key, x in each.state_dict().items()} for each in (made, conv2attn.convert(made)))
    assert all(line.startswith(("a.padding", "a.sites")) for line in of_layer("a.", PLAN, ours, theirs))
    wide = {"conv1.weight": torch.zeros(1, 1, 7, 7)}
    plan = {**changed("padding", before=(3, 3), after=(3, 3))}
    plan["sites"] = {"before": (3, 3), "after": (3, 3), "stride": (2, 2)}
    assert list(of_geometry("conv1.", plan, wide)) == []


def test_two_attentions_are_the_same_in_numbers_and_geometry():
    _, theirs = states()
    name = "layer1.0.conv1."
    first = {"state_dict": theirs, "layers": {name.rstrip("."): PLAN}}
    assert list(disagreements(first, first, {name: True})) == []
    for key in ("padding", "sites", "groups", "encoding", "d_in", "d_out", "stride_by"):
        other = {"state_dict": theirs, "layers": {name.rstrip("."): {**PLAN, key: "other"}}}
        assert list(disagreements(first, other, {name: True})) == [f"{name}{key} differs"]
        assert list(disagreements(other, first, {name: True})) == [f"{name}{key} differs"]
    unknown = {"state_dict": theirs, "layers": {name.rstrip("."): {**PLAN, "note": "other"}}}
    assert list(disagreements(first, unknown, {name: True})) == []
    moved = {**first, "state_dict": {**theirs, f"{name}bias": theirs[f"{name}bias"] + 1}}
    assert list(disagreements(first, moved, {name: True})) == [f"{name}bias differs"]


@pytest.mark.parametrize(("stem", "side", "wrong"), [(None, 7, False), ("imagenet", 7, False),
                                                     ("imagenet", 3, True), ("cifar", 3, False),
                                                    ("cifar", 7, True), ("", 7, False), (None, 3, False)])  # fmt: skip
def test_the_stem_is_that_of_its_first_layer(stem, side, wrong):
    ours = {"conv1.weight": torch.ones(1, 1, 3, side)}
    architecture = {} if stem is None else {"stem": stem}
    told = [f"the stem is that of {stem}, and conv1 is not"] if wrong else []
    assert list(disagreements(ours, {"state_dict": ours, "architecture": ["resnet", architecture]}, {})) == told
    assert (
        list(disagreements({"a": torch.ones(1)}, {"state_dict": {"a": torch.ones(1)}, "architecture": None}, {})) == []
    )
    assert (
        list(disagreements({"conv1.weight": torch.ones(1, 1, 7, 7)}, {"conv1.weight": torch.ones(1, 1, 7, 7)}, {}))
        == []
    )
    other = {"state_dict": {"a": torch.ones(1)}, "architecture": ["x", {"stem": "imagenet"}]}
    assert list(disagreements({"a": torch.ones(1)}, other, {})) == []


@pytest.mark.parametrize(
    ("stored", "checked", "wrong", "verdict", "code"),
    [
        ("holds", 2, (), Verdict.HOLDS, 0),
        ("holds", 0, (), Verdict.UNDECIDED, 3),
        ("holds", 2, ("a differs",), Verdict.REFUTED, 1),
        ("undecided", 0, (), Verdict.UNDECIDED, 3),
        ("refuted", 0, (), Verdict.REFUTED, 1),
        ("unsupported", 3, (), Verdict.UNSUPPORTED, 3),
    ],
)
def test_a_second_look_is_no_better_than_the_first(stored, checked, wrong, verdict, code):
    report = Recheck("c.json", stored, checked, wrong)
    assert (report.verdict, report.exit_code) == (verdict, code)
    lines = [*wrong, f"{checked} layers checked again; stored verdict: {stored}", f"c.json: {verdict.value}"]
    assert report.to_text() == "".join(f"{line}\n" for line in lines)
    assert report.to_markdown() == "".join(f"- {line}\n" for line in lines)
    text = report.to_json()
    assert json.loads(text) == {"certificate": "c.json", "stored": stored, "checked": checked, "wrong": list(wrong),
                                "schema": "conv2attn.recheck/1", "verdict": verdict.value, "unknown": []}  # fmt: skip
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


@pytest.fixture
def files(tmp_path):
    """Two files and the certificate of both, and a function that writes it anew with something changed."""
    ours, theirs = states()
    name = "layer1.0.conv1"
    torch.save(ours, tmp_path / "a.pt")
    torch.save({"state_dict": theirs, "layers": {name: PLAN}}, tmp_path / "b.pt")

    def write(**changes):
        rows = [{"name": name, "strength": "proved", "skipped": False},
                {"name": "left", "strength": "proved", "skipped": True},
                {"name": "soft", "strength": "bounded", "skipped": False}]  # fmt: skip
        known = {"original": str(tmp_path / "a.pt"), "converted": str(tmp_path / "b.pt"),
                 "original sha256": sha256(tmp_path / "a.pt"),
                 "converted sha256": sha256(tmp_path / "b.pt")}  # fmt: skip
        body = {"verdict": "holds", "layers": rows, "circumstances": known, **changes}
        path = tmp_path / "c.json"
        path.write_text(json.dumps({key: value for key, value in body.items() if value is not None}))
        return str(path)

    write.folder = tmp_path
    return write


def test_a_certificate_is_held_against_its_files_or_those_given(files):
    path = files()
    assert recheck(path) == Recheck(path, "holds", 1, ())
    moved = {which: files.folder / f"{which}.moved" for which in "ab"}
    for which, place in moved.items():
        (files.folder / f"{which}.pt").rename(place)
        with pytest.raises(CheckpointError, match=rf"{which}\.pt does not exist"):
            recheck(path, *(str(moved[each]) for each in "a" if which == "b"))
        given = [str(moved["a"]), str(moved["b"]) if which == "b" else None]
        assert recheck(path, *given) == Recheck(path, "holds", 1, ())


def test_files_that_changed_are_told_before_anything_is_read(files):
    path = files()
    (files.folder / "b.pt").write_bytes(b"something else")
    assert recheck(path) == Recheck(
        path, "holds", 0, (f"{files.folder / 'b.pt'} changed since the certificate was written",)
    )
    (files.folder / "a.pt").write_bytes(b"something else")
    assert len(recheck(path).wrong) == 2


def test_what_disagrees_behind_the_right_hashes_is_told(files):
    _, theirs = states()
    theirs["layer1.0.conv1.output"][4, 1, 0] += 1
    torch.save({"state_dict": theirs, "layers": {"layer1.0.conv1": PLAN}}, files.folder / "b.pt")
    path = files()
    told = "layer1.0.conv1.: the tap at (0.0, 0.0) is not what heads [4] do"
    assert recheck(path) == Recheck(path, "holds", 1, (told,))


class Foreign:
    """What only an unsafe load would make."""


def test_nothing_but_tensors_is_loaded(files):
    torch.save({"state_dict": {}, "more": Foreign()}, files.folder / "b.pt")
    with pytest.raises(UsageError, match="names files that are no networks"):
        recheck(files())


@pytest.mark.parametrize("content", [5, [1], {"layers": 5}, {1: torch.ones(1)},
                                     {"state_dict": None}, {"layer1.0.conv1.weight": torch.ones(1)}])  # fmt: skip
def test_files_that_hold_no_networks_are_an_error(files, content):
    torch.save(content, files.folder / "a.pt")
    with pytest.raises(UsageError, match=r"c\.json names files that are no networks"):
        recheck(files())


def test_where_not_all_holds_only_the_hashes_are_looked_at(files):
    torch.save({}, files.folder / "a.pt")
    path = files(verdict="undecided")
    assert recheck(path) == Recheck(path, "undecided", 0, ())
    path = files(claim="the outputs differ by at most 1 for all finite inputs")
    assert (recheck(path).verdict, recheck(path).checked) == (Verdict.UNDECIDED, 0)
    assert "a tolerance rests on bounds, which are not looked at again\n" in recheck(path).to_text()


def test_the_other_way_round_nothing_is_known(files):
    known = json.loads(Path(files()).read_text())["circumstances"]
    turned = {"original": "converted", "original sha256": "converted sha256"}
    turned |= {value: key for key, value in turned.items()}
    path = files(circumstances={turned[key]: value for key, value in known.items()})
    told = ("layer1.0.conv1.: a convolution in place of attention is not looked at again",)
    assert recheck(path) == Recheck(path, "holds", 0, (), told)
    assert recheck(path).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("alpha", "strength", "wrong"),
    [(46.0, "bounded", 0), (46.0, "proved", 1), (18.1, "bounded", 0), (18.0, "bounded", 1), (3.0, "bounded", 1)],
)
@pytest.mark.parametrize("twice", [False, True])
def test_a_bounded_layer_leaks_at_most_the_roundoff(files, alpha, strength, wrong, twice):
    ours, theirs = states()
    name = "layer1.0.conv1"
    soft = {**theirs, f"{name}.encoding.alpha": torch.full((9,), alpha)}
    torch.save({"state_dict": theirs, "layers": {name: PLAN}} if twice else ours, files.folder / "a.pt")
    torch.save({"state_dict": soft, "layers": {name: PLAN}}, files.folder / "b.pt")
    path = files(layers=[{"name": name, "strength": strength, "skipped": False}])
    assert recheck(path) == Recheck(path, "holds", 1, (f"{name}.encoding.alpha is {alpha:g}",) * wrong)


def test_a_layer_at_the_root_is_named_by_nothing(files):
    made = layer()
    torch.save(made.state_dict(), files.folder / "a.pt")
    torch.save({"state_dict": conv2attn.convert(made).state_dict(), "layers": {"": PLAN}}, files.folder / "b.pt")
    path = files(layers=[{"name": "(root)", "strength": "proved", "skipped": False}])
    assert recheck(path) == Recheck(path, "holds", 1, ())


@pytest.mark.parametrize("change", [{"verdict": None}, {"verdict": "fine"}, {"layers": None}, {"circumstances": None},
                                    {"circumstances": {}}, {"layers": 3}, {"layers": [{}]}])  # fmt: skip
def test_what_is_no_certificate_is_an_error(files, change):
    with pytest.raises(UsageError, match=r"c\.json is no certificate of two files"):
        recheck(files(**change))
    (files.folder / "c.json").write_text("no json")
    with pytest.raises(UsageError, match=r"c\.json is no certificate of two files"):
        recheck(str(files.folder / "c.json"))
    (files.folder / "c.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"c\.json is no certificate of two files"):
        recheck(str(files.folder / "c.json"))
    with pytest.raises(UsageError, match="none is no certificate of two files"):
        recheck("none")
