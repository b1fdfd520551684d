"""Whose code it is that runs: names that Python or torch look up, and tensors that stand where parameters should."""

import types
from typing import Generic, TypeVar

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.basis import Sites
from conv2attn.equivalence.readings.genuine import (
    body,
    foreign,
    home_of,
    is_special,
    methods_in_the_way,
    names_that_torch_looks_up,
)

Kind = TypeVar("Kind")


class Typed(Generic[Kind]):
    """A class to which typing adds methods."""


def anything(*_):
    """A function of this file."""


def test_only_names_that_python_or_torch_looks_up_are_in_the_way():
    names = {"__len__": anything, "__half": anything, "half__": anything, "forward": anything, "unheard_of": anything}
    assert list(methods_in_the_way(type("Odd", (), names)())) == ["__len__", "forward"]


def test_what_cannot_be_called_is_not_in_the_way(monkeypatch):
    monkeypatch.setattr(Sites, "note", Typed(), raising=False)
    assert list(methods_in_the_way(Sites.everywhere(2))) == []


def test_methods_that_typing_adds_are_trusted():
    assert list(methods_in_the_way(Typed())) == []


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_the_body_of_a_method_is_its_function(kind, monkeypatch):
    assert body(kind(anything)) is anything
    assert body(property(anything)) is anything
    assert body(anything) is anything
    monkeypatch.setattr(Sites, "made", kind(anything), raising=False)
    assert list(methods_in_the_way(Sites.everywhere(2))) == ["made"]


def test_special_names_begin_and_end_with_two_underscores():
    assert is_special("__call__") is True
    assert not any(map(is_special, ["call", "_call_", "__call", "call__", "XX__call__"]))


def test_the_names_that_torch_looks_up_are_those_in_all_of_its_code(monkeypatch):
    def elsewhere(self):
        return self.unheard_of

    monkeypatch.setattr(nn.Module, "harmless", elsewhere, raising=False)
    found = names_that_torch_looks_up.__wrapped__()
    assert type(found) is frozenset
    assert {type(name) for name in found} == {str}
    assert "forward" in found
    assert "unheard_of" not in found
    codes = [
        f.__code__ for f in map(body, vars(nn.Module).values()) if home_of(f) == "torch" and hasattr(f, "__code__")
    ]
    outside = {name for code in codes for name in code.co_names}
    inside = {n for code in codes for c in code.co_consts if isinstance(c, types.CodeType) for n in c.co_names}
    texts = {const for code in codes for const in code.co_consts if isinstance(const, str)}
    assert inside - outside - texts
    assert texts - outside - inside
    assert outside | inside | texts <= found


def test_what_others_add_to_torch_under_a_name_of_their_own_is_no_matter(monkeypatch):
    monkeypatch.setattr(nn.Module, "unheard_of", anything, raising=False)
    attention = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1))
    assert foreign(attention) == ""
    monkeypatch.setattr(nn.Module, "__getattribute__", lambda self, name: object.__getattribute__(self, name))
    assert foreign(attention) == "__getattribute__ was replaced"


def test_a_parameter_that_is_not_registered_is_told():
    attention = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1))
    attention.__dict__["extra"] = nn.Parameter(torch.ones(1))
    assert foreign(attention) == "extra is a Parameter, not a parameter"
