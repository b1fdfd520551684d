"""Reads schemas of torch's operators: the name, and the arguments by name."""

from collections.abc import Mapping, Sequence
from typing import Any


def base_name(func: Any) -> str:
    """The name of an operator, shared with its in-place variant."""
    name: str = func._schema.name.split("::")[1]
    return name[:-1] if name.endswith("_") and not name.startswith("__") else name


def named_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of an operator by name, with its defaults."""
    parameters = func._schema.arguments
    defaults = {p.name: p.default_value if p.has_default_value() else None for p in parameters}
    return {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}
