"""Measures the effect of heads on the output: a network runs with fixed maps in place of their attention."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, get_args

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.arguments import as_inputs
from conv2attn.errors import UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.reading.records import Read, Reads
from conv2attn.span.attention_rows import AttentionRows
from conv2attn.span.graded_facts.effects import (
    NOT_REPLACED,
    Replaced,
    ReplacedBy,
    ReplacedHead,
    ReplacedTogether,
)
from conv2attn.span.graded_facts.facts import HeadFacts, LayerFacts, kind_of
from conv2attn.span.graded_facts.forced_runs import ByImage, ForcedRuns, Maps, effect_of
from conv2attn.theory.basis import AttentionGrid, Sides, Sites

FEWEST_IMAGES = 4
"""Two images measure the replacement, and two images give its effect a standard error."""
DRAWS = 10
"""Number of draws of random heads. The standard error of their mean is about a third of a draw's deviation."""
SEED = 0
ROUNDING = 1e-5
"""A relative change of outputs up to this may be rounding in float32, so no share of it is reported."""


class Replacing:
    """A network and its images. One half of them measures mean attention; outputs are compared on the other half.

    Args:
        network: the network.
        inputs: a tensor of images, or a loader of such batches.
        by: the kind of map that replaces the attention of a head.
        only: heads to replace, by layer; by default every head. The heads named here are also replaced all at once.
        labels: the class of each image.
    Raises:
        UsageError: `network` is not a network, there are fewer than four images, the inputs are not a tensor, `by` is
            unknown, the output has no tensor with one row per image, or the labels are not its classes (C2A006).
    """

    def __init__(
        self,
        network: Any,
        inputs: Any,
        by: ReplacedBy,
        only: Mapping[str, Sequence[int]] | None = None,
        labels: Tensor | Sequence[int] | None = None,
    ):
        if by not in get_args(ReplacedBy):
            raise UsageError("C2A006", f"replace={by!r} is unknown", f"Pass one of {', '.join(get_args(ReplacedBy))}.")
        if not isinstance(network, nn.Module) or inputs is None:
            raise UsageError("C2A006", "heads are replaced only in a run of a network", "Pass a network and images.")
        self.batches = batches_of(network, inputs)
        images = torch.cat(self.batches)
        if len(images) < FEWEST_IMAGES:
            reason = (
                f"replacing needs {FEWEST_IMAGES} images, two to measure and two to compare; there are {len(images)}"
            )
            raise UsageError("C2A006", reason, "Pass more images with --inputs.")
        self.by, self.only = by, only
        classes = checked_labels(labels, len(images))
        # Every second image measures, since files are often sorted by class, so the first and the second half would
        # hold different classes. The halves are disjoint, since a mean fits the images on which it was measured too
        # well.
        self.runs = ForcedRuns(network, images[::2], images[1::2], None if classes is None else classes[1::2])
        self.grids: dict[str, tuple[Sides, int, int]] = {}

    def check(self, reads: Reads) -> None:
        """Refuses heads that the caller named in layers that are not read.

        Raises:
            UsageError: no layer of this name attends, or it is left out (C2A008).
        """
        for name in self.only or ():
            if name not in reads.names:
                layers = ", ".join(reads.names[:3]) + (", ..." if len(reads.names) > 3 else "")
                raise UsageError("C2A008", f"no layer that attends is called {name!r}", f"Name one of {layers}.")

    def layer(self, facts: LayerFacts, read: Read, rows: AttentionRows) -> LayerFacts:
        """The facts of a layer with the effect of each replaced head, or with a note why no head can be replaced.

        Raises:
            UsageError: heads of the layer are named and cannot be replaced, or it has no such head (C2A006).
        """
        sides, leading = rows.grid.keys, rows.extra
        wanted = range(len(facts.heads)) if self.only is None else self.only.get(read.name, ())
        why, mean = self.mean_of(read, sides, leading)
        if mean is None:
            self.refuse(read.name, why)
            return msgspec.structs.replace(facts, notes=(*facts.notes, NOT_REPLACED + why))
        self.grids[read.name] = (sides, leading, len(mean))
        for head in wanted:
            if not 0 <= head < len(mean):
                self.refuse(read.name, f"there is no head {head}: heads are numbered from 0 to {len(mean) - 1}")
        heads = tuple(
            self.head(head, read.name, mean[head.head], sides, leading) if head.head in wanted else head
            for head in facts.heads
        )
        return msgspec.structs.replace(facts, heads=heads)

    def refuse(self, name: str, why: str) -> None:
        """Refuses a layer that cannot be replaced, if the caller named heads of it.

        Raises:
            UsageError: heads of this layer are named (C2A006).
        """
        if self.only and self.only.get(name):
            raise UsageError("C2A006", f"{name}: heads cannot be replaced: {why}", "Name other heads, or none.")

    def mean_of(self, read: Read, sides: Sides, leading: int) -> tuple[str, Tensor | None]:
        """The mean attention of a layer on one half of the images; or the reason why it cannot be replaced."""
        if read.tokens is not None and read.tokens.windows is not None:
            return "it attends in windows", None
        if read.reordered:
            return "its tokens are not in the order of its grid, or its heads are not on the second axis", None
        mean = self.runs.means({read.name: None}).get(read.name)
        if mean is None:
            return "the run does not show one attention for each image in it", None
        if mean.shape[-2] != mean.shape[-1] or mean.shape[-1] != leading + prod(sides):
            return "its queries and keys are not the tokens of one grid", None
        # The map must have the axes of the attention that was read, so both have the same shape without the images.
        attention = read.attention
        if isinstance(attention, MultiHeadSelfAttention):
            attention = attention.attention(sides=sides).detach()
        if not isinstance(attention, Tensor) or attention.shape[1:] != mean.shape:
            return "its heads are not on the second axis", None
        return "", mean

    def head(self, facts: HeadFacts, layer: str, mean: Tensor, sides: Sides, leading: int) -> HeadFacts:
        """The facts of a head with the effect of its replacement. Its kind is decided again, as it may be "content"."""

        def moved(by: ReplacedBy) -> ByImage:
            return self.runs.changes({layer: {facts.head: replacement(mean, by, sides, leading)}})

        own, uniform = moved(self.by), moved("uniform")
        # The rule "content" needs one more run, which is made only if no earlier rule decides the kind.
        lost = error = None
        if with_lost(facts, 1.0)[0] == "content":
            lost, error = share_lost(own if self.by == "mean" else moved("mean"), uniform)
        kind, margin = with_lost(facts, lost)
        replaced = Replaced(self.by, effect_of(own), effect_of(uniform), lost, error)
        return msgspec.structs.replace(facts, kind=kind, margin=margin, replaced=replaced)

    def together(self) -> ReplacedTogether | None:
        """The effects of replacing all named heads at once, and of as many random heads; None if no head is named."""
        heads = [(layer, head) for layer, numbers in (self.only or {}).items() for head in sorted(set(numbers))]
        if not heads:
            return None
        every = [(layer, head) for layer, (_, _, count) in self.grids.items() for head in range(count)]
        effect, uniform = (effect_of(self.runs.changes(self.maps(heads, by))) for by in (self.by, "uniform"))
        # The control of an ablation is the same number of random heads. Without it, an effect that any heads would have
        # might be attributed to these heads.
        random, draws = None, DRAWS if len(heads) < len(every) else 0
        generator = torch.Generator().manual_seed(SEED)
        if draws:
            drawn = []
            for _ in range(draws):
                places = torch.randperm(len(every), generator=generator, device="cpu")[: len(heads)].tolist()
                drawn.append(self.runs.changes(self.maps([every[place] for place in places], self.by)))
            random = effect_of(ByImage.means(drawn))
        named = tuple(ReplacedHead(layer, head) for layer, head in heads)
        return ReplacedTogether(self.by, named, effect, uniform, random, draws, SEED)

    def maps(self, heads: Sequence[tuple[str, int]], by: ReplacedBy) -> Maps:
        """The maps of some heads, by layer."""
        # The means of these heads are measured again, since those of all layers may not fit into memory at once.
        wanted: dict[str, list[int]] = {}
        for layer, head in heads:
            wanted.setdefault(layer, []).append(head)
        means = self.runs.means(wanted)
        return {
            layer: {
                head: replacement(mean, by, *self.grids[layer][:2])
                for head, mean in zip(numbers, means[layer], strict=True)
            }
            for layer, numbers in wanted.items()
        }


