"""Runs one layer alone, on other tokens and under other attention, to find the matrices of its heads."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import tensors_in
from conv2attn.networks.reading.attended import Attended, Rule, Running
from conv2attn.networks.reading.head_matrices import HeadMatrices
from conv2attn.networks.reading.orders import Heads, as_tensor, as_tokens, changing_parts, index_in
from conv2attn.networks.reading.replay_result import (
    MIXES_VALUES,
    MOST_PASSES,
    MOST_RESIDUAL,
    NO_ORDER,
    NOT_FINITE,
    NOT_LINEAR,
    SAME_OUTPUT,
    VALUES_NOT_LINEAR,
    Replayed,
    too_many,
)
from conv2attn.networks.reading.responses import SEVERAL
from conv2attn.networks.reading.watch import Watch
from conv2attn.torch_internals import tree_map, tree_map_only

SHARPNESS = 3.0
"""Standard deviation of the scores of random attention: a softmax of a few keys."""
LEAST_TOKENS = 8
"""Least number of outputs over which the spread is taken: layers with fewer queries run more than once."""
Start = tuple[nn.Module, Tensor]
"""A part of the layer, and the one of its inputs that may hold the tokens of the keys."""
Written = dict[nn.Module, tuple[int, Tensor]]
"""By part: the axis of channels of its output, and the token of this output that each query writes, (rows, queries)."""
Asking = tuple[Tensor, Tensor, Tensor]
"""Rows, queries and keys."""


@final
@dataclass(frozen=True, eq=False)
class Call:
    """The first call of a module."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def fresh(arguments: Any) -> Any:
    """The arguments of a call, with copies of objects that the call may change, such as caches of keys."""
    return tree_map(lambda each: each if isinstance(each, Tensor | nn.Module) else deepcopy(each), arguments)


def replay_residual(output: Tensor, expected: Tensor) -> tuple[float, Tensor]:
    """The largest residual after the best constant bias, divided by the output's spread over tokens; and that bias."""
    bias = (output - expected).mean((0, 1))
    spread = float((output - output.mean((0, 1))).std())
    return (float((output - expected - bias).abs().max()) / spread if spread else float("inf")), bias


def side_by_side(matrices: Tensor) -> bool:
    """Whether each entry of the output comes from one head, so no weights mix the heads yet."""
    return len(matrices) > 1 and bool(((matrices != 0).any(2).sum(0) <= 1).all())


@final
@dataclass(frozen=True, eq=False)
class Ran:
    """A run of a layer: the outputs of all parts that end after the attention, and the attention itself."""

    outputs: dict[nn.Module, Tensor]
    attended: list[Attended]


