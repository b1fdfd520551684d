"""Reads a network in one phase: one record per layer, made layer by layer as the network runs on its inputs."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count, product
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import Selection, as_inputs, call_network, running
from conv2attn.errors import UsageError, first_line
from conv2attn.networks.capture import Captured, by_convention, chosen, joined_calls
from conv2attn.networks.layers import attention_layers, layer_inputs
from conv2attn.networks.positions import Unread, windows_note
from conv2attn.networks.reading.answers import Answers, answers_of, runs_of
from conv2attn.networks.reading.attended import Attended, Running
from conv2attn.networks.reading.layouts import NO_IMAGE, Layout
from conv2attn.networks.reading.perturbed import Perturbed, on_the_cpu
from conv2attn.networks.reading.places import PLACES_DIFFER
from conv2attn.networks.reading.records import Read, Reads, Tokens
from conv2attn.networks.reading.replay import calls_of, replayed, why_several
from conv2attn.networks.reading.replay_result import CHANNELS, MIXES_VALUES, Replayed
from conv2attn.networks.reading.responses import Call, Shape, different_calls, sums_of_rows, sums_of_run
from conv2attn.networks.reading.token_grids import Placed
from conv2attn.networks.reading.watch import SEED, Marked, Operators, Watch

MOST_IMAGES = 8
"""Most images that run together in float64 if the places of tokens differ between images."""
AT_ONCE = 2**28
"""Most bytes of attention in memory at once, and of the largest attention of a run.

