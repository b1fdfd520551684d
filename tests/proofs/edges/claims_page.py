"""Claims.v is generated, and writes out the theorems that are proved, and nothing else; so are its page and picture."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from proofs import claims_page
from proofs.formal import written_out
from proofs.formal.terms import arguments, definitions
from proofs.formal.theorems import formal_claims

ROOT = Path(__file__).parents[3]
FORMAL = ROOT / "proofs" / "formal"
SOURCE = (FORMAL / "Claims.v").read_text()


def test_the_file_is_generated_from_the_table_and_the_statements():
    assert written_out.written_out() == SOURCE


def test_a_statement_or_a_file_that_was_changed_alone_is_noticed(tmp_path, monkeypatch):
    for name in ("Claims.v", "Statements.v", "claims.toml", written_out.PROSE):
        (tmp_path / name).write_text((FORMAL / name).read_text())
    statements = tmp_path / "Statements.v"
    statements.write_text(statements.read_text().replace("T1p_exists := exist_if leq", "T1p_exists := exist_if ltn"))
    changed = written_out.written_out(tmp_path)
    assert changed != SOURCE
    monkeypatch.setattr(written_out, "HERE", tmp_path)
    monkeypatch.setattr(written_out, "written_out", lambda: changed)
    assert written_out.main([]) == 1
    assert written_out.main(["--write"]) == 0
    assert (tmp_path / "Claims.v").read_text() == changed


PREDICATE = """Section Any.
Local Open Scope R_scope.
Definition within (bound : R -> R) (below : R -> R -> Prop) :=
  forall n (x : 'I_n -> R) i, below (Rabs (x i)) (bound (x i)).
End Any.
"""


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("within (fun y => y * y + 1) Rle", "forall n (x : 'I_n -> R) i, (Rabs (x i) <= (x i * x i + 1))%R"),
        ("within id (fun y z => y < z)", "forall n (x : 'I_n -> R) i, (Rabs (x i) < x i)"),
        ("~ within id eq", "~ forall n (x : 'I_n -> R) i, (Rabs (x i) = x i)"),
        ("forall y, within id Rle", "forall y, within id Rle"),
    ],
)
def test_arguments_take_the_place_of_the_parameters_of_a_predicate(statement, expected):
    assert written_out.tidy(written_out.expanded(statement, definitions(PREDICATE))) == expected


def test_what_a_name_is_applied_to_ends_at_a_keyword_and_at_a_sign():
    assert arguments("f (g x)%N #|H| 'I_(n + 1) i.1 in y", 1) == (["(g x)%N", "#|H|", "'I_(n + 1)", "i.1"], 29)
    assert arguments("f + g", 1) == ([], 1)


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


def tied_names():
    return {name: {each.split(".")[-1] for each in tied} for name, tied in claims_page.ties().items()}


def test_the_file_writes_out_the_head_theorems_of_the_table_and_no_others():
    assert tied_names() == heads_of(formal_claims(FORMAL))


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
    assert tied_names() != heads_of(planted)


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
