"""The one phase in which a network is read: a record for each layer, layer by layer, as it runs on its inputs."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import Selection, argument, as_inputs, call_network, running
from conv2attn.errors import UsageError, first_line
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.capture import Captured, Kept, chosen, joined_calls
from conv2attn.networks.conversion import attention_layers
from conv2attn.networks.positions import Unread, windows_note
from conv2attn.networks.reading.attended import Attended, Running
from conv2attn.networks.reading.image_rows import HeadAxis, ImageRows, axis_of_heads, on_two_sides, rows_of_images
from conv2attn.networks.reading.perturbed import Perturbed, on_the_cpu
from conv2attn.networks.reading.places import Places
from conv2attn.networks.reading.records import Read, Reads, Tokens
from conv2attn.networks.reading.replay import calls_of, replayed, why_several
from conv2attn.networks.reading.replay_result import CHANNELS, MIXES_VALUES, OTHER_HEADS, Replayed
from conv2attn.networks.reading.responses import sums_of_rows
from conv2attn.networks.reading.rounds import places
from conv2attn.networks.reading.score_order import unordered
from conv2attn.networks.reading.token_grids import SAME_PLACES, Placed, placed
from conv2attn.networks.reading.watch import SEED, Marked, Operators, Watch

PlacesByName = Mapping[str, dict[str, Places]]
"""The places of the queries, keys and values of each attention."""
AT_ONCE = 2**28
"""Bytes of attention that are kept at once, and of the largest attention of a run.

Layers are captured in as few runs as that allows, one layer and two images at least in each.
"""


@final
@dataclass(frozen=True)
class Held:
    """How the runs go whose attention is kept: `call` runs the network, and `marked` says what products are to be."""

    marked: Marked | None = None
    call: Callable[[nn.Module, Any], Any] = call_network


def read_network(network: nn.Module, example_input: Any, selection: Selection, held: Held | None = None) -> Reads:
    """The layers of a network that attend on inputs, or on all batches of a loader.

    Layers of this project that read no content are read from their parameters, on the grids of the run. Attention is
    that of runs in which something is `held`, where weights and outputs are not asked for.

    Raises:
        UsageError: nothing attended (C2A501), nothing of such a name (C2A008), or it does not run (C2A009).
    """
    inputs = as_inputs(network, example_input)
    batches = [inputs] if isinstance(inputs, Tensor | tuple | Mapping) else list(inputs)
    batches = [each[0] if isinstance(each, list) else each for each in batches]
    if not batches:
        raise UsageError("C2A501", "the loader holds no batch", "Pass one that does.")
    sizes, counts, marks = dict[str, int](), dict[str, tuple[int, ...]](), defaultdict[str, list[Tensor]](list)
    first = batches[0][:2] if holds_images(batches[0]) else batches[0]
    times = sum(map(len, batches)) / len(first) if all(map(holds_images, batches)) else float(len(batches))

    def see(attended: Attended, _: Running) -> None:
        count = attended.attention.numel() * attended.attention.element_size()
        sizes[attended.name] = sizes.get(attended.name, 0) + int(count * times)
        counts[attended.name] = tuple(attended.attention.shape[-2:])
        marks[attended.name].append(sums_of_rows(attended.attention))

    with running(network, first):
        modules = list(network.modules())
        beside = first_run(network, see, first)
        if modules != list(network.modules()):  # some networks replace modules as they first run
            sizes.clear()
            counts.clear()
            marks.clear()
            beside = first_run(network, see, first)
        drawn = changing(network, first, marks)
        own = own_sides(network, first) if attention_layers(network) else {}
    # Parts of a batch are as large as memory allows, with two images at least, so that statistics over images stay
    # seen.
    most = max(2, int(AT_ONCE * times * len(first) / max(sizes.values(), default=1)))
    batches = [part for batch in batches for part in parts_of(batch, most)]
    every = dict.fromkeys([*sizes, *own])
    named = dict[str, Captured]()
    if every or not beside:  # a network whose attention is all unseen attends all the same
        named = chosen(network, {name: Unread("") for name in every if selection.wants(name)}, every, selection)
    unseen = {name: each for name, each in named.items() if name not in every}
    for module in beside:
        name = next(each for at in count(1) if (each := f"{module}#{at}" if at > 1 else module) not in named)
        if selection.wants(name):
            named[name] = unseen[name] = UNSEEN_CODE
    reading = ReadingPass(network, batches, sizes, counts, own, unseen, drawn, held)
    return Reads(tuple(named), reading.records, sampled=bool(counts), counts=counts)


def first_run(network: nn.Module, see: Callable[[Attended, Running], None], inputs: Any) -> list[str]:
    """A run on these inputs; the modules with attention that is not seen."""
    watch = Watch(network, see)
    with Operators(watch):
        watch.run(lambda: call_network(network, inputs))
    return [watch.names[module] for module, times in watch.unseen.items() if times > 0 and module not in watch.own]


def changing(network: nn.Module, inputs: Any, marks: Mapping[str, Sequence[Tensor]]) -> set[str]:
    """The attention that is another in a second run, which draws other random numbers; `marks` are of the first."""
    others = defaultdict[str, list[Tensor]](list)

    def see(attended: Attended, _: Running) -> None:
        others[attended.name].append(sums_of_rows(attended.attention))

    Watch(network, see).run(partial(call_network, network, inputs), seed=SEED + 1)
    return {name for name in {*marks, *others} if not equal_sums(marks.get(name, []), others.get(name, []))}


def equal_sums(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Whether the calls of two runs give the same sums but for rounding, whose order a device may change."""
    if [each.shape for each in first] != [each.shape for each in second]:
        return False
    return all(
        bool(torch.isclose(one, other, rtol=torch.finfo(one.dtype).eps ** 0.5, atol=0, equal_nan=True).all())
        for one, other in zip(first, second, strict=True)
    )


