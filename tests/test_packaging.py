"""An installed copy is quick to import, typed, and complete."""

import importlib.util
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
import yaml

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
    [[], ["convert"], ["verify"], ["explain"], ["demo"], ["explore"], ["train"]],
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


def floors(requirements):
    """The oldest version of each package in a list of requirements; extras of this project are left out."""
    parsed = (re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\d.]+)(?:,<.*)?", each) for each in requirements)
    return {found[1]: found[2] for found in parsed if found}


def test_the_oldest_versions_that_are_promised_are_those_that_make_oldest_runs():
    """So are those of the extras that it installs; an extra left out would be missed where its own tests are."""
    pins = dict(re.findall(r"(?m)^([\w.-]+)==(\S+)$", (ROOT / ".ci" / "oldest.txt").read_text()))
    extras = PROJECT["optional-dependencies"]
    groups = [PROJECT["dependencies"], *(extras[name] for name in ("plot", "train", "onnx", "graph", "testing"))]
    promised = {name: version for group in groups for name, version in floors(group).items()}
    assert len(promised) >= 17
    assert floors(["a>=1.2", "b[x]>=3,<4", "conv2attn[onnx]"]) == {"a": "1.2", "b": "3"}
    padded = {name: version.split(".") for name, version in pins.items()}
    run = {name: padded[name][: len(version.split("."))] for name, version in promised.items()}
    assert run == {name: version.split(".") for name, version in promised.items()}
    rest = {name: {*padded[name][len(version.split(".")) :]} for name, version in promised.items()}
    assert {name for name, parts in rest.items() if not parts <= {"0"}} == set()


def test_torch_comes_from_where_it_is_smallest_and_an_installed_one_stays():
    install = script(".ci/install_torch.py")
    assert install.source_of("2.13.0", gpu=False, index=True)[0] is None
    assert install.source_of(None, gpu=True, index=False)[0] == []
    assert install.source_of(None, gpu=False, index=True)[0] == ["--extra-index-url", install.INDEX]
    options, sentence = install.source_of(None, gpu=False, index=False)
    assert options == []
    assert "cannot be reached" in sentence
    assert install.numbers("2.13.0+cpu") == (2, 13, 0) >= install.oldest()
    assert not install.reachable("http://localhost:9")


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
    claims = {f"conv2attn/{file.relative_to(ROOT).as_posix()}" for file in (ROOT / "proofs").rglob("*.py")}
    claims -= {f"conv2attn/proofs/formal/{name}.py" for name in ("terms", "written_out")}  # they write Claims.v here
    others = {"conv2attn/py.typed", "conv2attn/examples/resnet18.pt", "conv2attn/examples/images.npz"}
    page = {f"conv2attn/lab/explore/{name}" for name in ("page.html", "style.css", "attention.js", "page.js")}
    docs = {f"conv2attn/docs/{name}.schema.json" for name in ("certificate", "span")} | {
        "conv2attn/docs/certificates.md"
    }
    assert modules | claims | others | page | docs <= held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert {name.partition("/")[0] for name in held if ".dist-info/" not in name} == {"conv2attn"}
    assert [name for name in held if "__pycache__" in name] == []
    assert [
        name for name in held if name.startswith("conv2attn/docs/") and name.endswith((".py", ".png", ".svg"))
    ] == []


