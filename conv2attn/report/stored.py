"""JSON documents whose types are their schema: a report is checked against them before it is written."""

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


def schema_of(kind: type[Stored]) -> dict[str, Any]:
    """The JSON Schema of a document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