def holds_images(batch: Any) -> bool:
    """Whether a batch is a tensor of images, or of videos, whose first axis counts them."""
    return isinstance(batch, Tensor) and batch.ndim >= 4 and len(batch) > 0


def parts_of(batch: Any, most: int) -> list[Any]:
    """A batch of images in parts of so many, two images at least in each; other inputs whole."""
    if not holds_images(batch) or len(batch) <= most:
        return [batch]
    parts = list(batch.split(most))
    if len(parts[-1]) == 1:
        parts = [*parts[:-2], torch.cat(parts[-2:])]
    return parts


def own_sides(network: nn.Module, inputs: Any) -> dict[str, tuple[int, ...]]:
    """The sides of the images that reach the layers of this project in a run on these inputs."""
    layers = attention_layers(network)
    names = {layer: name or "(root)" for name, layer in layers.items()}
    sides: dict[str, tuple[int, ...]] = {}

    def keep(layer: nn.Module, args: Any, kwargs: Any) -> None:
        assert isinstance(layer, MultiHeadSelfAttention)
        sides[names[layer]] = tuple(argument(args, kwargs, 0, "input").shape[-layer.dimensions :])

    handles = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers.values()]
    try:
        Watch(network).run(lambda: call_network(network, inputs))
    finally:
        for handle in handles:
            handle.remove()
    return sides


