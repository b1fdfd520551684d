"""Do trained networks attend as convolutions do? The heads of many models from one list, with one set of thresholds.

    python studies/atlas.py examples/atlas/atlas.toml -o atlas

The folder receives index.md (docs/atlas.md holds its tables), heads.csv, atlas.json and one JSON file a model. A model
of the list has a name, a kind, a source (the file of a network, or `file.py:factory`) and inputs. Each is measured in
a process of its own, and a factory once more with the argument `seed`, for an untrained twin, unless `twin = false`.
"""

import argparse
import hashlib
import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from conv2attn import heads, load
from conv2attn.errors import CheckpointError
from conv2attn.generators import generators_kept
from conv2attn.networks.positions import Unread
from conv2attn.report.markup import markdown_table, to_csv
from conv2attn.span import HeadsReport
from conv2attn.span.arrays import MEMORY_LIMIT
from conv2attn.span.attending import ask_attention
from conv2attn.span.graded_facts import LayerFacts
from conv2attn.span.graded_facts.effects import ReplacedBy
from conv2attn.span.graded_facts.forced_runs import ByImage
from conv2attn.span.graded_facts.replacing import Replacing, replacement, share_lost, with_lost
from conv2attn.span.reading import rows_of_read

SEED = 0  # of the untrained twins
THIRDS = ("first", "middle", "last")
KEPT = 0.5  # a table keeps a head where it changes the output by less than this share of uniform attention's
REACH = {1: 24, 2: 3}  # how far tables reach along each axis, by the axes: 49 displacements on lines and on images
LISTS = ("errors", "peak", "argmax_at", "replaced")  # fields of a head that are no single number
Model = Mapping[str, Any]
Changes = dict[str, list[float]]
"""How far the output of each image moves, as a share of its norm, under each replacement:

    {"position": [0.01, 0.02], "shift": [0.3, 0.2], "mean": [0.01, 0.01], "uniform": [0.4, 0.3]}
"""

# The list


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
        return "-".join(filter(None, "".join(x if x.isalnum() else "-" for x in self.name.lower()).split("-")))


def entries_of(path: Path) -> tuple[list[Entry], dict[str, Any]]:
    """The models of a list, each followed by its twin, and the thresholds.

    Raises:
        CheckpointError: there is no such file (C2A301), it is no list of models, or two have one name (C2A303).
    """
    try:
        listing = tomllib.loads(path.read_text())
        models, thresholds = listing["model"], listing["thresholds"]
    except OSError as error:
        raise CheckpointError("C2A301", f"{path} cannot be read: {error.strerror}", "Name a TOML file.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError) as error:
        remedy = "See examples/atlas/atlas.toml."
        raise CheckpointError("C2A303", f"{path} is no list of models with thresholds: {error}", remedy) from error
    entries = []
    for fields in models:
        entries.append(Entry(path.parent, fields, True))
        if ":" in fields["source"] and fields.get("twin", True):
            entries.append(Entry(path.parent, fields, False))
    twice = [key for key, count in Counter(entry.key for entry in entries).items() if count > 1]
    if twice:
        reason = f"two models of {path} would be written to {twice[0]}.json"
        raise CheckpointError("C2A303", reason, "Give one another name.")
    return entries, thresholds


# One model


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
        **{key: fields.get(key, "") for key in ("licence", "data", "note", "source")},
        "weights": tensor_digest(weights),
        "inputs": "" if inputs is None else tensor_digest(inputs),
        "versions": versions,
        "layers": body["layers"],
        "together": body["together"],
        "exit_code": report.exit_code,
    }


def call_factory(folder: Path, where: str, arguments: Mapping[str, Any]) -> Any:
    """The result of the function NAME of `file.py:NAME`."""
    file, _, name = where.partition(":")
    sys.path.insert(0, str(folder))  # of the process that measures this one model
    return getattr(importlib.import_module(file.removesuffix(".py")), name)(**arguments)


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


# What replacing heads costs


