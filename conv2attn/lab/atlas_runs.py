"""The atlas: what the heads of many models do, from one list, as a table and a page.

Each model is measured in a process of its own and kept as one JSON file, so that a run resumes; every model that has a
seeded, untrained twin (`seed` of its factory) is measured twice.
"""

import hashlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import torch
from torch import Tensor, nn

from conv2attn.errors import UsageError
from conv2attn.files import load
from conv2attn.generators import generators_kept
from conv2attn.lab.atlas_likeness import likeness, tables_of
from conv2attn.lab.atlas_list import SCHEMA, Entry, entries_of
from conv2attn.lab.atlas_replacing import losses, replace_heads
from conv2attn.report.markup import to_csv
from conv2attn.span import heads
from conv2attn.span.graded_facts.effects import ReplacedBy

LISTS = ("errors", "peak", "argmax_at", "replaced")
"""Fields of a head that are no single number: a table has them in other words."""
SEED = 0  # of the untrained twins


def atlas(
    path: Path, output: Path, command: str = "", progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measures the models without a result, and writes `atlas.json`, `heads.csv` and `index.md` into a folder.

    Returns:
        The whole atlas as plain data; `failed` names the models that could not be measured, with the reason.
    Raises:
        CheckpointError: the list cannot be read, or the folder cannot be written.
    """
    from conv2attn.lab.atlas_page import page_of

    entries, thresholds = entries_of(path)
    (output / "models").mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    for place, entry in enumerate(entries, 1):
        file = output / "models" / f"{entry.key}.json"
        if measured_before(entry, file) is not None:
            progress(f"{place}/{len(entries)} {entry.name}: kept")
            continue
        progress(f"{place}/{len(entries)} {entry.name}")
        arguments = [sys.executable, "-m", "conv2attn.lab.atlas_runs", str(path), str(place - 1), str(file)]
        process = subprocess.run(
            arguments, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
        )
        if process.returncode:
            failed[entry.name] = (process.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            progress(f"  failed: {failed[entry.name]}")
    results = [measured_before(entry, output / "models" / f"{entry.key}.json") for entry in entries]
    models = [result for result in results if result is not None]
    contents = {"schema": SCHEMA, "command": command, "thresholds": thresholds, "models": models, "failed": failed}
    contents["likeness"] = likeness(models)
    summaries = [model_summary(m, thresholds) for m in models]
    (output / "atlas.json").write_text(json.dumps(round_numbers({**contents, "models": summaries}), indent=1) + "\n")
    (output / "heads.csv").write_text(to_csv(list(head_records(models))))
    (output / "index.md").write_text(page_of(contents, summaries))
    return contents


def measured_before(entry: Entry, file: Path) -> dict[str, Any] | None:
    """The result in a file; None where there is none, or that of another entry or other code."""
    result = json.loads(file.read_text()) if file.is_file() else {}
    return result if result.get("digest") == entry.digest else None


@generators_kept(seed=SEED)
def measure_entry(entry: Entry) -> dict[str, Any]:
    """The measurements of one model, made in this process."""
    seed = {} if entry.trained else {"seed": SEED}
    source, fields = str(entry.fields["source"]), entry.fields
    model: Any = (
        call_factory(entry.folder, source, {**fields.get("arguments", {}), **seed})
        if ":" in source
        else load(entry.folder / source)
    )
    inputs = call_factory(entry.folder, fields["inputs"], {}) if "inputs" in fields else None
    grid = None
    if fields.get("grid") == "line":
        if isinstance(model, nn.Module):
            sentence = f'grid = "line" is of arrays of attention, and {source} made a module ({type(model).__name__})'
            raise UsageError("C2A006", sentence, "Give the sides as a list, or leave it to the run.")
        grid = (next(iter(model.values())).shape[-1],)
    elif "grid" in fields:
        grid = tuple(fields["grid"])
    only = fields.get("only", ())
    report = heads(model, inputs, grid=grid, only=only)
    replaces = entry.trained and fields.get("replace", False)
    body = replace_heads(model, inputs, report, grid, only) if replaces else report.to_dict()
    for facts, layer in zip(report.layers, body["layers"], strict=True):
        layer["tables"] = tables_of(facts)
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
        "weights": tensor_digest(weights),
        "inputs": "" if inputs is None else tensor_digest(inputs),
        "versions": versions,
        "layers": body["layers"],
        "together": body["together"],
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
        raise UsageError("C2A002", f"{path} is no file of Python", "Name a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call_factory(folder: Path, where: str, arguments: Mapping[str, Any]) -> Any:
    """The result of the function NAME of `file.py:NAME`.

    Raises:
        UsageError: there is none (C2A002).
    """
    file, _, name = where.partition(":")
    module = run_once(folder / file)
    if not hasattr(module, name):
        raise UsageError("C2A002", f"{file} has no {name}", "Name a function of that file.")
    return getattr(module, name)(**arguments)


def tensor_digest(tensors: Any) -> str:
    """A SHA-256 of all tensors in nested mappings and sequences, with their names and shapes."""
    digest = hashlib.sha256()

    def add(name: str, part: Any) -> None:
        if isinstance(part, Tensor):
            digest.update(f"{name} {tuple(part.shape)} {part.dtype}".encode())
            digest.update(part.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() if part.numel() else b"")
        elif isinstance(part, Mapping):
            for key in part:
                add(f"{name}.{key}", part[key])
        elif isinstance(part, list | tuple):
            for place, item in enumerate(part):
                add(f"{name}.{place}", item)

    add("", tensors)
    return digest.hexdigest()


def model_summary(model: Mapping[str, Any], thresholds: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of one model: heads of each kind, shift-like heads and convolution-like layers, early and late."""
    layers = [layer for layer in model["layers"] if layer["heads"]]
    early = max(1, round(thresholds["early"] * len(layers)))
    fields = {key: model[key] for key in model if key not in ("layers", "digest", "together")}
    heads = [(place, head) for place, layer in enumerate(layers) for head in layer["heads"]]
    kinds = Counter(head["kind"] for _, head in heads)
    parts = {
        "all": heads,
        "early": [each for each in heads if each[0] < early],
        "late": [e for e in heads if e[0] >= early],
    }
    counts = {part: counts_of([head for _, head in chosen], thresholds) for part, chosen in parts.items()}
    curves = {name: [mean(layer, name) for layer in layers] for name in ("relative", "absolute", "content", "distance")}
    for size in thresholds["kernels"]:
        nearest = [next((c for c in layer["convolutions"] if c["kernel_size"] == size), None) for layer in layers]
        curves[f"convolution {size}"] = [None if each is None else each["share"] for each in nearest]
    names = [layer["name"] for layer in layers]
    reasons = {layer["name"]: layer["unread"] for layer in model["layers"] if layer["unread"]}
    fields |= {"layers": names, "unread": reasons, "kinds": kinds, "counts": counts, "curves": curves}
    return {**fields, "losses": losses(model)}


def counts_of(heads: Sequence[Mapping[str, Any]], thresholds: Mapping[str, Any]) -> dict[str, int]:
    """Heads whose peak is another displacement than zero (shift, partial), and heads that attend to themselves."""
    moved, still = ([h["peak_mass"] for h in heads if any(h["peak"]) == moves] for moves in (True, False))
    return {
        "heads": len(heads),
        "shift": sum(mass >= thresholds["shift"] for mass in moved),
        "partial": sum(mass >= thresholds["partial"] for mass in moved),
        "itself": sum(mass >= thresholds["shift"] for mass in still),
    }


def mean(layer: Mapping[str, Any], name: str) -> float | None:
    """The mean of a number over the heads of a layer that have it."""
    values = [head[name] for head in layer["heads"] if head[name] is not None]
    return sum(values) / len(values) if values else None


def head_records(models: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One record for each head of each model."""
    for model in models:
        for place, layer in enumerate(model["layers"]):
            spans = {(each["kernel_size"], each["dilation"]): each["mean"] for each in layer["spans"]}
            nearest = {each["kernel_size"]: each for each in layer["convolutions"]}
            of_layer = {"R2_3": spans.get((3, 1))}
            for size in (3, 7):
                of_layer[f"conv{size}"] = nearest.get(size, {}).get("share")
                of_layer[f"conv{size}_error"] = nearest.get(size, {}).get("share_error")
            for head in layer["heads"]:
                columns = {key: value for key, value in head.items() if key not in LISTS}
                columns["peak"] = " ".join(map(str, head["peak"]))
                columns |= {f"{key}_error": value for key, value in head["errors"].items()}
                for by in get_args(ReplacedBy):
                    changes = (head["replaced"] or {}).get(by)
                    columns[by] = None if changes is None else sum(changes) / len(changes)
                names = {"model": model["model"], "kind_of_model": model["kind"], "trained": model["trained"]}
                yield {**names, "layer": layer["name"], "place": place, **columns, **of_layer}


def round_numbers(item: Any) -> Any:
    """Plain data whose numbers have six digits."""
    if isinstance(item, dict):
        return {key: round_numbers(each) for key, each in item.items()}
    if isinstance(item, list | tuple):
        return [round_numbers(each) for each in item]
    return float(f"{item:.6g}") if isinstance(item, float) else item


if __name__ == "__main__":
    listed, number, written = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    measured = round_numbers(measure_entry(entries_of(listed)[0][number]))
    written.write_text(json.dumps(measured, separators=(",", ":")) + "\n")
