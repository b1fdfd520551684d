"""What a network loses with each of its heads, and with all heads of a third of its layers, for the atlas.

    {"position": [0.01, 0.02], "shift": [0.3, 0.2], "mean": [0.01, 0.01], "uniform": [0.4, 0.3]}

are `Changes` of two images: how far the output moves, as a share of its norm, under each replacement.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from conv2attn.arguments import Patterns
from conv2attn.networks.positions import Unread
from conv2attn.span import HeadsReport
from conv2attn.span.arrays import MEMORY_LIMIT
from conv2attn.span.attending import reads_of
from conv2attn.span.graded_facts.effects import ReplacedBy
from conv2attn.span.graded_facts.forced_runs import ByImage
from conv2attn.span.graded_facts.replacement_maps import replacement
from conv2attn.span.graded_facts.replacing import Replacing, share_lost, with_lost
from conv2attn.span.reading import rows_of_read

Changes = dict[str, list[float]]
THIRDS = ("first", "middle", "last")
KEPT = 0.5
"""A table of displacements keeps a head where it changes the output by less than this share of uniform attention's."""


def replace_heads(
    model: Any, inputs: Any, report: HeadsReport, grid: Sequence[int] | None = None, only: Patterns = ()
) -> dict[str, Any]:
    """The document of a report, with the `Changes` of each head that can be replaced and of each third, at once.

    Every other image measures the replacements, the rest are compared. Heads that vary with the image have their kind
    decided anew by what they lose.
    """
    replacing, body = Replacing(model, inputs, "position"), report.to_dict()
    means: dict[str, tuple[Tensor, tuple[int, ...], int]] = {}
    reads = reads_of(model, replacing.batches, grid, only)
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
