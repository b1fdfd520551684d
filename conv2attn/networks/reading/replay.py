"""The matrices of each head, asked of the run: `y = sum_h A_h x M_h^T + b`, replayed under random attention.

With one head made to attend from each token to itself, a layer answers the unit vectors by the columns of its `M_h`,
however it stores its weights. Whether that is right is asked by replay: the layer runs on random tokens, under another
random attention in each head, and the formula must give its output. Its own attention would let wrong readings pass:
where heads attend alike or evenly, their order and their axis make no difference.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from math import prod
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.networks.reading.head_matrices import HeadMatrices
from conv2attn.networks.reading.perturbed import Perturbed, held
from conv2attn.networks.reading.watch import Attended, Running, Watch
from conv2attn.torch_internals import tree_map, tree_map_only

MOST_RESIDUAL = 1e-3
"""The largest difference between the output and its replay, as a share of the output's spread over tokens."""
SHARPNESS = 3.0
"""Standard deviation of the scores of random attention: a softmax of a few keys."""
LEAST_TOKENS = 8
"""Outputs over which the spread is taken: layers with fewer queries are run more than once."""
MOST_PASSES = 4096
"""Runs of one module for one candidate of its heads, at most."""


@final
@dataclass(frozen=True, eq=False)
class Replayed:
    """`matrices` (heads, d_out, d_in) and `bias` (d_out) in float64, None where `why` says which part is not read.

    `residual` is the largest difference of the output from its replay over the output's spread, None where nothing was
    replayed. `heads` is the axis of heads among those in front of queries and keys. `start` and `end` are the modules
    whose input is x and whose output is y.
    """

    residual: float | None = None
    matrices: HeadMatrices | None = None
    bias: Tensor | None = None
    heads: int = 0
    start: str = ""
    end: str = ""
    why: str = ""

    @property
    def passes(self) -> bool:
        """Whether the layer replays."""
        return self.residual is not None and self.residual <= MOST_RESIDUAL


@final
@dataclass(frozen=True, eq=False)
class Layout:
    """How a tensor holds tokens: its axis of channels, and whether the rows of attention change faster than tokens."""

    channels: int
    rows_last: bool

    def split(self, tensor: Tensor, rows: int) -> Tensor | None:
        """The tensor as (rows, tokens, channels); None where its tokens are no whole number a row."""
        tokens = tensor.movedim(self.channels, -1).flatten(0, -2)
        if len(tokens) % rows:
            return None
        if self.rows_last:
            return tokens.unflatten(0, (-1, rows)).transpose(0, 1)
        return tokens.unflatten(0, (rows, -1))


