"""What a certificate is as a value, and what its three reports say of it, word by word."""

import json
import math
import platform
from importlib.metadata import version

import pytest
import torch
from torch import nn

from conv2attn.equivalence import Certificate, Finding, Outputs, Row
from conv2attn.equivalence.circumstances import device_name, kernels, machine
from conv2attn.equivalence.computed.arithmetic import Arithmetic
from conv2attn.equivalence.evidence.inputs import Witness
from conv2attn.equivalence.readings.finding import CLAIMS, holds, refuted, undecided, unsupported
from conv2attn.equivalence.rendering import SCHEMA, findings, plain
from conv2attn.verdicts import Strength, Verdict

GEOMETRY, WEIGHTS, LEAK = holds("geometry"), holds("weights"), holds("leak", Strength.BOUNDED)
SQUARE = Row(
    *("square", "Conv2d 4->8 k3"),
    findings=(GEOMETRY, WEIGHTS, LEAK),
    strength=Strength.BOUNDED,
    grid=(14, 11),
    heads=9,
    d_head=4,
    alpha=60.0,
    parameters=1234,
    attention_avoided="1.0 MiB",
    leak=1e-20,
    input_range=1.0,
    max_error=1e-7,
    bound=2e-5,
)
WRONG = Row("wrong", "Conv1d", (GEOMETRY, refuted("weights", "C2A402", "one weight off")), leak=None)
LEFT = Row("left", "Conv3d", (holds("geometry"),), strength=Strength.SAMPLED, skipped=True)
SAME = holds("structure")
IMAGES = Outputs("2 images", 2, 0.5, 3.0)


def test_findings_say_their_part_verdict_strength_and_rule():
    bare = Finding("leak", Verdict.HOLDS)
    assert (bare.strength, bare.code, bare.sentence) == (Strength.PROVED, "", "")
    assert holds("leak") == Finding("leak", Verdict.HOLDS, Strength.PROVED, "", "")
    warned = holds("leak", Strength.BOUNDED, "C2A131", "warned")
    assert warned == Finding("leak", Verdict.HOLDS, Strength.BOUNDED, "C2A131", "warned")
    assert refuted("leak", "C2A403", "x") == Finding("leak", Verdict.REFUTED, Strength.PROVED, "C2A403", "x")
    assert undecided("leak", "C2A403", "x") == Finding("leak", Verdict.UNDECIDED, Strength.PROVED, "C2A403", "x")
    assert unsupported("C2A101", "x") == Finding("support", Verdict.UNSUPPORTED, Strength.PROVED, "C2A101", "x")
    assert CLAIMS == {
        "geometry": ("L1", "PAD", "STR"),
        "weights": ("T1",),
        "leak": ("L2b", "L2c", "A46"),
        "bound": ("T1", "L2c", "L2d"),
    }


def test_the_worst_part_decides_a_row():
    assert (SQUARE.verdict, SQUARE.decisive, SQUARE.placed) == (Verdict.HOLDS, GEOMETRY, True)
    assert (WRONG.verdict, WRONG.decisive.code, WRONG.placed) == (Verdict.REFUTED, "C2A402", True)
    assert WRONG.part("weights").sentence == "one weight off"
    assert WRONG.part("leak") is None
    assert not Row("a", "b", (WEIGHTS,)).placed
    assert not Row("a", "b", (undecided("geometry", "C2A401", "x"),)).placed


@pytest.mark.parametrize(
    ("rows", "between", "verdict", "strength"),
    [
        ((SQUARE,), (SAME,), Verdict.HOLDS, Strength.BOUNDED),
        ((SQUARE, LEFT), (SAME,), Verdict.HOLDS, Strength.BOUNDED),
        ((SQUARE, WRONG), (SAME,), Verdict.REFUTED, Strength.BOUNDED),
        ((SQUARE,), (refuted("structure", "C2A405", "x"),), Verdict.REFUTED, Strength.BOUNDED),
        ((SQUARE,), (), Verdict.HOLDS, Strength.BOUNDED),
        ((LEFT,), (SAME,), Verdict.UNDECIDED, Strength.SAMPLED),
        ((), (), Verdict.UNDECIDED, Strength.SAMPLED),
        ((), (refuted("outputs", "C2A407", "x"),), Verdict.REFUTED, Strength.SAMPLED),
    ],
)
def test_the_worst_row_decides_and_the_weakest_strength_counts(rows, between, verdict, strength):
    certificate = Certificate(rows, between)
    assert (certificate.verdict, certificate.strength) == (verdict, strength)
    assert certificate.exit_code == {Verdict.HOLDS: 0, Verdict.REFUTED: 1, Verdict.UNDECIDED: 3}[verdict]
    assert certificate.counted == tuple(row for row in rows if row is not LEFT)


def test_what_is_claimed_unless_something_else_was_asked():
    empty = Certificate(())
    assert (empty.between, empty.outputs, empty.assumptions, empty.circumstances, empty.witnesses) == (
        (),
        None,
        (),
        (),
        (),
    )
    assert empty.claim == "the second is the same map as the first, for all finite inputs"
    row = Row("a", "b", ())
    assert {value for key, value in vars(row).items() if key not in ("name", "convolution", "findings")} == {
        None,
        False,
    }