def replace_heads(
    model: Any, inputs: Any, report: HeadsReport, grid: Sequence[int] | None = None, only: Any = ()
) -> dict[str, Any]:
    """The document of a report, with the `Changes` of each head that can be replaced and of each third, at once.

    Every other image measures the replacements, the rest are compared. Heads that vary with the image have their kind
    decided anew by what they lose.
    """
    replacing, body = Replacing(model, inputs, "position"), report.to_dict()
    means: dict[str, tuple[Tensor, tuple[int, ...], int]] = {}
    reads = ask_attention(model, replacing.batches, grid, only).reads()
    for read in reads:
        rows = rows_of_read(read, grid, None, reads.counts, MEMORY_LIMIT)
        if not isinstance(rows, Unread):
            _, mean = replacing.mean_of(read, rows.grid.keys, rows.extra)
            if mean is not None:
                means[read.name] = (mean, rows.grid.keys, rows.extra)
        del read, rows

    def changes(heads: Sequence[tuple[str, int]]) -> Changes:
        found = {}
        for by in get_args(ReplacedBy):
            maps: dict[str, dict[int, Tensor]] = {}
            for layer, head in heads:
                mean, sides, leading = means[layer]
                maps.setdefault(layer, {})[head] = replacement(mean[head], by, sides, leading)
            found[by] = replacing.runs.changes(maps).change.tolist()
        return found

    for facts, layer in zip(report.layers, body["layers"], strict=True):
        for head, document in zip(facts.heads, layer["heads"], strict=True):
            if facts.name not in means:
                continue
            document["replaced"] = found = changes([(facts.name, head.head)])
            lost = None
            if with_lost(head, 1.0)[0] == "content":
                lost, _ = share_lost(*(ByImage(torch.tensor(found[by])) for by in ("mean", "uniform")))
            document["kind"], document["margin"] = with_lost(head, lost)
    thirds = {third: [(layer["name"], head["head"]) for layer, head in heads] for third, heads in by_third(body)}
    body["together"] = {third: changes(heads) for third, heads in thirds.items() if heads}
    return body


def by_third(body: Mapping[str, Any]) -> list[tuple[str, list[tuple[Any, Any]]]]:
    """The replaced heads of each third of the layers, with their layers."""
    layers = [layer for layer in body["layers"] if layer["heads"]]
    return [
        (third, [
            (layer, head)
            for place, layer in enumerate(layers)
            if 3 * place // len(layers) == number
            for head in layer["heads"]
            if head["replaced"]
        ])
        for number, third in enumerate(THIRDS)
    ]  # fmt: skip