def batches_of(network: nn.Module, inputs: Any) -> list[Tensor]:
    """The batches of images of a tensor or a loader, which is read once.

    Raises:
        UsageError: a batch is not a tensor (C2A006).
    """
    batches = as_inputs(network, inputs)
    arguments = isinstance(batches, tuple | Mapping)
    batches = [batches] if isinstance(batches, Tensor) else [] if arguments else list(batches)
    batches = [batch[0] if isinstance(batch, list | tuple) and batch else batch for batch in batches]
    if not batches or not all(isinstance(batch, Tensor) for batch in batches):
        remedy = "Pass a tensor of images, or a loader of such tensors."
        raise UsageError("C2A006", "heads are replaced only if the input is one tensor of images", remedy)
    return batches


def checked_labels(labels: Tensor | Sequence[int] | None, count: int) -> Tensor | None:
    """The labels of `count` images as int64.

    Raises:
        UsageError: the labels are not one integer per image (C2A006).
    """
    if labels is None:
        return None
    numbers = torch.as_tensor(labels)
    if numbers.is_floating_point() or numbers.shape != (count,):
        shape = "x".join(map(str, numbers.shape)) or "one"
        reason = f"labels are {shape} numbers of {numbers.dtype}, and there are {count} images"
        raise UsageError("C2A006", reason, "Pass one class, a whole number from 0, for each image.")
    return numbers.long().cpu()


