"""Each licence over its whole domain: the function gives what is proved, and each wrong function does not somewhere."""

import contextlib
import importlib
import inspect
import math
from functools import reduce
from typing import get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import NoSuchExample
from licences import encodings, geometry, layers, leaks, rounding, softmaxes, spans, thresholds
from licences.domains import DOMAINS, cases, edges, ends, lengths
from licences.planted import plants

from conv2attn.errors import Conv2AttnError
from conv2attn.theory import bounds
from conv2attn.theory.bounds import WITHOUT_THEOREM, Claimed, RoundingBound
from proofs import CLAIMS

LICENCES = {
    (claim, f"conv2attn.{name}"): licence
    for module in (encodings, geometry, layers, leaks, rounding, softmaxes, spans, thresholds)
    for (claim, name), licence in module.LICENCES.items()
}
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
    assert set(LICENCES) == set(DOMAINS)


def drawn(claimed):
    return cases(DOMAINS[claimed])


@pytest.mark.parametrize("claimed", LICENCES, ids=":".join)
def test_the_licensed_function_is_what_is_proved(claimed):
    licence, function = LICENCES[claimed], resolve(claimed[1])

    @settings(max_examples=licence.examples, **QUICK)
    @given(drawn(claimed))
    def law(case):
        assert licence.agrees(function, licence.shape(*case))

    law()


@pytest.mark.parametrize("claimed", LICENCES, ids=":".join)
def test_it_is_so_at_every_edge_of_its_domain(claimed):
    licence, function = LICENCES[claimed], resolve(claimed[1])
    for case in edges(DOMAINS[claimed]):
        assert licence.agrees(function, licence.shape(*case)), case


@pytest.mark.parametrize("claimed", LICENCES, ids=":".join)
def test_every_edge_of_every_part_is_among_the_cases(claimed):
    parts, tried = list(DOMAINS[claimed].all.values()), edges(DOMAINS[claimed])
    for at, part in enumerate(parts):
        both = [ends(part, {of: each[which] for of, each in lengths(parts).items()}) for which in (0, 1)]
        assert leaves(tuple(map(tuple, both))) <= leaves(tuple(case[at] for case in tried))


def leaves(value):
    """All that a value is made of."""
    return set().union(*map(leaves, value)) if type(value) is tuple else {value}


BOUNDS = {"bounds": (None,), "mixing_bound": ("factor", "absolute"), "convolution_bound": ("factor", "absolute")}
HARMLESS = {
    "L2b": (
        "eps ignored beyond",
        "eps half",
        "dimensions",
        "result less",
    ),  # an inequality far from sharp; L2c has the leak itself
    "GQ": ("skew",),  # a quadratic form has no part that is not symmetric
    "PAD": ("offsets reversed", "offsets ignored below"),  # one padding for all heads, whatever their order
    "ROW": ("shifts reversed", "keys reversed", "keys ignored below"),  # sums over axes; one key has no rivals
    "SOFT": ("exp_ulps ignored below",),  # the least error of exp moves no threshold by a number of its format
    "L3": ("exact",),  # how floats are read changes no verdict on whole numbers
    "L3p": ("exact",),
    "HEADS": ("kernel reversed",),  # taps are counted
}
"""By claim the first words of generated functions that are right, or whose errors a claim does not speak of."""


def is_seen(claimed, agrees):
    """Whether a case of the domain, an edge or a drawn one, shows that a generated function is wrong."""
    if any(fails(agrees, case) for case in edges(DOMAINS[claimed])):
        return True
    try:
        find(drawn(claimed), lambda case: fails(agrees, case), settings=settings(
            max_examples=200, phases=[Phase.generate], **QUICK))  # fmt: skip
    except NoSuchExample:
        return False
    return True


def fails(agrees, case):
    """Whether a plant disagrees on a case, refuses it, overflows, or gives tensors of other shapes."""
    try:
        return not agrees(case)
    except (Conv2AttnError, RuntimeError, IndexError, OverflowError):
        return True


@pytest.mark.rotated
@pytest.mark.parametrize("claimed", LICENCES, ids=":".join)
def test_wrong_functions_that_its_domain_generates_are_seen(claimed):
    fields = next((fields for word, fields in reversed(BOUNDS.items()) if word in claimed[1]), ())
    planted = plants(LICENCES[claimed], resolve(claimed[1]), DOMAINS[claimed], fields)
    wrong = {name: agrees for name, agrees in planted.items() if not name.startswith(HARMLESS.get(claimed[0], ()))}
    assert len(wrong) >= 2
    assert [name for name, agrees in wrong.items() if not is_seen(claimed, agrees)] == []


def test_a_name_that_does_not_resolve_is_an_error():
    with pytest.raises(AttributeError):
        resolve("conv2attn.theory.bounds.no_such_bound")


NO_UPPER_BOUNDS = {
    *("auto_alpha", "one_hot_threshold", "target_rounds_to_one_threshold"),
    *("leak_reached", "smallest_eigenvalue_at_least", "down", "up"),
}


def returns(function):
    return get_type_hints(function)["return"]


CLAIMED = [name for name in LICENCES if inspect.isfunction(resolve(name[1])) and returns(resolve(name[1])) in (
    Claimed, RoundingBound)]  # fmt: skip


def test_every_public_bound_names_its_claims():
    public = {name: getattr(bounds, name) for name in bounds.__all__}
    functions = {name: each for name, each in public.items() if callable(each) and not isinstance(each, type)}
    assert {name for name, function in functions.items() if returns(function) is float} == NO_UPPER_BOUNDS


@pytest.mark.parametrize("claimed", CLAIMED, ids=":".join)
def test_a_bound_names_a_claim_whose_domain_accepts_its_arguments(claimed):
    licence, function = LICENCES[claimed], resolve(claimed[1])
    licensed, made = {claim for claim, name in LICENCES if name == claimed[1]}, []

    def noting(*arguments, **options):
        made.append(function(*arguments, **options))
        return made[-1]

    for case in edges(DOMAINS[claimed])[::3]:
        with contextlib.suppress(Conv2AttnError):
            licence.agrees(noting, licence.shape(*case))
    finite = [bound for bound in made if getattr(bound, "factor", bound) < math.inf]  # an infinite one claims nothing
    assert finite
    for bound in finite:
        assert licensed & bound.claims
        assert bound.claims <= {*CLAIMS, WITHOUT_THEOREM}
