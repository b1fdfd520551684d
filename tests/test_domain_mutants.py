"""Every domain mutant is killed by the test named for it, which the suite runs on the package as it is."""

import pytest
from conftest import SHARES, is_run
from mutants import MUTANTS, outcome


@pytest.mark.slow
@pytest.mark.rotated
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_killed(name):
    assert outcome(MUTANTS[name]) == 1


def test_an_error_that_is_none_kills_nothing():
    """So a test fails by the error, and not by how it is run."""
    mutant = MUTANTS["a bit less of a float"]
    assert outcome(mutant._replace(new=mutant.old)) == 0


@pytest.mark.parametrize("first", [739_000, 739_001])
def test_a_rotated_test_runs_on_one_day_of_four(first):
    """The planted error, days that are not counted, runs some never."""
    days = [[place for place in range(21) if is_run(place, day)] for day in range(first, first + SHARES)]
    assert sorted(place for each in days for place in each) == [*range(21)]
    assert {len(each) for each in days} == {5, 6}


@pytest.mark.parametrize("cases", [1, 2, 3, 4, 9])
def test_one_case_of_a_rotated_test_runs_on_each_day(cases):
    """The planted error, a day of four for each, leaves tests of three cases out on some days."""
    days = [[place for place in range(cases) if is_run(place, day, cases)] for day in range(SHARES)]
    assert all(days)
    assert {place for each in days for place in each} == {*range(cases)}


def test_there_are_enough_mutants_and_all_are_different():
    assert len(MUTANTS) >= 40
    assert all(mutant.old != mutant.new for mutant in MUTANTS.values())
    assert len({mutant[:3] for mutant in MUTANTS.values()}) == len(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_finds_the_code_that_it_changes(name):
    assert MUTANTS[name].path.read_text().count(MUTANTS[name].old) == 1
