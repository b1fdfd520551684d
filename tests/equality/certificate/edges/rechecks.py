"""`recheck` derives a certificate anew: forged files, forged certificates, files of every form, and bad ones."""

import copy
import functools
import json
import os
import random
import zipfile
from pathlib import Path

import pytest
import torch
from changes import changed
from commands import call, refused
from safetensors.torch import save_file
from torch import nn

import conv2attn
from conv2attn.equality import recheck_certificate
from conv2attn.files import sha256
from conv2attn.verdicts import Verdict

ARCH = ["--arch", "net.py:make"]
CODE = """from torch import nn
def make():
    return nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 2, bias=False))
"""


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 2, bias=False))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(CODE)


def put(form):
    """A seeded network in a file of some form."""
    model, path = network(), f"{form.replace(' ', '-')}.pt"
    weights = {f"module.backbone.{key}": each for key, each in model.state_dict().items()}
    match form:
        case "safetensors":
            path = "net.safetensors"
            save_file(model.state_dict(), path)
        case "legacy":
            torch.save(model.state_dict(), path, _use_new_zipfile_serialization=False)
        case "wrapped":
            torch.save({"state_dict_ema": weights, "epoch": 3}, path)
        case "module":
            torch.save(model, path)
        case "program":
            path = "net.pt2"
            torch.export.save(torch.export.export(model.eval(), (torch.zeros(2, 2, 6, 5),)), path)
    return path


def certified(original="a.pt", converted="b.pt", *more):
    """The certificate that verify wrote of two files, as JSON."""
    result = call("verify", original, converted, "--input-size", "2x6x5", "--report", "c.json", "--force", *ARCH, *more)
    assert Path("c.json").exists(), result.output
    return json.loads(Path("c.json").read_text())


def again(body=None, *more):
    """The verdict of recheck, and what it prints, after the certificate was forged if a `body` is given."""
    if body is not None:
        Path("c.json").write_text(json.dumps(body))
    result = call("recheck", "c.json", *ARCH, *more)
    return result.exit_code, result.output


def pair(converted=None):
    torch.save(network().state_dict(), "a.pt")
    conv2attn.save(converted or conv2attn.convert(network()), "b.pt", force=True)


@pytest.mark.parametrize(("form", "suffix"), [("safetensors", ".pt"), ("legacy", ".safetensors"), ("wrapped", ".pt")])
def test_files_of_every_form_are_checked_again(form, suffix):
    path, converted = put(form), f"attn{suffix}"
    conv2attn.save(conv2attn.convert(conv2attn.load(path, "net.py:make")), converted)
    certified(path, converted)
    code, said = again()
    assert (
        code,
        "found here: both networks are one formula in real arithmetic, for all finite inputs of 1x2x" in said,
    ) == (0, True), said


def test_encodings_of_other_kinds_are_checked_again_too():
    pair(conv2attn.convert(network(), encoding="enumerated"))
    assert certified()["verdict"] == "holds"
    code, said = again()
    assert (code, "found here: both networks are one formula" in said) == (0, True), said


def test_a_key_that_comes_twice_is_no_certificate():
    pair()
    certified()
    text = Path("c.json").read_text()
    Path("c.json").write_text(text.replace("{", '{"verdict": "holds", ', 1))
    assert again()[0] == 2


def test_a_device_that_is_not_here_is_named_with_what_to_do():
    pair()
    body = certified()
    body["circumstances"]["command"] += " --device nowhere"
    code, said = again(body)
    assert (code, "Recheck it where that device is, or write it again" in said) == (2, True), said


@pytest.mark.parametrize("key", ["\ud800", "\x1b[31m"])
def test_keys_of_no_certificate_are_shown_escaped(key):
    pair()
    body = certified()
    code, said = again({**body, key: 1})
    assert (code, "is 1, and missing when derived anew" in said, key in said) == (1, True, False), said


# Files that were forged, and signed again.


def signed():
    body = json.loads(Path("c.json").read_text())
    body["circumstances"] |= {"original sha256": sha256(Path("a.pt")), "converted sha256": sha256(Path("b.pt"))}
    return body


