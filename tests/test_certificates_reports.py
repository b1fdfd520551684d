"""Reports: the published schema, the statements they rest on, and stored certificates when a file changes."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from equivalence import planted
from equivalence.planted import image, network, pair

import conv2attn
from conv2attn.cli import main
from conv2attn.equivalence import certify, recheck
from conv2attn.equivalence.evidence.recheck import sha256
from conv2attn.equivalence.readings.finding import CLAIMS
from conv2attn.equivalence.rendering import HEADER
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.models.zoo.resnet import ResNetPlan, build
from conv2attn.verdicts import Verdict

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "docs" / "certificate.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
UNDERSTOOD = {
    *("$schema", "$defs", "$ref", "title", "type", "required", "additionalProperties", "properties", "items"),
    *("anyOf", "enum", "const"),
}


def complaints(value, schema, where="report"):
    """What the parts of JSON Schema that the published schema uses say against a value."""
    assert schema.keys() <= UNDERSTOOD, schema.keys() - UNDERSTOOD
    if "$ref" in schema:
        return complaints(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], where)
    if "anyOf" in schema:
        found = [complaints(value, option, where) for option in schema["anyOf"]]
        return min(found, key=len)
    if "const" in schema and value != schema["const"]:
        return [f"{where} is {value!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is {value!r}"]
    kind = schema.get("type")
    if kind == "null":
        return [] if value is None else [f"{where} is not null"]
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{where} is no {kind}"]
    if kind == "array":
        return [each for i, item in enumerate(value) for each in complaints(item, schema["items"], f"{where}[{i}]")]
    found = []
    if kind == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [f"{where} has no {key}" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            if key in known:
                found += complaints(item, known[key], f"{where}.{key}")
            elif others is False:
                found.append(f"{where} has {key}")
            elif isinstance(others, dict):
                found += complaints(item, others, f"{where}.{key}")
    return found


@pytest.mark.parametrize("error", [None, "alpha is NaN", "NaN in an output", "leak above the roundoff", "head dropped"])
def test_every_report_fits_the_schema(error):
    original, converted = pair(planted.PLANTED[error].plant if error else lambda net: None)
    report = certify(original, converted, images=image())
    body = json.loads(report.to_json())
    assert complaints(body, SCHEMA) == []
    assert report.to_json() == certify(original, converted, images=image()).to_json()
    assert ": NaN" not in report.to_json()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body.pop("claim"),
        lambda body: body.update(verdict="fine"),
        lambda body: body.update(more=1),
        lambda body: body["layers"][0].update(heads="9"),
        lambda body: body["layers"][0]["findings"][0].update(part="luck"),
        lambda body: body.update(exit_code=2),
    ],
)
def test_the_schema_refuses_what_is_not_a_report(spoil):
    body = json.loads(certify(network(), network(), images=image()).to_json())
    spoil(body)
    assert complaints(body, SCHEMA)


def test_the_statements_that_license_numbers_are_claims():
    claims = {path.stem for path in (ROOT / "proofs").glob("*.py")}
    assert {claim for names in CLAIMS.values() for claim in names} <= claims


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Two files and the certificate of both, in the current folder."""
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.save(build(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=5, stem="cifar")).state_dict(), "net.pt")
    conv2attn.save(conv2attn.convert(conv2attn.load("net.pt")), "net.attn.pt")
    result = call("verify", "net.pt", "net.attn.pt", "--input-size", "3x12x10", "--report", "certificate.json")
    assert result.exit_code == 0
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_stored_certificate_is_checked_again(stored):
    told = json.loads(Path("certificate.json").read_text())["circumstances"]
    assert {"original sha256", "converted sha256", "torch", "device", "dtypes", "kernels"} <= told.keys()
    assert told["command"] == "conv2attn verify net.pt net.attn.pt --input-size 3x12x10"
    result = call("recheck", "certificate.json")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "certificate.json: holds")


@pytest.mark.parametrize("name", ["net.pt", "net.attn.pt"])
def test_a_file_that_changed_is_refuted(stored, name):
    content = torch.load(name, weights_only=True)
    state = content.get("state_dict", content)
    planted.ulp(state["fc.bias"], (0,))
    torch.save(content, name)
    result = call("recheck", "certificate.json")
    assert result.exit_code == 1
    assert f"{name} changed" in result.stdout


TAMPERED = {
    "a weight": lambda state: planted.ulp(state["layer1.0.conv1.output"], (0, 0, 0)),
    "a tensor between": lambda state: planted.ulp(state["bn1.weight"], (0,)),
    "an alpha": lambda state: state["conv1.encoding.alpha"].fill_(60.0),
    "a centre": lambda state: state["conv1.encoding.center"][0].add_(1),
    "two heads": lambda state: state["layer2.0.conv1.encoding.center"].copy_(
        state["layer2.0.conv1.encoding.center"].flip(0)
    ),
}


def of(layer, *path, told):
    """Writes something else into the plan of a layer."""

    def change(content):
        plan = content["layers"][layer]
        for key in path[:-1]:
            plan = plan[key]
        plan[path[-1]] = told

    return change


