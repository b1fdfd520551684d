"""What a distillation gives: the network, what became of each layer, and what that costs."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, final

from conv2attn.networks.conversion.network import Network
from conv2attn.report import Document, Notes, Report, Table, counted, document, gathered
from conv2attn.span.graded_facts.effects import Effect
from conv2attn.span.graded_facts.effects_document import value_and_error
from conv2attn.verdicts import Verdict

COLUMNS = ("layer", "heads", "convolutions", "least cost")


@final
@dataclass(frozen=True)
class DistilledLayer:
    """One layer: how many heads it has, which of them are convolutions now, and what each costs alone.

    A cost is None where a head was not tried; `note` says why.
    """

    name: str
    heads: int
    convolved: tuple[int, ...]
    costs: tuple[float | None, ...]
    note: str = ""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Distillation(Report, Generic[Network]):
    """A copy of a network in which some heads are convolutions, and what that costs on images held out.

    `effect` and `seconds`, of one run of each network on these images, are None where no head was replaced. The exit
    code is 3 then, and where these images lose more than `max_loss` in the mean; 0 otherwise.
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
        """Undecided where no head was replaced, or the images held out lose more than was asked for."""
        replaced = any(layer.convolved for layer in self.layers)
        return Verdict.HOLDS if replaced and not self.exceeds else Verdict.UNDECIDED

    @property
    def exceeds(self) -> bool:
        """Whether the mean loss on images held out is above `max_loss`."""
        if self.effect is None:
            return False
        loss = self.effect.change if self.effect.loss is None else self.effect.loss
        return not loss <= self.max_loss

    def content(self) -> Any:
        """All but the network."""
        names = ("layers", "kernel_size", "max_loss", "held_out", "effect", "seconds")
        return {name: getattr(self, name) for name in names}


@document.register(Distillation)
def _(distillation: Distillation[Any], verbose: bool = False) -> Document:
    """A row for each layer."""
    layers, size = distillation.layers, distillation.kernel_size
    convolved, every = sum(len(each.convolved) for each in layers), sum(each.heads for each in layers)
    summary = f"{convolved} of {counted(every, 'head')} became convolutions of {counted(size, 'token')} a side"
    lines = []
    if (effect := distillation.effect) is not None and (seconds := distillation.seconds) is not None:
        held = f"{counted(distillation.held_out, 'image')} held out"
        lines.append(f"change of the output on {held}: {value_and_error(effect.change, effect.change_error)}")
        if effect.loss is not None:
            loss = value_and_error(effect.loss, effect.loss_error)
            accuracy = value_and_error(effect.accuracy, effect.accuracy_error)
            lines.append(f"cross entropy {loss} more, accuracy {accuracy} more")
        if distillation.exceeds:
            lines.append(f"above the {distillation.max_loss:g} that was asked for: pass more images, or a smaller loss")
        before, after = seconds
        times = f"{before / after:.2f} times as fast"
        lines.append(f"one run on these: {before:.3g} s before, {after:.3g} s after, {times}")
    rows = []
    for layer in layers:
        known = [cost for cost in layer.costs if cost is not None]
        heads = ", ".join(map(str, layer.convolved)) or "-"
        rows.append((layer.name, layer.heads, heads, min(known, default=None)))
    table = Table(COLUMNS, tuple(rows))
    stays = gathered((layer.name, layer.note) for layer in layers if layer.note)
    return Document((summary, *lines), (table, *([Notes(tuple(stays))] if stays else [])))
