"""Attention that is declared exact is decided with no tolerance, and every decision is confirmed in fractions."""

from fractions import Fraction

import numpy as np
import pytest
from attentions import EVERY, hard
from checker import confirms_dual
from commands import call
from span.cases import boxes as heads_of_e2
from span.cases import fractions, weights

from conv2attn import check_span
from conv2attn.verdicts import Strength, Verdict

HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED


def boxes():
    """The heads of E2 (c) as weights."""
    return weights(heads_of_e2())


@pytest.mark.parametrize("query", [40, 78])
def test_a_query_far_behind_the_equations_that_were_solved_is_not_passed_over(query):
    heads = np.tensordot(np.array([[3, 1], [1, 3]]) / 4, hard((80,), [(0,), (1,)]), 1)
    offsets = [(0,), (1,)]
    assert check_span(heads, offsets=offsets, grid=(80,), exact=True).verdict is HOLDS
    heads[0, query] = np.roll(heads[0, query], -1)
    report = check_span(heads, offsets=offsets, grid=(80,), exact=True)
    assert report.verdict is REFUTED
    assert report.strength is Strength.PROVED
    assert query in report.rows[0].deciding.targets[0].dual_rows


def test_a_weight_that_no_float_holds_is_not_passed_over():
    heads = fractions(np.eye(5, dtype=np.int64)[None])
    heads[0, 2, 2:4] = 1 - Fraction(1, 10**400), Fraction(1, 10**400)
    row = check_span(heads, 1, grid=(5,), condition=EVERY).rows[0]
    assert [each.verdict for each in row.conditions] == [REFUTED] * 3
    assert check_span(heads, 1, grid=(5,), eps=1e-9).verdict is HOLDS


@pytest.mark.parametrize("exact", [False, True])
def test_every_offset_of_hard_heads_is_decided_beside_one_that_is_refuted(exact):
    # three copies of one head: least squares has thirds, and leaves a little more than nothing
    heads = np.repeat(np.eye(3, dtype=int)[None], 3, 0)
    given = {"offsets": [(0,), (1,)], "grid": (3,), "exact": exact, "eps": 0, "condition": "per-query"}
    printed = check_span(heads, **given).rows[0].deciding
    assert [(target.verdict, target.strength) for target in printed.targets] == [
        (HOLDS, Strength.PROVED),
        (REFUTED, Strength.PROVED),
    ]


def test_a_phi_beyond_the_bound_is_looked_at_again():
    heads = fractions(np.array([[[101, 99], [99, 101]], [[99, 101], [101, 99]]]))
    needed = check_span(heads, 1, grid=(2,), condition="joint").rows[0].deciding
    assert (needed.verdict, needed.norm) == (HOLDS, 100)
    assert check_span(heads, 1, grid=(2,), max_phi=100).verdict is HOLDS
    assert check_span(heads, 1, grid=(2,), max_phi=99).verdict is REFUTED
    assert check_span(heads, 1, grid=(2,), max_phi=99, eps=0.5).verdict is HOLDS


def test_a_null_vector_refutes_no_residual_that_is_large_enough():
    # y = (-9, 1) meets no head and -9 times what is asked for: a residual of 1 at the query, not of 9
    tenths = np.array([[[1, 9], [9, 1]]])
    joint = check_span(tenths, 1, grid=(2,), exact=True, eps=0.99, condition="joint").rows[0].deciding
    assert joint.verdict is REFUTED
    assert confirms_dual([[[1, 9]]], [{0: 1}], {0: [9, -1]}, 0.99, 10**9)
    assert not confirms_dual([[[1, 9]]], [{0: 1}], {0: [9, -1]}, 1, 10**9)
    assert not confirms_dual([[[1, 9]]], [{}], {0: [9, -1]}, 0, 10**9)


def test_exact_arrays_from_the_command_line(tmp_path):
    np.save(tmp_path / "boxes.npy", boxes())
    np.save(tmp_path / "thirds.npy", fractions(boxes()).astype(float))
    common = ["--grid", "6", "--kernel-size", "1", "--condition", "per-query", "--exact"]
    result = call("check-span", str(tmp_path / "boxes.npy"), *common)
    assert (result.exit_code, "1 holds" in result.stdout) == (0, True)
    refused = call("check-span", str(tmp_path / "thirds.npy"), *common)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "leave out --exact" in refused.stderr


def test_the_floats_of_exact_rows_decide_nothing():
    heads = fractions(np.eye(5, dtype=np.int64)[None])
    heads[0, 2, 2:4] = 1 - Fraction(1, 10**60), Fraction(1, 10**60)
    assert check_span(heads, 1, grid=(5,), eps=1.2e-60).verdict is UNDECIDED
    assert check_span(heads, 1, grid=(5,), eps=2.2e-60).strength is Strength.PROVED
