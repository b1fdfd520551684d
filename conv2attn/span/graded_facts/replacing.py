"""What a head does, by replacing its attention while the network runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final, get_args

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.arguments import as_inputs, call_network, running
from conv2attn.errors import UsageError
from conv2attn.networks.reading.watch import Watch
from conv2attn.span.graded_facts.facts import LayerFacts, Replaced, ReplacedBy
from conv2attn.theory.basis import Sides
from conv2attn.torch_internals import tree_map_only

FEWEST_IMAGES = 4
"""Two to measure the replacement on, and two for a standard error of its effect."""
SAME = 1e-4
"""Attention of two runs, of all images and of half of them, differs by less, as a share of the largest of its head."""


@final
@dataclass(frozen=True, eq=False)
class Head:
    """A head whose attention is replaced by a map (queries, keys)."""

    layer: str
    head: int
    by: Tensor


def replacement(mean: Tensor, by: ReplacedBy, sides: Sides, leading: int) -> Tensor:
    """The map (queries, keys) that stands in for a head of this mean attention over images.

    `mean` is the mean attention itself. `position` is its mean over all pairs of one displacement on the grid, `shift`
    the key nearest to the displacement with the most attention, `uniform` all keys alike. Keys that a query never
    reads stay without weight, and rows keep their sums: a query that may not read its shift keeps its mean attention.
    Leading tokens have no displacement: as queries and as keys they keep their mean attention, except under `uniform`.
    """
    read = mean > 0
    if by == "mean":
        return mean
    if by == "uniform":
        return read / read.sum(-1, keepdim=True).clamp(min=1)
    cells = np.stack(np.unravel_index(np.arange(int(np.prod(sides))), sides), -1)
    away = cells[None] - cells[:, None] + np.array(sides) - 1
    code = torch.from_numpy(np.ravel_multi_index(tuple(np.moveaxis(away, -1, 0)), tuple(2 * n - 1 for n in sides)))
    grid, pixels = mean[leading:, leading:], read[leading:, leading:]
    sums = torch.zeros(int(code.max()) + 1, dtype=mean.dtype).index_add(0, code.flatten(), grid.flatten())
    result = mean.clone()
    if by == "position":
        pairs = torch.zeros_like(sums).index_add(0, code.flatten(), pixels.flatten().to(mean))
        table = sums / pairs.clamp(min=1)
        part = table[code]
    else:
        peak = np.array(np.unravel_index(int(sums.argmax()), tuple(2 * n - 1 for n in sides))) - np.array(sides) + 1
        target = np.clip(cells + peak, 0, np.array(sides) - 1)
        part = torch.zeros_like(grid)
        part[torch.arange(len(cells)), torch.from_numpy(np.ravel_multi_index(tuple(target.T), sides))] = 1
    part = part * pixels
    part = torch.where(part.sum(-1, keepdim=True) > 0, part, grid)
    total = part.sum(-1, keepdim=True)
    result[leading:, leading:] = part / torch.where(total > 0, total, 1) * grid.sum(-1, keepdim=True)
    return result


class Replacing:
    """A network on images, one half of which measures mean attention; the outputs of the others are compared.

    Args:
        network, inputs: a network and a tensor of images, or a loader of such batches.
        by: what stands in for the attention of each head.
    Raises:
        UsageError: no network, fewer than four images, inputs that are no tensor, an unknown replacement, or an output
            that holds no tensor of numbers for each image (C2A006).
    """

    def __init__(self, network: Any, inputs: Any, by: ReplacedBy):
        if by not in get_args(ReplacedBy):
            raise UsageError("C2A006", f"replace={by!r} is unknown", f"Pass one of {', '.join(get_args(ReplacedBy))}.")
        if not isinstance(network, nn.Module) or inputs is None:
            raise UsageError("C2A006", "heads are replaced in a run of a network", "Pass a network and images.")
        batches = as_inputs(network, inputs)
        arguments = isinstance(batches, tuple | Mapping)
        batches = [batches] if isinstance(batches, Tensor) else [] if arguments else list(batches)
        batches = [each[0] if isinstance(each, list | tuple) and each else each for each in batches]
        if not batches or not all(isinstance(each, Tensor) for each in batches):
            raise UsageError(
                "C2A006", "heads are replaced on one tensor of images", "Pass a tensor or a loader of these."
            )
        self.batches, images = batches, torch.cat(batches)
        if len(images) < FEWEST_IMAGES:
            reason = (
                f"replacing needs {FEWEST_IMAGES} images, two to measure and two to compare; there are {len(images)}"
            )
            raise UsageError("C2A006", reason, "Pass more images with --inputs.")
        self.network, self.by, self.measured, self.held_out = network, by, images[::2], images[1::2]
        self.means, self.times = self.mean_attention()
        self.plain = self.outputs({})
        if not bool((self.plain.norm(dim=-1) > 0).all()) or not bool(self.plain.isfinite().all()):
            raise UsageError("C2A006", "an output is zero or not finite, so no change is a share of it", "Pass others.")

    def mean_attention(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """The mean attention (heads, queries, keys) of each layer that has it for each image, in float64."""
        means, times = dict[str, Tensor](), dict[str, int]()

        def look(name: str, own: Tensor) -> Tensor:
            times[name] = times.get(name, 0) + 1
            if own.ndim == 4 and len(own) == len(self.measured):
                means[name] = own.double().mean(0).cpu()
            return own

        with running(self.network, self.measured):
            Watch(self.network, rule=look).run(lambda: call_network(self.network, self.measured))
        return means, times

    def outputs(self, heads: Mapping[str, Sequence[Head]]) -> Tensor:
        """The first output, (images, numbers) in float64, with the attention of these heads, by layer, replaced."""

        def rule(name: str, own: Tensor) -> Tensor:
            if name not in heads:
                return own
            attention = own.clone()
            for each in heads[name]:
                attention[:, each.head] = each.by.to(own)
            return attention

        with running(self.network, self.held_out):
            output = Watch(self.network, rule=rule).run(lambda: call_network(self.network, self.held_out))
        tensors: list[Tensor] = []
        tree_map_only(Tensor, tensors.append, output)
        fitting = [each for each in tensors if each.ndim and len(each) == len(self.held_out)]
        if not fitting or not fitting[0].is_floating_point():
            raise UsageError("C2A006", "the output has no tensor of one row for each image", "Pass a network with one.")
        return fitting[0].flatten(1).double().cpu() if fitting[0].ndim > 1 else fitting[0][:, None].double().cpu()

    def effect(self, heads: Sequence[Head]) -> tuple[float, float]:
        """The mean over images of |y' - y| / |y|, y the output, with these heads replaced; and its standard error."""
        by_layer: dict[str, list[Head]] = {}
        for each in heads:
            by_layer.setdefault(each.layer, []).append(each)
        moved = (self.outputs(by_layer) - self.plain).norm(dim=-1) / self.plain.norm(dim=-1)
        return float(moved.mean()), float(moved.std() / len(moved) ** 0.5)

    def why_not(self, name: str, attention: Any, sides: Sides, leading: int, windowed: bool) -> str:
        """The reason why the heads of a layer cannot be replaced; empty if they can.

        `attention` is that of all images, (images, heads, queries, keys), in the order of the grid.
        """
        if windowed:
            return "it attends in windows"
        if name not in self.means or f"{name}#2" in self.times or self.times[name] > 1 or "#" in name:
            return "the run does not show one attention for each image in it"
        mean = self.means[name]
        if mean.shape[-2] != mean.shape[-1] or mean.shape[-1] != leading + int(np.prod(sides)):
            return "its queries and keys are not the tokens of one grid"
        if not isinstance(attention, Tensor) or attention.shape[1:] != mean.shape:
            return "its heads are not on the second axis"
        apart = (attention[::2].double().mean(0).cpu() - mean).abs().amax((1, 2))
        same = bool((apart <= SAME * mean.amax((1, 2))).all())
        return "" if same else "its tokens are in another order than its grid"

    def with_effects(self, layer: LayerFacts, sides: Sides, leading: int) -> LayerFacts:
        """The layer with what the replacement of each head changes, and what uniform attention in its place does."""
        found = []
        for facts, mean in zip(layer.heads, self.means[layer.name], strict=True):
            kinds: tuple[ReplacedBy, ...] = (self.by, "uniform")
            maps = [replacement(mean, kind, sides, leading) for kind in kinds]
            ours, control = (self.effect([Head(layer.name, facts.head, each)]) for each in maps)
            found.append(msgspec.structs.replace(facts, replaced=Replaced(self.by, *ours, *control)))
        return msgspec.structs.replace(layer, heads=tuple(found))