FORGED = {
    "a weight": lambda net: net[0].weight.data[0, 0].add_(2.0**-20),
    "a bias": lambda net: net[0].bias.data.mul_(1.5),
    "a statistic": lambda net: net[1].running_mean.add_(1),
    "an alpha": lambda net: net[2].encoding.assign(alpha=3.0),
    "two heads": lambda net: changed(net[0], "center", lambda numbers: numbers.copy_(numbers.flip(0).clone())),
    "a stride": lambda net: setattr(net[0], "sites", conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)).sites),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_certificate_of_another_file_is_refuted(name):
    pair()
    certified()
    forged = conv2attn.convert(network())
    FORGED[name](forged)
    conv2attn.save(forged, "b.pt", force=True)
    assert "b.pt is not the file that the certificate is of" in " ".join(again()[1].split())
    code, said = again(signed())
    assert code == 1, said
    assert "is true" not in said


# Certificates that were forged.


@functools.cache
def derived():
    """A certificate that holds, its document, and its networks."""
    first, second = network().eval(), conv2attn.convert(network().eval())
    report = conv2attn.certify(first, second, input_size=(2, 6, 5))
    return report, json.loads(report.to_json()), (first, second)


def leaves_of(body, path=()):
    if isinstance(body, dict | list) and body:
        for key in body if isinstance(body, dict) else range(len(body)):
            yield from leaves_of(body[key], (*path, key))
    else:
        yield path


def edited(body, path, value):
    forged = copy.deepcopy(body)
    place = forged
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return forged


EDITS = int(os.environ.get("CONV2ATTN_ATTACK", "1200")) // 40
VALUES = [None, True, -1, 0, 3.5, "text", "holds", "refuted", "proved", "sampled", [], {}]


def test_no_single_edit_holds_but_of_the_circumstances():
    report, body, networks = derived()
    assert recheck_certificate("c", body, networks, lambda: report).verdict is Verdict.HOLDS
    paths, chosen = list(leaves_of(body)), random.Random(0)
    edits = [(chosen.choice(paths), chosen.choice(VALUES)) for _ in range(EDITS)]
    forged = [edited(body, *edit) for edit in edits]
    assert any(each != body for each in forged)
    for edit, each in zip(edits, forged, strict=True):
        if each == body or each["verdict"] not in [verdict.value for verdict in Verdict]:
            continue
        found = recheck_certificate("c", each, networks, lambda: report)
        decides = {"verdict", "strength"} & set(edit[0])
        assert decides or edit[0][0] == "circumstances" or found.verdict is not Verdict.HOLDS, edit
        assert not decides or found.verdict is not Verdict.HOLDS, edit
    for key in body:
        if key != "verdict":
            missing = {**body, key: ...}
            assert recheck_certificate("c", missing, networks, lambda: report).verdict is not Verdict.HOLDS, key
    assert recheck_certificate("c", {**body, "more": 1}, networks, lambda: report).verdict is Verdict.REFUTED


def test_measurements_are_derived_anew():
    report, body, networks = derived()
    found = recheck_certificate("c", edited(body, ("outputs", "max_difference"), 1e-9), networks, lambda: report)
    assert found.verdict is Verdict.UNDECIDED
    assert found.unknown[0].startswith("outputs.max_difference is 1e-09")


def never():
    raise AssertionError("it is derived anew")


def test_circumstances_alone_are_as_stored():
    report, body, networks = derived()
    found = recheck_certificate("c", edited(body, ("circumstances", "time"), "another"), networks, lambda: report)
    assert (found.verdict, found.log2_chance < -40) == (Verdict.HOLDS, True)
    assert "as stored, not derived again: circumstances" in found.to_text()
    assert found.claim.startswith("both networks are one formula in real arithmetic, for all finite inputs of ")


FORGED_TOGETHER = {
    "the mode": lambda body: body["state"].update(mode="training"),
    "the dtype": lambda body: body["state"].update(dtypes=["float64"]),
    "no size": lambda body: body["state"].update(sizes=[]),
    "a size without pixels": lambda body: body["state"].update(sizes=[[2, 0, 5]]),
    "a size that no memory holds": lambda body: body["state"].update(sizes=[[10**9, 9, 9]]),
    "an image of a counterexample": lambda body: body["counterexamples"].append({}),
}


