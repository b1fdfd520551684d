"""Claims.v writes out the theorems that are proved, and nothing else; its page and picture are those of the file."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from proofs import claims_page

ROOT = Path(__file__).parents[3]
SOURCE = (ROOT / "proofs" / "formal" / "Claims.v").read_text()


def test_every_theorem_that_is_written_out_is_tied_to_a_proved_one():
    defined = re.findall(r"^Definition (\w+)", SOURCE, re.M)
    assert list(claims_page.ties()) == defined
    assert len(defined) == len(set(defined))
    assert all(claims_page.claim_of(name) for name in defined)


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
