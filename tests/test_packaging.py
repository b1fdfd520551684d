"""What an installed copy promises before any mathematics: quick to import, typed, complete."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "sympy", "flint", "numpy")


def modules_after(code: str) -> set[str]:
    """Top-level names of `HEAVY` that a fresh interpreter has imported once `code` has run."""
    report = f"import json, sys; print('\\n' + json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_import_is_light():
    assert modules_after("import conv2attn") == set()


def test_the_probe_sees_torch():
    assert "torch" in modules_after("import torch")


@pytest.mark.parametrize("command", [[], ["convert"], ["verify"], ["explain"], ["demo"]], ids=" ".join)
def test_help_is_light(command):
    call = f"from conv2attn.cli import main\ntry: main([*{command}, '--help'])\nexcept SystemExit as end:"
    assert modules_after(f"{call} assert not end.code") == set()


def test_public_names_are_sorted_and_resolve():
    import conv2attn

    assert conv2attn.__all__ == sorted(conv2attn.__all__)
    assert [name for name in conv2attn.__all__ if not hasattr(conv2attn, name)] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        conv2attn.no_such_name  # noqa: B018


def test_checkout_command_is_the_installed_one():
    versions = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for command in ([sys.executable, "cli.py"], [Path(sys.executable).with_name("conv2attn")])
    ]
    assert "convert" in versions[0]
    assert versions[0].replace("cli.py", "conv2attn") == versions[1]


@pytest.mark.slow
def test_wheel_is_complete(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "tests"))
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", tmp_path]
    subprocess.run([*build, source], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("conv2attn-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    files = (file for file in (source / "conv2attn").rglob("*") if file.suffix == ".py" or file.name == "py.typed")
    assert {file.relative_to(source).as_posix() for file in files} - held == set()
    assert any(name.endswith("licenses/LICENSE") for name in held)
