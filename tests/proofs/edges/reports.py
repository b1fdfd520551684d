"""Reports on the claims: what is asked, what cannot be checked here, and how it is shown."""

import dataclasses
import json
import re

import pytest

from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict
from proofs import CLAIMS as NAMES
from proofs import decide, report
from proofs.decided import FormalLayer
from proofs.deciding import decide_claim, load
from proofs.formal.answers import FormalRow
from proofs.rendering import ProofReport


@pytest.fixture(scope="module")
def whole():
    """The report on all claims."""
    return report()


@pytest.mark.parametrize("claim", ["L9", "", "core", "l1.py"])
def test_an_unknown_claim_is_a_usage_error(claim):
    with pytest.raises(UsageError, match="C2A002 claim"):
        report([claim])


def test_claims_may_be_written_as_in_the_paper():
    assert report(["T1'", "l3'"]).exit_code == 0
    assert [decide(name).claim.name for name in ("T1'", "l3'")] == ["T1p", "L3p"]


def test_the_formal_layer_asked_for_without_coqc_is_unsupported(monkeypatch):
    monkeypatch.setenv("PATH", "")
    result = report(["STR"], formal=True)
    assert result.formal.status == "not checked here"
    assert (result.verdict, result.exit_code) == (Verdict.UNSUPPORTED, 3)
    assert "not checked here" in result.to_text()


@pytest.mark.parametrize(
    ("holds", "status", "exit_code"), [([True, True], "checked", 0), ([True, False], "failed", 1), ([], "failed", 1)]
)
def test_the_formal_layer_is_asked_about_the_claims_that_it_must_hold(holds, status, exit_code, monkeypatch):
    def answer(formal):
        return [FormalRow(str(sorted(formal)), ("T",), (), () if each else ("an axiom",)) for each in holds]

    monkeypatch.setattr("proofs.formal.check.check", answer)
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    result = report(["STR", "COUNT"], formal=True)
    assert (result.formal.status, result.exit_code) == (status, exit_code)
    assert {each["claim"] for each in json.loads(result.to_json())["formal"]["rows"]} == (
        {"['STR']"} if holds else set()
    )
    assert ("FAILS: an axiom" in result.to_text()) == (False in holds)


def test_a_failing_claim_outweighs_a_formal_layer_that_was_not_checked():
    broken = decide_claim(dataclasses.replace(load("STR", NAMES), mutants=()))
    assert ProofReport((broken,), FormalLayer("not checked here", Verdict.UNSUPPORTED)).exit_code == 1


def test_the_default_report_is_one_screen_and_shows_what_is_not_proved(whole):
    """All claims by name, what *proved* quantifies over, and what to do next; a claim that fails, with its steps."""
    for width, most in ((40, 24), (80, 12), (120, 10)):
        lines = whole.to_text(width).splitlines()
        assert len(lines) <= most
        assert "holds: " in lines[0]
    text = " ".join(whole.to_text(80).split())
    assert f"proved, each for all values that meet its conditions: {', '.join(NAMES)} with -v" in text
    (first, *others) = whole.claims
    broken = dataclasses.replace(first, mutants=())
    told = dataclasses.replace(whole, claims=(broken, *others)).to_text(80)
    assert told.startswith("refuted: ")
    assert re.search(rf"\n{broken.claim.name} .*BROKEN", told)
    assert f"conditions: {broken.claim.name}," not in " ".join(told.split())


def test_a_claim_that_is_named_says_its_conditions_and_with_v_its_steps():
    plain, full = report(["STR"]).to_text(80), report(["STR"]).to_text(80, verbose=True)
    for part in ("Condition: ", "Not shown: ", "with -v: each step and mutant"):
        assert part in plain
    assert "  1. [holds, " not in plain
    assert "  1. [holds, " in full
