"""The page of an atlas: the answer across models with its uncertainty, a table, curves, and one section a model."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conv2attn.lab.atlas_replacing import KEPT
from conv2attn.report.markup import markdown_table

Model = Mapping[str, Any]
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
    lines = ["# Atlas of attention heads", "", f"Made by `{contents['command']}`." if contents["command"] else "", ""]
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
