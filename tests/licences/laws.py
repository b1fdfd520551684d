"""Each licence over its whole domain: the function gives what is proved, and each wrong function does not somewhere."""

import importlib
from functools import reduce

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import NoSuchExample
from licences import encodings, geometry, layers, leaks, rounding, softmaxes, spans, thresholds

from conv2attn.errors import Conv2AttnError
from proofs import CLAIMS as NAMES
from proofs.deciding import load

CLAIMS = [load(name, NAMES) for name in NAMES]
CLAIMED = [(claim.name, name) for claim in CLAIMS for name in claim.licenses]
LICENCES = {
    (claim, f"conv2attn.{name}"): licence
    for module in (encodings, geometry, layers, leaks, rounding, softmaxes, spans, thresholds)
    for (claim, name), licence in module.LICENCES.items()
}
MUTANTS = [(*licence, mutant) for licence, checked in LICENCES.items() for mutant in checked.mutants]
QUICK = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


def resolve(name):
    """The object with this full name: the longest importable module, then attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[end:], found)
    raise ModuleNotFoundError(name)


def test_every_licence_is_checked_and_nothing_else():
    assert set(LICENCES) == set(CLAIMED)
    assert all(claim.licenses[name].strip() for claim in CLAIMS for name in claim.licenses)


@pytest.mark.parametrize("claimed", LICENCES, ids=":".join)
def test_the_licensed_function_is_what_is_proved(claimed):
    licence, function = LICENCES[claimed], resolve(claimed[1])

    @settings(max_examples=licence.examples, **QUICK)
    @given(licence.cases)
    def law(case):
        assert licence.agrees(function, case)

    law()


@pytest.mark.parametrize("planted", MUTANTS, ids=":".join)
def test_a_wrong_function_is_seen(planted):
    claim, name, mutant = planted
    licence = LICENCES[claim, name]
    assert find(
        licence.cases,
        lambda case: wrong(licence, licence.mutants[mutant], case),
        settings=settings(max_examples=6 * licence.examples, phases=[Phase.generate], **QUICK),
    )


def wrong(licence, function, case):
    """Whether a function disagrees on a case, or refuses it."""
    try:
        return not licence.agrees(function, case)
    except Conv2AttnError:
        return True


def test_each_licence_has_a_mutant_for_each_branch():
    assert min(len(licence.mutants) for licence in LICENCES.values()) >= 3


def test_a_right_function_is_not_taken_for_a_wrong_one():
    licence = LICENCES["STR", "conv2attn.basis.Sites.without_stride"]
    with pytest.raises(NoSuchExample):
        find(licence.cases, lambda case: wrong(licence, resolve("conv2attn.basis.Sites.without_stride"), case),
             settings=settings(max_examples=20, **QUICK))  # fmt: skip


def test_a_name_that_does_not_resolve_is_an_error():
    with pytest.raises(AttributeError):
        resolve("conv2attn.bounds.no_such_bound")
