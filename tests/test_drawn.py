"""Every public function of layers and theory has a drawn property: one that notices answers to other questions."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from licences.domains import DOMAINS

from conv2attn.theory.bounds import gamma

TESTS = Path(__file__).parent
FRONTS = ("", ".layers.attention", ".layers.framework", ".layers.theorem", ".theory.basis", ".theory.bounds")
PUBLIC = {
    function
    for front in (import_module(f"conv2attn{front}") for front in FRONTS)
    for function in (getattr(front, name) for name in front.__all__)
    if callable(function) and not inspect.isclass(function)
    if getattr(function, "__module__", "").startswith(("conv2attn.layers.", "conv2attn.theory."))
}
LICENSED = {name.rpartition(".")[2] for _, name in DOMAINS}
"""Functions that tests/licences/laws.py draws the arguments of, each beside wrong functions that it has to notice."""


def properties():
    """Every test of these folders whose arguments are all drawn."""
    import_module("real.conftest")  # timm needs torchvision, which may be there for another torch
    for folder in ("layers", "theory", "real"):
        for file in sorted((TESTS / folder).rglob("*.py")):
            if "@given" in file.read_text():
                module = import_module(".".join(file.relative_to(TESTS).with_suffix("").parts))
                tests = [each for name, each in vars(module).items() if name.startswith("test_")]
                yield from (each for each in tests if hasattr(each, "hypothesis") and is_drawn(each))


def is_drawn(test):
    return not inspect.signature(test).parameters


class Noticed(BaseException):
    """Ends a run of hypothesis at once: no smaller example is looked for."""


def notices(test, name):
    """Whether a property fails where the function answers as at its first call, or as it did half as many calls ago.

    An error of another kind does not count: whoever only runs a function meets these as well.
    """
    return any(notices_answers(test, name, share) for share in (0, 0.5))


def notices_answers(test, name, share):
    """Whether it fails where the answer is that of a call so far back: 0 is the first, 1 the present one."""
    inner, answers = test.hypothesis.inner_test, []
    names = inspect.unwrap(inner).__globals__
    right = names[name]

    def late(*args, **options):
        answers.append(right(*args, **options))
        return answers[int(share * (len(answers) - 1))]

    def watched(*args, **options):
        try:
            inner(*args, **options)
        except AssertionError:
            raise Noticed from None
        except HypothesisException:
            raise
        except Exception:
            return

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(names, name, late)
        patched.setattr(test.hypothesis, "inner_test", watched)
        try:
            test()
        except Noticed:
            return True
    return False


def uses(test, function):
    inner, name = inspect.unwrap(test.hypothesis.inner_test), function.__name__
    return inner.__globals__.get(name) is function and re.search(rf"\b{name}\(", inspect.getsource(inner))


@pytest.fixture(scope="module")
def drawn():
    return list(properties())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", sorted(PUBLIC, key=lambda each: each.__name__), ids=lambda each: each.__name__)
def test_a_public_function_has_a_drawn_property(function, drawn):
    name = function.__name__
    assert name in LICENSED or any(notices(test, name) for test in drawn if uses(test, function))


def test_a_property_that_only_runs_a_function_is_none():
    """Planted: beside a property that compares."""

    @given(st.integers(1, 9))
    def runs(operations):
        assert gamma(operations, 2.0**-24) > 0

    @given(st.integers(1, 9))
    def compares(operations):
        assert gamma(operations, 2.0**-24) >= operations * 2.0**-24

    assert not notices(runs, "gamma")
    assert notices(compares, "gamma")
