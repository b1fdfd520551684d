"""The list of an atlas: its models, what is asked of each, and the thresholds of all."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from conv2attn.ecosystems import unknown_path
from conv2attn.errors import CheckpointError

SCHEMA = "conv2attn.atlas/2"
REQUIRED = {"name", "kind", "source"}
FIELDS: dict[str, Any] = {
    **dict.fromkeys(("name", "kind", "source", "inputs", "licence", "data", "note"), str),
    "arguments": dict,
    "only": str | list,
    "grid": str | list,
    "twin": bool,
    "positional": bool,
    "replace": bool,
}
"""The fields of a model, with their kinds in TOML."""
NUMBER = int | float
THRESHOLDS: dict[str, Any] = {**dict.fromkeys(("shift", "partial", "convolution", "early"), NUMBER), "kernels": list}
WORDS = {
    str: "a text",
    dict: "a table",
    bool: "true or false",
    list: "a list",
    str | list: "a text or a list",
    NUMBER: "a number from 0 to 1",
}
EXAMPLE = "See examples/atlas/atlas.toml."


@final
@dataclass(frozen=True)
class Entry:
    """One model of the list, trained or its untrained twin."""

    folder: Path
    fields: Mapping[str, Any]
    trained: bool

    @property
    def name(self) -> str:
        """The name; a twin's ends in "(untrained)"."""
        return str(self.fields["name"]) + ("" if self.trained else " (untrained)")

    @property
    def key(self) -> str:
        """The name of its file."""
        plain = "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())
        return "-".join(filter(None, plain.split("-")))

    @property
    def digest(self) -> str:
        """A hash of entry, schema and files of factories; a result with another digest is measured again."""
        text = json.dumps([SCHEMA, dict(self.fields), self.trained], sort_keys=True, default=str)
        files = {str(self.fields[field]).split(":")[0] for field in ("source", "inputs") if field in self.fields}
        parts = [(self.folder / each).read_bytes() for each in sorted(files) if each.endswith(".py")]
        return hashlib.sha256(b"\0".join([text.encode(), *parts])).hexdigest()[:16]


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value of TOML is of a kind of `WORDS`."""
    return isinstance(value, kind) and (kind is not NUMBER or (not isinstance(value, bool) and 0 <= value <= 1))


def objection(table: Mapping[str, Any], kinds: Mapping[str, Any], needed: Set[str]) -> str:
    """What is wrong with a table of TOML: a field that is missing, not known, or of another kind; "" for nothing."""
    for field in sorted(needed - table.keys()):
        return f"has no {field}"
    for field, value in table.items():
        if field not in kinds:
            return f"has a field {field!r}, which is none of {', '.join(sorted(kinds))}"
        if not is_of(value, kinds[field]):
            return f"has {field} = {value!r}, which is not {WORDS[kinds[field]]}"
    return ""


def entries_of(path: Path) -> tuple[list[Entry], dict[str, Any]]:
    """The models of a list, each followed by its twin, and the thresholds.

    Raises:
        CheckpointError: the file is missing (C2A301), or is not a list of models (C2A303).
    """
    try:
        listing = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise unknown_path(str(path)) from error
    except UnicodeDecodeError as error:
        raise CheckpointError("C2A303", f"{path} is no text file", EXAMPLE) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CheckpointError("C2A303", f"{path} is no TOML file ({error})", "Write [[model]] tables.") from error
    models, thresholds = listing.get("model", []), listing.get("thresholds", {})
    if not (isinstance(models, list) and models and all(isinstance(each, dict) for each in models)):
        raise CheckpointError("C2A303", f"{path} has no [[model]] tables", EXAMPLE)
    if not isinstance(thresholds, dict):
        raise CheckpointError("C2A303", f"thresholds of {path} are no table", EXAMPLE)
    judged = [("[thresholds]", objection(thresholds, THRESHOLDS, THRESHOLDS.keys()))]
    judged += [(f"model {each.get('name')!r}", objection(each, FIELDS, REQUIRED)) for each in models]
    for table, wrong in judged:
        if wrong:
            raise CheckpointError("C2A303", f"{table} of {path} {wrong}", EXAMPLE)
    entries = []
    for each in models:
        entries.append(Entry(path.parent, each, True))
        if ":" in each["source"] and each.get("twin", True):
            entries.append(Entry(path.parent, each, False))
    keys = [each.key for each in entries]
    for each in entries:
        if keys.count(each.key) > 1:
            sentence = f"{path}: two models would be written to {each.key}.json, one of them {each.name!r}"
            raise CheckpointError("C2A303", sentence, "Give it another name.")
    return entries, thresholds