def with_lost(facts: HeadFacts, lost: float | None) -> tuple[Any, float]:
    """The kind and margin of a head, given its number `lost`."""
    if facts.kind == "one query":
        return facts.kind, facts.margin
    return kind_of(lambda name: lost if name == "lost" else getattr(facts, name), 2)


def share_lost(mean: ByImage, uniform: ByImage) -> tuple[float | None, float | None]:
    """The change under the mean over images, divided by that under uniform attention; and its standard error."""
    if float(uniform.change.mean()) <= ROUNDING:
        return None, None
    # It is a ratio of two means, with the linearised standard error of a ratio estimator (Cochran 1977, chapter 6). A
    # mean of the ratios of images would be dominated by images that uniform attention hardly changes.
    ratio = mean.change.mean() / uniform.change.mean()
    residuals = (mean.change - ratio * uniform.change) / uniform.change.mean()
    return float(ratio), float(residuals.std() / len(residuals) ** 0.5)


def replacement(mean: Tensor, by: ReplacedBy, sides: Sides, leading: int) -> Tensor:
    """The map (queries, keys) that replaces a head with this mean attention over images.

    - "mean" is the mean attention itself.
    - "position" is its mean over all pairs with the same displacement on the grid.
    - "shift" reads the key at the displacement with the most attention, or the nearest key on the grid.
    - "uniform" gives equal weights to all keys of the grid.

    Keys that a query never reads have no weight, and a query keeps the sum of its attention over the pixels. A query
    that never reads the key of "shift" keeps its mean attention. Leading tokens have no displacement, and keep their
    mean attention as queries and as keys.
    """
    read = mean > 0
    if by == "mean":
        return mean
    code, grid, pixels = displacements(sides), mean[leading:, leading:], read[leading:, leading:]
    sums, table = by_displacement(grid, code)
    result = mean.clone()
    if by == "uniform":
        part = torch.ones_like(grid)
    elif by == "position":
        part = table[code]
    else:
        peak = np.unravel_index(int(sums.argmax()), tuple(2 * side - 1 for side in sides))
        # At the border the shift leaves the grid. Hard heads then read the nearest key (E8 of docs/errata.md).
        places = zip(np.indices(sides), peak, sides, strict=True)
        target = [np.clip(along + moved - side + 1, 0, side - 1).ravel() for along, moved, side in places]
        part = torch.zeros_like(grid)
        part[torch.arange(len(grid)), torch.from_numpy(np.ravel_multi_index(target, sides))] = 1
    # A key that is not read in any image counts as masked, and weight on it would change the network's mask.
    part = part * pixels
    part = torch.where(part.sum(-1, keepdim=True) > 0, part, grid)
    total = part.sum(-1, keepdim=True)
    result[leading:, leading:] = part / torch.where(total > 0, total, 1) * grid.sum(-1, keepdim=True)
    return result


def displacements(sides: Sides) -> Tensor:
    """The row-major number of `key - query` in the box of all displacements, for each (query, key) of a grid."""
    away = AttentionGrid(sides, Sites.everywhere(len(sides))).displacements() + torch.tensor(sides) - 1
    box = tuple(2 * side - 1 for side in sides)
    return torch.from_numpy(np.ravel_multi_index(tuple(away.numpy().transpose(2, 0, 1)), box))


def by_displacement(grid: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of attention (queries, keys) over the pairs of each displacement, and its mean over the read pairs."""
    sums = torch.zeros(int(code.max()) + 1, dtype=grid.dtype).index_add(0, code.flatten(), grid.flatten())
    pairs = torch.zeros_like(sums).index_add(0, code.flatten(), (grid > 0).flatten().to(grid))
    return sums, sums / pairs.clamp(min=1)