def test_installed_copy_has_its_examples_and_proofs(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (tmp_path / "proofs.py").write_text("raise ImportError('a module of the same name, of somebody else')")
    code = (
        "from conv2attn.examples import demo_files; from conv2attn import proofs\n"
        "print(demo_files().model, proofs.__file__, proofs.decide('L2a').status, sep='\\n')"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    package = tmp_path / "conv2attn"
    places = [str(package / "examples" / "resnet18.pt"), str(package / "proofs" / "__init__.py")]
    assert run.stdout.split() == [*places, "proved"]


def script(path):
    """A program of the repository that is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_release_writes_its_version_everywhere_once():
    release = script(".ci/release.py")
    texts = {name: (ROOT / name).read_text() for name in release.FILES}
    assert re.search(r'__version__ = "\d+\.\d+\.\d+\.dev0"', texts["conv2attn/__init__.py"])
    written = release.released("7.8.9", "2030-01-02", texts)
    assert '__version__ = "7.8.9"' in written["conv2attn/__init__.py"]
    assert "\nversion: 7.8.9\ndate-released: 2030-01-02\n" in written["CITATION.cff"]
    assert "\n## Unreleased\n\n## 7.8.9 - 2030-01-02\n" in written["CHANGELOG.md"]
    again = release.released("7.9.0", "2030-02-03", written)
    assert "\nversion: 7.9.0\ndate-released: 2030-02-03\nlicense" in again["CITATION.cff"]
    for version, broken in (("7.8", texts), ("7.8.9", {**texts, "CHANGELOG.md": "# Changelog\n"})):
        with pytest.raises(SystemExit):
            release.released(version, "2030-01-02", broken)
    assert 'set version = "7.8.9"' in written[".ci/conda/meta.yaml"]
    assert "Repository" in release.remaining("7.8.9", {})[0]
    assert "Repository" not in release.remaining("7.8.9", {"Repository": "https://example.org/x"})[0]
    assert len(release.remaining("7.8.9", {})) <= 24


def test_the_recipe_of_conda_takes_the_versions_that_the_package_takes():
    recipe = (ROOT / ".ci" / "conda" / "meta.yaml").read_text()
    run = dict(re.findall(r"(?m)^    - ([\w-]+) >=(\S+)$", recipe.partition("  run:\n")[2]))
    wanted = {
        "pytorch" if name == "torch" else name: version for name, version in floors(PROJECT["dependencies"]).items()
    }
    assert run == wanted | {"python": PROJECT["requires-python"].removeprefix(">=")}


def test_links_of_the_readme_are_absolute_once_the_address_is_filled_in():
    absolute, readme = script("hatch_build.py").absolute, (ROOT / "README.md").read_text()
    assert absolute(readme, None) == readme
    links = re.findall(r"\]\(([^)]+)\)", absolute(readme, "https://example.org/x/"))
    assert len(links) == len(re.findall(r"\]\(([^)]+)\)", readme))
    assert [link for link in links if not link.startswith("https://")] == []
    assert "https://example.org/x/raw/main/docs/heads.svg" in links


def test_the_wheel_is_small_and_has_the_readme_in_it(wheel):
    # 3.5 MB of it are two example networks; the rest is to shrink, not this number to grow.
    assert wheel.stat().st_size <= 5.1e6
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    assert (ROOT / "README.md").read_text() in metadata


def test_what_tests_need_is_named_where_it_cannot_be_installed(tmp_path):
    """A need is met when all its programs are there: chromium without its driver is not."""
    for program in ("sh", "id", "dirname", "chromium"):
        (tmp_path / program).symlink_to(shutil.which(program) or "/bin/sh")
    run = [tmp_path / "sh", ROOT / ".ci" / "install", "chromium", "coqc"]
    told = subprocess.run(run, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True).stdout
    assert [line.partition(" (")[0] for line in told.splitlines()] == [
        f"not run: what needs {each}" for each in ("coqc", "chromium")
    ]


def test_the_package_says_what_it_needs():
    extras = PROJECT["optional-dependencies"]
    wanted = {"plot", "testing", "onnx", "hf", "timm", "graph", "notebook", "docs", "all"}
    assert wanted <= extras.keys()
    assert wanted - {"docs", "all"} <= set(extras["all"][0].partition("[")[2].rstrip("]").split(","))
    assert PROJECT["urls"].keys()


def faults_of_promises(page, pythons, floor):
    """Pythons without a line of docs/versions.md on which the demo ran, and the oldest versions likewise."""
    lines = script(".ci/versions.py").lines_of(page)
    ran = {key for key, line in lines.items() if line.demo == "ran" and re.search(r"\d+ passed", line.tests)}
    missing = {python for python in pythons if python not in {key for key, _ in ran}}
    return sorted(missing | ({"oldest"} if (floor, "oldest") not in ran else set()))


def test_only_versions_with_a_line_on_which_the_demo_ran_are_promised():
    page = (ROOT / "docs" / "versions.md").read_text()
    pythons = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if " :: 3." in each]
    floor = PROJECT["requires-python"].removeprefix(">=")
    assert pythons[0] == floor
    assert faults_of_promises(page, pythons, floor) == []
    assert faults_of_promises(page, [*pythons, "3.99"], floor) == ["3.99"]
    for right, wrong in ((" passed |", " failed |"), ("| ran |", "| exit code 3 |"), ("oldest |", "eldest |")):
        assert right in page
        assert "oldest" in faults_of_promises(page.replace(right, wrong), pythons, floor), wrong


def test_another_python_that_is_missing_is_a_line_and_no_failure(monkeypatch, capsys):
    versions = script(".ci/versions.py")
    monkeypatch.setattr(versions, "interpreter", lambda python: None)
    assert versions.run_other()
    assert "not run" in capsys.readouterr().out
    monkeypatch.setattr(versions, "interpreter", lambda python: "/nowhere/python")
    assert versions.run_other()
    assert "no environment in" in capsys.readouterr().out
    monkeypatch.setattr(versions, "build", lambda *_: Path(sys.executable))
    monkeypatch.setattr(versions, "outcome", lambda _, module, *__: (module != "pytest", "its words"))
    assert not versions.run_other()


def test_pinned_versions_are_those_of_what_is_declared():
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = ("plot", "train", "onnx", "testing", "docs", "dev")
    declared = [
        *PROJECT["dependencies"],
        *(each for extra in extras for each in PROJECT["optional-dependencies"][extra]),
    ]
    names = {re.match(r"[\w-]+", each)[0].lower() for each in declared} - {"conv2attn"}
    assert names - pinned == set()


def test_others_run_the_same_two_commands_with_pinned_actions():
    folder = ROOT / ".github"
    workflow = (folder / "workflows" / "test.yml").read_text()
    assert [f"run: make {target}" in workflow for target in ("demo", "test")] == [True, True]
    used = [use for file in (folder / "workflows").iterdir() for use in re.findall(r"uses: (.*)", file.read_text())]
    assert [use for use in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", use)] == []
    assert {"bug.yml", "false-verdict.yml"} <= {each.name for each in (folder / "ISSUE_TEMPLATE").iterdir()}


WORKFLOWS = ROOT / ".github" / "workflows"
TARGETS = set(re.findall(r"(?m)^([\w./-]+):", (ROOT / "Makefile").read_text()))


def faults_of_workflow(text):
    """What cannot run in a workflow: targets that make lacks, files that are not there, jobs that may run for ever."""
    jobs = yaml.safe_load(text)["jobs"]
    faults = [f"{name} has no timeout" for name, job in jobs.items() if "timeout-minutes" not in job]
    for name, job in jobs.items():
        made = set()
        for line in filter(None, "\n".join(step.get("run", "") for step in job["steps"]).splitlines()):
            made |= set(re.findall(r"> (\S+)$", line))
            words = line.replace("${{ matrix.room }}", "layers").split()
            options = [word for word in words if "=" in word]
            if words[0] == "make":
                faults += [f"{name}: make {word}" for word in words[1:] if word not in TARGETS and word not in options]
            named = [word for word in words if re.match(r"(tests|\.ci)/|\w+\.(txt|toml)$", word)]
            named += [option.partition("=")[2] for option in options if option.startswith(("CONSTRAINTS=", "DRAWN="))]
            faults += [f"{name}: {file}" for file in named if file not in made and not (ROOT / file).exists()]
    return faults


@pytest.mark.parametrize("file", sorted(WORKFLOWS.iterdir()), ids=lambda file: file.name)
def test_a_workflow_names_what_is_there(file):
    assert faults_of_workflow(file.read_text()) == []


def test_a_fault_of_a_workflow_is_seen():
    text = (WORKFLOWS / "test.yml").read_text()
    planted = {
        "run: make oldest": "run: make eldest",
        "sudo .ci/install": "sudo .ci/instal",
        "-c constraints.txt": "-c constrains.txt",
        "tests/theory/bounds ": "tests/theory/bound ",
        "CONSTRAINTS=older.txt": "CONSTRAINTS=old.txt",
        "    timeout-minutes: 360\n": "",
    }
    for right, wrong in planted.items():
        assert right in text
        assert faults_of_workflow(text.replace(right, wrong)), wrong


def test_the_workflow_runs_the_pythons_that_are_declared_and_the_oldest_with_the_oldest_versions():
    jobs = yaml.safe_load((WORKFLOWS / "test.yml").read_text())["jobs"]
    declared = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if " :: 3." in each]
    assert jobs["test"]["strategy"]["matrix"]["python"] == declared
    pythons = [
        step["with"]["python-version"] for step in jobs["oldest"]["steps"] if "python-version" in step.get("with", {})
    ]
    assert pythons == [PROJECT["requires-python"].removeprefix(">=")]
    oldest = re.search(r"(?m)^torch==(.*)$", (ROOT / ".ci" / "oldest.txt").read_text())[1]
    older = jobs["torch"]["strategy"]["matrix"]["torch"]
    numbers = [tuple(map(int, each.split("."))) for each in (*older, oldest)]
    assert numbers == sorted(set(numbers)), "versions below the oldest that is promised"
