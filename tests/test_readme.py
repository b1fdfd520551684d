"""Every command and every example in the README runs as it stands there."""

import re
import shlex
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
import torch
from commands import call

import conv2attn

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
LINES = 80  # two screens of 40
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
COMMANDS = [line for language, block in BLOCKS if language == "sh" for line in block.splitlines()]
EXAMPLES = [block for language, block in BLOCKS if language == "python"]
CODES = {"refuted": 1}


def test_it_fits_two_screens_and_each_of_three_results_stands_behind_its_block():
    assert len(README.splitlines()) <= LINES
    languages = [language for language, _ in BLOCKS]
    assert languages == ["sh", "", "sh", "", "python", ""]


def test_the_landing_page_has_the_same_commands_and_results():
    page = (ROOT / "docs" / "index.md").read_text()
    assert [block for _, block in BLOCKS] == [block for _, block in re.findall(r"```(\w*)\n(.*?)```", page, re.S)]


def test_commands_run_in_their_order_and_say_what_the_readme_says(tmp_path):
    """In this process, which spares the start of Python: tests/test_packaging.py runs the installed command."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = []
    with chdir(tmp_path):
        for line in COMMANDS:
            assert line.startswith("conv2attn ")
            words = shlex.split(line, comments=True)
            result = call(*words[1:])
            code = next((CODES[word] for word in CODES if word in line.partition("#")[2]), 0)
            assert result.exit_code == code, f"{line}\n{result.output}"
            said += result.stdout.splitlines()
        printed = [line for _, block in BLOCKS[1:4:2] for line in block.splitlines()]
        assert [line for line in printed if line not in said] == []
        assert (tmp_path / "resnet18.attn.pt").is_file()


def test_the_example_prints_what_stands_below_it(capsys):
    (code,) = EXAMPLES
    names = {}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        exec(compile(code, "README.md", "exec"), names)
        assert capsys.readouterr().out == BLOCKS[-1][1]
        block, port, tokens = (names[each] for each in ("block", "port", "tokens"))
        port.norm1.eps = port.norm2.eps = 1e-5  # the mistake again, which the usual tolerance lets pass
        assert torch.allclose(block(tokens), port(tokens), atol=1e-5)


@pytest.mark.parametrize("target", re.findall(r"\bmake (\w+)", README))
def test_make_targets_exist(target):
    assert subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True).returncode == 0


def test_two_commands_set_up_everything_and_are_those_that_the_bare_machine_runs():
    """.ci/run may do more, by other programs; of make it calls these, timed as the README says."""
    named = re.findall(r"`(make \w+)`", README)
    assert named == ["make demo", "make test"]
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"(?m)^(?:time )?(make \w.*)$", script) == named
    sentence = README[README.index("`make test`") :].split(";")[0]
    assert re.search(r"about \d+ minutes", sentence)
    assert "users do not need it" in README


def test_the_citation_file_has_the_version_and_a_date():
    file = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {conv2attn.__version__}\n" in file
    assert re.search(r"(?m)^date-released: \d{4}-\d\d-\d\d$", file)
    assert "[CITATION.cff](CITATION.cff)" in README


def test_a_sentence_for_all_names_a_claim_that_says_it_for_all():
    """TAPS is about a layer that expresses every kernel; of one given convolution the README must not say it."""
    (sentence,) = (each for each in re.split(r"(?<=\.)\s", README) if "claim TAPS" in each)
    assert re.search(r"every\s+kernel", sentence)
    statement = (ROOT / "docs" / "theory.md").read_text()
    (bound,) = (each for each in re.split(r"(?<=\.)\s", statement) if "(claim TAPS)" in each)
    assert re.search(r"heads that do not follow the input, K\^2 .* every\s+convolution of a K x K kernel", bound)
    unchecked = re.findall(r"(?m)^\| (E\d+) .*not checked by machine \|$", (ROOT / "docs" / "errata.md").read_text())
    assert unchecked
    assert not re.search(r"[Ee]very\s+statement of that paper", README)


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
