"""Runs a network with given maps in place of attention, and measures the change of the output for each image."""

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
"""Largest attention of a layer in a run, in bytes. It limits how many images run together, but two always do."""
Maps = Mapping[str, Mapping[int, Tensor]]
"""The maps (queries, keys) that replace attention, by layer and head."""


@final
@dataclass(frozen=True, eq=False)
class ByImage:
    """The effect of a replacement as one number per image; `Effect` defines the numbers."""

    change: Tensor
    loss: Tensor | None = None
    accuracy: Tensor | None = None

    @staticmethod
    def means(several: Sequence["ByImage"]) -> "ByImage":
        """The means over images of several replacements, one number per replacement."""

        def mean(values: Sequence[Tensor | None]) -> Tensor | None:
            means = [numbers.mean() for numbers in values if numbers is not None]
            return torch.stack(means) if means else None

        change = torch.stack([effect.change.mean() for effect in several])
        return ByImage(change, mean([effect.loss for effect in several]), mean([effect.accuracy for effect in several]))


def effect_of(values: ByImage) -> Effect:
    """The means over images with their standard errors."""

    def estimate(numbers: Tensor) -> tuple[float, float]:
        return float(numbers.mean()), float(numbers.std() / len(numbers) ** 0.5)

    if values.loss is None or values.accuracy is None:
        return Effect(*estimate(values.change))
    return Effect(*estimate(values.change), *estimate(values.loss), *estimate(values.accuracy))


class ForcedRuns:
    """Runs a network on two sets of images: `measured` gives mean attention, `compared` gives the effect of maps.

    Raises:
        UsageError: an output is zero, is not finite, or holds no tensor with one row per image; or the labels are not
            classes of the output (C2A006).
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

        # Two images run first. They show how often each layer attends and how large its attention is. From its size
        # follows how many images fit into memory at once.
        self.run(measured[:2], look)
        self.at_once = max(2, 2 * AT_ONCE // largest)
        self.plain = self.outputs({})
        if not bool((self.plain.flatten(1).norm(dim=-1) > 0).all()) or not bool(self.plain.isfinite().all()):
            reason = "an output is zero or not finite, so it has no relative change"
            raise UsageError("C2A006", reason, "Pass other images.")
        if labels is not None:
            classes = self.plain.shape[1] if self.plain.ndim == 2 else 0
            if not classes or not bool(((labels >= 0) & (labels < classes)).all()):
                shape = "x".join(map(str, self.plain.shape[1:])) or "one"
                reason = f"labels from {int(labels.min())} to {int(labels.max())} are not classes of {shape} outputs"
                raise UsageError("C2A006", reason, "Pass whole numbers below the number of logits.")

    def run(self, images: Tensor, rule: Rule) -> Any:
        """The output of the network, in which `rule` may replace the attention of a layer."""
        with running(self.network, images):
            watch = Watch(self.network, rule=rule, blind=lambda name: True)
            return watch.run(partial(call_network, self.network, images))

    def parts(self, images: Tensor) -> Iterator[Tensor]:
        """The images in parts that fit the memory, each of at least two images."""
        # A batch of one is ambiguous: a first axis of length 1 may be the image, or an axis that is not a batch.
        parts = images.split(self.at_once)
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts = (*parts[:-2], torch.cat(parts[-2:]))
        yield from parts

    def means(self, wanted: Mapping[str, Sequence[int] | None]) -> dict[str, Tensor]:
        """The mean attention (heads, queries, keys) of some heads of layers over the measured images, in float64.

        A layer is left out if it attends several times in a run, or if its attention has no (images, heads) axes.
        """
        # A second call of a layer would be averaged with the first, and replaced by the same map.
        once = {name for name in wanted if self.times.get(name) == 1 and f"{name}#2" not in self.times}
        sums = dict[str, Tensor]()

        def add(name: str, own: Tensor, count: int) -> Tensor:
            maps = self.by_image(name, own, count)
            if name in once and "#" not in name and maps.ndim == 4 and len(maps) == count:
                heads = wanted[name]
                chosen = maps if heads is None else maps[:, list(heads)]
                # One image at a time, since a whole batch in float64 may take twice the memory that was planned.
                for image in chosen.cpu():
                    sums[name] = sums[name].add_(image) if name in sums else image.double()
            return own

        for images in self.parts(self.measured):
            self.run(images, partial(add, count=len(images)))
        return {name: total / len(self.measured) for name, total in sums.items()}

    def by_image(self, name: str, own: Tensor, count: int) -> Tensor:
        """The attention of a layer as (images, heads, queries, keys); nn.MultiheadAttention merges two axes."""
        module = self.modules.get(name)
        merged = isinstance(module, nn.MultiheadAttention) and own.ndim == 3 and len(own) == count * module.num_heads
        return own.unflatten(0, (count, -1)) if merged else own

    def outputs(self, maps: Maps) -> Tensor:
        """The first output tensor with one row per compared image, in float64, with these maps as attention."""

        def rule(name: str, own: Tensor, count: int) -> Tensor:
            if name not in maps:
                return own
            # A copy is changed, since the network may keep or return the attention that it computed.
            attention = own.clone()
            for head, forced in maps[name].items():
                self.by_image(name, attention, count)[:, head] = forced.to(own)
            return attention

        rows = []
        for images in self.parts(self.compared):
            tensors: list[Tensor] = []
            tree_map_only(Tensor, tensors.append, self.run(images, partial(rule, count=len(images))))
            fitting = [tensor for tensor in tensors if tensor.ndim and len(tensor) == len(images)]
            if not fitting or not fitting[0].is_floating_point():
                reason = "no output tensor has one row for each image"
                raise UsageError("C2A006", reason, "Pass a network that returns one.")
            rows.append(fitting[0].cpu().double())
        whole = torch.cat(rows)
        return whole if whole.ndim > 1 else whole[:, None]

    def changes(self, maps: Maps) -> ByImage:
        """The effect of these maps on each compared image."""
        return self.changed(self.outputs(maps))

    def changed(self, forced: Tensor) -> ByImage:
        """The effect on each compared image if the network's outputs are replaced by these."""
        moved = (forced - self.plain).flatten(1).norm(dim=-1) / self.plain.flatten(1).norm(dim=-1)
        if self.labels is None:
            return ByImage(moved)
        with_maps, without = (cross_entropy(logits, self.labels, reduction="none") for logits in (forced, self.plain))
        right, before = ((logits.argmax(-1) == self.labels).double() for logits in (forced, self.plain))
        return ByImage(moved, with_maps - without, right - before)
