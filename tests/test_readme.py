"""Every command and every example in the README runs as it stands there."""

import doctest
import re
import shlex
import shutil
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from conv2attn.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
OUTPUTS = re.findall(r"\n\n```\n(.*?)\n```", README.partition("## Four uses")[2], re.S)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
SESSIONS = re.findall(r"```pycon\n(.*?)```", README, re.S)
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)


def test_commands_run_in_their_order_and_say_what_the_readme_says(tmp_path):
    """In this process, which spares the start of Python: tests/test_packaging.py runs the installed command."""
    assert len(COMMANDS) >= 4
    assert EXAMPLES
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = []
    with chdir(tmp_path):
        for line in COMMANDS:
            match line.split():
                case [".", ".venv/bin/activate", *_]:  # what `make` makes
                    continue
                case ["cp", source, target]:
                    shutil.copy(source, target)
                    continue
            assert line.startswith("conv2attn ")
            result = CliRunner().invoke(main, shlex.split(line, comments=True)[1:])
            assert result.exit_code == 0, f"{line}\n{result.output}"
            said += result.stdout.splitlines()
    assert (tmp_path / "resnet18.attn.pt").is_file()
    assert [line for output in OUTPUTS for line in output.splitlines() if line not in said] == []
    assert len(OUTPUTS) >= 2


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run(code, capsys):
    with torch.random.fork_rng():
        exec(compile(code, "README.md", "exec"), {})
    assert "holds (proved)" in capsys.readouterr().out


def test_the_first_lines_print_what_stands_beside_them():
    (session,) = SESSIONS
    example = doctest.DocTestParser().get_doctest(session, {}, "README.md", "README.md", 0)
    assert len(example.examples) == 5
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, re.M))
def test_make_targets_exist(target):
    assert subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
