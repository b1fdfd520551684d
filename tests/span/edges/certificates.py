"""Certificates of verdicts are confirmed by the reader of their format, and refused once a number is changed."""

import json
from fractions import Fraction

import numpy as np
import pytest
from attentions import LINE, OFFSETS, hard, mixed, soft
from commands import call
from span.cases import swapping

from conv2attn import check_span
from conv2attn.errors import CheckpointError
from conv2attn.span import certificates, recheck_span, rows_of
from conv2attn.verdicts import Verdict
from proofs.certificates import answers

CASES = {
    "soft": (soft((3, 4), 1.0), "3x4", 1, ()),
    "soft with a class token": (
        np.random.default_rng(0).dirichlet(np.ones(13), (4, 13)),
        "3x4",
        1,
        ("--extra-tokens", "1"),
    ),
    "hard": (hard((3, 4), OFFSETS), "3x4", 0, ()),
    "a head less": (hard((3, 4), OFFSETS[1:]), "3x4", 1, ()),
    "mixture": (mixed(hard((9,), LINE), 4), "9", 0, ("--kernel-size", "3")),
    "single precision": (soft((8,), 2.0, LINE).astype(np.float32), "8", 1, ("--kernel-size", "3")),
}


@pytest.mark.parametrize("name", CASES)
def test_what_decides_is_confirmed_as_integers(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    array, grid, code, options = CASES[name]
    np.save("heads.npy", array)
    result = call("check-span", "heads.npy", "--grid", grid, "--certificate", "it.txt", *options)
    assert result.exit_code == code, result.output
    text = (tmp_path / "it.txt").read_text()
    found = answers(text)
    assert all(found)
    assert len(found) == text.count("# ") - text.count("without a certificate")
    assert found
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    _, kind, heads, queries, *_ = map(int, lines[0])
    wrong = range(2 + heads + 1, 2 + queries * (heads + 2), heads + 2) if kind else [2]
    for at in wrong:
        lines[at] = [str(-int(number)) for number in lines[at]]
    assert not all(answers("\n".join(map(" ".join, lines))))


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """An array of which everything holds but one offset, and its certificates."""
    monkeypatch.chdir(tmp_path)
    np.save("heads.npy", hard((4,), [(0,), (1,)]))
    asked = ["check-span", "heads.npy", "--grid", "4", "--offsets", "0 1", "--condition", "joint"]
    assert call(*asked, "--certificate", "it.txt").exit_code == 1
    return tmp_path / "it.txt"


def rechecked(*options, file="heads.npy"):
    return call("recheck", "it.txt", file, "--grid", "4", *options)


def test_a_certificate_is_checked_against_the_attention_that_it_speaks_of(kept):
    found = rechecked()
    assert (found.exit_code, "holds: 2 of 2" in found.stdout) == (0, True), found.output
    np.save("other.npy", hard((4,), [(0,), (0,)]))
    assert rechecked(file="other.npy").exit_code == 1
    assert call("recheck", "it.txt").exit_code == 2


def test_a_certificate_of_another_grid_than_is_read_is_undecided(kept):
    found = call("recheck", "it.txt", "heads.npy", "--grid", "2x2", "--wide")
    assert (found.exit_code, "of keys on a grid 4, and here it is 2x2: pass the --grid" in found.stdout) == (3, True)


def test_a_certificate_with_fewer_queries_or_another_eps_is_refused(kept):
    text = kept.read_text()
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("#!"))
    about = json.loads(lines[first].removeprefix("#! "))
    head = lines[first + 1].split()
    per_query, start = 1 + int(head[2]), first + 4
    fewer = [*lines[:first], "#! " + json.dumps({**about, "rows": about["rows"][:1]})]
    fewer += [" ".join([*head[:3], "1", *head[4:]]), *lines[first + 2 : start + per_query]]
    kept.write_text("\n".join(fewer) + "\n")
    assert all(answers(kept.read_text()))
    assert (rechecked().exit_code, "not those of its condition" in rechecked("--wide").stdout) == (1, True)
    for before, after, code in (
        ("0 0 1000000 1", f"{10**40} 0 1000000 1", 1),
        ('"condition":"joint"', '"condition":"interior"', 1),
        ('"condition":"joint"', '"condition":"all"', 2),
        ('"eps":null', '"eps":1e40', 2),
        ('"eps":null', '"eps":1', 2),
        ('"eps":null', '"eps":-0.5', 2),
        ('"max_phi":null', '"max_phi":0', 2),
        ('"eps":null', '"eps":"0.1"', 2),
        ('"eps":null', '"eps":NaN', 2),
        ('"max_phi":null', '"max_phi":1e101', 2),
        ('"offset":[0]', '"offset":[0.5]', 2),
        ('"offset":[0]', '"offset":[99999999999]', 2),
        ('"offset":[0]', '"offset":[2]', 1),
        ('"offset":[0]', '"offset":[]', 1),
        ('"rows":[0', '"rows":[-1', 2),
        ('"rows":[0', '"rows":[4', 1),
        ('"rows":[0', '"rows":[9', 1),
        ("#! ", "# ", 2),
        ("\n1 1 0\n", "\n0 1 0\n", 1),
        ('"rows":[0', '"rows":["0"', 2),
    ):
        assert before in text
        kept.write_text(text.replace(before, after, 1))
        assert rechecked().exit_code == code, after


