"""The parts of JSON Schema that the published schemas use, in a few lines that share nothing with the product."""

import runpy
from pathlib import Path

import pytest

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
UNDERSTOOD = {
    *("$schema", "$defs", "$ref", "title", "type", "required", "additionalProperties", "properties", "items"),
    *("anyOf", "enum", "description", "discriminator", "default"),
    *("prefixItems", "minItems", "maxItems"),
}


def complaints(value, schema, root=None, where="report"):
    """Complaints of a schema about a value; `root` holds the definitions that it refers to."""
    root = schema if root is None else root
    assert schema.keys() <= UNDERSTOOD, schema.keys() - UNDERSTOOD
    if "$ref" in schema:
        return complaints(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    if "anyOf" in schema:
        return min((complaints(value, option, root, where) for option in schema["anyOf"]), key=len)
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is {value!r}"]
    kind = schema.get("type")
    if kind == "null":
        return [] if value is None else [f"{where} is not null"]
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{where} is no {kind}"]
    if kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return [f"{where} has {len(value)} items"]
        kinds = schema.get("prefixItems") or [schema["items"]] * len(value)
        pairs = enumerate(zip(value, kinds, strict=True))
        parts = [complaints(item, each, root, f"{where}[{i}]") for i, (item, each) in pairs]
        return [each for part in parts for each in part]
    found = []
    if kind == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        found += [f"{where} has no {key}" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            if key in known:
                found += complaints(item, known[key], root, f"{where}.{key}")
            elif others is False:
                found.append(f"{where} has {key}")
            elif isinstance(others, dict):
                found += complaints(item, others, root, f"{where}.{key}")
    return found


def entries(part, path=""):
    """Every entry of a document by its path."""
    if not isinstance(part, dict | list):
        return {path: part}
    places = part.items() if isinstance(part, dict) else enumerate(part)
    return {name: entry for key, each in places for name, entry in entries(each, f"{path}/{key}").items()}


def nearly(part, **tolerances):
    """What equals a document but for the rounding of its floats."""
    return {
        path: pytest.approx(entry, **tolerances) if isinstance(entry, float) else entry
        for path, entry in entries(part).items()
    }


def json_schema_of(kind):
    """The schema that is published of a document of this type, by the code that writes it."""
    return runpy.run_path(str(Path(__file__).parents[1] / "docs" / "generate.py"))["json_schema_of"](kind)
