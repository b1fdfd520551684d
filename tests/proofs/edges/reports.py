"""Reports on the claims: what is asked, what cannot be checked here, and how it is shown."""

import dataclasses
import json
import re
from types import SimpleNamespace

import pytest

from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict
from proofs import CLAIMS as NAMES
from proofs import decide, report
from proofs.decided import FormalLayer, ProofReport
from proofs.deciding import decide_claim, load

CLAIMS = [load(name, NAMES) for name in NAMES]


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
        row = {"claim": str(sorted(formal)), "theorems": ("T",), "axioms": (), "problems": ("an axiom",)}
        return [SimpleNamespace(**row, holds=each) for each in holds]

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


def test_reports():
    whole = report()
    content = json.loads(whole.to_json())
    assert content["schema"] == "conv2attn.proofs/2"
    assert [claim["name"] for claim in content["claims"]] == list(NAMES)
    assert {claim["verdict"] for claim in content["claims"]} == {"holds"}
    text, markdown, latex = whole.to_text(80), whole.to_markdown(), whole.to_latex()
    assert max(map(len, text.splitlines())) <= 80
    for claim in CLAIMS:
        assert f"\n{claim.name} " in text
        assert f"\n{claim.name}: {claim.not_shown.split()[0]}" in text
        assert f"## {claim.name}. {claim.title}" in markdown
        assert all(step.says in markdown for step in (*claim.steps, *claim.mutants))
        assert claim.formula in latex
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    outside = re.sub(r"\\\[.*?\\\]|^\$[^\n]*\$$", "", latex, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)[_#&%$^]", outside)
    assert f"{len(CLAIMS)} of {len(CLAIMS)} claims proved" in text