def losses(model: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each third: its replaced heads, those that their table keeps, and `Changes`, mean over heads and at once."""
    found = {}
    for third, pairs in by_third(model):
        changed = [head["replaced"] for _, head in pairs]
        if changed:
            kept = [sum(each["position"]) < KEPT * sum(each["uniform"]) for each in changed]
            alone = {by: torch.tensor([each[by] for each in changed]).mean(0).tolist() for by in get_args(ReplacedBy)}
            at_once = model["together"][third]
            found[third] = {"heads": len(changed), "kept": sum(kept), "alone": alone, "at once": at_once}
    return found


# Heads of different networks


def tables_of(layer: LayerFacts) -> list[list[float]] | None:
    """The mean attention of each head over all pairs of a displacement, `REACH` each way; None on a smaller grid."""
    reach = REACH.get(len(layer.grid), 0)
    if layer.mass is None or layer.grid != layer.queries or not reach or min(layer.grid) <= reach:
        return None
    middle = tuple(slice(side - 1 - reach, side + reach) for side in layer.grid)
    pairs = [side - np.abs(np.arange(1 - side, side)) for side in layer.grid]
    counts = np.multiply.outer(pairs[0], pairs[1]) if len(pairs) == 2 else pairs[0]
    means = layer.mass * np.prod(layer.grid) / counts
    tables: list[list[float]] = means[(slice(None), *middle)].reshape(len(means), -1).tolist()
    return tables


def correlations(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """The correlation of each table (rows) of the first with each of the second; 0 where one of them is constant."""

    def unit(tables: NDArray[np.float64]) -> NDArray[np.float64]:
        away = tables - tables.mean(1, keepdims=True)
        norms = np.linalg.norm(away, axis=1, keepdims=True)
        return np.divide(away, norms, out=np.zeros_like(away), where=norms > 0)

    return unit(first) @ unit(second).T


def likeness(models: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """How like the heads of trained networks are the nearest heads of other ones, and of the untrained twins of these.

    For images and lines apart: `comparisons`, the number of correlations; for each network a number in `trained` and in
    `twins`: the mean over its heads of the largest correlation with a head of another network, a mean over the others.
    """
    found = {}
    for name, axes in (("images", 2), ("lines", 1)):
        tables: dict[bool, dict[str, NDArray[np.float64]]] = {True: {}, False: {}}
        for model in models:
            heads = [x for layer in model["layers"] if len(layer["grid"]) == axes for x in layer["tables"] or ()]
            if heads:
                tables[model["trained"]][model["model"]] = np.array(heads)
        both = [network for network in tables[True] if network in tables[False]]
        nearest: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
        comparisons = 0
        for network, other in permutations(both, 2):
            for trained in (True, False):
                each = correlations(tables[True][network], tables[trained][other])
                nearest[trained].setdefault(network, []).append(float(each.max(1).mean()))
                comparisons += each.size
        means = [{network: float(np.mean(x)) for network, x in nearest[kind].items()} for kind in (True, False)]
        if comparisons:
            found[name] = {"comparisons": comparisons, "trained": means[0], "twins": means[1]}
    return found


# Summaries


def model_summary(model: Mapping[str, Any], thresholds: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of one model: heads of each kind, shift-like heads and convolution-like layers, early and late."""
    layers = [layer for layer in model["layers"] if layer["heads"]]
    early = max(1, round(thresholds["early"] * len(layers)))
    fields = {key: model[key] for key in model if key not in ("layers", "together")}
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


# The page

BARS = " ▁▂▃▄▅▆▇█"
REPLACEMENTS = {
    "position": "table of displacements",
    "shift": "nearest shift",
    "mean": "mean over inputs",
    "uniform": "uniform attention",
}
REPLACED = (
    "How far the output moves, as a share of its norm, with attention that is measured on every other input and "
    "forced on the rest: means over these with their standard error (how many), of heads replaced one at a time "
    "(*alone*, a mean over heads) and of all heads of a third of the layers *at once*. A head is *kept by its table* "
    f"where the table of displacements in its place costs less than {KEPT:.0%} of uniform attention. "
    "`conv2attn heads --replace` measures one model."
)
ALIKE = (
    "The largest correlation of the mean attention by displacement (7x7 on images, 24 tokens each way on lines) of a "
    "head with the heads of another network: a mean over heads and over the other networks, then over networks, with "
    "the standard error over these (how many). An untrained twin has as many heads, and so as many chances. The "
    "square of a correlation is the linear CKA of the two tables (Kornblith et al. 2019)."
)


def page_of(contents: Mapping[str, Any], models: Sequence[Model]) -> str:
    """The page as Markdown."""
    thresholds = contents["thresholds"]
    trained, twins = [m for m in models if m["trained"]], [m for m in models if not m["trained"]]
    lines = ["# Atlas of attention heads", "", f"Made by `{contents['command']}`.", ""]
    lines += ["## Thresholds, fixed beforehand", ""]
    lines += [
        f"A head is *shift-like* where its peak displacement is not zero and has at least {thresholds['shift']:.0%} of "
        f"its attention, and *partly* so at {thresholds['partial']:.0%}. It attends to *itself* where its peak is "
        f"displacement zero, with at least {thresholds['shift']:.0%}. A layer is *convolution-like* where the nearest "
        f"KxK convolution is at least {thresholds['convolution']:.0%} of its map. *Early* layers are the first "
        f"{thresholds['early']:.0%}. `conv2attn heads --columns` defines every number.",
        "",
        "## Across models",
        "",
        answer_table(reading_content(trained), reading_content(twins)),
        "",
        "Means over the models that read content, each model counted once, with the standard error over models (how "
        "many). The difference is that of each model and its untrained twin. Models that attend by position alone, "
        "which are built to be convolution-like, are below only.",
        "",
        "## Models",
        "",
        model_table(models, thresholds),
        "",
    ]
    if table := loss_table(trained):
        lines += ["## What replacing heads costs", "", table, "", REPLACED, ""]
    if table := likeness_table(contents["likeness"]):
        lines += ["## Heads of different networks", "", table, "", ALIKE, ""]
    for model in models:
        lines += section(model)
    if contents["failed"]:
        lines += ["## Not measured", "", *(f"- {name}: {reason}" for name, reason in contents["failed"].items()), ""]
    return "\n".join(lines).rstrip() + "\n"


def reading_content(models: Sequence[Model]) -> list[Model]:
    """The models whose attention may depend on content."""
    return [model for model in models if not model.get("positional")]


def share_in(part: str, count: str) -> Callable[[Model], float | None]:
    """The share of a model's heads in a part of its layers."""

    def share(model: Model) -> float | None:
        counts = model["counts"][part]
        return counts[count] / counts["heads"] if counts["heads"] else None

    return share


def convolution(size: int, early: bool | None = None) -> Callable[[Model], float | None]:
    """The mean over layers of the share of the nearest convolution."""

    def mean_share(model: Model) -> float | None:
        curve = [x for x in model["curves"].get(f"convolution {size}", []) if x is not None]
        cut = max(1, round(len(curve) / 3))
        chosen = curve if early is None else curve[:cut] if early else curve[cut:]
        return sum(chosen) / len(chosen) if chosen else None

    return mean_share


QUESTIONS: dict[str, Callable[[Model], float | None]] = {
    "shift-like heads": share_in("all", "shift"),
    "... in early layers": share_in("early", "shift"),
    "... in later layers": share_in("late", "shift"),
    "partly shift-like heads": share_in("all", "partial"),
    "... in early layers ": share_in("early", "partial"),
    "... in later layers ": share_in("late", "partial"),
    "heads that attend to themselves": share_in("all", "itself"),
    "map of a layer that is a 3-tap convolution": convolution(3),
    "... in early layers  ": convolution(3, True),
    "... in later layers  ": convolution(3, False),
    "map of a layer that is a 7-tap convolution": convolution(7),
}


def answer_table(trained: Sequence[Model], twins: Sequence[Model]) -> str:
    """Trained models beside their untrained twins, and the difference of each pair."""
    rows = []
    for name, measure in QUESTIONS.items():
        values = {m["model"]: x for m in trained if (x := measure(m)) is not None}
        controls = {m["model"]: x for m in twins if (x := measure(m)) is not None}
        pairs = [values[model] - controls[model] for model in values.keys() & controls.keys()]
        rows.append(
            [name.strip(), with_error(list(values.values())), with_error(list(controls.values())), with_error(pairs)]
        )
    return markdown_table(("share of", "trained", "untrained twins", "difference"), rows)


def with_error(values: Sequence[float], form: str = ".1%") -> str:
    """The mean of some numbers, shares by default, with its standard error."""
    if not values:
        return "-"
    mean, count = f"{statistics.fmean(values):{form}}", len(values)
    return mean if count < 2 else f"{mean} ± {statistics.stdev(values) / count**0.5:{form}} ({count})"


def loss_table(models: Sequence[Model]) -> str:
    """What replacing heads costs, by third of the layers, one head at a time and all at once; empty without any."""
    rows = []
    for model in models:
        for third, loss in model["losses"].items():
            for how in ("alone", "at once"):
                kept = f"{loss['kept']} of {loss['heads']}" if how == "alone" else "-"
                changes = [with_error(loss[how][by]) for by in REPLACEMENTS]
                rows.append([model["name"], third, how, kept, *changes])
    head = ("model", "third", "heads", "kept by their table", *REPLACEMENTS.values())
    return markdown_table(head, rows) if rows else ""


def likeness_table(alike: Mapping[str, Any]) -> str:
    """How like heads of other networks are, beside those of untrained twins; empty where there is one network."""
    rows = []
    for grids, each in alike.items():
        trained, twins = each["trained"], each["twins"]
        apart = [trained[model] - twins[model] for model in trained]
        numbers = [with_error(list(x), ".2f") for x in (trained.values(), twins.values(), apart)]
        rows.append([grids, ", ".join(trained), each["comparisons"], *numbers])
    head = ("tokens", "networks", "correlations", "other trained networks", "their untrained twins", "difference")
    return markdown_table(head, rows) if rows else ""


def model_table(models: Sequence[Model], thresholds: Mapping[str, Any]) -> str:
    """One line for each model: its counts, and its curve of the nearest convolution."""
    rows = []
    for model in models:
        counts = model["counts"]["all"]
        curve = model["curves"].get("convolution 3", [])
        convolutional = sum(x is not None and x >= thresholds["convolution"] for x in curve)
        has_curve = any(x is not None for x in curve)
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter[str](model["kinds"]).most_common())
        shifts = f"{counts['shift']} ({counts['shift'] / max(counts['heads'], 1):.0%})"
        itself = counts["itself"]
        layers = f"{convolutional} of {len(curve)}" if has_curve else "-"
        rows.append([model["name"], model["kind"], counts["heads"], shifts, counts["partial"], itself, layers, kinds])
    head = ("model", "of", "heads", "shift-like", "partly", "itself", "layers half a 3-tap convolution", "kinds")
    return markdown_table(head, rows)


