"""The symbolic layer of proofs/: every claim proves, every mutant is refuted, and a broken proof is called broken."""

import dataclasses
import json
import re
import sys
import time
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import sympy

from conv2attn.errors import UsageError
from conv2attn.proof_report import FormalResult, ProofReport, table
from conv2attn.prove import claim_names, decide_claim, load_claim, proofs_folder, prove
from conv2attn.verdicts import Verdict

ROOT = Path(__file__).parent.parent
ISSUE = {
    *("L1", "L2a", "L2b", "L2c", "L2d", "L2e", "T1", "T1p", "L3", "L3p"),
    *("D2", "A46", "PAD", "STR", "GQ", "AND", "HEADS"),
}
CLAIMS = [load_claim(name) for name in claim_names()]
STEPS = [pytest.param(step, id=f"{claim.name}-{n}") for claim in CLAIMS for n, step in enumerate(claim.steps, 1)]
core = sys.modules["conv2attn.proofs.core"]
x, y = sympy.symbols("x y", positive=True)


@pytest.fixture(scope="module")
def report():
    return prove()


@pytest.mark.parametrize("claim", CLAIMS, ids=claim_names())
def test_every_step_holds_and_every_mutant_is_refuted(claim):
    result = decide_claim(claim)
    assert result.steps
    assert [step.says for step in result.steps if step.verdict is not Verdict.HOLDS] == []
    assert result.mutants
    assert [mutant.says for mutant in result.mutants if mutant.verdict is not Verdict.REFUTED] == []
    assert result.status == "proved"


def test_every_file_is_a_claim_of_its_name_and_every_claim_of_the_list_is_there():
    files = {path.stem for path in proofs_folder().glob("*.py")} - {"__init__", "core", "claim"}
    assert files == set(claim_names()) == {claim.name for claim in CLAIMS}
    assert files >= ISSUE


@pytest.mark.parametrize("claim", CLAIMS, ids=claim_names())
def test_a_claim_says_all_that_is_needed_to_judge_it(claim):
    for text in (claim.title, claim.words, claim.formula, claim.source, claim.not_shown, *claim.conditions):
        assert text.strip() == text != ""
    assert claim.conditions
    assert len({step.says for step in (*claim.steps, *claim.mutants)}) == len(claim.steps) + len(claim.mutants)


def test_the_trusted_core_is_one_short_file_and_decides_nothing_by_rounding_or_sampling():
    source = (proofs_folder() / "core.py").read_text()
    assert len(source.splitlines()) < 120
    for path in proofs_folder().glob("*.py"):
        assert not re.search(r"simplify\(|\.equals\(|random|evalf|nsimplify", path.read_text()), path.name


def test_only_the_core_decides():
    methods = {step.values[0].question.func.__module__ for step in STEPS}
    assert methods == {"conv2attn.proofs.core"}


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


@pytest.mark.parametrize(("question", "known", "n"), GIVEN)
def test_every_hypothesis_is_needed(question, known, n):
    fewer = [each for place, each in enumerate(question.keywords[known]) if place != n]
    assert question() is Verdict.HOLDS
    assert question.func(*question.args, **question.keywords | {known: tuple(fewer)}) is not Verdict.HOLDS


SIGNS = [p for p in STEPS if p.values[0].method == "sign" and "witness" not in p.values[0].question.keywords]


@pytest.mark.parametrize("step", SIGNS)
def test_the_hypotheses_of_an_inequality_can_be_met(step):
    given, positive = (step.question.keywords.get(known, ()) for known in ("given", "positive"))
    symbols = sorted(set().union(*(sympy.sympify(each).free_symbols for each in (*given, *positive))), key=str)
    tests = [sympy.lambdify(symbols, each) for each in (*given, *positive)]
    points = product([Fraction(n) for n in (1, 2, 4, 9, -1)] + [Fraction(1, 4)], repeat=len(symbols))
    assert any(
        all(test(*point) >= (0 if n < len(given) else Fraction(1, 100)) for n, test in enumerate(tests))
        for point in points
    )


def planted(claim, **changes):
    return decide_claim(dataclasses.replace(claim, **changes))


def test_a_proof_whose_mutant_passes_is_broken():
    claim = load_claim("L2a")
    result = planted(claim, mutants=(claim.steps[0],))
    assert result.broken
    assert result.status == "BROKEN"
    assert ProofReport((result,), FormalResult("not asked for")).exit_code == 1


def test_a_proof_without_a_mutant_is_broken():
    assert planted(load_claim("L2a"), mutants=()).status == "BROKEN"


def test_an_undecided_mutant_is_not_a_refuted_one():
    claim = load_claim("L2c")
    undecided = dataclasses.replace(claim.mutants[0], question=partial(core.less, 1, 1))
    assert planted(claim, mutants=(undecided,)).broken


def test_a_proof_whose_step_fails_or_that_has_none_is_not_proved():
    claim = load_claim("L2a")
    assert planted(claim, steps=claim.mutants).verdict is Verdict.REFUTED
    empty = planted(claim, steps=())
    assert empty.verdict is Verdict.UNDECIDED
    assert ProofReport((empty,), FormalResult("not asked for")).exit_code == 1


