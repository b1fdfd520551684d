"""The symbolic layer of proofs/: every claim proves, every mutant is refuted, and a broken proof is called broken."""

import dataclasses
import inspect
import json
import re
import time
import tomllib
from functools import partial
from pathlib import Path

import pytest
import sympy

from conv2attn.theory import bounds
from conv2attn.verdicts import Verdict
from proofs import CLAIMS as NAMES
from proofs import core, report
from proofs.decided import FormalLayer
from proofs.deciding import decide_claim, load, not_licensed
from proofs.rendering import ProofReport, table

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "proofs"
CLAIMS = [load(name, NAMES) for name in NAMES]
STEPS = [pytest.param(step, id=f"{claim.name}-{n}") for claim in CLAIMS for n, step in enumerate(claim.steps, 1)]
x, y = sympy.symbols("x y", positive=True)


@pytest.fixture(scope="module")
def timed():
    start = time.process_time()
    return report(), time.process_time() - start


@pytest.fixture(scope="module")
def whole(timed):
    return timed[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_step_holds_and_every_mutant_is_refuted(name, whole):
    result = whole.claims[NAMES.index(name)]
    assert result.claim.name == name
    assert result.steps
    assert [step.says for step in result.steps if step.verdict is not Verdict.HOLDS] == []
    assert result.mutants
    assert [mutant.says for mutant in result.mutants if mutant.verdict is not Verdict.REFUTED] == []
    assert result.status == "proved"


def test_every_file_is_a_claim_of_its_name_and_every_claim_of_the_list_is_there():
    files = {path.stem for path in PROOFS.glob("*.py") if "CLAIM = Claim(" in path.read_text()}
    assert files == set(NAMES) == {claim.name for claim in CLAIMS}


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_a_claim_says_all_that_is_needed_to_judge_it(claim):
    for text in (claim.title, claim.words, claim.formula, claim.source, claim.not_shown, *claim.conditions):
        assert text.strip() == text != ""
    assert claim.conditions
    assert len(claim.mutants) >= 5
    assert len({step.says for step in (*claim.steps, *claim.mutants)}) == len(claim.steps) + len(claim.mutants)


def test_the_trusted_core_is_short_and_decides_nothing_by_rounding_or_sampling():
    trusted = [(PROOFS / f"{name}.py").read_text() for name in ("core", "normal_form", "points")]
    assert sum(len(source.splitlines()) for source in trusted) < 280
    for path in PROOFS.glob("*.py"):
        assert not re.search(r"simplify\(|\.equals\(|random|evalf|nsimplify", path.read_text()), path.name


def test_only_the_core_decides():
    methods = {step.values[0].question.func.__module__ for step in STEPS}
    assert methods == {"proofs.core"}


@pytest.mark.rotated
@pytest.mark.parametrize("step", STEPS)
def test_a_step_made_wrong_no_longer_holds(step):
    question = step.question
    arguments = list(question.args)
    match question.func.__name__:
        case "identity" | "index_sums" if not step.negated:
            arguments[1] += x
        case "sign" if not step.negated:
            arguments[0] -= x
        case "less" if not step.negated:
            arguments.reverse()
        case "finite" if not step.negated:
            *arguments, last = (*arguments, *question.keywords.values())
            question, arguments = partial(question.func), [*arguments, last + 1]
        case _:
            wrong = dataclasses.replace(step, negated=not step.negated)
            assert wrong.decide() is not Verdict.HOLDS
            return
    wrong = dataclasses.replace(step, question=partial(question.func, *arguments, **question.keywords))
    assert wrong.decide() is not Verdict.HOLDS


GIVEN = [
    pytest.param(step.values[0].question, known, n, id=f"{step.id}-{known}-{n}")
    for step in STEPS
    for known in ("given", "positive")
    for n in range(len(step.values[0].question.keywords.get(known, ())))
    if "witness" not in step.values[0].question.keywords
]


@pytest.mark.rotated
@pytest.mark.parametrize(("question", "known", "n"), GIVEN)
def test_every_hypothesis_is_needed(question, known, n):
    fewer = [each for place, each in enumerate(question.keywords[known]) if place != n]
    assert question() is Verdict.HOLDS
    assert question.func(*question.args, **question.keywords | {known: tuple(fewer)}) is not Verdict.HOLDS


def planted(claim, **changes):
    return decide_claim(dataclasses.replace(claim, **changes))


def test_a_broken_proof_is_called_broken_and_an_open_one_is_not_proved():
    claim, other = load("L2a", NAMES), load("L2c", NAMES)
    passing = planted(claim, mutants=(claim.steps[0],))
    assert (passing.broken, passing.status) == (True, "BROKEN")
    assert planted(claim, mutants=()).status == "BROKEN"
    assert planted(other, mutants=(dataclasses.replace(other.mutants[0], question=partial(core.less, 1, 1)),)).broken
    assert planted(claim, steps=claim.mutants).verdict is Verdict.REFUTED
    empty = planted(claim, steps=())
    assert empty.verdict is Verdict.UNDECIDED
    for result in (passing, empty):
        assert ProofReport((result,), FormalLayer("not asked for")).exit_code == 1


def test_the_whole_layer_takes_seconds(timed):
    whole, seconds = timed
    assert (whole.exit_code, seconds < 5) == (0, True)


def test_forms_of_the_report(whole):
    content = json.loads(whole.to_json())
    assert content["schema"] == "conv2attn.proofs/2"
    assert [(claim["name"], claim["verdict"]) for claim in content["claims"]] == [(name, "holds") for name in NAMES]
    text, markdown, latex = whole.to_text(80, verbose=True), whole.to_markdown(), whole.to_latex()
    assert max(map(len, text.splitlines())) <= 80
    for claim in CLAIMS:
        assert f"\n{claim.name} " in text
        assert f"\n  Not shown: {claim.not_shown.split()[0]}" in text
        assert f"## {claim.name}. {claim.title}" in markdown
        assert all(step.says in markdown for step in (*claim.steps, *claim.mutants))
        assert claim.formula in latex
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    outside = re.sub(r"\\\[.*?\\\]|^\$[^\n]*\$$", "", latex, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)[_#&%$^]", outside)
    assert f"{len(CLAIMS)} of {len(CLAIMS)} claims proved" in text


def test_the_table_is_what_the_claims_are(whole):
    readme = (PROOFS / "README.md").read_text()
    generated = readme.partition("<!-- generated by `python -m proofs` -->\n")[2]
    assert generated.partition("<!-- end -->")[0] == table(whole)


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_a_claim_says_what_of_it_is_formal(claim):
    stated = tomllib.loads((PROOFS / "formal" / "claims.toml").read_text())
    kind, _, rest = claim.formal.partition(": ")
    assert (kind, bool(rest)) in [("whole", False), ("part", True), ("none", True)]
    assert (claim.name in stated) == (kind != "none")


def test_the_bounds_that_no_claim_licenses_are_listed(whole):
    licensed = {name for claim in CLAIMS for name in claim.licenses}
    functions = {
        f"conv2attn.theory.bounds.{name}" for name in bounds.__all__ if inspect.isfunction(getattr(bounds, name))
    }
    functions -= {"conv2attn.theory.bounds.format_of", "conv2attn.theory.bounds.claims_of"}  # these give no number
    assert set(whole.not_licensed) == functions - licensed
    assert set(not_licensed([])) == functions
    assert all(name.removeprefix("conv2attn.") in whole.to_text(verbose=True) for name in whole.not_licensed)


def test_the_page_on_proofs_names_every_claim():
    page = (ROOT / "docs" / "proofs.md").read_text()
    shown = page.partition("## By what")[0].replace("L2a to L2e", "L2a, L2b, L2c, L2d, L2e")
    named = re.findall(r"^\| .* \| ([\w, ]+) \|$", shown, re.MULTILINE)
    assert set(", ".join(named).split(", ")) - {"claims"} == set(NAMES)
    assert all(f"`{name}.py`" in page for name in ("core", "normal_form", "points"))


def test_the_errata_cite_the_claims_that_are_their_evidence_and_no_others():
    rows = re.findall(r"^\| (E\d+) \|.*\| ([^|]*) \|$", (ROOT / "docs" / "errata.md").read_text(), re.MULTILINE)
    cited = {row: set(re.findall(r"\[(\w+)\]\(\.\./proofs/\1\.py\)", evidence)) for row, evidence in rows}
    assert set(cited) == {f"E{n}" for n in range(1, 30)}
    for row, claims in cited.items():
        assert claims == {claim.name for claim in CLAIMS if row in claim.errata}, row
    assert {row for row, claims in cited.items() if not claims} == {
        "E9",
        "E19",
        "E20",
        "E21",
        "E22",
        "E23",
        *(f"E{n}" for n in range(25, 30)),
    }


def test_docstrings_cite_claims_that_exist():
    cited = []
    for path in (ROOT / "conv2attn").rglob("*.py"):
        for words in re.findall(r"claims? ((?:[\w', ]|\n)+?) of\s+proofs/", path.read_text()):
            cited += re.findall(r"[A-Z][A-Z0-9]*[a-z0-9']*", words)
    assert cited
    for name in cited:
        load(name, NAMES)