def section(model: Model) -> list[str]:
    """The section on one model: data, licence, hashes and curves."""
    lines = [f"### {model['name']}", ""]
    for key in ("data", "licence", "note"):
        if model[key]:
            lines.append(f"- {key}: {model[key]}")
    digests = {"weights" if model["inputs"] else "attention": model["weights"], "inputs": model["inputs"]}
    lines += ["- " + ", ".join(f"{name}: sha256 `{digest[:16]}`" for name, digest in digests.items() if digest)]
    lines += [f"- not read: {name}: {reason}" for name, reason in model["unread"].items()]
    names = {"relative": "relative position", "content": "content", "convolution 3": "3-tap convolution"}
    names |= {"convolution 7": "7-tap convolution"}
    curves = {name: model["curves"].get(key, []) for key, name in names.items()}
    rows = [
        (name, sparkline(curve), " ".join("-" if x is None else f"{x:.0%}" for x in curve))
        for name, curve in curves.items()
        if any(x is not None for x in curve)
    ]
    return [*lines, "", markdown_table(("share, layer by layer", "", "numbers"), rows), ""]


def sparkline(values: Sequence[float | None]) -> str:
    """Shares from 0 to 1 as bars of characters."""
    return "".join("·" if x is None else BARS[min(max(round(x * (len(BARS) - 1)), 0), len(BARS) - 1)] for x in values)