Layers are captured in as few runs as that allows, with at least one layer and two images in each.
"""


@final
@dataclass(frozen=True)
class CaptureRun:
    """How a network runs while its attention is captured: `call` runs it, and `marked` replaces products."""

    marked: Marked | None = None
    call: Callable[[nn.Module, Any], Any] = call_network


def read_network(network: nn.Module, example_input: Any, selection: Selection) -> Reads:
    """Records of the layers of a network that attend on inputs, or on all batches of a loader.

    Layers of this project that read no content are read from their parameters, on the grids of the run.

    Raises:
        UsageError: nothing attended (C2A501), no layer has such a name (C2A008), or the network does not run (C2A009).
    """
    inputs = as_inputs(network, example_input)
    batches = [inputs] if isinstance(inputs, Tensor | tuple | Mapping) else list(inputs)
    batches = [each[0] if isinstance(each, list) else each for each in batches]
    if not batches:
        raise UsageError("C2A501", "the loader holds no batch", "Pass a loader with batches.")
    sizes, counts, marks = dict[str, int](), dict[str, tuple[int, ...]](), dict[Call, Tensor]()
    first = batches[0][:2] if holds_images(batches[0]) else batches[0]
    times = sum(map(len, batches)) / len(first) if all(map(holds_images, batches)) else float(len(batches))

    def see(attended: Attended, _: Running) -> None:
        count = attended.attention.numel() * attended.attention.element_size()
        sizes[attended.name] = sizes.get(attended.name, 0) + int(count * times)
        counts[attended.name] = tuple(attended.attention.shape[-2:])
        marks[attended.call] = sums_of_rows(attended.attention)

    with running(network, first):
        modules = list(network.modules())
        beside = first_run(network, see, first)
        if modules != list(network.modules()):  # some networks replace modules in their first run
            sizes.clear()
            counts.clear()
            marks.clear()
            beside = first_run(network, see, first)
        drawn = changing(network, first, marks)
        own = own_sides(network, first) if attention_layers(network) else {}
    # Parts of a batch are as large as memory allows. Each has at least two images, so that batch statistics remain
    # visible.
    most = max(2, int(AT_ONCE * times * len(first) / max(sizes.values(), default=1)))
    batches = [part for batch in batches for part in parts_of(batch, most)]
    every = dict.fromkeys([*sizes, *own])
    named = dict[str, Captured]()
    if every or not beside:  # or every attention is unobserved, and reported as such
        named = chosen(network, {name: Unread("") for name in every if selection.wants(name)}, every, selection)
    unseen = {name: each for name, each in named.items() if name not in every}
    for module in beside:
        name = next(each for at in count(1) if (each := f"{module}#{at}" if at > 1 else module) not in named)
        if selection.wants(name):
            named[name] = unseen[name] = UNSEEN_CODE
    reading = ReadingPass(network, batches, sizes, counts, own, unseen, drawn)
    records = [record for name in named for record in reading.records_of(name)]
    answers = vars(reading).get("answers")
    if isinstance(answers, Answers):  # the records have the places now
        reading.answers = replace(answers, places={})
    counts = {record.name: counts[record.calls[0][0]] for record in records if record.calls[0][0] in counts}
    return Reads(tuple(record.name for record in records), reading.records, sampled=bool(counts), counts=counts)


def first_run(network: nn.Module, see: Callable[[Attended, Running], None], inputs: Any) -> list[str]:
    """Runs the network; returns the modules with attention that is not observed."""
    watch = Watch(network, see)
    with Operators(watch):
        watch.run(lambda: call_network(network, inputs))
    return [watch.names[module] for module, times in watch.unseen.items() if times > 0 and module not in watch.own]


def changing(network: nn.Module, inputs: Any, marks: Mapping[Call, Tensor]) -> set[str]:
    """The names of attention that differs in a second run with another seed; `marks` are from the first run."""
    call = partial(call_network, network, inputs)
    others = sums_of_run(network, lambda watch: watch.run(call, seed=SEED + 1))

    def same(one: Tensor, other: Tensor) -> bool:  # up to rounding, since a device may change the order of sums
        return torch.allclose(one, other, torch.finfo(one.dtype).eps ** 0.5, 0, equal_nan=True)

    return {name for name, _ in different_calls(marks, others, same)}


def holds_images(batch: Any) -> bool:
    """Whether a batch is a tensor of images, or of videos, whose first axis counts them."""
    return isinstance(batch, Tensor) and batch.ndim >= 4 and len(batch) > 0


def parts_of(batch: Any, most: int) -> list[Any]:
    """A batch of images in parts of at most `most`, each of at least two images; other inputs whole."""
    if not holds_images(batch) or len(batch) <= most:
        return [batch]
    parts = list(batch.split(most))
    if len(parts[-1]) == 1:
        parts = [*parts[:-2], torch.cat(parts[-2:])]
    return parts


def own_sides(network: nn.Module, inputs: Any) -> dict[str, tuple[int, ...]]:
    """The sides of the images that reach the layers of this project in a run on these inputs."""
    layers = attention_layers(network)
    images = layer_inputs(network, lambda: Watch(network).run(lambda: call_network(network, inputs)))
    return {name or "(root)": tuple(each.shape[-layers[name].dimensions :]) for name, each in images.items()}


@final
@dataclass(eq=False)
class AttentionRecord:
    """One attention to be read: its `calls`, and the `layout` of its rows, or None for the conventional one.

    `where` is the place of its tokens, or the reason why that is unknown.
    """

    name: str
    calls: tuple[Call, ...]
    layout: Layout | None
    where: Placed | str


class ReadingPass:
    """One pass over the records of a network: it first finds the places of tokens, then captures layers."""

    def __init__(
        self,
        network: nn.Module,
        batches: Sequence[Any],
        sizes: Mapping[str, int],
        counts: Mapping[str, tuple[int, ...]],
        own: Mapping[str, Sequence[int]],
        unseen: Mapping[str, Captured],
        drawn: Set[str],
    ):
        """Takes the results of the first runs; attention in `drawn` changes from run to run."""
        self.network, self.batches, self.sizes, self.counts = network, batches, sizes, counts
        self.own, self.unseen, self.drawn = own, unseen, drawn
        self.layers = {name or "(root)": layer for name, layer in attention_layers(network).items()}
        self.every = dict[str, AttentionRecord]()

    @cached_property
    def alone(self) -> Perturbed | None:
        """One image of the first batch, if it runs in float64 with the same tokens."""
        return self.perturbed()

    @cached_property
    def answers(self) -> Answers | str:
        """The answers of two images about all attention, or of a single one; or the reason for none."""
        return ALONE if self.alone is None else answers_of(self.alone, self.batches[0], 2)

    def records_of(self, name: str) -> list[AttentionRecord]:
        """The records of an attention of this name: one for all its calls, or one per call."""
        if name in self.layers or name in self.unseen:
            records = [AttentionRecord(name, ((name, 0),), None, ALONE)]
        elif isinstance(self.answers, str):
            records = [AttentionRecord(name, ((name, 0),), None, self.answers)]
        else:
            groups = [each for each in self.answers.groups if each[0][0] == name]
            if not groups and not self.answers.calls_of(name):
                groups = [((name, 0),)]
            records = [
                self.placed(f"{name} (call {number + 1})" if number else name, group)
                for number, group in enumerate(groups)
            ]
        self.every |= {each.name: each for each in records}
        return records

    def placed(self, name: str, calls: tuple[Call, ...]) -> AttentionRecord:
        """The record of these calls. If tokens have other places in each image, images are read as windows of one."""
        answers = self.answers
        assert not isinstance(answers, str)
        if calls[0] not in answers.shapes:
            return AttentionRecord(name, calls, None, UNSEEN.reason)
        layout, where = answers.placed(calls)
        why = DRAWN if name.split(" ")[0] in self.drawn else answers.why_unordered(calls)
        if why or layout is None or isinstance(where, str) or not where.by_image:
            return AttentionRecord(name, calls, layout, why or where)
        batch = self.batches[0]
        if len(self.batches) > 1 or not holds_images(batch) or len(batch) > MOST_IMAGES:
            return AttentionRecord(name, calls, layout, PLACES_DIFFER)
        if len(batch) > len(layout.at):  # a network may use an image's position in the batch
            every = ALONE if self.alone is None else answers_of(self.alone, batch, len(batch), ordered=False)
            layout, where = (None, every) if isinstance(every, str) else every.placed(calls)
        return AttentionRecord(name, calls, layout, where)

    def records(self, names: Sequence[str], capture_run: CaptureRun | None = None) -> Iterator[Read]:
        """The records of these names, in their order.

        If `capture_run` is passed, attention is captured in the runs that it describes, and weights and outputs are not
        read.
        """
        for group in groups(names, {each.name: self.sizes.get(each.calls[0][0], 0) for each in self.every.values()}):
            records = [self.every[name] for name in group]
            others = [each for each in records if not self.ideal(each.name) and each.name not in self.layers]
            bases = list(dict.fromkeys(each.calls[0][0] for each in others))
            # Inputs of layers are kept for one group at a time: those of all layers would grow with the network.
            calls, shapes = calls_of(self.alone, bases) if self.alone and bases and capture_run is None else ({}, {})
            unread = None if capture_run is None else Replayed(why=HELD)
            replays = {each.name: unread or self.replay(each, calls, shapes) for each in others}
            del calls
            captured, centers = self.captured(
                [each for each in records if not self.ideal(each.name)], capture_run or CaptureRun()
            )
            for each in records:
                name = each.name
                if name in self.layers:
                    yield self.own_record(name, captured, centers)
                elif name in self.unseen:
                    yield Read(name, self.unseen[name])
                else:
                    yield read_of(each, captured.pop(name), replays[name])

    @on_the_cpu
    def perturbed(self) -> Perturbed | None:
        """One image of the first batch; images are on its first axis, or on its second if tokens are on the first.

        None if it does not run in float64, or its tokens differ along both axes. Weights are copied only if it does not
        run with those of the network.
        """
        # Some networks take tokens on the first axis and images on the second: one image then has another number of
        # tokens.
        for share, axis in product((True, False), (0, 1)):
            counts = dict[str, tuple[int, ...]]()

            def see(attended: Attended, _: Running, counts: dict[str, tuple[int, ...]] = counts) -> None:
                counts[attended.name] = tuple(attended.attention.shape[-2:])

            try:
                alone = Perturbed(self.network, self.batches[0], axis, share)
                alone.run(Watch(alone.network, see))
            except Exception:  # a network may raise its own
                continue
            if all(each == self.counts.get(name) for name, each in counts.items()):
                return alone
        return None

    def ideal(self, name: str) -> bool:
        """Whether a layer is read from its parameters, or is not read."""
        return name in self.unseen or (name in self.layers and not self.layers[name].has_content)

    @on_the_cpu
    def replay(self, record: AttentionRecord, calls: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Replayed:
        """The replay of a layer, with the heads of its layout; empty for a module that attends more than once."""
        name = record.calls[0][0]
        module = name.split("#")[0]
        if self.alone is None:
            return Replayed(why=ALONE)
        try:
            if f"{module}#2" in self.sizes:
                return Replayed(why=why_several(self.alone, module, calls))
            replay = replayed(self.alone, name, calls, shapes[name])
        except Exception as error:  # a network may raise its own
            return Replayed(why=f"it does not run alone ({first_line(error)})")
        if isinstance(self.answers, str):
            return replay
        replay, record.layout = self.answers.with_layout(record.calls, record.layout, replay, shapes[name])
        return replay

    def captured(
        self, records: Sequence[AttentionRecord], capture_run: CaptureRun
    ) -> tuple[dict[str, Captured], dict[str, list[Tensor]]]:
        """The attention of these records on all batches, and the moved centres of layers that move their centres."""
        pieces, centers = defaultdict[tuple[Call, ...], list[Captured]](list), defaultdict[str, list[Tensor]](list)
        layouts = [each.layout for each in records if each.layout is not None]
        for batch, images, before in runs_of(self.batches if records else [], layouts, self.alone):
            rows = defaultdict[Call, list[Captured]](list)

            def see(attended: Attended, run: Running, rows: dict[Call, list[Captured]] = rows) -> None:
                for record in records:
                    if record.layout is None and record.calls[0][0] == attended.name:
                        rows[record.calls[0]].append(by_convention(attended, run))
                        break
                    if record.layout is not None and attended.call in record.calls:
                        rows[attended.call].append(attended.attention.detach().flatten(0, -3).clone())
                        break
                attended.query = attended.key = attended.value = None
                layer = self.layers.get(attended.name)
                if layer is None or run.first is None or not any(each.name == attended.name for each in records):
                    return
                moved = layer.moved_centers(run.first)
                if moved is not None:
                    centers[attended.name].append(moved.detach().cpu())

            with running(self.network, batch):
                Watch(self.network, see, marked=capture_run.marked).run(partial(capture_run.call, self.network, batch))
            for record in {each.calls: each for each in records}.values():
                pieces[record.calls].append(attention_of(record, rows, images, before))
        joined = {calls: joined_calls(each) for calls, each in pieces.items()}
        return {each.name: joined[each.calls] for each in records}, centers

    def own_record(self, name: str, captured: dict[str, Captured], centers: Mapping[str, list[Tensor]]) -> Read:
        """The record of a layer of this project: its grid and its weights are its own."""
        layer, sides = self.layers[name], tuple(self.own[name])
        if not layer.has_content:
            return Read.of_layer(name, layer, layer, Tokens(sides))
        moved = torch.cat(centers[name]) if name in centers else None
        tokens = Tokens(layer.image_padding.sides(sides), sites=layer.basis().sites)
        return Read.of_layer(name, layer, captured[name], tokens, moved)


ALONE = "one image of its inputs alone does not run in float64 with the same tokens, so its places are unknown"
HELD = "its weights are not read in runs with replaced products"
DRAWN = "its attention differs between runs: it draws random numbers, or keeps a state"
UNSEEN_CODE = Unread(
    "attention runs in it that is not observed: weights that do not sum to 1, or a softmax in compiled code; "
    "normalise them before the values, or pass the attention as an array"
)
IMAGES_AS_WINDOWS = "its tokens have other places in each image: all images are read as windows of one"
AROUND = (
    "in windows with keys around them: measured at their places in the image, without keys outside the image; "
    "check-span judges one window"
)
UNSEEN = Unread("it attends in some runs of the network, and not in others")


def attention_of(record: AttentionRecord, rows: dict[Call, list[Captured]], images: int, before: int) -> Captured:
    """The attention (images and windows, heads, queries, keys) of a run, without the first `before` images."""
    if any(not rows.get(call) for call in record.calls):
        return UNSEEN
    # `pop` frees each part, so that memory never holds the last part and the joined tensor together.
    parts = [each for call in record.calls for each in rows.pop(call)]
    if record.layout is None:
        return joined_calls(parts)
    tensors = [each for each in parts if isinstance(each, Tensor)]
    attention = record.layout.rows(tensors[0] if len(tensors) == 1 else torch.cat(tensors), images)
    return Unread(NO_IMAGE) if attention is None else attention[before * record.layout.at.shape[-1] :]


def literally(name: str) -> str:
    """A pattern that fits this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def groups(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Consecutive layers whose attention fits into memory together."""
    group, bytes_in_group = list[str](), 0
    for name in names:
        if group and bytes_in_group + sizes.get(name, 0) > AT_ONCE:
            yield group
            group, bytes_in_group = [], 0
        group, bytes_in_group = [*group, name], bytes_in_group + sizes.get(name, 0)
    if group:
        yield group


@on_the_cpu
def read_of(record: AttentionRecord, attention: Captured, replay: Replayed) -> Read:
    """The record of a layer, from its places, attention and replay."""
    name, where, layout = record.name, record.where, record.layout
    weights = None if replay.matrices is None else (replay.matrices.dense(), replay.bias)
    notes = [] if weights is not None else [replay.why]
    if isinstance(attention, Unread):
        return Read(name, attention, replay=replay.residual, notes=tuple(notes))
    if replay.why == CHANNELS and where != CHANNELS:  # in a layer that runs alone, channels may look like tokens
        notes = [MIXES_VALUES]
    reordered = layout is not None and not layout.in_order
    if isinstance(where, str):
        return Read(name, attention, None, weights, replay.residual, tuple(notes), where, reordered=reordered)
    for tokens, order in ((-2, where.queries), (-1, where.keys)):
        if order is not None and not bool((order == torch.arange(len(order), device="cpu")).all()):
            attention, reordered = attention.index_select(tokens, order.to(attention.device)), True
    if where.by_image:
        notes.append(IMAGES_AS_WINDOWS)
    elif where.tokens.windows is not None and where.tokens.windows.around is not None:
        notes.append(AROUND)
    elif where.tokens.windows is not None and len(where.tokens.windows.places) > 1:
        notes.append(windows_note(where.tokens.sides, placed=True))
    own = ("", name.rpartition(".")[2])
    if weights is not None and replay.start not in own:
        notes.append(f"its matrices act on the input of {replay.start}")
    if weights is not None and replay.end not in own:
        notes.append(f"its output is that of {replay.end}")
    return Read(name, attention, where.tokens, weights, replay.residual, tuple(notes), reordered=reordered)