def test_the_whole_layer_takes_less_than_a_minute(report):
    start = time.perf_counter()
    assert prove().exit_code == report.exit_code == 0
    assert time.perf_counter() - start < 60


def test_the_table_is_what_the_claims_are(report):
    readme = (proofs_folder() / "README.md").read_text()
    generated = readme.partition("<!-- generated by `python -m conv2attn.prove` -->\n")[2]
    assert generated.partition("<!-- end -->")[0] == table(report.claims)


def test_the_errata_cite_the_claims_that_are_their_evidence_and_no_others():
    rows = re.findall(r"^\| (E\d+) \|.*\| ([^|]*) \|$", (ROOT / "docs" / "errata.md").read_text(), re.MULTILINE)
    cited = {row: set(re.findall(r"\[(\w+)\]\(\.\./proofs/\1\.py\)", evidence)) for row, evidence in rows}
    assert set(cited) == {f"E{n}" for n in range(1, 14)}
    for row, claims in cited.items():
        assert claims == {claim.name for claim in CLAIMS if row in claim.errata}, row
    assert {row for row, claims in cited.items() if not claims} == {"E9"}


def test_docstrings_cite_claims_that_exist():
    cited = []
    for path in (ROOT / "conv2attn").rglob("*.py"):
        for words in re.findall(r"claims? ((?:[\w', ]|\n)+?) of\s+proofs/", path.read_text()):
            cited += re.findall(r"[A-Z][A-Z0-9]*[a-z0-9']*", words)
    assert cited
    for name in cited:
        load_claim(name)


@pytest.mark.parametrize("claim", ["L9", "", "core", "l1.py"])
def test_an_unknown_claim_is_a_usage_error(claim):
    with pytest.raises(UsageError, match="C2A001 claim"):
        prove([claim])


def test_claims_may_be_written_as_in_the_paper():
    assert prove(["T1'", "l3'"]).exit_code == 0
    assert [load_claim(name).name for name in ("T1'", "l3'")] == ["T1p", "L3p"]


def test_the_formal_layer_asked_for_without_coqc_is_unsupported(monkeypatch):
    monkeypatch.setenv("PATH", "")
    result = prove(["STR"], formal=True)
    assert result.formal.status == "not checked here"
    assert (result.verdict, result.exit_code) == (Verdict.UNSUPPORTED, 3)
    assert "not checked here" in result.to_text()


@pytest.mark.parametrize(
    ("holds", "status", "exit_code"), [([True, True], "checked", 0), ([True, False], "failed", 1), ([], "failed", 1)]
)
def test_the_formal_layer_is_asked_about_the_claims_that_it_must_hold(holds, status, exit_code, monkeypatch, tmp_path):
    formal = tmp_path / "formal"
    formal.mkdir()
    row = "SimpleNamespace(claim=str(sorted(formal)), theorems=['T'], axioms=[], problems=['an axiom'], holds={})"
    rows = ", ".join(row.format(each) for each in holds)
    (formal / "check.py").write_text(f"from types import SimpleNamespace\ndef check(formal): return [{rows}]\n")
    monkeypatch.setattr("conv2attn.prove.proofs_folder", lambda: tmp_path)
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    result = prove(["STR", "GQ"], formal=True)
    assert (result.formal.status, result.exit_code) == (status, exit_code)
    assert {each["claim"] for each in json.loads(result.to_json())["formal"]["rows"]} == (
        {"['STR']"} if holds else set()
    )
    assert ("FAILS: an axiom" in result.to_text()) == (False in holds)


def test_a_failing_claim_outweighs_a_formal_layer_that_was_not_checked():
    broken = planted(load_claim("STR"), mutants=())
    assert ProofReport((broken,), FormalResult("not checked here", Verdict.UNSUPPORTED)).exit_code == 1