MISPLACED = {
    "a padding moved": of("conv1", "padding", "before", told=(2, 2)),
    "a padding grown behind": of("conv1", "padding", "after", told=(2, 1)),
    "another padding mode": of("layer2.0.conv2", "padding", "mode", told="replicate"),
    "stuffed zeros": of("layer2.0.conv2", "padding", "spacing", told=(2, 1)),
    "a stride": of("layer2.0.conv1", "sites", "stride", told=(1, 1)),
    "a stride where none is": of("layer2.0.conv2", "sites", "stride", told=(2, 2)),
    "queries that start elsewhere": of("layer3.0.conv1", "sites", "before", told=(0, 1)),
    "queries that end elsewhere": of("layer3.0.conv1", "sites", "after", told=(0, 1)),
    "a downsampling": of("layer3.0.downsample.0", "sites", "stride", told=(1, 2)),
}


@pytest.mark.parametrize("change", MISPLACED)
def test_the_second_look_finds_paddings_and_strides_that_are_not_those_of_the_network(stored, change):
    content = torch.load("net.attn.pt", weights_only=True)
    MISPLACED[change](content)
    forge(content)
    found = recheck("certificate.json")
    assert found.verdict is Verdict.REFUTED
    assert len(found.wrong) == 1


def test_the_second_look_reads_two_attentions_too(stored):
    body = json.loads(Path("certificate.json").read_text())
    shutil.copy("net.attn.pt", "net.pt")
    body["circumstances"]["original sha256"] = sha256("net.pt")
    Path("certificate.json").write_text(json.dumps(body))
    assert recheck("certificate.json").verdict is Verdict.HOLDS
    content = torch.load("net.attn.pt", weights_only=True)
    MISPLACED["a stride"](content)
    forge(content)
    assert recheck("certificate.json").wrong == ("layer2.0.conv1: stride is (1, 1), not (2, 2)",)


@pytest.mark.parametrize("off", [False, True])
def test_the_second_look_multiplies_two_factors_exactly(stored, off):
    """Off by less than float64 sees: a power of two far below the numbers that it is added to."""
    content = torch.load("net.attn.pt", weights_only=True)
    state, plan = content["state_dict"], content["layers"]["layer1.0.conv1"]
    taps = state["layer1.0.conv1.output"]
    d_out, width, heads = taps.shape
    state["layer1.0.conv1.value"] = torch.eye(width + 1, width)[..., None].repeat(1, 1, heads)
    state["layer1.0.conv1.value"][width, 0] = 2.0**-60
    state["layer1.0.conv1.output"] = torch.cat([taps, torch.zeros(d_out, 1, heads)], 1)
    if off:
        state["layer1.0.conv1.output"][2, width, 4] = 2.0**-60
    plan.update(value=True, d_head=width + 1)
    forge(content)
    found = recheck("certificate.json")
    assert found.verdict is (Verdict.REFUTED if off else Verdict.HOLDS), found.wrong
    assert len(found.wrong) == off


def forge(content):
    """Writes the converted network, and its new hash into the certificate."""
    torch.save(content, "net.attn.pt")
    body = json.loads(Path("certificate.json").read_text())
    body["circumstances"]["converted sha256"] = sha256("net.attn.pt")
    Path("certificate.json").write_text(json.dumps(body))


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
@pytest.mark.parametrize("block", ["basic", "bottleneck"])
def test_every_resnet_passes_the_second_look(tmp_path, monkeypatch, stem, block):
    monkeypatch.chdir(tmp_path)
    plan = ResNetPlan(block=block, depths=(2, 1, 2, 1), width=4, classes=5, stem=stem)
    torch.save(build(plan).state_dict(), "net.pt")
    conv2attn.save(conv2attn.convert(conv2attn.load("net.pt")), "net.attn.pt")
    size = ["--input-size", "3x34x36"]
    assert call("verify", "net.pt", "net.attn.pt", *size, "--report", "certificate.json").exit_code == 0
    found = recheck("certificate.json")
    assert (found.verdict, found.wrong) == (Verdict.HOLDS, ())
    assert found.checked == len(conv2attn.conversion_of(conv2attn.load("net.attn.pt")).rows)


@pytest.mark.parametrize("spoil", [lambda body: body.pop("layers"), lambda body: body.update(verdict="fine")])
def test_a_certificate_that_is_not_whole_is_an_error(stored, spoil):
    body = json.loads(Path("certificate.json").read_text())
    spoil(body)
    Path("certificate.json").write_text(json.dumps(body))
    with pytest.raises(UsageError, match="no certificate"):
        recheck("certificate.json")


@pytest.mark.parametrize("change", TAMPERED)
def test_the_second_look_finds_what_a_forged_hash_hides(stored, change):
    content = torch.load("net.attn.pt", weights_only=True)
    TAMPERED[change](content["state_dict"])
    forge(content)
    found = recheck("certificate.json")
    assert found.verdict is Verdict.REFUTED
    assert json.loads(found.to_json())["wrong"] == list(found.wrong) != []
    assert found.to_markdown().startswith("- ")


def test_a_certificate_of_nothing_is_an_error(stored):
    Path("other.json").write_text("{}")
    with pytest.raises(UsageError, match="no certificate"):
        recheck("other.json")
    Path("net.pt").unlink()
    with pytest.raises(CheckpointError, match="is not there"):
        recheck("certificate.json")
    assert call("verify").exit_code == 2


def test_the_columns_of_the_table_are_named():
    named = "layer, convolution, grid, heads, alpha, max |error|, bound"
    assert ", ".join(HEADER) == f"{named}, strength, verdict"
