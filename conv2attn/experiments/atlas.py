"""The atlas: what the heads of many models do, from one list, as a table and a page.

Each model is measured in a process of its own and kept as one JSON file, so that a run resumes; every model that has a
seeded, untrained twin (`seed` of its factory) is measured twice.
"""

import csv
import hashlib
import importlib.util
import io
import json
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.checkpoints import load
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.span import heads

SCHEMA = "conv2attn.atlas/1"
NEEDED = {"name", "kind", "source"}
FIELDS = NEEDED | {"inputs", "arguments", "licence", "data", "note", "only", "grid", "twin", "positional"}
SEED = 0
"""Of the untrained twins."""


@final
@dataclass(frozen=True)
class Entry:
    """One model of the list, trained or its untrained twin."""

    folder: Path
    fields: Mapping[str, Any]
    trained: bool

    @property
    def name(self) -> str:
        """The name, of a twin with what it is."""
        return str(self.fields["name"]) + ("" if self.trained else " (untrained)")

    @property
    def key(self) -> str:
        """The name of its file."""
        plain = "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())
        return "-".join(filter(None, plain.split("-")))

    @property
    def digest(self) -> str:
        """A hash of the entry and of the file of its factories: what was measured for another one is measured anew."""
        told = json.dumps([dict(self.fields), self.trained], sort_keys=True)
        files = {str(self.fields[field]).split(":")[0] for field in ("source", "inputs") if field in self.fields}
        parts = [(self.folder / each).read_bytes() for each in sorted(files) if each.endswith(".py")]
        return hashlib.sha256(b"\0".join([told.encode(), *parts])).hexdigest()[:16]


def entries_of(path: Path) -> tuple[list[Entry], dict[str, Any]]:
    """The models of a list, each followed by its twin, and the thresholds.

    Raises:
        CheckpointError: there is no such file (C2A301), or it is no such list (C2A303).
    """
    try:
        held = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError("C2A301", f"{path} does not exist") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError("C2A303", f"{path} is no TOML file ({error})", "Write [[model]] tables.") from error
    models, thresholds = held.get("model", []), held.get("thresholds", {})
    known = {"shift", "partial", "convolution", "kernels", "early"}
    if not models or thresholds.keys() != known:
        needs = f"{path} needs [[model]] tables, and [thresholds] with {', '.join(sorted(known))}"
        raise CheckpointError("C2A303", needs, "See examples/atlas/atlas.toml.")
    names = [each.get("name") for each in models]
    for each in models:
        if not NEEDED <= each.keys() <= FIELDS or names.count(each["name"]) > 1:
            told = f"{path}: model {each.get('name')!r} needs a name of its own, kind and source, and knows"
            raise CheckpointError("C2A303", f"{told} {', '.join(sorted(FIELDS))}", "See examples/atlas/atlas.toml.")
    found = []
    for each in models:
        found.append(Entry(path.parent, each, True))
        if ":" in each["source"] and each.get("twin", True):
            found.append(Entry(path.parent, each, False))
    return found, thresholds