def test_reports(report):
    content = json.loads(report.to_json())
    assert content["schema"] == "conv2attn.proofs/1"
    assert [claim["name"] for claim in content["claims"]] == list(claim_names())
    assert {claim["verdict"] for claim in content["claims"]} == {"holds"}
    text, markdown, latex = report.to_text(), report.to_markdown(), report.to_latex()
    for claim in CLAIMS:
        assert claim.title in text
        assert f"## {claim.name}. {claim.title}" in markdown
        assert all(step.says in markdown for step in (*claim.steps, *claim.mutants))
        assert claim.formula in latex
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    outside = re.sub(r"\\\[.*?\\\]|^\$[^\n]*\$$", "", latex, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)[_#&%$^]", outside)
    assert f"{len(CLAIMS)} of {len(CLAIMS)} claims proved" in text


class TestCore:
    """The methods themselves, on questions whose answers are known."""

    def test_identity(self):
        assert core.identity((x + y) ** 2, x**2 + 2 * x * y + y**2) is Verdict.HOLDS
        assert core.identity(1 / (1 - x) - 1, x / (1 - x)) is Verdict.HOLDS
        assert core.identity((x + y) ** 2, x**2 + y**2) is Verdict.REFUTED
        assert core.identity(x, y, given=((1, x - y),)) is Verdict.HOLDS
        assert core.identity(x, 2 * y, given=((1, x - y),)) is Verdict.UNDECIDED

    def test_sign(self):
        assert core.sign(x**2 - 2 * x * y + y**2, (((x - y) ** 2,),)) is Verdict.HOLDS
        assert core.sign(x**2, ((x**2,),), strict=True) is Verdict.UNDECIDED
        assert core.sign(x - y, ((x - y,),)) is Verdict.UNDECIDED
        assert core.sign(-x, ((-1, x),), given=(x,)) is Verdict.UNDECIDED
        assert core.sign(-x, ((-x,),), positive=(x,)) is Verdict.UNDECIDED
        assert core.sign(1 / x, ((1 / x,),), positive=(x,), strict=True) is Verdict.HOLDS
        assert core.sign(1 / x, ((1 / x,),), given=(x,)) is Verdict.UNDECIDED
        assert core.sign(x, ((x, y),), given=(x, y)) is Verdict.UNDECIDED
        assert core.sign(x**3, ((x**3,),)) is Verdict.UNDECIDED
        assert core.sign(x - y, given=(y,), witness={x: 1, y: 2}) is Verdict.REFUTED
        assert core.sign(x - y, given=(x - y,), witness={x: 1, y: 2}) is Verdict.UNDECIDED
        assert core.sign(0 * x, positive=(x,), witness={x: 1}, strict=True) is Verdict.REFUTED
        assert core.sign(x - 1, positive=(y,), witness={x: 0, y: 0}) is Verdict.UNDECIDED

    def test_index_sums(self):
        i, j, k, n, m = sympy.symbols("i j k n m", integer=True)
        a, b = sympy.IndexedBase("a"), sympy.IndexedBase("b")
        f = sympy.Function("f")
        delta, total = sympy.KroneckerDelta, sympy.Sum
        square = total(a[i], (i, 1, n)) ** 2
        assert core.index_sums(square, total(a[i] * a[j], (i, 1, n), (j, 1, n))) is Verdict.HOLDS
        assert core.index_sums(square, total(a[i] ** 2, (i, 1, n)), instance={n: 2}) is Verdict.REFUTED
        assert core.index_sums(total(a[i], (i, 1, n)), total(a[j], (j, 1, n))) is Verdict.HOLDS
        assert core.index_sums(total(a[i], (i, 1, n)), total(a[i], (i, 1, m))) is Verdict.UNDECIDED
        assert core.index_sums(total(a[k] * b[i], (i, 1, n)), n * a[k]) is Verdict.UNDECIDED
        assert core.index_sums(total(a[k], (i, 1, n)), n * a[k]) is Verdict.HOLDS
        picked = total(delta(i, k) * a[i], (i, 1, n))
        assert core.index_sums(picked, a[k], sizes={k: n}) is Verdict.HOLDS
        assert core.index_sums(picked, a[k]) is Verdict.UNDECIDED  # k may lie outside
        assert core.index_sums(picked, a[k], sizes={k: m}) is Verdict.UNDECIDED
        assert core.index_sums(total(delta(i, f(j)) * a[i], (i, 1, n)), a[f(j)], sizes={f: n}) is Verdict.HOLDS
        assert core.index_sums(total(delta(i, f(i)) * a[i], (i, 1, n)), a[f(i)], sizes={f: n}) is Verdict.UNDECIDED
        assert core.index_sums(total(delta(i, f(i)) * a[k], (i, 1, n)), a[k], sizes={f: n}) is Verdict.UNDECIDED
        assert core.index_sums(a[k], b[k], instance={k: 1}) is Verdict.REFUTED
        assert core.index_sums(a[k], b[k], given=(a[k] - 2 * b[k],), instance={k: 1}) is Verdict.UNDECIDED
        with pytest.raises(ValueError, match="a sum inside"):
            core.index_sums(1 / total(a[i], (i, 1, n)), 1)
        with pytest.raises(ValueError, match="a sum inside"):
            core.index_sums(total(a[i], (i, 0, n)), 1)

    def test_spans(self):
        assert core.spans([[1, 2], [0, 1]], [[5, 7]]) is Verdict.HOLDS
        assert core.spans([[1, 2]], [[2, 5]]) is Verdict.REFUTED

    def test_less(self):
        e = sympy.exp(1)
        assert core.less(sympy.Rational(27, 10), e) is Verdict.HOLDS
        assert core.less(e**2 * 3, 1 + e) is Verdict.REFUTED
        assert core.less(e, e) is Verdict.UNDECIDED
        for number in (sympy.pi, sympy.sqrt(2), x, sympy.nan, 1 / (1 + e), sympy.sin(1)):
            with pytest.raises(TypeError):
                core.less(number, 1)

    def test_finite(self):
        assert core.finite([1, 2], lambda n: n > 0, count=2) is Verdict.HOLDS
        assert core.finite([1, -2], lambda n: n > 0, count=2) is Verdict.REFUTED
        assert core.finite([], lambda n: True, count=2) is Verdict.UNDECIDED
        with pytest.raises(TypeError, match="a verdict is not a truth value"):
            core.finite([1], lambda n: Verdict.REFUTED, count=1)
