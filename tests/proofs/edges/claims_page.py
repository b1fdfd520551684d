"""Claims.v writes out the theorems that are proved, and nothing else; its page and picture are those of the file."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from proofs import claims_page
from proofs.formal.theorems import formal_claims

ROOT = Path(__file__).parents[3]
FORMAL = ROOT / "proofs" / "formal"
SOURCE = (FORMAL / "Claims.v").read_text()


def test_every_theorem_that_is_written_out_is_tied_to_a_proved_one():
    defined = re.findall(r"^Definition (\w+)", SOURCE, re.M)
    assert list(claims_page.ties()) == defined
    assert len(defined) == len(set(defined))
    assert all(claims_page.claim_of(name) for name in defined)


def heads_of(claims):
    """The statements of the head theorems by the name under which Claims.v writes them out."""
    heads = {}
    for theorem in (theorem for claim in claims for theorem in claim.theorems if theorem.written):
        heads.setdefault(theorem.written, set()).add(theorem.statement.split(".")[-1])
    return heads


def written_out():
    return {name: {each.split(".")[-1] for each in tied} for name, tied in claims_page.ties().items()}


def test_the_file_writes_out_the_head_theorems_of_the_table_and_no_others():
    assert written_out() == heads_of(formal_claims(FORMAL))


def without_a_mutant(claims):
    """Head theorems with neither a refuted mutant nor a statement that is itself a counterexample."""
    heads = (theorem for claim in claims for theorem in claim.theorems if theorem.written)
    return [head.name for head in heads if not head.named("mutants") and head.reason("mutants") != "a counterexample"]


def test_every_head_theorem_has_a_mutant_or_is_a_counterexample():
    assert without_a_mutant(formal_claims(FORMAL)) == []


def test_a_head_theorem_that_no_error_could_refute_is_noticed(tmp_path):
    (tmp_path / "claims.toml").write_text('[C]\n"C.read" = ["C_read", "- no premises", "- an equation", "Read"]\n')
    planted = formal_claims(tmp_path)
    assert without_a_mutant(planted) == ["C.read"]
    assert written_out() != heads_of(planted)


def test_every_sentence_of_the_paper_leads_to_theorems_that_are_written_out():
    table = SOURCE.partition("| --- | --- |")[2].partition("\n\n")[0]
    named = set(re.findall(r"\[(\w+)\]", table))
    assert len(named) > 20
    assert named <= claims_page.ties().keys()


def test_every_formal_claim_is_written_out():
    written = {claims_page.claim_of(name) for name in claims_page.ties()}
    assert written == set(claims_page.statements().values())


def test_the_file_assumes_nothing_and_proves_by_reflexivity_alone():
    assert not re.search(r"\b(Axiom|Parameter|Variable|Hypothesis|Admitted)\b", SOURCE)
    assert set(re.findall(r"Proof\. (.*?) Qed\.", SOURCE)) == {"reflexivity."}
    assert max(map(len, SOURCE.splitlines())) <= 100


def test_a_name_that_is_no_theorem_is_noticed(monkeypatch):
    monkeypatch.setattr(claims_page, "ties", lambda: {"Lemma1": ("L1_printed",)})
    with pytest.raises(KeyError):
        claims_page.claim_of("Lemma1")


def test_the_page_and_the_picture_are_those_of_the_file():
    assert (ROOT / "docs" / "claims.md").read_text() == claims_page.page()
    assert (ROOT / "docs" / "claims.svg").read_text() == claims_page.picture()


def test_the_page_holds_every_theorem_and_the_picture_every_formal_claim():
    page, picture = claims_page.page(), claims_page.picture()
    assert all(f"Definition {name} " in page for name in claims_page.ties())
    assert all(f">{name}</text>" in picture for name in claims_page.uses())
    assert "[" not in re.sub(r"```.*?```|`[^`]*`|\[[^\]]*\]\(", "", page, flags=re.S)


def test_no_claim_uses_itself_in_a_circle():
    uses = claims_page.uses()
    order = list(TopologicalSorter(uses).static_order())
    assert order.index("L1") < order.index("T1") < order.index("L3") < order.index("TAPS")
    assert "SOFT" in uses["ROW"]
