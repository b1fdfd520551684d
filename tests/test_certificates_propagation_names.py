"""Every function that has a rule, by its name: torch has it, and what the rule takes it for."""

import pytest
import torch

from conv2attn.bounds import activations as known
from conv2attn.certificates.propagation import carrier, rules
from conv2attn.certificates.propagation.activation_rules import PLAIN
from conv2attn.certificates.propagation.rules import RULES, functions_called


@pytest.fixture
def registered(monkeypatch):
    """The names for which rules are registered when the modules are run, by module."""
    given = {}

    def noting(*names):
        given[module.__name__] += names
        return lambda function: function

    monkeypatch.setattr(rules, "rule", noting)
    monkeypatch.setitem(RULES, torch.batch_norm, None)
    for module in carrier.WITH_RULES:
        given[module.__name__] = []
        exec(module.__loader__.get_code(module.__name__), {"__name__": module.__name__})
    return given


def test_torch_has_a_function_of_every_name_with_a_rule(registered):
    assert {len(names) > 2 for names in registered.values()} == {True}
    for names in registered.values():
        assert [name for name in names if not list(functions_called(name))] == []


def test_no_name_has_two_rules(registered):
    names = [name for each in registered.values() for name in each]
    assert sorted(set(names)) == sorted(names)


def test_a_name_that_torch_has_not_has_no_rule():
    assert list(functions_called("silu_")) == []
    assert "silu_" not in PLAIN


def test_what_plain_functions_are_taken_for():
    for name in ("relu", "relu_", "abs", "absolute", "neg", "negative"):
        assert PLAIN[name] is known.RELU


def test_what_softshrink_leaves_out_is_not_negative():
    """Else it would jump."""
    with pytest.raises(RuntimeError, match="lambda must be"):
        torch.nn.functional.softshrink(torch.ones(1), -0.5)
