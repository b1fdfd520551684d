"""Each licence over its whole domain: the function gives what is proved, and each wrong function does not somewhere."""

import importlib
import os
from functools import reduce

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import NoSuchExample
from licences import encodings, geometry, layers, leaks, rounding, softmaxes, spans, thresholds
from licences.domains import edges
from licences.planted import plants

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
    assert all(str(claim.licenses[name]).strip() for claim in CLAIMS for name in claim.licenses)


@pytest.mark.parametrize("claimed", LICENCES, ids=":".join)
def test_the_licensed_function_is_what_is_proved(claimed):
    licence, function = LICENCES[claimed], resolve(claimed[1])

    @settings(max_examples=licence.examples, **QUICK)
    @given(licence.cases)
    def law(case):
        assert licence.agrees(function, case)

    law()


DOMAINS = [claimed for claimed, licence in LICENCES.items() if licence.domain]


@pytest.mark.parametrize("claimed", DOMAINS, ids=":".join)
def test_it_is_so_at_every_edge_of_its_domain(claimed):
    licence, function = LICENCES[claimed], resolve(claimed[1])
    assert str(licence.domain) == str(load(claimed[0], NAMES).licenses[claimed[1]])
    for case in edges(licence.domain):
        assert licence.agrees(function, licence.shape(*case)), case


FIELDS = ("factor", "absolute")
GENERATED = [
    (claimed, name, wrong)
    for claimed in DOMAINS
    for fields in [FIELDS if "mixing_bound" in claimed[1] or "convolution_bound" in claimed[1] else (None,)]
    for name, wrong in plants(resolve(claimed[1]), LICENCES[claimed].domain, fields).items()
]
SHARE = GENERATED[:: max(1, len(GENERATED) // 100)][:100]


def is_seen(claimed, wrong):
    """Whether a case of the domain, an edge or a drawn one, shows that a generated function is wrong."""
    licence = LICENCES[claimed]
    if any(differs(licence, wrong, licence.shape(*case)) for case in edges(licence.domain)):
        return True
    try:
        find(licence.cases, lambda case: differs(licence, wrong, case), settings=settings(
            max_examples=200, phases=[Phase.generate], **QUICK))  # fmt: skip
    except NoSuchExample:
        return False
    return True


@pytest.mark.parametrize("planted", SHARE[3::11], ids=lambda planted: f"{planted[0][1]}: {planted[1]}")
def test_a_share_of_the_generated_plants_is_seen(planted):
    assert is_seen(planted[0], planted[2])


@pytest.mark.slow
@pytest.mark.skipif("CONV2ATTN_MUTANTS" not in os.environ, reason="run by make mutants")
def test_of_100_generated_plants_95_are_seen():
    missed = [f"{claimed[1]}: {name}" for claimed, name, wrong in SHARE if not is_seen(claimed, wrong)]
    assert len(SHARE) == 100
    assert len(missed) <= 5, missed


@pytest.mark.parametrize("planted", MUTANTS, ids=":".join)
def test_a_wrong_function_is_seen(planted):
    claim, name, mutant = planted
    licence = LICENCES[claim, name]
    assert find(
        licence.cases,
        lambda case: differs(licence, licence.mutants[mutant], case),
        settings=settings(max_examples=6 * licence.examples, phases=[Phase.generate], **QUICK),
    )


def differs(licence, function, case):
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
        find(licence.cases, lambda case: differs(licence, resolve("conv2attn.basis.Sites.without_stride"), case),
             settings=settings(max_examples=20, **QUICK))  # fmt: skip


def test_a_name_that_does_not_resolve_is_an_error():
    with pytest.raises(AttributeError):
        resolve("conv2attn.bounds.no_such_bound")
