"""Runs of a network under attention that is forced: what each image's output loses by it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from conv2attn.arguments import call_network, running
from conv2attn.errors import UsageError
from conv2attn.networks.reading.attended import Rule
from conv2attn.networks.reading.watch import Watch
from conv2attn.span.graded_facts.effects import Effect
from conv2attn.torch_internals import tree_map_only

AT_ONCE = 2**28
"""Bytes of the largest attention of a run: as many images run together as that allows, two at least."""
Maps = Mapping[str, Mapping[int, Tensor]]
"""Maps (queries, keys) that are forced, by layer and head."""


@final
@dataclass(frozen=True, eq=False)
class ByImage:
    """What a replacement changes, one number for each image: see `Effect`."""

    change: Tensor
    loss: Tensor | None = None
    accuracy: Tensor | None = None

    @staticmethod
    def means(several: Sequence["ByImage"]) -> "ByImage":
        """The means over images of several replacements, one number for each of these."""

        def mean(values: Sequence[Tensor | None]) -> Tensor | None:
            known = [each.mean() for each in values if each is not None]
            return torch.stack(known) if known else None

        change = torch.stack([each.change.mean() for each in several])
        return ByImage(change, mean([each.loss for each in several]), mean([each.accuracy for each in several]))


def effect_of(values: ByImage) -> Effect:
    """The means with their standard errors."""

    def estimate(numbers: Tensor) -> tuple[float, float]:
        return float(numbers.mean()), float(numbers.std() / len(numbers) ** 0.5)

    if values.loss is None or values.accuracy is None:
        return Effect(*estimate(values.change))
    return Effect(*estimate(values.change), *estimate(values.loss), *estimate(values.accuracy))


class ForcedRuns:
    """A network on two halves of its images: `measured` gives mean attention, `compared` the effect of forcing maps.

    Raises:
        UsageError: an output is zero or not finite or holds no tensor of numbers for each image, or the labels are no
            classes of it (C2A006).
    """

    def __init__(self, network: nn.Module, measured: Tensor, compared: Tensor, labels: Tensor | None):
        self.network, self.measured, self.compared, self.labels = network, measured, compared, labels
        self.modules = {name or "(root)": module for name, module in network.named_modules()}
        self.times: dict[str, int] = {}
        largest = 1

        def look(name: str, own: Tensor) -> Tensor:
            nonlocal largest
            self.times[name] = self.times.get(name, 0) + 1
            largest = max(largest, own.numel() * own.element_size())
            return own

        # Two images show how large the largest map is, which decides how many images may be run at once.
        self.run(measured[:2], look)
        self.at_once = max(2, 2 * AT_ONCE // largest)
        self.plain = self.outputs({})
        if not bool((self.plain.flatten(1).norm(dim=-1) > 0).all()) or not bool(self.plain.isfinite().all()):
            raise UsageError("C2A006", "an output is zero or not finite, so no change is a share of it", "Pass others.")
        if labels is not None:
            classes = self.plain.shape[1] if self.plain.ndim == 2 else 0
            if not classes or not bool(((labels >= 0) & (labels < classes)).all()):
                shape = "x".join(map(str, self.plain.shape[1:])) or "one"
                reason = f"labels from {int(labels.min())} to {int(labels.max())} are no classes of {shape} outputs"
                raise UsageError("C2A006", reason, "Pass whole numbers below the number of logits.")

    def run(self, images: Tensor, rule: Rule) -> Any:
        """The output of the network under a rule."""
        with running(self.network, images):
            watch = Watch(self.network, rule=rule, blind=lambda name: True)
            return watch.run(partial(call_network, self.network, images))

    def parts(self, images: Tensor) -> Iterator[Tensor]:
        """As many images at once as memory allows, two at least: one has the shape of what is no image."""
        parts = images.split(self.at_once)
        # One image has the shape of what is no image, so the last part is never a single one.
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts = (*parts[:-2], torch.cat(parts[-2:]))
        yield from parts

    def means(self, wanted: Mapping[str, Sequence[int] | None]) -> dict[str, Tensor]:
        """The mean attention (heads, queries, keys) of some heads of layers over the measured images, in float64.

        Without a layer that does not attend once, or whose attention is not (images, heads, queries, keys).
        """
        # Of a module that runs twice it is open which of its runs a map would be forced on.
        once = {name for name in wanted if self.times.get(name) == 1 and f"{name}#2" not in self.times}
        sums = dict[str, Tensor]()

        def add(name: str, own: Tensor, count: int) -> Tensor:
            maps = self.by_image(name, own, count)
            if name in once and "#" not in name and maps.ndim == 4 and len(maps) == count:
                heads = wanted[name]
                chosen = maps if heads is None else maps[:, list(heads)]
                for image in chosen.cpu():
                    sums[name] = sums[name].add_(image) if name in sums else image.double()
            return own

        for images in self.parts(self.measured):
            self.run(images, partial(add, count=len(images)))
        return {name: each / len(self.measured) for name, each in sums.items()}

    def by_image(self, name: str, own: Tensor, count: int) -> Tensor:
        """The attention of a layer as (images, heads, queries, keys): torch's own module merges the first two."""
        module = self.modules.get(name)
        merged = isinstance(module, nn.MultiheadAttention) and own.ndim == 3 and len(own) == count * module.num_heads
        return own.unflatten(0, (count, -1)) if merged else own

    def outputs(self, maps: Maps) -> Tensor:
        """The first output for each compared image, in float64, under these maps."""

        def rule(name: str, own: Tensor, count: int) -> Tensor:
            if name not in maps:
                return own
            attention = own.clone()
            for head, forced in maps[name].items():
                self.by_image(name, attention, count)[:, head] = forced.to(own)
            return attention

        found = []
        for images in self.parts(self.compared):
            tensors: list[Tensor] = []
            tree_map_only(Tensor, tensors.append, self.run(images, partial(rule, count=len(images))))
            fitting = [each for each in tensors if each.ndim and len(each) == len(images)]
            if not fitting or not fitting[0].is_floating_point():
                reason = "the output has no tensor of one row for each image"
                raise UsageError("C2A006", reason, "Pass a network with one.")
            found.append(fitting[0].cpu().double())
        whole = torch.cat(found)
        return whole if whole.ndim > 1 else whole[:, None]

    def changes(self, maps: Maps) -> ByImage:
        """What these maps change, for each compared image."""
        return self.changed(self.outputs(maps))

    def changed(self, forced: Tensor) -> ByImage:
        """What changes for each compared image where these are the outputs."""
        moved = (forced - self.plain).flatten(1).norm(dim=-1) / self.plain.flatten(1).norm(dim=-1)
        if self.labels is None:
            return ByImage(moved)
        with_maps, without = (cross_entropy(each, self.labels, reduction="none") for each in (forced, self.plain))
        right, before = ((each.argmax(-1) == self.labels).double() for each in (forced, self.plain))
        return ByImage(moved, with_maps - without, right - before)