@final
@dataclass(frozen=True, eq=False)
class Call:
    """The first call of a module."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def fresh(arguments: Any) -> Any:
    """The arguments of a call, with copies of objects that it may change, such as caches of keys."""
    return tree_map(lambda each: each if isinstance(each, Tensor | nn.Module) else deepcopy(each), arguments)


def parent(name: str) -> str:
    """The name of the module around one; that of the network is (root)."""
    return name.rpartition(".")[0] or "(root)"


def calls_of(perturbed: Perturbed, names: Iterable[str]) -> tuple[dict[str, Call], dict[str, tuple[int, ...]]]:
    """The first call of each layer that attends and of the module around it, and the shape of each attention."""
    modules = {name or "(root)": module for name, module in perturbed.network.named_modules()}
    calls, shapes = dict[str, Call](), dict[str, tuple[int, ...]]()
    handles = []
    for name in {around for each in names for around in (each, parent(each))}:

        def keep(_: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
            calls.setdefault(name, Call(*fresh((args, kwargs))))

        handles.append(modules[name].register_forward_pre_hook(keep, with_kwargs=True))

    def see(attended: Attended, _: Running) -> None:
        shapes.setdefault(attended.name, tuple(attended.attention.shape))

    try:
        perturbed.run(Watch(perturbed.network, see))
    finally:
        for handle in handles:
            handle.remove()
    return calls, shapes


def replayed(perturbed: Perturbed, name: str, calls: Mapping[str, Call], shape: tuple[int, ...]) -> Replayed:
    """The reading of a layer that replays best, or why there is none.

    Where the module only lays the outputs of its heads side by side, or has one head and no weights behind it, the
    output is the first behind the module that replays and mixes heads.
    """
    modules = {each or "(root)": module for each, module in perturbed.network.named_modules()}
    module, around = modules[name], parent(name)
    own = Layer(module, module, calls[name], shape)
    with held(module):
        best = best_of(own)
    if best.passes and name != "(root)" and own.lacks_outputs(best):
        with held(modules[around]):
            mixed = best_of(Layer(modules[around], module, calls[around], shape))
        best = mixed if mixed.passes else best
    if best.matrices is None:
        return best
    if best.passes:
        return replace(best, matrices=best.matrices.packed())
    why = f"its values or outputs are not read: replay is {best.residual:.1e} off"
    return replace(best, matrices=None, bias=None, why=why)


def best_of(layer: "Layer") -> Replayed:
    """The first reading that replays, else the one that is least off."""
    best = Replayed(why="its output is no sum over heads of attention, tokens and matrices")
    for start in layer.starts():
        for axis in layer.head_axes():
            for reading in layer.readings(start, axis):
                if reading.passes:
                    return reading
                if reading.residual is not None and (best.residual is None or reading.residual < best.residual):
                    best = reading
    return best


def replay_residual(output: Tensor, expected: Tensor) -> tuple[float, Tensor]:
    """How far an output is from what is expected but for one bias, over its spread over tokens; and the bias."""
    bias = (output - expected).mean((0, 1))
    spread = float((output - output.mean((0, 1))).std())
    return (float((output - expected - bias).abs().max()) / spread if spread else float("inf")), bias


def side_by_side(matrices: Tensor) -> bool:
    """Whether each entry of the output comes from one head, so that nothing mixes heads yet."""
    return len(matrices) > 1 and bool(((matrices != 0).any(2).sum(0) <= 1).all())


@final
class Layer:
    """A layer that attends, run alone with other tokens and other attention."""

    def __init__(self, around: nn.Module, module: nn.Module, call: Call, shape: tuple[int, ...]):
        self.around, self.module, self.call, self.shape = around, module, call, shape
        self.lead, self.queries, self.keys = shape[:-2], *shape[-2:]
        self.names = {each: name for name, each in around.named_modules()}
        self.generator = torch.Generator().manual_seed(0)
        self.inputs = dict[nn.Module, list[Tensor]]()
        self.after = list[nn.Module]()
        self.times = 0

    def run(self, rule: Any, old: Tensor | None = None, tokens: Tensor | None = None) -> dict[nn.Module, Tensor]:
        """The outputs of all parts that end behind the attention, with `tokens` for `old`, wherever a part takes it."""
        outputs, seen = dict[nn.Module, Tensor](), 0
        inputs = dict[nn.Module, list[Tensor]]()

        def see(attended: Attended, _: Running) -> None:
            nonlocal seen
            seen += 1

        def begin(part: nn.Module, args: Any, kwargs: Any) -> Any:
            tensors: list[Tensor] = []
            tree_map_only(Tensor, tensors.append, (args, kwargs))
            inputs.setdefault(part, tensors)
            if tokens is None or old is None or not any(each is old for each in self.inputs.get(part, [])):
                return None

            def other(tensor: Tensor) -> Tensor:
                return tokens if tensor.shape == old.shape and torch.equal(tensor, old) else tensor

            return tree_map_only(Tensor, other, (args, kwargs))

        def end(part: nn.Module, _: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple | list) and output else output
            if seen and isinstance(first, Tensor):
                outputs.setdefault(part, first)

        watch = Watch(self.around, see, rule)
        handles = [each.register_forward_pre_hook(begin, with_kwargs=True) for each in self.names]
        handles += [each.register_forward_hook(end) for each in self.names]
        try:
            args, kwargs = fresh((self.call.args, self.call.kwargs))
            watch.run(lambda: self.around(*args, **kwargs))
        finally:
            for handle in handles:
                handle.remove()
        if tokens is None:
            self.inputs, self.after, self.times = inputs, list(outputs), seen
        return outputs

    def lacks_outputs(self, reading: Replayed) -> bool:
        """Whether the output weights of a reading of this module seem to be elsewhere."""
        if reading.matrices is not None and len(reading.matrices) > 1:
            return side_by_side(reading.matrices.dense())
        return not any(each is not self.module and any(True for _ in each.parameters()) for each in self.after)

    def starts(self) -> Iterator[tuple[nn.Module, Tensor]]:
        """Inputs that may hold the tokens of the keys: of the module, then of its parts in front of the attention."""
        self.run(None)
        if self.times != 1 or 0 in self.shape:
            return
        inputs, behind = self.inputs, set(self.after)
        parts = [self.module, *(each for each in self.module.modules() if each in inputs and each not in behind)]
        tried: list[Tensor] = []
        for part in parts:
            for tensor in reversed(inputs.get(part, [])):
                wide = tensor.is_floating_point() and tensor.ndim > 2 and tuple(tensor.shape) != self.shape
                if wide and not any(tensor is each for each in tried) and self.holds_keys(tensor):
                    tried.append(tensor)
                    yield part, tensor

    def holds_keys(self, tensor: Tensor) -> bool:
        """Whether a tensor may hold the tokens of all keys."""
        counts = {tensor.numel() // tensor.shape[axis] for axis in (-1, 1) if tensor.shape[axis]}
        return any(count % self.keys == 0 and count // self.keys <= prod(self.lead) for count in counts)

    def head_axes(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Shapes of what is in front of queries and keys, and the axis of heads among them."""
        lead = self.lead
        if len(lead) == 1:
            for heads in [count for count in range(1, lead[0] + 1) if lead[0] % count == 0][::-1]:
                yield (lead[0] // heads, heads), 1
                if heads < lead[0]:
                    yield (heads, lead[0] // heads), 0
            return
        yield lead, 1
        yield from ((lead, axis) for axis in range(len(lead)) if axis != 1)

    def readings(self, start: tuple[nn.Module, Tensor], axis: tuple[tuple[int, ...], int]) -> Iterator[Replayed]:
        """The readings of one axis of heads from one input, for each layout of its tokens."""
        (part, old), (lead, at) = start, axis
        heads, rows = lead[at], prod(lead) // lead[at]
        draws = [self.drawn(lead, old) for _ in range(-(-LEAST_TOKENS // (rows * self.queries)))]
        runs = [
            self.run(lambda name, own, forced=each: forced.reshape(own.shape), old, tokens) for each, tokens in draws
        ]
        outputs = {end: [run[end] for run in runs] for end in runs[0]}
        weights = [each.movedim(at, 0).reshape(heads, rows, self.queries, self.keys) for each, _ in draws]
        ends = self.ends(outputs)
        for channels in dict.fromkeys((-1 % old.ndim, 1)):
            for rows_last in (False, True) if rows > 1 else (False,):
                layout = Layout(channels - old.ndim, rows_last)
                splits = [each for _, tokens in draws if (each := layout.split(tokens, rows)) is not None]
                if not splits or splits[0].shape[1] != self.keys:
                    continue
                answers = self.answers(old, layout, lead, at, ends)
                for end, matrices in ((end, answers[end]) for end in ends if end in answers):
                    shown = torch.cat([each for run in outputs[end] if (each := layout.split(run, rows)) is not None])
                    pairs = zip(weights, splits, strict=True)
                    expected = torch.cat([torch.einsum("hrqk,rkc,hdc->rqd", a, x, matrices) for a, x in pairs])
                    mixes = end is self.module or not side_by_side(matrices)
                    if expected.shape == shown.shape and mixes:
                        residual, bias = replay_residual(shown, expected)
                        yield Replayed(residual, HeadMatrices(matrices), bias, at, self.names[part], self.names[end])

    def ends(self, outputs: Iterable[nn.Module]) -> list[nn.Module]:
        """Parts whose output may be the layer's: the module, then its last parts, in front of a norm or a residual.

        Around the module, those behind it.
        """
        parts = list(outputs)
        if self.around is not self.module:
            return parts[parts.index(self.module) + 1 :] if self.module in parts else []
        own = [self.module] if self.module in parts else []
        return own + [each for each in parts[::-1] if each is not self.module]

    def drawn(self, lead: tuple[int, ...], old: Tensor) -> tuple[Tensor, Tensor]:
        """Random attention, another in each head, and random tokens."""
        scores = torch.randn((*lead, self.queries, self.keys), generator=self.generator, dtype=torch.float64)
        tokens = torch.randn(old.shape, generator=self.generator, dtype=torch.float64)
        return (SHARPNESS * scores).softmax(-1), tokens

    def answers(
        self, old: Tensor, layout: Layout, lead: tuple[int, ...], at: int, ends: list[nn.Module]
    ) -> dict[nn.Module, Tensor]:
        """`M_h` by output, (heads, d_out, d_in): each query reads one key, in one head, of unit vectors."""
        width, heads = old.shape[layout.channels], lead[at]
        rows = prod(lead) // heads
        count = min(self.queries, self.keys)
        slots = rows * count
        chunks = -(-width // slots)
        if heads * chunks > MOST_PASSES:
            return {}
        found: dict[nn.Module, list[Tensor]] = {}
        zeros = torch.zeros((rows, self.keys, width), dtype=torch.float64)
        for head in range(heads):
            eye = torch.zeros((*lead, self.queries, self.keys), dtype=torch.float64)
            eye.select(at, head)[..., torch.arange(count), torch.arange(count)] = 1
            rule = lambda name, own, eye=eye: eye.reshape(own.shape)  # noqa: E731
            still = self.run(rule, old, self.joined(zeros, old, layout))
            columns: dict[nn.Module, list[Tensor]] = {}
            for chunk in range(chunks):
                units = zeros.clone()
                wanted = torch.arange(chunk * slots, min((chunk + 1) * slots, width))
                place = wanted - chunk * slots
                units[place // count, place % count, wanted] = 1
                outputs = self.run(rule, old, self.joined(units, old, layout))
                for end in ends:
                    change = layout.split(outputs[end] - still[end], rows)
                    if change is not None and change.shape[1] == self.queries:
                        columns.setdefault(end, []).append(change[place // count, place % count])
            for end, parts in columns.items():
                found.setdefault(end, []).append(torch.cat(parts).T)
        return {end: torch.stack(each) for end, each in found.items() if len(each) == heads}

    @staticmethod
    def joined(tokens: Tensor, old: Tensor, layout: Layout) -> Tensor:
        """Tokens (rows, tokens, channels) in the shape of a tensor."""
        flat = tokens.transpose(0, 1).flatten(0, 1) if layout.rows_last else tokens.flatten(0, 1)
        moved = old.movedim(layout.channels, -1)
        return flat.reshape(moved.shape).movedim(-1, layout.channels)