@pytest.mark.parametrize("way", FORGED_TOGETHER)
def test_a_certificate_that_agrees_with_itself_and_not_with_the_networks_is_refuted(way):
    report, body, networks = derived()
    forged = copy.deepcopy(body)
    FORGED_TOGETHER[way](forged)
    forged["claim"] = body["claim"].replace("evaluation", "training") if way == "the mode" else body["claim"]
    # A counterexample is measured, so that another one leaves the certificate undecided.
    wanted = Verdict.UNDECIDED if way == "an image of a counterexample" else Verdict.REFUTED
    assert recheck_certificate("c", forged, networks, lambda: report).verdict is wanted


def test_a_refuted_certificate_is_shown_again_by_its_kept_input_alone():
    first, second = network().eval(), conv2attn.convert(network().eval())
    with torch.no_grad():
        second[0].weight.mul_(1.5)
    report = conv2attn.certify(first, second, input_size=(2, 6, 5))
    body, kept = json.loads(report.to_json()), report.input_shown[None]
    found = recheck_certificate("c", body, (first, second), never, kept)
    assert (found.verdict, found.wrong, found.unknown) == (Verdict.REFUTED, (), ())
    assert "on the kept input they differ by" in found.shown
    found = recheck_certificate("c", body, (first, network().eval()), lambda: report, kept[:, :1])
    assert (found.verdict, found.shown) == (Verdict.REFUTED, "")  # an input that the first network does not take
    corrected = conv2attn.convert(first)
    anew = conv2attn.certify(first, corrected, input_size=(2, 6, 5))
    found = recheck_certificate("c", body, (first, corrected), lambda: anew, kept)
    assert (found.verdict, found.shown, bool(found.wrong)) == (Verdict.REFUTED, "", True)


def test_formulas_tell_apart_what_certify_would_let_pass():
    report, body, (first, second) = derived()
    wrong = copy.deepcopy(second)
    wrong[0].weight.data[0, 0, 0, 0] += 1
    found = recheck_certificate("c", body, (first, wrong), lambda: report)
    assert (found.verdict, found.log2_chance) == (Verdict.UNDECIDED, None)
    assert found.unknown == ("that both are one formula: they are told apart",)
    renamed = nn.Sequential(*second, nn.Identity())
    del renamed[0]
    assert recheck_certificate("c", body, (first, renamed), lambda: report).verdict is Verdict.UNDECIDED


class Called(nn.Module):
    """A linear layer, called and packed in one of the ways in which networks are."""

    def __init__(self, way, again):
        super().__init__()
        self.way, self.again = way, again
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.rows, self.layer = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, x, *others):
        x = self.rows(x) if self.way == "ids" else x
        weight, bias = self.layer.weight, self.layer.bias
        y = sum(others, x @ weight.T + bias if self.again else self.layer(x))
        return {"logits": y} if self.way == "packed" and self.again else y


CALLED = {
    "packed": (torch.arange(8.0).reshape(2, 4),),
    "ids": (torch.tensor([[1, 2, 3]]),),
    "two inputs": (torch.arange(8.0).reshape(2, 4), torch.ones(2, 3)),
}


@pytest.mark.parametrize("way", CALLED)
def test_networks_called_in_other_ways_are_checked_again_as_they_were_certified(way):
    first, second = (Called(way, again).eval() for again in (False, True))
    report = conv2attn.certify(first, second, *CALLED[way])
    found = recheck_certificate("c", json.loads(report.to_json()), (first, second), lambda: report)
    assert (report.verdict, found.verdict, found.wrong, found.unknown) == (Verdict.HOLDS, Verdict.HOLDS, (), ())
    assert found.log2_chance < -40
    wrong = Called(way, True).eval()
    wrong.layer.weight.data[0, 0] += 1
    anew = report if way == "packed" else conv2attn.certify(first, wrong, *CALLED[way])
    found = recheck_certificate("c", json.loads(report.to_json()), (first, wrong), lambda: anew)
    assert found.verdict is (Verdict.UNDECIDED if way == "packed" else Verdict.REFUTED)


# What is no certificate, or names what recheck must not do.


@pytest.mark.parametrize("text", ["no json", "[" * 100_000, "{}", "[]", "3", "\0", "{" + '"a":[' * 10_000])
def test_what_is_no_certificate_is_refused_in_a_sentence(text):
    Path("c.json").write_text(text)
    refused("recheck", "c.json", match="c.json is no certificate of two files")


