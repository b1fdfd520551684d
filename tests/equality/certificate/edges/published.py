"""What is published of certificates: the JSON and its schema, the page, and the claims that license numbers."""

import json
import math
import re
import shlex
from pathlib import Path

import pytest
import torch
from commands import SIZE, call, two_layers
from equality import planted
from equality.planted import image, original, pair
from schemas import complaints

from conv2attn.cli import main
from conv2attn.equality import Certificate, Outputs, certify
from conv2attn.errors import ERROR_RULES
from conv2attn.theory.bounds import WITHOUT_THEOREM

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "certificates.md").read_text()
SCHEMA = json.loads((ROOT / "docs" / "certificate.schema.json").read_text())
COMMANDS = re.findall(r"^conv2attn (.+?) +# exit (\d)$", PAGE, re.M)


@pytest.mark.parametrize("error", [None, "alpha is NaN", "NaN in an output", "leak above the roundoff"])
def test_every_report_fits_the_schema_and_is_the_same_again(error):
    first, second = pair(planted.PLANTED[error].plant if error else lambda net: None)
    report = certify(first, second, images=image())
    text = report.to_json()
    body = json.loads(text)
    assert complaints(body, SCHEMA) == []
    assert text == json.dumps(body, indent=2, sort_keys=True) + "\n"
    assert error or text == certify(first, second, images=image()).to_json()
    assert (body["verdict"], body["exit_code"]) == (report.verdict.value, report.exit_code)
    assert [row["verdict"] for row in body["rows"]] == [row.verdict.value for row in report.rows]
    assert [each["index"] for each in body["counterexamples"]] == [each.index for each in report.counterexamples]


SPOILT = {
    "a key missing": lambda body: body.pop("claim"),
    "a verdict that is none": lambda body: body.update(verdict="fine"),
    "a key more": lambda body: body.update(more=1),
    "a text for a number": lambda body: body["rows"][0].update(heads="9"),
    "a part that is none": lambda body: body["rows"][0]["findings"][0].update(part="luck"),
    "an exit code that is none": lambda body: body.update(exit_code=2),
}


@pytest.fixture(scope="module")
def body():
    return certify(original(), original(), images=image()).to_json()


@pytest.mark.parametrize("name", SPOILT)
def test_the_schema_refuses_what_is_not_a_report(body, name):
    spoilt = json.loads(body)
    SPOILT[name](spoilt)
    assert complaints(spoilt, SCHEMA)


@pytest.mark.parametrize(("number", "told"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (1.5, 1.5)])
def test_numbers_that_json_has_not_are_words(number, told):
    text = Certificate((), outputs=Outputs("i", 1, number, 2.0)).to_json()
    assert json.loads(text)["outputs"]["max_difference"] == told


def test_the_claims_that_license_numbers_are_proofs():
    layers = json.loads(certify(*pair(lambda net: None), images=image()).to_json())["rows"]
    named = {claim for row in layers for finding in row["findings"] for claim in finding["licensed_by"]}
    named |= {claim for row in layers for part in ("bound", "leak") for claim in row["licensed_by"][part]}
    assert {"L1", "FLOAT"} <= named <= {path.stem for path in (ROOT / "proofs").glob("*.py")} | {WITHOUT_THEOREM}


def test_commands_end_as_the_page_says(tmp_path, monkeypatch):
    """On two layers with names of a ResNet, and a small image."""
    monkeypatch.chdir(tmp_path)
    torch.save(two_layers(), "resnet18.pt")
    assert len(COMMANDS) == len(re.findall(r"^conv2attn", PAGE, re.M)) >= 8
    for arguments, code in COMMANDS:
        words = shlex.split(arguments)
        sized = {"recheck", "explain", "--inputs", "--input-size"} & {*words}
        result = call(*words, *([] if sized else SIZE))
        assert result.exit_code == int(code), f"{arguments}\n{result.output}"


def test_the_page_names_options_links_and_codes_that_there_are():
    named = {word for command, _ in COMMANDS for word in command.split() if "--" in word}
    assert named <= {name for command in main.commands.values() for each in command.params for name in each.opts}
    assert all((ROOT / "docs" / link).exists() for link in re.findall(r"\]\((?!http)([^)#]+)\)", PAGE))
    assert set(re.findall(r"C2A\d+", PAGE)) <= ERROR_RULES.keys()


def test_every_option_of_verify_is_in_a_page():
    pages = ("README.md", "docs/certificates.md", "docs/check-span.md", "docs/files.md")
    known = "".join((ROOT / name).read_text() for name in pages)
    missing = [each.opts[0] for each in main.commands["verify"].params if not any(o in known for o in each.opts)]
    assert [name for name in missing if name.startswith("--")] == []


def test_circumstances_name_the_versions_the_formats_and_the_kernels(monkeypatch):
    original = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.Flatten(), torch.nn.Linear(9, 1).bfloat16())
    original[2].forward = lambda given: given
    known = dict(certify(original, original, images=torch.rand(1, 1, 3, 3)).circumstances)
    assert {"conv2attn", "python-flint", "python", "machine"} <= known.keys()
    assert (known["dtypes"], known["device"], known["torch"]) == ("bfloat16, float32", "cpu", torch.__version__)
    assert "fp32_precision" in known["kernels"]
    assert known["kernels"].startswith("oneDNN, ")
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    native = certify(original, original, images=torch.rand(1, 1, 3, 3)).circumstances
    assert native["kernels"].startswith("native, ")
