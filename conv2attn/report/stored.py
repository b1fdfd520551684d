"""Reports whose fields are their JSON documents, so that the schema follows from the type."""

import math
from abc import ABCMeta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from conv2attn.report.result import Report

if TYPE_CHECKING:
    Number = float
else:
    Number = float | Literal["inf", "-inf", "nan"]  # those that JSON does not have are strings in a document


def finite(item: Any) -> Any:
    """Plain data in which infinities and NaN are strings, since JSON has no such numbers."""
    if isinstance(item, dict):
        return {key: finite(each) for key, each in item.items()}
    if isinstance(item, list | tuple):
        return [finite(each) for each in item]
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a document."""
    schema = msgspec.json.schema(kind, schema_hook=lambda _: {"type": "null"})
    for each in schema["$defs"].values():
        if "properties" in each:
            each["required"] = [*each["properties"]]  # a result writes all of its fields
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a result: its fields are the keys of its document."""


class ResultMeta(msgspec.StructMeta, ABCMeta):
    """The metaclass of a report that is a msgspec structure."""


class Result(msgspec.Struct, Report, metaclass=ResultMeta, frozen=True, forbid_unknown_fields=True):
    """A report whose fields are the keys of its document; tensors are left out of it."""

    __repr__ = Report.__repr__

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the fields."""
        fields: dict[str, Any] = finite(msgspec.to_builtins(self, enc_hook=left_out))
        return fields


def left_out(item: Any) -> None:
    """Replaces tensors by None in a document."""