def test_witnesses_are_no_part_of_what_is_compared_or_shown():
    witness = Witness("wrong", torch.zeros(2, 3), (1, 4), 1.0, 1.5)
    assert Certificate((SQUARE,), witnesses=(witness,)) == Certificate((SQUARE,))
    assert Certificate((SQUARE,)) != Certificate((WRONG,))
    assert "witness" not in repr(Certificate((SQUARE,), witnesses=(witness,)))


def test_a_command_to_repeat_comes_before_the_command_given():
    known = (("command", "first"), ("repeat", "second"))
    assert findings(Certificate((WRONG,), circumstances=known))[-1] == "to repeat it: second"
    assert findings(Certificate((WRONG,), circumstances=known[:1]))[-1] == "to repeat it: first"
    assert findings(Certificate((WRONG,))) == ["C2A402 wrong: one weight off"]


def test_the_report_for_a_program_is_this_json():
    witness = Witness("wrong", torch.zeros(2, 3), (1, 4), 1.0, math.inf, None, 0.5)
    certificate = Certificate((SQUARE, WRONG), (SAME,), IMAGES, ("a",), "c", (("k", "v"),), (witness,))
    text = certificate.to_json()
    report = json.loads(text)
    assert text == json.dumps(report, indent=2, sort_keys=True) + "\n"
    first, second = report.pop("layers")
    assert report == {
        "schema": SCHEMA,
        "claim": "c",
        "verdict": "refuted",
        "strength": "bounded",
        "exit_code": 1,
        "between": [{"part": "structure", "verdict": "holds", "strength": "proved", "code": "", "sentence": "",
                     "licensed_by": []}],
        "outputs": {"images": "2 images", "count": 2, "max_difference": 0.5, "largest_output": 3.0, "same_top1": None,
                    "correct": None, "stable": None, "bound": None, "vacuous": None, "stable_by_bound": None},
        "assumptions": ["a"],
        "circumstances": {"k": "v"},
        "witnesses": [{"layer": "wrong", "part": "", "image": None, "output": "", "told": "", "count": 0,
                       "place": {"output channel": 1, "position": 4}, "original": 1.0, "converted": "inf",
                       "allowed": None, "exact": 0.5}],
        "unshown": [],
        "context": {"digests": ["", ""], "conditions": []},
    }  # fmt: skip
    assert SCHEMA == "conv2attn.certificate/2"
    assert (first["verdict"], first["strength"], first["grid"], first["alpha"]) == ("holds", "bounded", [14, 11], 60.0)
    assert first["licensed_by"] == {"bound": ["T1", "L2c", "L2d"], "leak": ["L2b", "L2c", "A46"]}
    assert [f["licensed_by"] for f in first["findings"]] == [["L1", "PAD", "STR"], ["T1"], ["L2b", "L2c", "A46"]]
    assert (second["verdict"], second["licensed_by"]) == ("refuted", {"bound": [], "leak": []})
    assert json.loads(Certificate(()).to_json())["outputs"] is None


def test_what_json_cannot_say_is_not_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        Certificate((), circumstances=(("share", math.nan),)).to_json()


@pytest.mark.parametrize(("number", "told"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (1.5, 1.5)])
def test_numbers_that_json_cannot_say_are_words(number, told):
    assert plain(Outputs("i", 1, number, 2.0))["max_difference"] == told
    assert plain(SQUARE)["strength"] == "bounded"


def test_circumstances_name_the_versions_and_the_machine():
    original = nn.Sequential(nn.Linear(1, 1).double(), nn.Linear(1, 1).bfloat16())
    found = machine(original, torch.zeros(1, 1, 3, 3))
    assert list(found) == sorted(found)
    assert dict(found) == {
        "conv2attn": version("conv2attn"),
        "torch": torch.__version__,
        "python-flint": version("python-flint"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": "cpu",
        "dtypes": "bfloat16, float64",
        "kernels": kernels(torch.zeros(1, 1, 3, 3)),
    }


@pytest.mark.parametrize(("available", "enabled", "library"), [(True, True, "oneDNN"), (True, False, "native"),
                                                               (False, True, "native")])  # fmt: skip
@pytest.mark.parametrize("trace", [None, "a trace"])
def test_the_kernels_of_a_processor_are_named(monkeypatch, available, enabled, library, trace):
    monkeypatch.setattr("conv2attn.equivalence.circumstances.indirect_convolution", lambda image: trace)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: available)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX")
    before = torch.backends.mkldnn.enabled
    torch._C._set_mkldnn_enabled(enabled)
    try:
        settings = "fp32_precision none of convolutions, none of products"
        assert kernels(torch.zeros(1)) == f"{library}, AVX, {settings}" + (" (a trace)" if trace else "")
    finally:
        torch._C._set_mkldnn_enabled(before)


def test_the_kernels_of_a_gpu_are_named_by_its_settings(monkeypatch):
    class Image:
        device = torch.device("cuda")

    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 90100)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU of {device}")
    allowed = {"bfloat16", "float16"}
    for stored, told in ((frozenset(), ""), (allowed, ", bfloat16 sums may be stored, float16 sums may be stored")):
        settings = Arithmetic("tf32", "ieee", frozenset(stored))
        monkeypatch.setattr(Arithmetic, "of", staticmethod({"cuda": settings}.get))
        assert kernels(Image()) == f"cuDNN 90100, fp32_precision tf32 of convolutions, ieee of products{told}"
    assert device_name(Image.device) == "GPU of cuda"
    assert device_name(torch.device("cpu")) == "cpu"
