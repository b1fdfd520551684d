"""JSON documents whose types are their schema: a report is checked against them before it is written."""

import math
from typing import Any, Literal

import msgspec

Number = float | Literal["inf", "-inf", "nan"]
"""A number; those that JSON does not have are strings."""


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object with exactly these keys."""


def checked(body: dict[str, Any], kind: type[Stored]) -> dict[str, Any]:
    """The body of a report, if it is of its kind.

    Raises:
        ValueError: it is not, which is an error of this program.
    """
    msgspec.convert(body, kind)
    return body


def written(body: dict[str, Any], kind: type[Stored]) -> dict[str, Any]:
    """The plain data of a report, whose parts are read off the attributes that its kind names.

    Raises:
        ValueError: it is not of its kind, which is an error of this program.
    """
    found: dict[str, Any] = finite(msgspec.to_builtins(msgspec.convert(body, kind, from_attributes=True)))
    return found


def finite(item: Any) -> Any:
    """Plain data in which the numbers that JSON does not have are strings."""
    if isinstance(item, dict):
        return {key: finite(each) for key, each in item.items()}
    if isinstance(item, list | tuple):
        return [finite(each) for each in item]
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


def schema_of(kind: type[Stored]) -> dict[str, Any]:
    """The JSON Schema of a document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
