"""`recheck` derives a certificate anew: forged files, forged certificates, files of every form, and bad ones."""

import copy
import functools
import json
import math
import os
import random
import zipfile
from pathlib import Path
from unittest import mock

import pytest
import torch
from commands import call, refused
from equality.pairs import Net
from safetensors.torch import save_file
from torch import nn

import conv2attn
from conv2attn.equality import recheck_certificate
from conv2attn.equality.certificate import rechecking
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


FORMS = {
    "net.safetensors": lambda state, path: save_file(state, path),
    "legacy.pt": lambda state, path: torch.save(state, path, _use_new_zipfile_serialization=False),
    "wrapped.pt": lambda state, path: torch.save(
        {"state_dict_ema": {f"module.backbone.{key}": each for key, each in state.items()}, "epoch": 3}, path
    ),
}


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


@pytest.mark.parametrize(("path", "suffix"), [*zip(FORMS, (".pt", ".safetensors", ".pt"), strict=True)])
def test_files_of_every_form_are_checked_again(path, suffix):
    FORMS[path](network().state_dict(), path)
    options = {"encoding": "enumerated"} if path == "wrapped.pt" else {}
    conv2attn.save(conv2attn.convert(conv2attn.load(path, "net.py:make"), **options), f"attn{suffix}")
    certified(path, f"attn{suffix}")
    code, said = again()
    told = "found here: both networks are one formula in real arithmetic, for all finite inputs of 1x2x"
    assert (code, told in said) == (0, True), said


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


def test_a_certificate_of_another_file_is_refuted():
    pair()
    certified()
    forged = conv2attn.convert(network())
    forged[0].weight.data[0, 0] += 2.0**-20
    conv2attn.save(forged, "b.pt", force=True)
    assert "b.pt is not the file of the certificate" in " ".join(again()[1].split())
    code, said = again(signed())
    assert (code, "is true" in said) == (1, False), said


# Certificates that were forged.


SIZE = {"input_size": (2, 6, 5)}


@functools.cache
def derived(alpha="auto", dtype=torch.float32):
    """A certificate, its document, its networks, and whether these are one formula."""
    first = network().eval().to(dtype)
    networks = first, conv2attn.convert(first, alpha=alpha)
    report = conv2attn.certify(*networks, **SIZE)
    return report, json.loads(report.to_json()), networks, rechecking.identified_again(networks, report)


def rechecked(body, **options):
    """An edited certificate, checked again; the formulas, which no edit changes, are compared once for all edits."""
    report, _, networks, formulas = derived(**options)
    with mock.patch.object(rechecking, "identified_again", return_value=formulas):
        return recheck_certificate("c", body, networks, lambda: report)


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


EDITS = int(os.environ.get("CONV2ATTN_ATTACK", "600")) // 40
VALUES = [None, True, -1, 0, 3.5, "text", "holds", "refuted", "proved", "sampled", [], {}]


def test_no_single_edit_holds_but_of_the_circumstances():
    body = derived()[1]
    assert rechecked(body).verdict is Verdict.HOLDS
    paths, chosen = list(leaves_of(body)), random.Random(0)
    edits = [(chosen.choice(paths), chosen.choice(VALUES)) for _ in range(EDITS)]
    forged = [edited(body, *edit) for edit in edits]
    assert any(each != body for each in forged)
    for edit, each in zip(edits, forged, strict=True):
        if each == body or each["verdict"] not in [verdict.value for verdict in Verdict]:
            continue
        found = rechecked(each)
        decides = {"verdict", "strength"} & set(edit[0])
        assert decides or edit[0][0] == "circumstances" or found.verdict is not Verdict.HOLDS, edit
        assert not decides or found.verdict is not Verdict.HOLDS, edit
    for key in body:
        if key != "verdict":
            assert rechecked({**body, key: ...}).verdict is not Verdict.HOLDS, key
    assert rechecked({**body, "more": 1}).verdict is Verdict.REFUTED


