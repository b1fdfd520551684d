"""Dataclasses and structures of every room: frozen, compared by identity where they hold tensors, and printed as
reports are."""

import importlib
import pkgutil
import re
from dataclasses import fields, is_dataclass

import msgspec
import pytest

import conv2attn
from conv2attn.report import Report, Result

ROOMS = [each.name for each in pkgutil.iter_modules(conv2attn.__path__, "conv2attn.") if each.ispkg]
FILLED = {
    "equality": {"LayerPair", "Measured"},
    "lab": {"Progress"},
    "networks": {"Attended", "AttentionRecord", "Response", "Running"},
    "span": {"Search"},
}  # fmt: skip
"""Those that are not frozen: they are filled step by step while a network runs or a question is decided."""


def classes(room):
    """The classes that the modules of a room define."""
    found = pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}.")
    modules = [importlib.import_module(each.name) for each in found if not each.name.endswith("__main__")]
    kinds = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    return {kind for kind in kinds if kind.__module__.startswith(f"{room}.")}


def dataclasses(room):
    """The dataclasses of a room."""
    return {kind for kind in classes(room) if is_dataclass(kind)}


def structures(room):
    """The structures of a room, of which documents are made."""
    return {kind for kind in classes(room) if issubclass(kind, msgspec.Struct)}


@pytest.mark.parametrize("room", ROOMS)
def test_dataclasses_are_frozen_but_for_those_that_are_filled(room):
    filled = {kind.__name__ for kind in dataclasses(room) if not kind.__dataclass_params__.frozen}
    assert filled == FILLED.get(room.rpartition(".")[2], set())


@pytest.mark.parametrize("room", ROOMS)
def test_structures_are_frozen_and_those_that_hold_tensors_are_compared_by_identity(room):
    for kind in structures(room):
        assert kind.__struct_config__.frozen, kind
        if any("ndarray" in str(field.type) for field in msgspec.structs.fields(kind)):
            assert not kind.__struct_config__.eq, kind


@pytest.mark.parametrize("room", ROOMS)
def test_dataclasses_that_hold_tensors_are_compared_by_identity(room):
    """The truth of an equality of tensors is an error."""
    for kind in dataclasses(room):
        if any(re.match(r"(tuple\[)?[\w.]*(Tensor|ndarray|Weights)\b", str(field.type)) for field in fields(kind)):
            assert kind.__eq__ is object.__eq__, kind


@pytest.mark.parametrize("room", ROOMS)
def test_dataclasses_that_are_filled_are_compared_by_identity(room):
    """Equal ones would be two as soon as one is filled further, and have no hash."""
    assert [kind for kind in dataclasses(room) if kind.__hash__ is None and not kind.__dataclass_params__.frozen] == []


@pytest.mark.parametrize("room", ROOMS)
def test_reports_print_as_reports(room):
    for kind in dataclasses(room):
        assert not issubclass(kind, Report) or kind.__repr__ is Report.__repr__, kind


DERIVED = {"verdict", "strength", "exit_code", "claim", "summary"}


@pytest.mark.parametrize("room", ROOMS)
def test_reports_derive_their_verdicts_and_store_none(room):
    """A verdict that is stored is stale once a copy has other findings."""
    for kind in classes(room):
        if issubclass(kind, Report):
            structure = getattr(kind, "__struct_fields__", ())
            assert DERIVED.isdisjoint([each.name for each in fields(kind)] if is_dataclass(kind) else structure), kind


DERIVED = {"verdict", "strength", "exit_code", "claim"}


def stored(kind):
    """The names of the fields that a dataclass or a structure stores."""
    if is_dataclass(kind):
        return {field.name for field in fields(kind)}
    return {field.name for field in msgspec.structs.fields(kind)} if issubclass(kind, msgspec.Struct) else set()


def is_result(kind):
    """Whether callers get values of this class as an answer: reports, and classes that derive a verdict."""
    return issubclass(kind, Report | Result) or isinstance(vars(kind).get("verdict"), property)


def test_the_answers_derive_their_verdicts():
    answers = {kind for room in ROOMS for kind in classes(room) if is_result(kind)}
    assert {"Certificate", "SpanReport"} <= {k.__name__ for k in answers}
    assert {kind: names for kind in answers if (names := stored(kind) & DERIVED)} == {}


def test_a_verdict_that_is_stored_is_seen():
    class Planted(Result, frozen=True):
        verdict: str

    assert is_result(Planted)
    assert stored(Planted) & DERIVED == {"verdict"}
