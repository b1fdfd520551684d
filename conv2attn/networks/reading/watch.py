"""A run of a network in which every attention is seen, with its queries, keys and values, and replaced where asked."""

import inspect
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import argument
from conv2attn.generators import devices_of, generators_kept
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.copies import evaluating
from conv2attn.networks.fused import attention_of_sdpa, watched_flex

SOFTMAXES = {torch.softmax, F.softmax, Tensor.softmax, torch.special.softmax}
PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
EINSUMS = {torch.einsum, torch.functional.einsum}
LOCK = threading.RLock()
SEED = 0
"""Networks that draw tokens at random draw the same ones in every run."""
Rule = Callable[[str, Tensor], Tensor]
"""The attention to use in a layer, given its name and its own attention."""


@final
@dataclass(frozen=True, eq=False)
class Silence:
    """The rule by which whatever is multiplied by attention is zero, but for given attention of some layers."""

    passing: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, attention: Tensor) -> Tensor:
        """What passes in this layer; zero where nothing of this shape does."""
        given = self.passing.get(name)
        return given if given is not None and given.shape == attention.shape else torch.zeros_like(attention)


@final
@dataclass(eq=False)
class Attended:
    """One attention of one call of a module: its weights, and what they are made of.

    `query`, `key` and `value` are (..., tokens, width), None where they were not seen.
    """

    name: str
    attention: Tensor
    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    columns: bool = False


@final
@dataclass(eq=False)
class Running:
    """A module that runs: how often it has attended in this call, and the first tensor that it was called with."""

    module: nn.Module
    times: int
    first: Tensor | None


@final
@dataclass(frozen=True, eq=False)
class Opened:
    """Weights that wait for their product with the values."""

    weights: Tensor
    module: nn.Module
    attended: Attended


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """A product that may be the scores of an attention."""

    module: nn.Module
    query: Tensor
    key: Tensor
    shape: tuple[int, ...]