def less(row=0, key="bound", factor=0.99):
    """A number of a row that is smaller than certified."""
    return lambda body: body["rows"][row].update({key: body["rows"][row][key] * factor})


def of_another_machine(body):
    less()(body)
    body["circumstances"]["arithmetic"] = "another"


HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED
EDITED = {
    "a time": ({}, lambda body: body["circumstances"].update(time="another"), HOLDS),
    "a measurement": ({}, lambda body: body["outputs"].update(max_difference=1e-9), UNDECIDED),
    "the mode": (
        {},
        lambda body: body.update(
            claim=body["claim"].replace("evaluation", "training"), state={**body["state"], "mode": "training"}
        ),
        REFUTED,
    ),
    "the dtype": ({}, lambda body: body["state"].update(dtypes=["float64"]), REFUTED),
    "no size": ({}, lambda body: body["state"].update(sizes=[]), REFUTED),
    "a size without pixels": ({}, lambda body: body["state"].update(sizes=[[2, 0, 5]]), REFUTED),
    "a size that no memory holds": ({}, lambda body: body["state"].update(sizes=[[10**9, 9, 9]]), REFUTED),
    # A counterexample is measured, so that another one leaves the certificate undecided.
    "an image of a counterexample": ({}, lambda body: body["counterexamples"].append({}), UNDECIDED),
    "a smaller bound": ({}, less(), REFUTED),
    "a smaller bound in float64": ({"dtype": torch.float64}, less(1), REFUTED),
    **{f"a smaller bound, alpha {alpha}": ({"alpha": alpha}, less(), REFUTED) for alpha in (2.0, 16.0)},
    "a smaller bound on another machine": ({}, of_another_machine, UNDECIDED),
    "another measured error": ({"alpha": 16}, less(key="max_error", factor=0.5), UNDECIDED),
    **{
        f"{field} = {number}": ({}, lambda body, f=field, n=number: body["rows"][0].update({f: n}), verdict)
        for field, verdict in (("bound", REFUTED), ("input_range", UNDECIDED))
        for number in (math.inf, True, math.nan)
    },
}


@pytest.mark.parametrize("name", EDITED)
def test_an_edited_certificate_is_refuted_unless_its_numbers_are_measured(name):
    options, edit, verdict = EDITED[name]
    forged = copy.deepcopy(derived(**options)[1])
    edit(forged)
    found = rechecked(forged, **options)
    assert found.verdict is verdict, found.to_text()
    assert found.verdict is not HOLDS or "not derived again: circumstances" in found.to_text()


def test_a_number_that_no_float_holds_never_holds():
    pair()
    body = certified()
    body["rows"][0]["bound"] = 10**400
    assert again(body)[0] == 1


def test_a_refuted_certificate_is_refuted_again_by_two_calls_whatever_they_measure():
    first, second = network().eval(), conv2attn.convert(network().eval())
    with torch.no_grad():
        second[0].weight.mul_(1.5)
    report = conv2attn.certify(first, second, input_size=(2, 6, 5))
    body = json.loads(report.to_json())
    body["outputs"]["max_difference"] *= 2  # as another machine may round
    found = recheck_certificate("c", body, (first, second), lambda: report)
    assert (found.verdict, found.wrong, found.unknown) == (Verdict.REFUTED, (), ())
    corrected = conv2attn.convert(first)
    anew = conv2attn.certify(first, corrected, input_size=(2, 6, 5))
    found = recheck_certificate("c", body, (first, corrected), lambda: anew)
    assert (found.verdict, bool(found.wrong)) == (Verdict.REFUTED, True)


def test_formulas_tell_apart_what_certify_would_let_pass():
    report, body, (first, second), _ = derived()
    wrong = copy.deepcopy(second)
    wrong[0].weight.data[0, 0, 0, 0] += 1
    found = recheck_certificate("c", body, (first, wrong), lambda: report)
    assert (found.verdict, found.log2_chance) == (Verdict.UNDECIDED, None)
    assert found.unknown == ("that both are one formula: the formulas differ",)
    renamed = nn.Sequential(*second, nn.Identity())
    del renamed[0]
    assert recheck_certificate("c", body, (first, renamed), lambda: report).verdict is Verdict.UNDECIDED


