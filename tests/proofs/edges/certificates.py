"""Certificates of a span: the twin in Python and the proved checker answer alike, and near misses are refused."""

import shutil
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs.certificates import NotACertificateError, answers, written
from proofs.formal import extraction

SAMPLES = sorted(extraction.SAMPLES.glob("*.txt"))
REFUSED = sorted(extraction.REFUSED.glob("*.txt"))
HEADS = [[[Fraction(x, 9) for x in row] for row in rows] for rows in ([[6, 3], [3, 6]], [[3, 6], [1, 8]])]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_confirmed_and_their_corruptions_refused(path):
    assert set(answers(path.read_text())) == {True}
    changed = extraction.corrupted(path.read_text())
    assert changed
    assert not any(all(answers(text)) for text in changed)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_with_the_opposite_sign_are_refused(path):
    two = path.read_text() * 2
    assert answers(extraction.turned(two)) == [False, False]
    assert extraction.turned("1 0 1 1 1 1\n9 0 -1 1\n1 0\n1\n1\n") == "\n"  # weights that are all zero


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_counts_beyond_the_file_and_other_white_space_are_refused(path):
    with pytest.raises(NotACertificateError):
        answers(path.read_text())


def test_integers_of_any_length_are_read():
    nines = "9" * 5000
    assert answers(f"1 0 1 1 1 {nines}\n0 0 -1 1\n1 1\n{nines}\n{nines}\n") == [True]


@pytest.mark.parametrize("text", ["1", "1 2 1 1 1 1 0 0 -1 1", "2 0 1 1 1 1 0 0 -1 1", "1 0 1 1 1 x", "1 0 1.5", "²"])
def test_what_is_no_certificate_is_said_to_be_none(text):
    with pytest.raises(NotACertificateError):
        answers(text)


def test_every_file_cut_short_is_no_certificate():
    words = SAMPLES[0].read_text().split("\n", 1)[1].split()
    for length in range(1, len(words)):
        with pytest.raises(NotACertificateError):
            answers(" ".join(words[:length]))


def test_denominators_must_be_positive_and_the_rate_not_negative():
    for header in ("1 0 1 1 1 0\n0 0 -1 1\n1 1", "1 0 1 1 1 1\n0 0 -1 0\n1 1", "1 0 1 1 1 1\n9 -1 -1 1\n1 1"):
        assert answers(f"{header}\n1\n1\n") == [False]
    assert answers("1 0 1 1 1 1\n0 0 -1 1\n0 1\n1\n0\n") == [False]


def test_a_certificate_has_weights_or_a_dual_vector():
    for both in ({}, {"weights": [1], "dual": [[1]]}):
        with pytest.raises(ValueError, match="either"):
            written([({0: 1}, [[1]])], **both)


def test_dyadic_floats_are_the_rationals_that_they_are():
    third = float(Fraction(1, 3))
    rows = [({0: 1.0}, [[third, 1 - third]])]
    assert answers(written(rows, weights=[1], eps=2 * (1 - third))) == [True]
    assert answers(written(rows, weights=[1], eps=2 * (1 - third) - 2.0**-52)) == [False]


@st.composite
def certificates(draw):
    heads, queries, keys = (draw(st.integers(1, 2)) for _ in range(3))
    small = st.integers(-2, 2)
    kind, bound = draw(st.integers(0, 1)), draw(st.integers(-1, 3))
    head = [1, kind, heads, queries, keys, draw(st.integers(0, 2)), draw(small), draw(st.integers(-1, 1)), bound]
    head += [draw(st.integers(0, 2))]
    weights = [] if kind else [draw(st.integers(0, 2)), *draw(st.lists(small, min_size=heads, max_size=heads))]
    count = queries * keys * (1 + heads + kind)
    return " ".join(map(str, [*head, *weights, *draw(st.lists(small, min_size=count, max_size=count))]))


if shutil.which("coqc") and shutil.which("ocamlfind"):

    @pytest.fixture(scope="module")
    def program(programs):
        return programs[0]

    @pytest.mark.slow
    def test_the_proved_checker_confirms_the_samples_and_refuses_corruptions(program):
        for path in SAMPLES:
            assert set(extraction.answers(program, path.read_text())) == {True}
            assert not any(all(extraction.answers(program, text)) for text in extraction.corrupted(path.read_text()))
        for path in REFUSED:
            assert extraction.answers(program, path.read_text()) == []
        assert extraction.answers(program, "1 0 1 1") == []

    @pytest.mark.slow
    @settings(max_examples=30, deadline=None)
    @given(texts=st.lists(certificates(), min_size=20, max_size=40))
    def test_the_proved_checker_and_its_twin_agree(program, texts):
        assert extraction.answers(program, "\n".join(texts)) == answers("\n".join(texts))

    @pytest.mark.slow
    def test_they_agree_on_every_small_question_about_one_head(program):
        texts = [
            f"1 {kind} 1 1 1 1 {eps} {rate} {bound} 2 {'' if kind else '1 1'} {e} {a} {y if kind else ''}"
            for kind, eps, rate, bound, e, a, y in product((0, 1), (0, 1), (0, 1), (-1, 2), (0, 1), (0, 1), (-1, 1))
        ]
        assert extraction.answers(program, "\n".join(texts)) == answers("\n".join(texts))

else:

    def test_without_coq_the_checker_is_said_to_be_missing(tmp_path):
        with pytest.raises(extraction.ExtractionError, match="missing"):
            extraction.built(tmp_path)