def test_a_file_without_a_certificate_is_refused():
    with pytest.raises(CheckpointError, match="C2A303 not a file of span certificates"):
        recheck_span("# attention: nothing was checked", {})


def test_what_is_confirmed_of_a_certificate_with_one_number_changed_is_true(kept):
    """No other Phi serves the first offset, and every y that refutes the second is weighed on derived rows."""
    lines = kept.read_text().splitlines()
    numbers = [(n, k) for n, line in enumerate(lines) if line[:1] != "#" for k in range(len(line.split()))]
    rows = rows_of("attention", hard((4,), [(0,), (1,)]), (4,))
    for n, k in numbers:
        words = lines[n].split()
        words[k] = str(int(words[k]) + 1)
        text = "\n".join([*lines[:n], " ".join(words), *lines[n + 1 :]]) + "\n"
        found = recheck_span(text, {"attention": rows})
        held = [each for each in found.certificates if each.verdict is Verdict.HOLDS]
        assert all(("holds" in each.found) is (each.offset == "0") for each in held)


def certificates_of(array, grid, offsets, condition, **limits):
    """The certificates of an array, one string each, and its rows."""
    rows = rows_of("attention", array, grid)
    report = check_span(array, offsets=offsets, grid=grid, condition=condition, **limits)
    text = certificates(report, {"attention": rows}, limits.get("eps"), limits.get("max_phi"))
    return ["#! " + part for part in text.split("#! ")[1:]], {"attention": rows}


@pytest.mark.parametrize("kept", [[0, 1, 2], [0, 2], [1]])
def test_what_holds_of_each_query_needs_a_certificate_of_each(kept):
    parts, read = certificates_of(hard((3,), [(0,)]), (3,), [(0,)], "per-query")
    found = recheck_span("".join(parts[place] for place in kept), read)
    assert (found.verdict is Verdict.HOLDS) == (kept == [0, 1, 2])
    missing = [each.found for each in found.certificates if each.verdict is not Verdict.HOLDS]
    assert missing == {3: [], 2: ["missing: 1 group of queries"], 1: ["missing: 2 groups of queries"]}[len(kept)]


def test_other_queries_do_not_count_with_other_limits():
    strict, read = certificates_of(hard((3,), [(0,)]), (3,), [(0,)], "per-query")
    lax, _ = certificates_of(hard((3,), [(0,)]), (3,), [(0,)], "per-query", eps=0.5)
    found = recheck_span("".join([strict[0], *lax[1:]]), read)
    missing = [each.found for each in found.certificates if each.verdict is not Verdict.HOLDS]
    assert missing == ["missing: 2 groups of queries", "missing: 1 group of queries, eps=0.5"]


def test_how_many_queries_are_served_is_said():
    """A certificate may have been asked for offsets that leave few queries in the interior."""
    for offsets, queries in (([(0,)], 5), ([(0,), (4,)], 1)):
        parts, read = certificates_of(hard((5,), [(0,)]), (5,), offsets, "interior")
        assert f"holds at {queries} of 5 queries, confirmed" in [
            each.found for each in recheck_span(parts[0], read).certificates
        ]


def test_rows_whose_common_denominator_has_thousands_of_digits_are_written_and_confirmed():
    """Exact rows of coprime sums: Python's own conversion of integers refuses more than 4,300 digits."""
    array = np.full((1, 8, 8), 1, dtype=object)
    array[0, :, 0] = [2**2000 + k for k in range(8)]
    weights = np.array([[[Fraction(x, sum(row)) for x in row] for row in array[0]]])
    parts, read = certificates_of(weights, (8,), [(0,)], "joint")
    assert max(map(len, parts[0].split())) > 4300
    (found,) = recheck_span("".join(parts), read).certificates
    assert found.found == "refuted, confirmed"


@pytest.mark.parametrize(
    ("condition", "verdict"), [("joint", "holds"), ("per-query", "refuted"), ("interior", "holds")]
)
def test_a_dual_refutes_where_one_group_has_all_of_its_queries(condition, verdict):
    """Each query has a Phi of its own, and no Phi serves two of them."""
    ((dual,), read) = certificates_of(swapping(), (6,), [(0,)], "joint")
    assert recheck_span(dual.replace('"joint"', f'"{condition}"'), read).verdict.value == verdict


@pytest.mark.parametrize("limits", [{}, {"eps": 0.25}, {"max_phi": 3.0}, {"eps": 0.125, "max_phi": 2.5}])
@pytest.mark.parametrize("heads", [[(0,), (1,)], [(0,), (0,)]])
def test_a_certificate_is_of_the_limits_that_were_asked_for(heads, limits):
    parts, read = certificates_of(hard((4,), heads), (4,), [(0,), (1,)], "interior", **limits)
    found = recheck_span("".join(parts), read)
    assert found.verdict is Verdict.HOLDS
    said = "".join(f", {name}={value}" for name, value in limits.items()).replace(".0", "")
    assert all(each.found.partition("confirmed")[2] == said for each in found.certificates)