def network_called(way, again):
    """A linear layer, called and packed in one of the ways in which networks are."""

    def code(net, x, *others):
        x = net.rows(x) if way == "ids" else x
        weight, bias = net.layer.weight, net.layer.bias
        y = sum(others, x @ weight.T + bias if again else net.layer(x))
        return {"logits": y} if way == "packed" and again else y

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net(code, rows=nn.Embedding(9, 4), layer=nn.Linear(4, 3)).eval()


CALLED = {
    "packed": (torch.arange(8.0).reshape(2, 4),),
    "ids": (torch.tensor([[1, 2, 3]]),),
    "two inputs": (torch.arange(8.0).reshape(2, 4), torch.ones(2, 3)),
}


@pytest.mark.parametrize("way", CALLED)
def test_networks_called_in_other_ways_are_checked_again_as_they_were_certified(way):
    first, second = (network_called(way, again) for again in (False, True))
    report = conv2attn.certify(first, second, *CALLED[way])
    found = recheck_certificate("c", json.loads(report.to_json()), (first, second), lambda: report)
    assert (report.verdict, found.verdict, found.wrong, found.unknown) == (Verdict.HOLDS, Verdict.HOLDS, (), ())
    assert found.log2_chance < -40
    wrong = network_called(way, True)
    wrong.layer.weight.data[0, 0] += 1
    anew = report if way == "packed" else conv2attn.certify(first, wrong, *CALLED[way])
    found = recheck_certificate("c", json.loads(report.to_json()), (first, wrong), lambda: anew)
    assert found.verdict is (Verdict.UNDECIDED if way == "packed" else Verdict.REFUTED)


# What is no certificate, or names what recheck must not do.


@pytest.mark.parametrize("text", ["no json", "[" * 100_000, "{}", "[]", "3", "\0", "{" + '"a":[' * 10_000])
def test_what_is_no_certificate_is_refused_in_a_sentence(text):
    Path("c.json").write_text(text)
    refused("recheck", "c.json", match="c.json is not a certificate of two files")


@pytest.mark.parametrize("schema", ["conv2attn.certificate/1", "conv2attn.certificate/999", "conv2attn.span/1", 5])
def test_certificates_of_another_schema_are_refused_and_not_refuted(schema):
    pair()
    Path("c.json").write_text(json.dumps({**certified(), "schema": schema}))
    refused("recheck", "c.json", *ARCH, match=f"c.json is of schema {schema}, not conv2attn.certificate/")


def test_missing_files_are_refused_and_others_can_be_named():
    pair()
    certified()
    for name in ("a.pt", "b.pt"):
        Path(name).rename(f"moved-{name}")
    refused("recheck", "c.json", *ARCH, match="a.ptof the certificate is missing")
    assert again(None, "moved-a.pt", "moved-b.pt")[0] == 0
    refused("recheck", "none", match="none does not exist")


def test_a_certificate_says_not_how_files_are_read():
    """Otherwise it could run code: that of a pickle, or of a file that --arch names."""
    pair()
    body = certified()
    refused("recheck", "c.json", match="written with other options for reading its files: conv2attn verify")
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


def test_a_bound_that_is_too_small_is_refused_where_the_second_network_has_other_dtypes_too():
    first, second = network().eval(), conv2attn.convert(network().eval())
    second.register_parameter("unread", nn.Parameter(torch.zeros(1, dtype=torch.float64)))
    report = conv2attn.certify(first, second, input_size=(2, 6, 5))
    body = json.loads(report.to_json())
    assert recheck_certificate("c", body, (first, second), lambda: report).verdict is Verdict.HOLDS
    body["rows"][0]["bound"] *= 0.99
    assert recheck_certificate("c", body, (first, second), lambda: report).verdict is Verdict.REFUTED
