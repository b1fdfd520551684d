"""An installed copy is quick to import, typed, and complete."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = ("torch", "sympy", "flint", "numpy")


def modules_after(code: str) -> set[str]:
    """Top-level names of `HEAVY` that a fresh interpreter has imported once `code` has run."""
    report = f"import json, sys; print('\\n' + json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_import_is_light_and_the_probe_sees_what_is_not():
    assert modules_after("import conv2attn") == set()
    assert modules_after("import numpy") == {"numpy"}


@pytest.mark.parametrize(
    "command",
    [[], ["convert"], ["verify"], ["explain"], ["demo"], ["explore"], ["train"], ["reproduce", "tables"]],
    ids=" ".join,
)
def test_help_is_light(command):
    call = f"from conv2attn.cli import main\ntry: main([*{command}, '--help'])\nexcept SystemExit as end:"
    assert modules_after(f"{call} assert not end.code") == set()


def test_public_names_are_sorted_and_resolve():
    import conv2attn

    assert conv2attn.__all__ == sorted(conv2attn.__all__)
    assert [name for name in conv2attn.__all__ if not hasattr(conv2attn, name)] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        conv2attn.no_such_name  # noqa: B018


def test_every_public_name_has_an_example():
    """pytest runs the examples as doctests."""
    import conv2attn

    assert [name for name in conv2attn.__all__ if ">>> " not in getattr(conv2attn, name).__doc__] == []


def test_checkout_command_is_the_installed_one():
    versions = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for command in ([sys.executable, "cli.py"], [Path(sys.executable).with_name("conv2attn")])
    ]
    assert "convert" in versions[0]
    assert versions[0].replace("cli.py", "conv2attn") == versions[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the checkout, since building leaves files behind."""
    source, built = tmp_path_factory.mktemp("source") / "checkout", tmp_path_factory.mktemp("built")
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "tests")
    shutil.copytree(ROOT, source, ignore=unwanted)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", built]
    subprocess.run([*build, source], check=True, capture_output=True)
    return next(built.glob("conv2attn-*.whl"))


def test_wheel_is_complete(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    modules = {file.relative_to(ROOT).as_posix() for file in (ROOT / "conv2attn").rglob("*.py")}
    claims = {file.relative_to(ROOT).as_posix() for file in (ROOT / "proofs").rglob("*.py")}
    others = {"conv2attn/py.typed", "conv2attn/examples/resnet18.pt", "conv2attn/examples/images.npz"}
    page = {f"conv2attn/explore/{name}" for name in ("page.html", "style.css", "attention.js", "page.js")}
    docs = {f"conv2attn/docs/{name}.schema.json" for name in ("certificate", "span")} | {
        "conv2attn/docs/certificates.md"
    }
    assert modules | claims | others | page | docs <= held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert [name for name in held if name.startswith("tests/") or "__pycache__" in name] == []


def test_installed_copy_has_its_examples_and_proofs(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "from conv2attn.checkpoints.examples import demo_files; import proofs\n"
        "print(demo_files().model, proofs.__file__, proofs.decide('L2a').status, sep='\\n')"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    package = tmp_path / "conv2attn"
    places = [str(package / "examples" / "resnet18.pt"), str(tmp_path / "proofs" / "__init__.py")]
    assert run.stdout.split() == [*places, "proved"]


def test_one_version_is_told_everywhere():
    import conv2attn

    version = PROJECT["version"]
    assert conv2attn.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_package_says_what_it_needs():
    extras = PROJECT["optional-dependencies"]
    wanted = {"plot", "testing", "onnx", "hf", "timm", "graph", "notebook", "docs", "all"}
    assert wanted <= extras.keys()
    assert wanted - {"docs", "all"} <= set(extras["all"][0].partition("[")[2].rstrip("]").split(","))
    told = [f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)]
    assert [each for each in PROJECT["classifiers"] if " :: 3." in each] == told
    assert PROJECT["urls"].keys()


def test_pinned_versions_are_those_of_what_is_declared():
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = ("plot", "train", "onnx", "testing", "docs", "dev")
    declared = [
        *PROJECT["dependencies"],
        *(each for extra in extras for each in PROJECT["optional-dependencies"][extra]),
    ]
    names = {re.match(r"[\w-]+", each)[0].lower() for each in declared} - {"conv2attn"}
    assert names - pinned == set()


def test_others_run_the_same_two_commands():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert [f"run: make {target}" in workflow for target in ("demo", "test")] == [True, True]
    assert {"bug.yml", "false-verdict.yml"} <= {each.name for each in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir()}