def atlas(
    path: Path, output: Path, command: str = "", progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measures what is not measured yet, and writes `atlas.json`, `heads.csv` and `index.md` into a folder.

    Returns:
        The whole atlas as plain data; `failed` names the models that could not be measured, with the reason.
    Raises:
        CheckpointError: the list cannot be read, or the folder cannot be written.
    """
    from conv2attn.experiments.atlas_page import page_of

    entries, thresholds = entries_of(path)
    (output / "models").mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    for place, entry in enumerate(entries, 1):
        held = output / "models" / f"{entry.key}.json"
        if held.is_file() and json.loads(held.read_text()).get("digest") == entry.digest:
            progress(f"{place}/{len(entries)} {entry.name}: kept")
            continue
        progress(f"{place}/{len(entries)} {entry.name}")
        asked = [sys.executable, "-m", "conv2attn.experiments.atlas", str(path), str(place - 1), str(held)]
        done = subprocess.run(
            asked, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
        )
        if done.returncode:
            failed[entry.name] = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            progress(f"  failed: {failed[entry.name]}")
    models = [
        json.loads(file.read_text()) for entry in entries if (file := output / "models" / f"{entry.key}.json").is_file()
    ]
    whole = {"schema": SCHEMA, "command": command, "thresholds": thresholds, "models": models, "failed": failed}
    (output / "atlas.json").write_text(
        json.dumps({**whole, "models": [summed(m, thresholds) for m in models]}, indent=1) + "\n"
    )
    (output / "heads.csv").write_text(as_csv(list(rows_of(models))))
    (output / "index.md").write_text(page_of(whole, [summed(m, thresholds) for m in models]))
    return whole


def measured(entry: Entry) -> dict[str, Any]:
    """One model, measured here."""
    torch.manual_seed(SEED)
    seed = {} if entry.trained else {"seed": SEED}
    source, fields = str(entry.fields["source"]), entry.fields
    model: Any = (
        called(entry.folder, source, {**fields.get("arguments", {}), **seed})
        if ":" in source
        else load(entry.folder / source)
    )
    inputs = called(entry.folder, fields["inputs"], {}) if "inputs" in fields else None
    grid = None
    if fields.get("grid") == "line":
        grid = (next(iter(model.values())).shape[-1],)
    elif "grid" in fields:
        grid = tuple(fields["grid"])
    report = heads(model, inputs, grid=grid, only=fields.get("only", ()))
    body = report.to_dict()
    weights = model.state_dict() if isinstance(model, nn.Module) else model
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {
        "name": entry.name,
        "model": fields["name"],
        "trained": entry.trained,
        "kind": fields["kind"],
        "positional": bool(fields.get("positional", False)),
        "digest": entry.digest,
        **{key: fields.get(key, "") for key in ("licence", "data", "note", "source")},
        "weights": hashed(weights),
        "inputs": "" if inputs is None else hashed(inputs),
        "versions": versions,
        "layers": body["layers"],
        "exit_code": report.exit_code,
    }


@cache
def run_once(path: Path) -> ModuleType:
    """A file of Python as a module.

    Raises:
        UsageError: it is none (C2A002).
    """
    spec = importlib.util.spec_from_file_location("atlas_models", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError("C2A002", f"{path} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(folder: Path, where: str, arguments: Mapping[str, Any]) -> Any:
    """What the function NAME of `file.py:NAME` returns.

    Raises:
        UsageError: there is none (C2A002).
    """
    file, _, name = where.partition(":")
    module = run_once(folder / file)
    if not hasattr(module, name):
        raise UsageError("C2A002", f"{file} has no {name}")
    return getattr(module, name)(**arguments)


def hashed(held: Any) -> str:
    """A SHA-256 of all tensors in nested mappings and sequences, with their names and shapes."""
    found = hashlib.sha256()

    def add(name: str, each: Any) -> None:
        if isinstance(each, Tensor):
            found.update(f"{name} {tuple(each.shape)} {each.dtype}".encode())
            found.update(each.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if each.numel() else b"")
        elif isinstance(each, Mapping):
            for key in each:
                add(f"{name}.{key}", each[key])
        elif isinstance(each, list | tuple):
            for place, item in enumerate(each):
                add(f"{name}.{place}", item)

    add("", held)
    return found.hexdigest()


def summed(model: Mapping[str, Any], thresholds: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of one model: heads of each kind, shift-like heads and convolution-like layers, early and late."""
    layers = [layer for layer in model["layers"] if layer["heads"]]
    early = max(1, round(thresholds["early"] * len(layers)))
    told = {key: model[key] for key in model if key not in ("layers", "digest")}
    every = [(place, head) for place, layer in enumerate(layers) for head in layer["heads"]]
    kinds: dict[str, int] = {}
    for _, head in every:
        kinds[head["kind"]] = kinds.get(head["kind"], 0) + 1
    parts = {
        "all": every,
        "early": [each for each in every if each[0] < early],
        "late": [e for e in every if e[0] >= early],
    }
    counts = {
        part: {
            "heads": len(chosen),
            "shift": sum(head["peak_mass"] >= thresholds["shift"] for _, head in chosen),
            "partial": sum(head["peak_mass"] >= thresholds["partial"] for _, head in chosen),
        }
        for part, chosen in parts.items()
    }
    curves = {}
    for name in ("relative", "absolute", "content", "distance"):
        curves[name] = [mean(layer, name) for layer in layers]
    for size in thresholds["kernels"]:
        found = [next((c for c in layer["convolutions"] if c["kernel_size"] == size), None) for layer in layers]
        curves[f"convolution {size}"] = [None if each is None else each["share"] for each in found]
    names = [layer["name"] for layer in layers]
    unread = {layer["name"]: layer["unread"] for layer in model["layers"] if layer["unread"]}
    return {**told, "layers": names, "unread": unread, "kinds": kinds, "counts": counts, "curves": curves}


def mean(layer: Mapping[str, Any], name: str) -> float | None:
    """The mean of a number over the heads of a layer that have it."""
    values = [head[name] for head in layer["heads"] if head[name] is not None]
    return sum(values) / len(values) if values else None


def rows_of(models: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One record for each head of each model."""
    for model in models:
        for place, layer in enumerate(model["layers"]):
            shares = {
                f"conv{c['kernel_size']}": c["share"] for c in layer["convolutions"] if c["kernel_size"] in (3, 7)
            }
            errors = {
                f"conv{c['kernel_size']}_error": c["share_error"]
                for c in layer["convolutions"]
                if c["kernel_size"] in (3, 7)
            }
            reach = next(
                (each["mean"] for each in layer["spans"] if (each["kernel_size"], each["dilation"]) == (3, 1)), None
            )
            for head in layer["heads"]:
                told = {key: value for key, value in head.items() if key not in ("errors", "peak", "argmax_at")}
                told["peak"] = " ".join(map(str, head["peak"]))
                told |= {f"{key}_error": value for key, value in head["errors"].items()}
                about = {"model": model["model"], "kind_of_model": model["kind"], "trained": model["trained"]}
                yield {**about, "layer": layer["name"], "place": place, **told, "R2_3": reach, **shares, **errors}


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Records as CSV, numbers to six digits."""
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    kept = io.StringIO()
    writer = csv.DictWriter(kept, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
    return kept.getvalue()


def rounded(item: Any) -> Any:
    """Plain data whose numbers have six digits."""
    if isinstance(item, dict):
        return {key: rounded(each) for key, each in item.items()}
    if isinstance(item, list | tuple):
        return [rounded(each) for each in item]
    return float(f"{item:.6g}") if isinstance(item, float) else item


if __name__ == "__main__":
    listed, number, written = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    found = rounded(measured(entries_of(listed)[0][number]))
    written.write_text(json.dumps(found, separators=(",", ":")) + "\n")