class ReadingPass:
    """One pass over the records of a network: where its tokens lie is asked first, then layers are captured."""

    def __init__(
        self,
        network: nn.Module,
        batches: Sequence[Any],
        sizes: Mapping[str, int],
        counts: Mapping[str, tuple[int, ...]],
        own: Mapping[str, Sequence[int]],
        unseen: Mapping[str, Captured],
        drawn: Set[str],
        held: Held | None,
    ):
        """Takes what first runs have told.

        Args:
            drawn: attention that changes from run to run.
            held: how the runs go whose attention is kept, where not as the network does.
        """
        self.network, self.batches, self.sizes, self.counts = network, batches, sizes, counts
        self.own, self.unseen, self.drawn, self.held = own, unseen, drawn, held
        self.leads = dict[str, list[tuple[int, ...]]]()
        self.layers = {name or "(root)": layer for name, layer in attention_layers(network).items()}

    def records(self, names: Sequence[str]) -> Iterator[Read]:
        """The records of these layers, in their order."""
        others = [name for name in names if name in self.sizes and name not in self.layers]
        perturbed = self.perturbed() if others else None
        found = ALONE if perturbed is None else where_tokens_lie(perturbed)
        known: PlacesByName = {} if isinstance(found, str) else found
        rows, reasons = self.rows_of_images(perturbed, known)
        reasons |= dict.fromkeys(self.drawn, DRAWN)
        for group in groups(names, self.sizes):
            asked = [name for name in group if name in others]
            # Inputs of layers are kept for one group at a time: those of all would grow with the network.
            calls, shapes = calls_of(perturbed, asked) if perturbed is not None and asked else ({}, {})
            replays = {name: self.replay(perturbed, name, calls, shapes) for name in asked}
            axes = dict[str, HeadAxis]()
            for name, each in replays.items():
                replays[name], axis = head_axis(each, known.get(name, {}), shapes.get(name, ()))
                if axis is not None:
                    axes[name] = axis
                    if name in rows and on_two_sides(rows[name], axis):
                        reasons.setdefault(name, SAME_PLACES)
            del calls
            captured, centers = self.captured([name for name in group if not self.ideal(name)], rows, axes)
            for name in group:
                if name in self.layers:
                    yield self.own_record(name, captured, centers)
                elif name in self.unseen:
                    yield Read(name, self.unseen[name])
                else:
                    where = reasons.get(name, found)
                    alone = rows.get(name) if name in axes else None
                    moved = alone is not None and not alone.plain
                    shape, axis = shapes.get(name), axes.get(name)
                    yield record(name, captured.pop(name), replays[name], where, shape, axis, moved)

    @on_the_cpu
    def rows_of_images(
        self, perturbed: Perturbed | None, found: PlacesByName
    ) -> tuple[dict[str, ImageRows], dict[str, str]]:
        """Where images stand in the rows of each attention, and why places are not those of all images and calls."""
        if perturbed is None or not found:
            return {}, {}
        try:
            rows, reasons = rows_of_images(perturbed, self.batches[0], found, self.leads)
            return rows, unordered(perturbed) | reasons
        except Exception as error:  # a network may raise its own
            return {}, dict.fromkeys(self.sizes, f"two images do not run together in float64 ({first_line(error)})")

    @on_the_cpu
    def perturbed(self) -> Perturbed | None:
        """One image of the first batch, along its second axis where along the first it has other tokens.

        None where it does not run in float64, or has other tokens either way. Weights are copied only where it does
        not run with those of the network.
        """
        # Some networks take tokens first and images second, which shows in the number of tokens of one image.
        for share, axis in product((True, False), (0, 1)):
            shapes = defaultdict[str, list[tuple[int, ...]]](list)

            def see(attended: Attended, _: Running, shapes: dict[str, list[tuple[int, ...]]] = shapes) -> None:
                shapes[attended.name].append(tuple(attended.attention.shape))

            try:
                alone = Perturbed(self.network, self.batches[0], axis, share)
                alone.run(Watch(alone.network, see))
            except Exception:  # a network may raise its own
                continue
            if all(calls[-1][-2:] == self.counts.get(name) for name, calls in shapes.items()):
                self.leads = {name: [call[:-2] for call in calls] for name, calls in shapes.items()}
                return alone
        return None

    def ideal(self, name: str) -> bool:
        """Whether a layer is read from its parameters, or not at all."""
        return name in self.unseen or (name in self.layers and not self.layers[name].has_content)

    @on_the_cpu
    def replay(
        self, perturbed: Perturbed | None, name: str, calls: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
    ) -> Replayed:
        """The replay of a layer; none of a module that attends more than once."""
        if perturbed is None or self.held is not None:
            return Replayed(why=ALONE if perturbed is None else HELD)
        module = name.split("#")[0]
        try:
            if f"{module}#2" in self.sizes:
                return Replayed(why=why_several(perturbed, module, calls))
            return replayed(perturbed, name, calls, shapes[name])
        except Exception as error:  # a network may raise its own
            return Replayed(why=f"it does not run alone ({first_line(error)})")

    def captured(
        self, names: Sequence[str], rows: Mapping[str, ImageRows], axes: Mapping[str, HeadAxis]
    ) -> tuple[dict[str, Captured], dict[str, list[Tensor]]]:
        """The attention of these layers on all batches, and the moved centres of those that have some."""
        pieces, centers = dict[str, list[Captured]](), defaultdict[str, list[Tensor]](list)
        selection = Selection(tuple(map(literally, names)))
        for batch in self.batches if names else ():
            kept = Kept(selection, rows, axes)

            def see(attended: Attended, run: Running, kept: Kept = kept) -> None:
                kept.see(attended, run)
                layer = self.layers.get(attended.name)
                if layer is None or run.first is None or attended.name not in names:
                    return
                moved = layer.moved_centers(run.first)
                if moved is not None:
                    centers[attended.name].append(moved.detach().cpu())

            held = self.held or Held()
            with running(self.network, batch):
                Watch(self.network, see, marked=held.marked).run(partial(held.call, self.network, batch))
            for name in names:  # taken out, so that the last part is not held while all are joined
                part = joined_calls(kept.attention.pop(name)) if name in kept.attention else UNSEEN
                pieces.setdefault(name, []).append(part)
                del part
        return {name: joined_calls(each) for name, each in pieces.items()}, centers

    def own_record(self, name: str, captured: dict[str, Captured], centers: Mapping[str, list[Tensor]]) -> Read:
        """The record of a layer of this project: its grid and its weights are its own."""
        layer, sides = self.layers[name], tuple(self.own[name])
        if not layer.has_content:
            return Read.of_layer(name, layer, layer, Tokens(sides))
        moved = torch.cat(centers[name]) if name in centers else None
        tokens = Tokens(layer.image_padding.sides(sides), sites=layer.basis().sites)
        return Read.of_layer(name, layer, captured[name], tokens, moved)


