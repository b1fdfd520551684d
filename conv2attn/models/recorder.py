"""One run of a model in which every softmax over keys is kept, by the module that it happened in."""

import math
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import Patterns, Selection, argument
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.models.conversion.replacement import evaluating
from conv2attn.models.fused import attention_of_sdpa, watched_flex
from conv2attn.models.positions.position_rules import Unread, is_kind, rule_for
from conv2attn.models.tokens import Sources, Windows, windows_of
from conv2attn.models.values import head_count

MIXED = {"convit.GPSA": "attn_drop"}
"""Kinds of layers whose attention is a mixture of softmaxes, and the child that it goes through."""
SOFTMAXES = {torch.softmax, F.softmax, Tensor.softmax, torch.special.softmax}
NORMS = {F.layer_norm, torch.layer_norm}
PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
LOCK = threading.RLock()
Captured = Tensor | Unread
ModuleCall = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(eq=False)
class RunningModule:
    """A module that runs: how often it has attended, its batch, and its first tensor."""

    module: nn.Module
    times: int
    batch: int | None
    first: Tensor | None
    call: ModuleCall


@dataclass(eq=False)
class TokenEvidence:
    """The facts that identify the tokens of one attention: how many sources ran before it, and the shapes around it."""

    sources: int
    value: tuple[int, ...] | None
    heads: int
    tokens: int | None
    channels: int | None
    windows: Windows | None = None


