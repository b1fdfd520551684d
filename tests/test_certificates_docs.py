"""Every command in docs/certificates.md ends as it says there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from conv2attn.cli import main
from conv2attn.errors import RULES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "certificates.md").read_text()
COMMANDS = re.findall(r"^conv2attn (.+?) +# exit (\d)$", PAGE, re.M)


def test_commands_end_as_the_page_says(tmp_path, monkeypatch):
    shutil.copy(ROOT / "examples" / "resnet18.pt", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == len(re.findall(r"^conv2attn", PAGE, re.M)) >= 10
    size = ["--input-size", "3x32x40"]
    for arguments, code in COMMANDS:
        words = shlex.split(arguments)
        result = CliRunner().invoke(main, [*words, *([] if {"recheck", "replay"} & {*words} else size)])
        assert result.exit_code == int(code), f"{arguments}\n{result.output}"


@pytest.mark.parametrize(
    "option", sorted({word for command, _ in COMMANDS for word in command.split() if "--" in word})
)
def test_options_are_those_of_the_commands(option):
    known = {name for command in main.commands.values() for each in command.params for name in each.opts}
    assert option in known


def test_every_option_of_verify_is_in_the_page_or_the_readme():
    known = PAGE + (ROOT / "README.md").read_text() + (ROOT / "docs" / "check-span.md").read_text()
    missing = [each.opts[0] for each in main.commands["verify"].params if not any(o in known for o in each.opts)]
    assert [name for name in missing if name.startswith("--")] == []


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", PAGE))
def test_links_lead_somewhere(link):
    assert (ROOT / "docs" / link).exists()


def test_codes_that_are_named_are_known():
    assert set(re.findall(r"C2A\d+", PAGE)) <= RULES.keys()