class Watch(TorchFunctionMode):
    """While active, passes every attention of the network to `see`, and uses the one that `rule` gives instead.

    Where values are multiplied by a mixture of several softmaxes, the mixture is the attention. The rule
    `Silence` makes zero whatever is multiplied by attention.
    """

    def __init__(
        self,
        network: nn.Module,
        see: Callable[[Attended, Running], None] | None = None,
        rule: Rule | None = None,
        blind: Callable[[str], bool] = lambda name: False,
    ):
        """Takes what to do; `blind` says which layers of this project are seen without content, and forced."""
        super().__init__()
        self.names = {module: name or "(root)" for name, module in network.named_modules()}
        self.own = {each for each in self.names if isinstance(each, MultiHeadSelfAttention)}
        self.network, self.see, self.rule, self.blind = network, see, rule, blind
        self.silent = isinstance(rule, Silence)
        self.running: list[Running] = []
        self.opened: list[Opened] = []
        self.scores: list[Scores] = []

    def run(self, call: Callable[[], Any]) -> Any:
        """The result of a call of the network, in evaluation mode, without gradients and with a seed of its own.

        Hooks see the calls of all threads, so that threads wait for each other here.
        """
        with LOCK, generators_kept(devices_of(self.network), seed=SEED):
            handles = []
            for module in self.names:
                if isinstance(module, torch.jit.ScriptModule):
                    continue
                handles.append(module.register_forward_pre_hook(self.started, prepend=True, with_kwargs=True))
                handles.append(module.register_forward_hook(self.ended, always_call=True))
            try:
                with evaluating(self.network), self, watched_flex(self.network, self.flex), torch.no_grad():
                    return call()
            finally:
                for handle in handles:
                    handle.remove()

    def started(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A hook that records that a module runs; layers of this project compute their attention here."""
        first = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        self.running.append(Running(module, 0, first))
        if module in self.own and self.see is not None and first is not None:
            assert isinstance(module, MultiHeadSelfAttention)
            if not (module.has_content or self.blind(self.names[module])):
                return
            images = len(first) if first.ndim > module.dimensions + 1 else 1
            attention = module.attention(first).expand(images, -1, -1, -1)
            self.see(Attended(self.names[module], attention), self.running[-1])

    def ended(self, module: nn.Module, _: Any, output: Any) -> Any:
        """A hook for the end of a module: weights that met no values are passed on; own layers are silenced."""
        for opened in [each for each in self.opened if each.module is module]:
            self.opened.remove(opened)
            if opened.attended.name:
                self.report(opened.attended)
        forced = self.forced(module, output) if isinstance(module, MultiHeadSelfAttention) else None
        self.running.pop()
        return forced

    def forced(self, layer: MultiHeadSelfAttention, output: Tensor) -> Tensor | None:
        """The output of a layer of this project under the rule, where it is seen; None for its own."""
        image, name = self.running[-1].first, self.names[layer]
        if self.silent:
            return torch.zeros_like(output)
        if self.rule is None or image is None or not self.blind(name):
            return None
        image = image if image.ndim > layer.dimensions + 1 else image[None]
        own = layer.attention(image).expand(len(image), -1, -1, -1)
        attention = self.rule(name, own)
        if attention is own:
            return None
        weights, tokens = layer.weights, layer.basis().padding.pad(image).flatten(2).mT
        mixed = torch.einsum("bhqc,hoc->boq", attention.to(tokens) @ tokens[:, None], weights.dense().to(tokens))
        mixed = mixed if weights.bias is None else mixed + weights.bias[:, None]
        return mixed.reshape(output.shape)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`; attention is seen and replaced on the way."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self.fused(args, kwargs)
        if func is F.multi_head_attention_forward:
            return self.multi_head(args, kwargs)
        result = func(*args, **kwargs)
        if func in PRODUCTS:
            left, right = (*args, *kwargs.values())[:2]
            if isinstance(left, Tensor) and isinstance(right, Tensor) and min(left.ndim, right.ndim) >= 2:
                return self.multiplied(left, right, result)
        elif func in EINSUMS:
            factors = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else args[1:]
            if isinstance(args[0], str) and len(factors) == 2 and (found := as_product(args[0], *factors)):
                left, right, axes = found
                product = self.multiplied(left, right, result.permute(axes), factors[0])
                return product.permute([axes.index(axis) for axis in range(len(axes))])
        elif func in SOFTMAXES and isinstance(result, Tensor) and result.ndim > 1:
            return self.softened(result, kwargs.get("dim", args[1] if len(args) > 1 else None))
        return result

    def place(self) -> Running | None:
        """The module that attends: the innermost that runs and is no nn.Softmax."""
        places = (each for each in reversed(self.running) if not isinstance(each.module, nn.Softmax))
        return next(places, None)

    def attended(self, attention: Tensor, **operands: Any) -> Attended | None:
        """A new attention of the module that runs; None in a layer of this project, which has a hook of its own."""
        place = self.place()
        if place is None or any(each.module in self.own for each in self.running):
            return None
        place.times += 1
        name = self.names[place.module] + (f"#{place.times}" if place.times > 1 else "")
        seen = Attended(name, attention, **operands)
        if self.rule is not None and not seen.columns:
            seen.attention = self.rule(name, attention).to(attention)
        return seen

    def report(self, attended: Attended | None) -> None:
        """Passes an attention on."""
        place = self.place()
        if attended is not None and self.see is not None and place is not None:
            self.see(attended, place)

    def fused(self, args: Any, kwargs: Any) -> Tensor:
        """Fused attention; its own result where nothing is replaced."""
        query, key, value = (
            argument(args, kwargs, place, name) for place, name in enumerate(("query", "key", "value"))
        )
        grouped = kwargs.get("enable_gqa", False)
        repeats = query.shape[-3] // key.shape[-3] if grouped else 1
        key, value = (each.repeat_interleave(repeats, -3) if repeats > 1 else each for each in (key, value))
        own = attention_of_sdpa(*args, **kwargs)
        if self.rule is None:
            self.report(self.attended(own, query=query, key=key, value=value))
            return F.scaled_dot_product_attention(*args, **kwargs)
        attended = self.attended(own.to(value), query=query, key=key, value=value)
        self.report(attended)
        weights = torch.zeros_like(own).to(value) if attended is None else attended.attention
        return weights @ value

    def flex(self, query: Tensor, key: Tensor, value: Tensor, attention: Tensor) -> Tensor:
        """The attention to use in flex_attention."""
        attended = self.attended(attention, query=query, key=key, value=value)
        self.report(attended)
        return attention if attended is None else attended.attention

    def multi_head(self, args: Any, kwargs: Any) -> Any:
        """torch's multi-head attention: its own weights are seen; replaced ones are used by its formula.

        Where it appends keys of its own, it is not replaced, and silenced as a whole.
        """
        given = inspect.signature(F.multi_head_attention_forward).bind(*args, **kwargs)
        given.apply_defaults()
        named = given.arguments
        options = named | {"need_weights": True, "average_attn_weights": False}
        own = F.multi_head_attention_forward(**options)[1]
        assert own is not None
        own = own if own.ndim == 4 else own[None]
        if self.rule is None:
            self.report(self.attended(own))
            return F.multi_head_attention_forward(**named)
        if named["bias_k"] is not None or named["add_zero_attn"] or named["static_k"] is not None:
            output, weights = F.multi_head_attention_forward(**named)
            return torch.zeros_like(output), weights
        batched, heads = named["query"].ndim == 3, named["num_heads"]
        separate = [named[f"{each}_proj_weight"] for each in "qkv"]
        maps = separate if named["use_separate_proj_weight"] else named["in_proj_weight"].chunk(3)
        biases = [None] * 3 if named["in_proj_bias"] is None else named["in_proj_bias"].chunk(3)
        inputs = [named[each] if batched else named[each][:, None] for each in ("query", "key", "value")]
        query, key, value = (
            F.linear(x, weight, bias).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
            for x, weight, bias in zip(inputs, maps, biases, strict=True)
        )
        attended = self.attended(own, query=query, key=key, value=value)
        self.report(attended)
        weights = torch.zeros_like(own) if attended is None else attended.attention
        output = F.linear(
            (weights @ value).permute(2, 0, 1, 3).flatten(2), named["out_proj_weight"], named["out_proj_bias"]
        )
        return (output if batched else output[:, 0]), None

    def softened(self, result: Tensor, axis: Any) -> Tensor:
        """A softmax over the last axis or the columns of squares; one of two axes counts once it is multiplied."""
        columns = axis in (-2, result.ndim - 2) and result.ndim > 2 and result.shape[-1] == result.shape[-2]
        if columns:
            self.report(self.attended(result.mT, columns=True))
            return torch.zeros_like(result) if self.silent else result
        if axis not in (-1, result.ndim - 1) or (result.ndim == 2 and result.shape[0] != result.shape[1]):
            return torch.zeros_like(result) if self.silent and result.ndim > 2 else result
        place = self.place()
        if place is None or place.module in self.own:
            return result
        if result.ndim == 2:
            self.opened.append(Opened(result, place.module, Attended("", result)))
            return result
        shape = tuple(result.shape)
        fitting = [each for each in self.scores if each.module is place.module and each.shape[-2:] == shape[-2:]]
        fitting = [each for each in fitting if math.prod(each.shape) == result.numel()]
        operands = {"query": fitting[-1].query, "key": fitting[-1].key} if fitting else {}
        self.scores = [each for each in self.scores if not fitting or each is not fitting[-1]]
        attended = self.attended(result, **operands)
        if attended is None:
            return result
        self.opened.append(Opened(attended.attention, place.module, attended))
        return attended.attention

    def multiplied(self, left: Tensor, right: Tensor, result: Tensor, factor: Tensor | None = None) -> Tensor:
        """A product: of weights with their values, or one that may be the scores of an attention."""
        place = self.place()
        pointer = (left if factor is None else factor).data_ptr()
        for opened in reversed(self.opened):
            weights, shape = opened.weights, opened.weights.shape
            plain, turned = pointer == weights.data_ptr(), right.data_ptr() == weights.data_ptr()
            mixed = place is not None and opened.module is place.module and left.shape[-2:] == shape[-2:]
            mixed = mixed and left.numel() == weights.numel() and weights.ndim > 2
            used, value = (right.mT, left.mT) if turned and not plain else (left, right)
            if not (plain or turned or mixed) or value.shape[-2] != shape[-1]:
                continue
            alike = [each for each in self.opened if each.module is opened.module and each.weights.shape == shape]
            first = opened if plain or turned else alike[0]
            self.opened = [each for each in self.opened if each is not first and (plain or turned or each not in alike)]
            attended: Attended | None = first.attended
            if not first.attended.name:
                attended = self.attended(used[None, None])
                if attended is not None and self.rule is not None:
                    result = attended.attention[0, 0] @ value
            elif len(alike) > 1 and not (plain or turned):
                first.attended.attention = (
                    used if self.rule is None else self.rule(first.attended.name, used.reshape(shape)).to(used)
                )
                result = result if self.rule is None else first.attended.attention @ value
            if attended is not None:
                attended.value = value
                self.report(attended)
            passes = attended is not None and bool(attended.attention.any())
            return torch.zeros_like(result) if self.silent and not passes else result
        if place is not None:
            self.scores = [*self.scores[-5:], Scores(place.module, left, right.mT, tuple(result.shape))]
        return result


def as_product(equation: str, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, list[int]] | None:
    """An einsum as a product of matrices, (..., row, common) and (..., common, column).

    Returns: both factors, and the axes of the result in the order (..., row, column).
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    parts = inputs.split(",")
    if not arrow or len(parts) != 2 or "." in equation:
        return None
    first, second = parts
    lead = [letter for letter in output if letter in first and letter in second]
    row, column, common = (
        [letter for letter in here if letter in other and letter not in nowhere]
        for here, other, nowhere in ((output, first, second), (output, second, first), (first, second, output))
    )
    whole = len(first) == len(second) == len(lead) + 2 and len(output) == len(lead) + 2
    if not lead or not whole or not len(row) == len(column) == len(common) == 1:
        return None
    return (
        torch.einsum(f"{first}->{''.join(lead + row + common)}", left),
        torch.einsum(f"{second}->{''.join(lead + common + column)}", right),
        [output.index(letter) for letter in lead + row + column],
    )