class AttentionRecorder(TorchFunctionMode):
    """While active, keeps the attention of every wanted module whose forward runs, in the order of its calls."""

    def __init__(
        self, network: nn.Module, inputs: Any, heads: int | None = None, only: Patterns = (), cuts: bool = False
    ):
        super().__init__()
        self.names = {module: name for name, module in network.named_modules()}
        self.special = {
            each for each in self.names if isinstance(each, MultiHeadSelfAttention) or is_kind(each, *MIXED)
        }
        self.heads, self.selection, self.cuts = heads, Selection.of(only), cuts
        self.running: list[RunningModule] = []
        self.attention: defaultdict[str, list[Captured]] = defaultdict(list)
        self.sources = Sources(inputs)
        self.places: dict[str, TokenEvidence] = {}
        self.calls: dict[str, ModuleCall] = {}
        self.norm_output: Tensor | None = None
        self.linear_input: Tensor | None = None
        self.softmax_results: list[tuple[int, str | None, Tensor]] = []
        self.deselected: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`, and keeps its attention if it is one of the ways to attend."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.keep(attention_of_sdpa(*args, **kwargs), tuple(argument(args, kwargs, 2, "value").shape))
        elif func is F.multi_head_attention_forward:
            arguments = {**kwargs, "need_weights": True, "average_attn_weights": False}
            weights = func(*args, **arguments)[1]
            assert weights is not None
            self.keep(weights if weights.ndim == 4 else weights[None])
        elif func is F.linear:
            self.linear_input = argument(args, kwargs, 0, "input")
        result = func(*args, **kwargs)
        self.sources.record(func, args, kwargs, result)
        if func in NORMS:
            self.norm_output = result
        if func in PRODUCTS:
            self.multiplied(*(each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)))
        if func in SOFTMAXES and isinstance(result, Tensor) and result.ndim > 1:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, result.ndim - 1):
                if result.ndim > 2:
                    self.keep(with_one_query_axis(result), result=result)
                elif result.shape[0] == result.shape[1]:
                    self.softmax_results = [*self.softmax_results[-8:], (result.data_ptr(), None, result)]
            elif result.ndim > 2 and axis in (-2, result.ndim - 2) and result.shape[-1] == result.shape[-2]:
                self.keep(result.mT)
        return result

    def multiplied(self, left: Tensor, right: Tensor, *_: Tensor) -> None:
        """Records the right factor of a product whose left factor is a softmax; a softmax of two axes is one head."""
        for pointer, name, result in self.softmax_results:
            if pointer == left.data_ptr() and result.shape == left.shape and right.ndim >= 2:
                if name is not None and (place := self.places.get(name)) is not None:
                    place.value = tuple(right.shape)
                elif name is None and right.shape[-2] == result.shape[-1]:
                    self.keep(result[None, None], tuple(right.shape))
                self.softmax_results = [each for each in self.softmax_results if each[2] is not result]
                return

    def keep(self, attention: Any, value: tuple[int, ...] | None = None, result: Tensor | None = None) -> None:
        """Keeps `attention` (batch, heads, queries, keys) under the name of the running module that is no nn.Softmax.

        Modules in `special` have hooks of their own instead.
        """
        if not self.running:
            return
        inner = len(self.running) > 1 and isinstance(self.running[-1].module, nn.Softmax)
        entry = self.running[-2 if inner else -1]
        name = self.names[entry.module] + (f"#{entry.times + 1}" if entry.times else "")
        if entry.module in self.special:
            return
        entry.times += 1
        if not self.selection.wants(name or "(root)"):
            self.deselected.add(name or "(root)")
            return
        by_head = split_heads(attention, entry.module, self.batch_of(entry, attention), self.heads)
        self.attention[name].append(
            by_head.detach().clone() if isinstance(by_head, Tensor) and not self.cuts else by_head
        )
        first = entry.first
        shape = first.shape if first is not None else ()
        tokens = math.prod(shape[1:-1]) if len(shape) > 2 and getattr(entry.module, "batch_first", True) else None
        heads = by_head.shape[1] if isinstance(by_head, Tensor) else 0
        place = TokenEvidence(len(self.sources.sides), value, heads, tokens, shape[-1] if len(shape) > 1 else None)
        if self.cuts and isinstance(by_head, Tensor):
            inputs = [each.first for each in reversed(self.running) if each.first is not None]
            candidates = [each for each in (self.norm_output, *inputs) if each is not None]
            place.windows = windows_of(len(by_head), self.linear_input, candidates, self.sources)
        self.places.setdefault(name, place)
        self.calls.setdefault(name, entry.call)
        if result is not None:
            self.softmax_results = [*self.softmax_results[-8:], (result.data_ptr(), name, result)]

    def batch_of(self, entry: RunningModule, attention: Tensor) -> int | None:
        """The number of images or windows on the first axis of attention.

        The axis of the module's input that is not its tokens: the first, or the second where tokens come first.
        """
        first = entry.first
        if first is None or first.ndim < 3:
            return entry.batch
        sequence, batch = first.shape[:2]
        tokens_first = first.ndim == 3 and sequence == attention.shape[-2] != batch
        return int(batch) if tokens_first else entry.batch

    def started(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A hook that records that `module` runs, and the size of its batch."""
        first = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        batch = None if first is None else len(first) if first.ndim > 2 else 1
        self.running.append(RunningModule(module, 0, batch, first, (args, kwargs)))

    def keep_special(self, layer: nn.Module, _: nn.Module, args: Any, kwargs: Any) -> None:
        """A pre-hook that keeps the attention of a layer of this project, or the input of a mixture's child."""
        if not self.selection.wants((name := self.names[layer]) or "(root)"):
            self.deselected.add(name or "(root)")
            return
        passed = argument(args, kwargs, 0, "input")
        if not isinstance(layer, MultiHeadSelfAttention):
            self.attention[name].append(passed.detach().clone())
        elif not self.cuts:
            images = len(passed) if passed.ndim > layer.dimensions + 1 else 1
            self.attention[name].append(layer.attention(passed).expand(images, -1, -1, -1))


def run_with(recorder: AttentionRecorder, network: nn.Module, call: Callable[[], Any]) -> AttentionRecorder:
    """The recorder after one `call` of the network in evaluation mode.

    Hooks see the calls of all threads, so that threads wait for each other here.
    """
    with LOCK:
        handles = []
        for module in network.modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            start = module.register_forward_pre_hook(recorder.started, prepend=True, with_kwargs=True)
            handles += [
                start,
                module.register_forward_hook(lambda *_: recorder.running.pop() and None, always_call=True),
            ]
            if module in recorder.special:
                own = isinstance(module, MultiHeadSelfAttention)
                part = module if own else module.get_submodule(rule_for(module, MIXED))
                keep = partial(recorder.keep_special, module)
                handles.append(part.register_forward_pre_hook(keep, with_kwargs=True))
        try:
            with evaluating(network), recorder, watched_flex(network, recorder.keep), torch.no_grad():
                call()
        finally:
            for handle in handles:
                handle.remove()
        return recorder


def with_one_query_axis(attention: Tensor) -> Tensor:
    """Merges the query axes (rows, columns) of attention (..., rows, columns, ..., keys) into one."""
    if attention.ndim < 5 or attention.shape[-1] == attention.shape[-2]:
        return attention
    sides = attention.shape
    pairs = [at for at in range(1, attention.ndim - 2) if sides[at] * sides[at + 1] == sides[-1]]
    return attention.flatten(pairs[0], pairs[0] + 1).movedim(pairs[0], -2) if len(pairs) == 1 else attention


def split_heads(attention: Tensor, module: nn.Module, batch: int | None, heads_argument: int | None) -> Tensor | Unread:
    """Attention (..., queries, keys) as (images, heads, queries, keys); four axes are taken as they are.

    The number of heads is `heads_argument`, or that of the module's attributes, or the first axis over the batch of its
    input; images come before heads where they share an axis.
    """
    if attention.ndim == 4:
        return attention
    count = math.prod(attention.shape[:-2])
    batch_heads = count // batch if batch and count % batch == 0 else None
    for heads in (heads_argument, head_count(module), batch_heads):
        if heads and count % heads == 0:
            return attention.reshape(-1, heads, *attention.shape[-2:])
    shape = "x".join(map(str, attention.shape))
    return Unread(f"nothing tells how many heads the {shape} numbers of its attention are of: pass heads= to capture")