def test_missing_files_are_refused_and_others_can_be_named():
    pair()
    certified()
    for name in ("a.pt", "b.pt"):
        Path(name).rename(f"moved-{name}")
    refused("recheck", "c.json", *ARCH, match="a.pt, which the certificate is of, is not there")
    assert again(None, "moved-a.pt", "moved-b.pt")[0] == 0
    refused("recheck", "none", match="none does not exist")


def test_a_certificate_says_not_how_files_are_read():
    """Otherwise it could run code: that of a pickle, or of a file that --arch names."""
    pair()
    body = certified()
    refused("recheck", "c.json", match="written with other options on reading its files: conv2attn verify")
    command = body["circumstances"]["command"]
    others = (
        f"{command} --allow evil.Class",
        f"{command} --arch evil.py:make",
        f"{command} --help",
        "rm -rf /",
        "",
        "conv2attn verify '",
        5,
    )
    bodies = [body | {"circumstances": body["circumstances"] | {"command": other}} for other in others]
    for other in (*bodies, body | {"rows": {}}):
        Path("c.json").write_text(json.dumps(other))
        found = call("recheck", "c.json", *ARCH)
        assert (found.exit_code, found.stdout, len(found.stderr.splitlines())) == (2, "", 1), found.output


@pytest.mark.parametrize("content", [5, [1], {1: torch.ones(1)}, {"state_dict": None}, "text"])
def test_files_that_hold_no_network_are_refused(content):
    pair()
    certified()
    torch.save(content, "a.pt")
    Path("c.json").write_text(json.dumps(signed()))
    found = call("recheck", "c.json", *ARCH)
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1), found.output


def test_a_program_of_unknown_format_is_refused():
    pair()
    certified()
    with zipfile.ZipFile("a.pt", "w") as archive:
        archive.writestr("net/archive_format", "pt2")
    Path("c.json").write_text(json.dumps(signed()))
    assert call("recheck", "c.json", *ARCH).exit_code == 2


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("options", [[], ["--dtype", "float64"]], ids=["float32", "float64"])
def test_a_bound_that_is_a_hundredth_smaller_than_certified_is_refused(row, options):
    pair()
    body = certified("a.pt", "b.pt", *options)
    assert again()[0] == 0
    body["rows"][row]["bound"] *= 0.99
    code, output = again(body)
    assert code == 1
    assert "when derived anew" in output


def test_a_bound_that_is_too_small_is_refused_where_the_second_network_has_other_dtypes_too():
    first, second = network().eval(), conv2attn.convert(network().eval())
    second.register_parameter("unread", nn.Parameter(torch.zeros(1, dtype=torch.float64)))
    report = conv2attn.certify(first, second, input_size=(2, 6, 5))
    body = json.loads(report.to_json())
    assert recheck_certificate("c", body, (first, second), lambda: report).verdict is Verdict.HOLDS
    body["rows"][0]["bound"] *= 0.99
    assert recheck_certificate("c", body, (first, second), lambda: report).verdict is Verdict.REFUTED


@pytest.mark.parametrize("field", ["bound", "input_range"])
@pytest.mark.parametrize("number", [10**400, True, float("nan")])
def test_a_number_that_no_certificate_holds_never_holds(field, number):
    pair()
    body = certified()
    body["rows"][0][field] = number
    assert again(body)[0] in (1, 3)


@pytest.mark.parametrize("alpha", [2.0, 5.0, 16.0])
def test_a_bound_on_soft_heads_that_is_a_hundredth_smaller_is_refused(alpha):
    pair(conv2attn.convert(network(), alpha=alpha))
    body = certified()
    assert "when derived anew" not in again()[1]
    body["rows"][0]["bound"] *= 0.99
    code, output = again(body)
    assert "when derived anew" in output
    assert code == 1


def test_another_measured_number_refutes_no_certificate():
    pair(conv2attn.convert(network(), alpha=16))
    body = certified()
    body["rows"][0]["max_error"] /= 2
    assert again(body)[0] == 3


def test_another_machine_may_have_smaller_bounds():
    pair()
    body = certified()
    body["rows"][0]["bound"] *= 0.99
    body["circumstances"]["arithmetic"] = "another"
    assert again(body)[0] == 3
