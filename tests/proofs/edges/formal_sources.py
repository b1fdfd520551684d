"""The formal layer compiles from clean, its claims rest on allowed axioms, and its checker rejects what it must."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from proofs import CLAIMS
from proofs.deciding import load
from proofs.formal import check as checker
from proofs.formal import sources, stamp
from proofs.formal.independent import problems_of_terms
from proofs.formal.theorems import formal_claims
from proofs.rendering import header

FORMAL = Path(__file__).parents[3] / "proofs" / "formal"
SOUND = """Theorem one_is_one : Statement. Proof. exact eq_refl. Qed.
Theorem instance : twice 1 = 1 + 1. Proof. pose proof one_is_one. reflexivity. Qed.
Definition mutant := twice 1 = 3. Theorem mutant_refuted : ~ mutant. Proof. discriminate. Qed.
"""
HEADER = "From C2A Require Import Statements.\n"
STATEMENT = """Definition twice (n : nat) := n + n. Definition Statement := twice 1 = 2.
Definition Implication := 1 = 1 -> twice 1 = 2."""
CLAIM = """[C]
"C.one_is_one" = ["Statement", "C.instance", "C.mutant_refuted"]
"""

COQC = shutil.which("coqc")
if not COQC:
    sys.__stdout__.write("formal layer not checked here: coqc missing\n")


TABLE = {claim.name: claim for claim in formal_claims(FORMAL)}
THEOREMS = {theorem.name: theorem for claim in TABLE.values() for theorem in claim.theorems}


def stated():
    return frozenset(name for name in CLAIMS if not load(name, CLAIMS).formal.startswith("none"))


def folder_with(path, statement=STATEMENT, source=SOUND, claim=CLAIM, project="Statements.v\nC.v\n"):
    (path / "Statements.v").write_text(statement)
    (path / "C.v").write_text(HEADER + source)
    (path / "claims.toml").write_text(claim)
    (path / "_CoqProject").write_text("-Q . C2A\n" + project)
    return path


def problems(path, **kwargs):
    rows = checker.check(folder_with(path, **kwargs))
    assert not all(row.holds for row in rows)
    return "\n".join(problem for row in rows for problem in row.problems)


def test_every_formal_claim_of_the_table_has_a_theorem():
    assert stated() == TABLE.keys()


def test_every_file_begins_with_the_words_of_its_claim():
    for name in TABLE:
        assert (FORMAL / f"{name}.v").read_text().startswith(header(load(name, CLAIMS)))


PROOF = re.compile(r"^(?:Theorem|Lemma|Let) (?:(?!^(?:Theorem|Lemma|Let) ).)*?^Qed\.$", re.M | re.S)


def test_lines_are_short_and_long_proofs_have_a_sketch():
    for path in FORMAL.glob("*.v"):
        source = path.read_text()
        assert [line for line in source.splitlines() if len(line) > 100] == [], path.name
        for proof in PROOF.finditer(source):
            before = source[: proof.start()].rstrip().splitlines()
            sketched = before[-1].endswith("*)") and not before[-1].startswith("(** *")
            assert len(proof[0].partition("Proof.")[2].splitlines()) <= 30 + 2 or sketched, (path.name, proof[0][:80])


SCRIPT = re.compile(r"^(?:Theorem|Lemma|Let) (\w+)(?:(?!^(?:Theorem|Lemma|Let) ).)*?\bProof\.(.*?)\bQed\.", re.M | re.S)


def proofs_above(lines, source):
    """The names of the proofs that have more than this many lines between `Proof.` and `Qed.`."""
    return [name for name, script in SCRIPT.findall(source) if len(script.strip().splitlines()) > lines]


def test_no_proof_is_longer_than_a_screen():
    assert [name for path in FORMAL.glob("*.v") for name in proofs_above(60, path.read_text())] == []


def test_a_long_proof_is_noticed():
    long = "Lemma short_le : True. Proof. exact I. Qed.\nLemma long_le : True.\nProof.\nsplit.\nexact I.\nQed.\n"
    assert proofs_above(1, long) == ["long_le"]
    assert proofs_above(2, long) == []


def test_no_two_files_differ_by_case_alone():
    names = [path.name.casefold() for path in FORMAL.glob("*.v")]
    assert len(set(names)) == len(names)


DEFINES = r"(?:Theorem|Lemma|Definition|Fixpoint|Inductive|Record|Instance|Notation|Ltac)"
NAMES = re.compile(rf"(?:^\s*|\.\s+){DEFINES} (?!instance|mutant)([A-Za-z_][\w']*)", re.M)


def defined_twice(folder):
    """Names of more than one file, but those that claims.toml writes with their file and those of `Rows`."""
    files = [path for path in sorted(folder.glob("*.v")) if path.name != "Rows.v"]
    names = [name for path in files for name in set(NAMES.findall(sources.without_comments(path.read_text())))]
    return sorted({name for name in names if names.count(name) > 1})


def test_no_name_is_defined_in_two_files():
    assert defined_twice(FORMAL) == []


def test_the_names_of_rows_are_always_written_with_their_file():
    assert [path.name for path in FORMAL.glob("*.v") if re.search(r"Import[^.]*\bRows\b", path.read_text())] == []


def test_a_name_of_two_files_is_noticed(tmp_path):
    (tmp_path / "A.v").write_text("Definition both := 1. Lemma one_of_a : True. Proof. exact I. Qed.")
    (tmp_path / "B.v").write_text("(* Lemma one_of_a. *)\nLemma instance : True.\n  Fixpoint both (n : nat) := n.")
    assert defined_twice(tmp_path) == ["both"]


def of_files(pattern):
    return {
        f"{path.stem}.{name}"
        for path in FORMAL.glob("*.v")
        for name in re.findall(pattern, path.read_text(), flags=re.M)
    }


def test_every_refuted_mutant_is_asked_of_coq():
    assert of_files(r"^Theorem (\w+_refuted)\b") == {
        name for claim in TABLE.values() for name in claim.named("mutants")
    }


def test_every_theorem_whose_type_is_a_name_stands_in_the_table_once():
    assert of_files(r"^Theorem (\w+) : [\w.]*\w\.") == THEOREMS.keys()
    assert sum(len(claim.theorems) for claim in TABLE.values()) == len(THEOREMS)


def test_an_omitted_theorem_is_noticed(monkeypatch):
    monkeypatch.delitem(THEOREMS, "L1.any_map")
    with pytest.raises(AssertionError):
        test_every_theorem_whose_type_is_a_name_stands_in_the_table_once()


def test_a_mutant_is_of_one_theorem():
    listed = [name for theorem in THEOREMS.values() for name in theorem.named("mutants")]
    assert len(listed) == len(set(listed))


def test_the_numbers_of_the_instance_are_pytorchs():
    image, weight, bias = torch.tensor([[[1.0, 2, 3]]]), torch.tensor([[[1.0, 10]]]), torch.tensor([5.0])
    padded = torch.nn.functional.pad(image, (1, 0))
    source = (FORMAL / "L1.v").read_text()
    for stride in (1, 2):
        output = torch.nn.functional.conv1d(padded, weight, bias, stride=stride).int().flatten().tolist()
        assert f"= [:: {'; '.join(map(str, output))}]%Z" in source


def test_a_missing_coqc_is_said(monkeypatch, capsys):
    monkeypatch.setattr(checker.shutil, "which", lambda name: None)
    with pytest.raises(checker.CoqMissingError, match="not checked here: coqc missing"):
        checker.check()
    assert checker.main() == 3
    assert "not checked here" in capsys.readouterr().out


def test_the_stamp_is_of_these_sources():
    assert stamp.stamped()["sources"] == stamp.digest_of_sources(), (
        "run make proofs, and commit proofs/formal/stamp.json"
    )


def test_a_changed_source_or_tool_is_no_longer_stamped(tmp_path, monkeypatch):
    monkeypatch.delenv("CONV2ATTN_COQ", raising=False)
    shutil.copytree(FORMAL, tmp_path / "formal", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(stamp, "tools", lambda: stamp.stamped()["tools"])
    assert stamp.why_run(tmp_path / "formal") == ""
    monkeypatch.setenv("CONV2ATTN_COQ", "always")
    assert stamp.why_run(tmp_path / "formal") == "CONV2ATTN_COQ=always"
    monkeypatch.delenv("CONV2ATTN_COQ")
    (tmp_path / "formal" / "T1.v").write_text("(** new words *)\n" + (FORMAL / "T1.v").read_text())
    assert stamp.why_run(tmp_path / "formal") == ""
    for name in ("T1.v", "claims.toml", "check.py", "_CoqProject", "integers.ml"):
        (tmp_path / "formal" / name).write_text((FORMAL / name).read_text() + "Check I.")
        assert "sources" in stamp.why_run(tmp_path / "formal")
        shutil.copy(FORMAL / name, tmp_path / "formal")
    monkeypatch.setattr(stamp, "tools", dict)
    assert "tools" in stamp.why_run(tmp_path / "formal")
    (tmp_path / "formal" / stamp.STAMP).unlink()
    assert "sources" in stamp.why_run(tmp_path / "formal")


@pytest.mark.parametrize("fault", ["claim", "term", "program", "source", None])
def test_a_stamp_is_the_last_act_of_a_run_that_found_nothing_wrong(tmp_path, monkeypatch, capsys, fault):
    monkeypatch.delenv("CONV2ATTN_COQ", raising=False)
    monkeypatch.setattr(stamp, "HERE", tmp_path)
    monkeypatch.setattr(stamp, "tools", lambda: {"coq and ocaml": "none"})
    digests = iter("ab" if fault == "source" else "aa")
    monkeypatch.setattr(stamp, "digest_of_sources", lambda *_: next(digests, "a"))
    row = checker.FormalRow("STR", (), (), ("broken",) if fault == "claim" else ())
    monkeypatch.setattr(stamp, "check", lambda build: [row] if fault == "claim" else [])
    monkeypatch.setattr(stamp, "problems_of_terms", lambda build, libraries: ["bad term"] * (fault == "term"))
    monkeypatch.setattr(stamp.extraction, "main", lambda files: int(fault == "program"))
    monkeypatch.setattr(stamp, "why_run", lambda: "")
    assert stamp.main(["--write"]) == (0 if fault is None else 1)
    assert (tmp_path / stamp.STAMP).exists() == (fault is None)
    assert ("no stamp was written" in capsys.readouterr().out) == (fault is not None)


WHY = stamp.why_run()
if COQC:
    sys.__stdout__.write(
        f"Coq runs whole: {WHY}\n" if WHY else "Coq confirmed these sources: proofs/formal/stamp.json\n"
    )

if COQC and WHY:

    @pytest.mark.slow
    @pytest.mark.timeout(1500)
    def test_every_claim_holds_and_the_independent_checker_agrees(tmp_path):
        rows = checker.check(formal=stated(), build=tmp_path)
        assert [row for row in rows if not row.holds] == []
        assert {row.claim for row in rows} == TABLE.keys()
        for question in tmp_path.glob("Question*.vo"):
            question.unlink()
        assert problems_of_terms(tmp_path, libraries=False) == []


if COQC:

    @pytest.mark.parametrize(
        ("source", "problem"),
        [
            ("Axiom bad : 1 = 1.", "coqchk: axiom C2A.C.bad"),
            ("#[bypass_check(positivity)] Inductive bad := B : (bad -> False) -> bad.", "is assumed: C2A.C.bad"),
            ("#[bypass_check(universes)] Definition bad : Set := Set.", "type-in-type: C2A.C.bad"),
            ("#[bypass_check(guard)] Fixpoint bad (n : nat) : False := bad n.", "unsafe (co)fixpoints: C2A.C.bad"),
        ],
    )
    def test_the_independent_checker_rejects(tmp_path, source, problem):
        (tmp_path / "C.v").write_text(source)
        assert sources.coqc(tmp_path, "C.v")[1] == ""
        assert problem in "\n".join(problems_of_terms(tmp_path, libraries=False))

    def test_the_independent_checker_must_have_something_to_check(tmp_path):
        assert problems_of_terms(tmp_path, libraries=False) != []

    @pytest.mark.parametrize(
        ("planted", "message"),
        [
            ({"source": SOUND.replace("exact eq_refl. Qed", "Admitted")}, "C.v: Admitted"),
            ({"source": "Axiom bad : 1 = 1." + SOUND}, "C.v: Axiom"),
            ({"source": "Parameter bad : 1 = 1." + SOUND}, "C.v: Parameter"),
            ({"claim": CLAIM.replace("C.one", "C.two")}, "two_is_one"),
            ({"project": "Statements.v\n"}, "C.v is not in _CoqProject"),
            ({"statement": STATEMENT + " Lemma hidden : Statement. Proof. easy. Qed."}, "not a definition"),
            ({"statement": STATEMENT.replace("Statement", "Statement (n : nat)"),
              "source": SOUND.replace(": Statement", ": Statement 1")}, "its type is not a statement"),
            ({"source": SOUND.replace("exact eq_refl", "exact 3")}, "C.v does not compile"),
        ],
    )  # fmt: skip
    def test_the_checker_rejects_a_folder(tmp_path, planted, message):
        assert message in problems(tmp_path, **planted)

    SOURCES = {
        "Assumed": ("Variable bad : Statement.\n" + SOUND.replace("eq_refl", "bad"), "rests on Assumed.bad"),
        "Machine": ("From Coq Require Import Uint63.\n"
                    + SOUND.replace("exact eq", "pose proof (add_spec 1 1). exact eq"), r"rests on \S*add_spec"),
        "Unnamed": (SOUND.replace("Statement.", "twice 1 = 2."), "its type is not a statement"),
        "Weaker": (SOUND.replace("Statement.", "True -> Statement.").replace("exact", "intro; exact"),
                   "Weaker.one_is_one: its type"),
        "Sections": ("Section S. Hypothesis h : True.\n" + SOUND.replace("exact", "pose proof h; exact") + "End S.",
                     "its type is not a statement"),
        "Mutant": (SOUND.replace("~ mutant", "~ twice 1 = 3"), "Mutant.mutant_refuted: its type is not a statement"),
        "Unused": (SOUND.replace("pose proof one_is_one. ", ""), "the instance does not use Unused.one_is_one"),
        "Alien": (SOUND.replace("twice 1 = 1 + 1. Proof. pose proof one_is_one.", "2 + 2 = 4. Proof."),
                  "the instance does not use Alien.one_is_one"),
        "Absurd": (SOUND.replace("twice 1 = 3", "False").replace("discriminate", "exact (fun x => x)"),
                   "the mutant mentions nothing that the statement of Absurd.one_is_one"),
        "Numbers": (SOUND.replace("twice 1 = 3", "1 = 2"),
                    "the mutant mentions nothing that the statement of Numbers.one_is_one"),
        "Instances": (SOUND, "Instances.one_is_one: no instances"), "Mutants": (SOUND, "no mutants"),
        "Theorems": (SOUND, "a formal claim without a theorem"),
        "Why": (SOUND, "is not 'too long', so it needs mutants"),
        "Premise": (SOUND.replace("Statement", "Implication").replace("exact", "intros _; exact"),
                    "is not 'no premises', so it needs instances"),
    }  # fmt: skip

    def test_the_checker_rejects_each_wrong_claim_of_a_folder_and_no_right_one(tmp_path):
        sections = {name: CLAIM.replace("[C]", f"[{name}]").replace('"C.', f'"{name}.') for name in ("C", *SOURCES)}
        sections["Theorems"] = "[Theorems]\n"
        sections["Instances"] = sections["Instances"].replace("Instances.instance", "")
        sections["Mutants"] = sections["Mutants"].replace("Mutants.mutant_refuted", "")
        sections["Why"] = sections["Why"].replace("Why.mutant_refuted", "- too long")
        sections["Premise"] = (
            '[Premise]\n"Premise.one_is_one" = ["Implication", "- no premises", "Premise.mutant_refuted"]\n'
        )
        files = "".join(f"{name}.v\n" for name in ("Statements", *sections))
        folder_with(tmp_path, claim="".join(sections.values()), project=files)
        for name, (source, _) in SOURCES.items():
            (tmp_path / f"{name}.v").write_text(HEADER + source)
        found = {row.claim: "\n".join(row.problems) for row in checker.check(tmp_path)}
        assert found.pop("C") == ""
        assert [name for name, (_, message) in SOURCES.items() if not re.search(message, found[name])] == []

    def test_a_formal_claim_without_an_entry_is_rejected(tmp_path):
        rows = checker.check(folder_with(tmp_path), formal=frozenset({"C", "LOST"}))
        assert [(row.claim, row.problems) for row in rows if not row.holds] == [
            ("LOST", ("a formal claim without a theorem",))
        ]

    def test_a_file_that_takes_too_long_is_a_failing_row(tmp_path, monkeypatch):
        monkeypatch.setattr(sources, "SECONDS_A_FILE", 1)
        found = problems(tmp_path, source=SOUND + "Goal True. do 1000000000 idtac.")
        assert found == "C.v: not compiled within 1 s of processor time"

    def test_a_question_that_takes_too_long_is_a_failing_row(tmp_path, monkeypatch):
        coqc = sources.coqc
        monkeypatch.setattr(
            "proofs.formal.answers.coqc",
            lambda build, name: ("", f"{name}: not compiled within 1 s") if "Q" in name else coqc(build, name),
        )
        assert problems(tmp_path) == "Question_C.v: not compiled within 1 s"

    def test_files_are_compiled_after_what_they_require(tmp_path):
        (tmp_path / "A.v").write_text("From C2A Require Import B.\n")
        (tmp_path / "B.v").write_text("(* nothing *)\n")
        assert sources.dependencies(tmp_path) == {"A.v": ["B.v"], "B.v": []}
