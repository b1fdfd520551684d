"""The result of a distillation: the new network, the heads replaced in each layer, and their cost."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, final

from conv2attn.networks.conversion.network import Network
from conv2attn.report import Document, Notes, Report, Table, counted, document, gathered
from conv2attn.span.graded_facts.effects import Effect
from conv2attn.span.graded_facts.facts_document import value_and_error
from conv2attn.verdicts import Verdict

COLUMNS = ("layer", "heads", "convolutions", "least cost")


@final
@dataclass(frozen=True)
class DistilledLayer:
    """One layer: its number of heads, the heads that became convolutions, and the cost of replacing each head alone.

    The cost of a head is None if the head was not tried; `note` says why.
    """

    name: str
    heads: int
    convolved: tuple[int, ...]
    costs: tuple[float | None, ...]
    note: str = ""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Distillation(Report, Generic[Network]):
    """A copy of a network in which some heads are convolutions, and the cost of this on held-out images.

    `seconds` holds the times of one run of the network and of its copy on these images. `effect` and `seconds` are None
    if no head was replaced. The exit code is 3 if no head was replaced or if the mean loss on these images exceeds
    `max_loss`; otherwise it is 0.
    """

    schema: ClassVar[str] = "conv2attn.distillation/1"
    network: Network
    layers: tuple[DistilledLayer, ...]
    kernel_size: int
    max_loss: float
    held_out: int
    effect: Effect | None = None
    seconds: tuple[float, float] | None = None

    @property
    def verdict(self) -> Verdict:
        """Undecided if no head was replaced, or if the held-out images lose more than `max_loss`."""
        replaced = any(layer.convolved for layer in self.layers)
        return Verdict.HOLDS if replaced and not self.exceeds else Verdict.UNDECIDED

    @property
    def exceeds(self) -> bool:
        """Whether the mean loss on held-out images is above `max_loss`."""
        if self.effect is None:
            return False
        loss = self.effect.change if self.effect.loss is None else self.effect.loss
        # `loss > max_loss` would be false for NaN, which must exceed every limit.
        return not loss <= self.max_loss

    def content(self) -> Any:
        """The fields of the JSON document: all but the network."""
        names = ("layers", "kernel_size", "max_loss", "held_out", "effect", "seconds")
        return {name: getattr(self, name) for name in names}


@document.register(Distillation)
def _(distillation: Distillation[Any], verbose: bool = False) -> Document:
    """One row per layer."""
    layers, size = distillation.layers, distillation.kernel_size
    convolved, every = sum(len(layer.convolved) for layer in layers), sum(layer.heads for layer in layers)
    summary = f"{convolved} of {counted(every, 'head')} became convolutions of {counted(size, 'token')} per side"
    lines = []
    if (effect := distillation.effect) is not None and (seconds := distillation.seconds) is not None:
        images = f"{counted(distillation.held_out, 'image')} held out"
        lines.append(f"change of the output on {images}: {value_and_error(effect.change, effect.change_error)}")
        if effect.loss is not None:
            loss = value_and_error(effect.loss, effect.loss_error)
            accuracy = value_and_error(effect.accuracy, effect.accuracy_error)
            lines.append(f"increase of the cross entropy: {loss}; of the accuracy: {accuracy}")
        if distillation.exceeds:
            lines.append(f"above max_loss = {distillation.max_loss:g}: pass more images, or a smaller max_loss")
        before, after = seconds
        times = f"{before / after:.2f} times as fast"
        lines.append(f"one run on these: {before:.3g} s before, {after:.3g} s after, {times}")
    rows = []
    for layer in layers:
        costs = [cost for cost in layer.costs if cost is not None]
        heads = ", ".join(map(str, layer.convolved)) or "-"
        rows.append((layer.name, layer.heads, heads, min(costs, default=None)))
    table = Table(COLUMNS, tuple(rows))
    stays = gathered((layer.name, layer.note) for layer in layers if layer.note)
    return Document((summary, *lines), (table, *([Notes(tuple(stays))] if stays else [])))