ALONE = "one image of its inputs alone does not run in float64 with the same tokens, so that none could be asked for"
HELD = "its weights are not asked for in runs in which something is held"
DRAWN = "its attention is another in each run: it draws random numbers, or keeps something of the run before"
UNSEEN_CODE = Unread(
    "attention runs in it that is not seen: weights that are no shares, or a softmax in compiled code; "
    "make shares of them in front of the values, or pass the attention as an array"
)
UNSEEN = Unread("it attends in some runs of the network, and not in others")


@on_the_cpu
def where_tokens_lie(perturbed: Perturbed) -> PlacesByName | str:
    """The places of the tokens of each attention, or why the run does not tell them."""
    try:
        return places(perturbed)
    except Exception as error:  # a network may raise its own
        return f"it does not run with noise on its input ({first_line(error)})"


def literally(name: str) -> str:
    """A pattern that fits this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def groups(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Runs of layers whose attention fits into memory together."""
    group, held = list[str](), 0
    for name in names:
        if group and held + sizes.get(name, 0) > AT_ONCE:
            yield group
            group, held = [], 0
        group, held = [*group, name], held + sizes.get(name, 0)
    if group:
        yield group


def head_axis(
    replay: Replayed, places: Mapping[str, Places], shape: tuple[int, ...]
) -> tuple[Replayed, HeadAxis | None]:
    """The axis of heads: of rows at the same tokens, or of a reading that replays; else the second of four axes.

    A reading with other heads than those at the same tokens is none: run alone, a core that takes queries, keys and
    values has windows for heads.
    """
    told = axis_of_heads(places, shape[:-2])
    if replay.matrices is None:
        return replay, told or ((1, shape[1]) if len(shape) == 4 else None)
    replays = replay.heads, len(replay.matrices)
    # Both must say the same. A core run alone takes windows for heads, which the places of its tokens deny.
    if told is None or told == replays:
        return replay, replays
    return Replayed(replay.residual, why=OTHER_HEADS), told


@on_the_cpu
def record(
    name: str,
    attention: Captured,
    replay: Replayed,
    found: PlacesByName | str,
    shape: tuple[int, ...] | None,
    axis: HeadAxis | None,
    moved: bool,
) -> Read:
    """The record of a layer, from what was asked of it; `moved` says that images are not in front of its heads."""
    weights = None if replay.matrices is None else (replay.matrices.dense(), replay.bias)
    notes = [] if weights is not None else [replay.why]
    if isinstance(attention, Unread):
        return Read(name, attention, replay=replay.residual, notes=tuple(notes))
    heads = attention.shape[1]
    if isinstance(found, str) or shape is None:
        where: Placed | str = found if isinstance(found, str) else ALONE
    else:
        where = placed(found.get(name, {}), shape, *(axis or (1, heads)))
    if replay.why == CHANNELS and where != CHANNELS:  # run alone, channels may look like tokens
        notes = [MIXES_VALUES]
    reordered = moved or (axis is not None and axis[0] != 1)
    if isinstance(where, str):
        return Read(name, attention, None, weights, replay.residual, tuple(notes), where, reordered=reordered)
    for tokens, order in ((-2, where.queries), (-1, where.keys)):
        if order is not None and not bool((order == torch.arange(len(order))).all()):
            attention, reordered = attention.index_select(tokens, order.to(attention.device)), True
    if where.tokens.windows is not None and len(where.tokens.windows.places) > 1:
        notes.append(windows_note(where.tokens.sides, placed=True))
    own = ("", name.rpartition(".")[2])
    if weights is not None and replay.start not in own:
        notes.append(f"its matrices act on the input of {replay.start}")
    if weights is not None and replay.end not in own:
        notes.append(f"its output is that of {replay.end}")
    return Read(name, attention, where.tokens, weights, replay.residual, tuple(notes), reordered=reordered)