# All models


def tried(entry: Entry) -> dict[str, Any] | str:
    """The measurements of one model, or its error in words."""
    try:
        return measure_entry(entry)
    except Exception as error:  # code of the list fails in any way, and not every exception passes between processes
        return " ".join(f"{type(error).__name__}: {error}".split())


def tried_apart(entry: Entry) -> dict[str, Any] | str:
    """`tried` in a process of its own, whose memory ends with it; one that is killed is an error."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as alone:
        try:
            return alone.submit(tried, entry).result()
        except BrokenProcessPool as error:
            return str(error)


def atlas(path: Path, output: Path) -> dict[str, Any]:
    """Measures every model of a list, and writes `atlas.json`, `heads.csv` and `index.md` into a folder.

    Returns:
        The whole atlas as plain data; `failed` names the models that could not be measured, with the reason.
    """
    entries, thresholds = entries_of(path)
    (output / "models").mkdir(parents=True, exist_ok=True)
    models, failed = list[Any](), dict[str, str]()
    for place, entry in enumerate(entries):
        print(f"{place + 1}/{len(entries)} {entry.name}", file=sys.stderr)
        measured = tried_apart(entry)
        if isinstance(measured, str):
            failed[entry.name] = measured
            continue
        models.append(round_numbers(measured))
        (output / "models" / f"{entry.key}.json").write_text(json.dumps(models[-1], separators=(",", ":")) + "\n")
    summaries = [model_summary(model, thresholds) for model in models]
    command = f"python studies/atlas.py {path.name} -o {output.name}"
    contents = {
        "schema": "conv2attn.atlas/2",
        "command": command,
        "thresholds": thresholds,
        "failed": failed,
        "likeness": likeness(models),
    }
    whole = round_numbers({**contents, "models": summaries})
    (output / "atlas.json").write_text(json.dumps(whole, indent=1) + "\n")
    (output / "heads.csv").write_text(to_csv(list(head_records(models))))
    (output / "index.md").write_text(page_of(contents, summaries))
    return {**contents, "models": models}


def main() -> None:
    """Measures every model of a list."""
    parser = argparse.ArgumentParser(description="Measures the heads of every model in MODELS, a TOML file.")
    parser.add_argument("models", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        raise SystemExit(3 if atlas(arguments.models, arguments.output)["failed"] else 0)
    except CheckpointError as error:
        parser.error(str(error))


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"  # of the processes that measure: a factory reads files that are here
    main()