@final
class Layer:
    """A layer that attends, to be run alone with other tokens and attention."""

    def __init__(self, around: nn.Module, module: nn.Module, call: Call, shape: tuple[int, ...]):
        self.around, self.module, self.call, self.shape = around, module, call, shape
        self.lead, self.queries, self.keys = shape[:-2], *shape[-2:]
        self.names = {each: name for name, each in around.named_modules()}
        self.generator = torch.Generator().manual_seed(0)
        self.inputs = dict[nn.Module, list[Tensor]]()
        self.after = list[nn.Module]()
        self.times = 0

    def run(self, rule: Rule | None, old: Tensor | None = None, tokens: Tensor | None = None) -> Ran:
        """A run under this rule or its own attention, with `tokens` in place of `old` wherever a part takes it.

        A layer may write into its arguments, so it gets copies, and the recorded inputs stay unchanged.
        """
        outputs, attentions = dict[nn.Module, Tensor](), list[Attended]()
        inputs, copies, originals = dict[nn.Module, list[Tensor]](), dict[int, Tensor](), dict[int, Tensor]()

        def own_copy(tensor: Tensor) -> Tensor:
            if 0 in tensor.stride() or isinstance(tensor, nn.Parameter):  # these are not written to
                return tensor
            copied = copies.setdefault(id(tensor), tensor.clone())
            originals[id(copied)] = tensor
            return copied

        def see(attended: Attended, _: Running) -> None:
            attended.value = None if attended.value is None else attended.value.clone()
            attentions.append(attended)

        def begin(part: nn.Module, args: Any, kwargs: Any) -> Any:
            inputs.setdefault(part, [originals.get(id(each), each) for each in tensors_in((args, kwargs))])
            if tokens is None or old is None or not any(each is old for each in self.inputs.get(part, [])):
                return None

            def other(tensor: Tensor) -> Tensor:
                return tokens.clone() if tensor.shape == old.shape and torch.equal(tensor, old) else tensor

            return tree_map_only(Tensor, other, (args, kwargs))

        def end(part: nn.Module, _: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple | list) and output else output
            if len(attentions) >= max(1, self.times) and isinstance(first, Tensor):
                outputs.setdefault(part, first)

        watch = Watch(self.around, see, rule)
        handles = [each.register_forward_pre_hook(begin, with_kwargs=True) for each in self.names]
        handles += [each.register_forward_hook(end) for each in self.names]
        try:
            args, kwargs = tree_map_only(Tensor, own_copy, fresh((self.call.args, self.call.kwargs)))
            watch.run(lambda: self.around(*args, **kwargs))
        finally:
            for handle in handles:
                handle.remove()
        if rule is None:
            self.inputs, self.after, self.times = inputs, list(outputs), len(attentions)
        return Ran(outputs, attentions)

    def lacks_outputs(self, reading: Replayed) -> bool:
        """Whether the output weights for a reading of this module seem to lie outside it."""
        if reading.matrices is not None and len(reading.matrices) > 1:
            return side_by_side(reading.matrices.dense())
        return not any(each is not self.module and any(True for _ in each.parameters()) for each in self.after)

    def starts(self) -> Iterator[Start]:
        """Inputs that may hold the tokens of the keys: of the module, then of its parts before the attention."""
        self.run(None)
        if self.times != 1 or 0 in self.shape:
            return
        inputs, behind = self.inputs, set(self.after)
        # The matrices may act on the input of a part instead of the module's, for example on normalised tokens.
        parts = [self.module, *(each for each in self.module.modules() if each in inputs and each not in behind)]
        if self.around is not self.module:  # the core's tokens are inputs of `around`
            parts.append(self.around)
        tried: list[Tensor] = []
        for part in parts:
            for tensor in reversed(inputs.get(part, [])):
                wide = tensor.is_floating_point() and tensor.ndim > 2 and tuple(tensor.shape) != self.shape
                if wide and not any(tensor is each for each in tried):
                    tried.append(tensor)
                    yield part, tensor

    def head_axes(self) -> Iterator[Heads]:
        """The axes before those of queries and keys that may be heads."""
        lead = self.lead
        if len(lead) == 1:
            for count in [count for count in range(1, lead[0] + 1) if lead[0] % count == 0][::-1]:
                yield Heads((lead[0] // count, count), 1)
                if count < lead[0]:
                    yield Heads((count, lead[0] // count), 0)
            return
        yield Heads(lead, 1)
        yield from (Heads(lead, axis) for axis in range(len(lead)) if axis != 1)

    def linear_ends(self, old: Tensor | None = None) -> list[nn.Module] | str:
        """Parts whose output may be the layer's, and is an affine function of the attention; the reason if none is.

        The module comes first, then its last parts, before a norm or a residual; last, parts around the module after
        it.
        """
        tokens = None if old is None else self.random_tokens(old)
        runs = [self.run(drawn(*seeds), old, tokens).outputs for seeds in ((1,), (2,), (1, 2))]
        parts = list(runs[0])
        if self.around is not self.module:
            parts = parts[parts.index(self.module) + 1 :] if self.module in parts else []
        else:
            parts = [each for each in parts if each is self.module] + [
                each for each in parts[::-1] if each is not self.module
            ]
        if ends := [each for each in parts if runs[0][each].ndim > 1 and affine(*(run[each] for run in runs))]:
            return ends
        one, other, _ = runs
        if one and not any(bool(each.isfinite().all()) for each in one.values()):
            return NOT_FINITE
        if one and all(torch.equal(each, other[part]) for part, each in one.items()):
            return SAME_OUTPUT
        return NOT_LINEAR

    def written(self, heads: Heads, ends: Sequence[nn.Module]) -> Written:
        """The token that each query writes, over all heads, for each end where one query writes one token."""
        one, other = self.random_attention(), self.random_attention()
        # Each query moves from one attention to another by its own amount, and the output is linear in these amounts.
        # Two runs therefore show which query wrote which token, in any layout of the output.
        base = self.run(forced(one)).outputs

        def changes(amounts: Tensor) -> dict[tuple[nn.Module, int], Tensor]:
            each = heads.joined(amounts.reshape(1, heads.rows, self.queries, 1).expand(heads.count, -1, -1, self.keys))
            outputs = self.run(forced(torch.lerp(one, other, each.reshape(self.shape)))).outputs
            moved = {end: outputs[end] - base[end] for end in ends}
            return {(end, axis): as_tokens(part, axis) for end, part in moved.items() for axis in channels_of(part)}

        tokens_written: Written = {}
        for (end, axis), order in changing_parts(heads.rows * self.queries, changes).items():
            places = index_in(order, heads.rows * self.queries) if bool((order >= 0).all()) else None
            if places is not None and end not in tokens_written:
                tokens_written[end] = axis, places.reshape(heads.rows, self.queries)
        counts = {end: int((places >= 0).sum()) for end, (_, places) in tokens_written.items()}
        return {end: each for end, each in tokens_written.items() if counts[end] == max(counts.values())}

    def orders(self, old: Tensor, columns: bool = False) -> dict[int, Tensor]:
        """By axis of channels of an input: the token that the value of each key depends on, (*lead, keys).

        With `columns`, the token that each channel of the values depends on.
        """
        one, other, attention = self.random_tokens(old), self.random_tokens(old), self.random_attention()
        base, tokens_by_axis = self.values(attention, old, one), dict[int, Tensor]()
        for axis in channels_of(old):

            def changes(amounts: Tensor, axis: int = axis) -> dict[int, Tensor]:
                tokens = torch.lerp(as_tokens(one, axis), as_tokens(other, axis), amounts[:, None])
                moved = self.values(attention, old, as_tensor(tokens, old, axis)) - base
                return {axis: moved.mT if columns else moved}

            tokens_by_axis |= changing_parts(old.numel() // old.shape[axis], changes)
        return tokens_by_axis

    def values(self, attention: Tensor, old: Tensor, tokens: Tensor) -> Tensor:
        """The values (*lead, keys, width) for other tokens."""
        value = self.run(forced(attention), old, tokens).attended[0].value
        assert value is not None
        return self.in_rows(value)

    def in_rows(self, value: Tensor) -> Tensor:
        """Values with the same leading axes as queries and keys."""
        shape = (*self.lead, *value.shape[-2:])
        return value.reshape(shape) if value.numel() == prod(shape) else value.expand(shape)

    def linear_values(self, start: Start) -> bool:
        """Whether the values are an affine function of an input."""
        old, attention = start[1], self.random_attention()
        one, other = self.random_tokens(old), self.random_tokens(old)
        return affine(*(self.values(attention, old, each) for each in (one, other, (one + other) / 2)))

    def between_channels(self, old: Tensor) -> bool:
        """Whether each channel of the values depends on one token of an input, but some keys on several tokens."""
        columns, keys = self.orders(old, columns=True), self.orders(old)
        return any(bool((columns[axis] >= 0).all() and (keys[axis] == SEVERAL).any()) for axis in columns)

    def why_values(self, start: Start) -> str:
        """Why the values of the keys are not linear maps of one token each."""
        # Tokens are identified by linear changes: if the values are not linear, several tokens seem to change one
        # value.
        if not self.linear_values(start):
            return VALUES_NOT_LINEAR
        several = all(bool((order == SEVERAL).any()) for order in self.orders(start[1]).values())
        return MIXES_VALUES if several else NO_ORDER

    def readings(self, start: Start, channels: int, read: Tensor, heads: Heads, written: Written) -> Iterator[Replayed]:
        """One reading per output, with these heads and one input; `read` (rows, keys) is the token of the input that
        each key reads."""
        part, old = start
        if not written:
            return
        asking, width = pairs(read, [places for _, places in written.values()]), old.shape[channels]
        slots = len(asking[0])
        # A run tests as many unit vectors as it has free queries. With few queries and wide tokens that would take
        # thousands of runs.
        passes = heads.count * -(-width // slots) if slots else 0
        if passes > MOST_PASSES:
            yield Replayed(why=too_many(passes, heads.count, width, slots))
        if not 0 < passes <= MOST_PASSES:
            return
        count = max(int((places >= 0).sum()) for _, places in written.values())
        draws = [(self.random_attention(), self.random_tokens(old)) for _ in range(-(-LEAST_TOKENS // count))]
        runs = [self.run(forced(attention), old, tokens).outputs for attention, tokens in draws]
        answers = self.answers(old, channels, read, heads, written, asking)
        inputs = [as_tokens(tokens, channels)[read] * (read >= 0)[..., None] for _, tokens in draws]
        for end, matrices in answers.items():
            if side_by_side(matrices) and end is not self.module:
                continue
            axis, places = written[end]
            shown = torch.cat([as_tokens(run[end], axis)[places[places >= 0]] for run in runs])
            expected = torch.cat(
                [
                    torch.einsum("hrqk,rkc,hdc->rqd", heads.split(attention, 2), x, matrices)[places >= 0]
                    for (attention, _), x in zip(draws, inputs, strict=True)
                ]
            )
            residual, bias = replay_residual(shown[None], expected[None])
            yield Replayed(residual, HeadMatrices(matrices), bias, heads.axis, self.names[part], self.names[end])

    def random_attention(self) -> Tensor:
        """Random attention, drawn independently for each head."""
        scores = torch.randn(self.shape, generator=self.generator, device="cpu", dtype=torch.float64)
        return scores.mul_(SHARPNESS).softmax(-1)

    def random_tokens(self, old: Tensor) -> Tensor:
        """Random tokens in the shape of others."""
        return torch.randn(old.shape, generator=self.generator, device="cpu", dtype=torch.float64)

    def answers(
        self, old: Tensor, channels: int, read: Tensor, heads: Heads, written: Written, asking: Asking
    ) -> dict[nn.Module, Tensor]:
        """`M_h` per output, (heads, d_out, d_in): each query reads one key with a unit vector, in one head."""
        rows, queries, keys = asking
        matrices: dict[nn.Module, list[Tensor]] = {end: [] for end in written}
        for head in range(heads.count):
            eye = torch.zeros((heads.count, heads.rows, self.queries, self.keys), dtype=torch.float64)
            eye[head, rows, queries, keys] = 1
            attention = heads.joined(eye)
            zeros = torch.zeros_like(as_tokens(old, channels))
            # The output for zero tokens is due to biases of values and outputs, which must not be in the columns.
            still = self.run(forced(attention), old, as_tensor(zeros, old, channels)).outputs
            columns: dict[nn.Module, list[Tensor]] = {end: [] for end in written}
            for wanted in torch.arange(old.shape[channels]).split(len(rows)):
                units = zeros.clone()
                units[read[rows, keys][: len(wanted)], wanted] = 1
                outputs = self.run(forced(attention), old, as_tensor(units, old, channels)).outputs
                for end, (axis, places) in written.items():
                    change = as_tokens(outputs[end] - still[end], axis)
                    columns[end].append(change[places[rows, queries][: len(wanted)]])
            for end, parts in columns.items():
                matrices[end].append(torch.cat(parts).T)
        return {end: torch.stack(each) for end, each in matrices.items()}


def forced(attention: Tensor) -> Rule:
    """The rule to use this attention."""
    return lambda _, own: attention.reshape(own.shape)


def drawn(*seeds: int) -> Rule:
    """The rule to use random attention: the mean of several draws."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def rule(_: str, own: Tensor) -> Tensor:
        mean = torch.zeros(own.shape, dtype=torch.float64)
        for each in generators:
            scores = torch.randn(own.shape, generator=each, device="cpu", dtype=torch.float64)
            mean += scores.mul_(SHARPNESS).softmax(-1)
        return mean.div_(len(generators))

    return rule


def affine(one: Tensor, other: Tensor, between: Tensor) -> bool:
    """Whether an output between two others is their mean, and differs from both."""
    spread = float((one - other).std())
    return spread > 0 and float((between - (one + other) / 2).abs().max()) <= MOST_RESIDUAL * spread


def channels_of(tensor: Tensor) -> tuple[int, ...]:
    """The axes that may be the channels of a tensor, counted from its end: its last, or its second."""
    return tuple(dict.fromkeys((-1, 1 - tensor.ndim)))


def pairs(read: Tensor, written: Sequence[Tensor]) -> Asking:
    """(row, query, key): the query's output is recorded, and no two entries use the same token."""
    usable = torch.stack([places >= 0 for places in written]).all(0)
    taken, triples = set[int](), list[tuple[int, int, int]]()
    # Two queries that read one token would both respond to its unit vector.
    for row, tokens in enumerate(read.tolist()):
        queries = iter(usable[row].nonzero().flatten().tolist())
        for key, token in enumerate(tokens):
            if token >= 0 and token not in taken and (query := next(queries, None)) is not None:
                taken.add(token)
                triples.append((row, query, key))
    rows, queries, keys = torch.tensor(triples).reshape(-1, 3).T
    return rows, queries, keys
