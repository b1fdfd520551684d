"""The attention of any model, as it runs: every softmax over square scores, named by the module it happened in."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import UsageError
from conv2attn.models.attending import attention_of_sdpa
from conv2attn.models.flex import watched_flex
from conv2attn.models.positions.places import is_of, rule_for

MIXED = {"convit.GPSA": "attn_drop"}
"""Kinds of layers whose attention is a mixture of softmaxes, and the child that it goes through."""
SOFTMAXES = {torch.softmax, F.softmax, Tensor.softmax, torch.nn.functional.softmax, torch.special.softmax}


class Capture(TorchFunctionMode):
    """While active, keeps the attention of every module whose forward runs, in the order of its calls."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.names = {module: name for name, module in network.named_modules()}
        self.apart = {each for each in self.names if isinstance(each, MultiHeadSelfAttention) or is_of(each, *MIXED)}
        self.running: list[list[Any]] = []
        self.seen: defaultdict[str, list[Tensor]] = defaultdict(list)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`, and keeps its attention if it is one of the ways to attend."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.keep(attention_of_sdpa(*args, **kwargs))
        elif func is F.multi_head_attention_forward:
            asked = {**kwargs, "need_weights": True, "average_attn_weights": False}
            self.keep(func(*args, **asked)[1])
        result = func(*args, **kwargs)
        if func in SOFTMAXES and isinstance(result, Tensor) and result.ndim > 2:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, result.ndim - 1):
                self.keep(result)
            elif axis in (-2, result.ndim - 2):
                self.keep(result.mT)
        return result

    def keep(self, attention: Any) -> None:
        """Keeps `attention` (batch, heads, queries, keys) under the name of the module that runs, an nn.Softmax apart.

        Some modules have hooks of their own instead.
        """
        if attention.shape[-1] != attention.shape[-2] or not self.running:
            return
        inner = len(self.running) > 1 and isinstance(self.running[-1][0], nn.Softmax)
        entry = self.running[-2 if inner else -1]
        module, before = entry
        if module not in self.apart:
            whole = attention if attention.ndim == 4 else attention.reshape(-1, 1, *attention.shape[-2:])
            entry[1] += 1
            self.seen[self.names[module] + (f"#{before + 1}" if before else "")].append(whole.detach().clone())


def capture(network: nn.Module, inputs: Tensor | tuple[Any, ...] | Mapping[str, Any]) -> dict[str, Tensor]:
    """The attention of each module of `network` on `inputs`: (batch, heads, queries, keys), calls joined as a batch.

    A module that attends twice in one forward appears a second time as `name#2`.

    Intercepted are scaled_dot_product_attention, multi_head_attention_forward, flex_attention, every softmax over the
    rows or columns of square matrices, the layers of this project, and ConViT's mixtures of two softmaxes as a whole.
    The network is run once, without gradients, in evaluation mode, and left in the modes that its modules had.

    Raises:
        UsageError: no attention was seen (C2A501).
    """
    recorder = Capture(network)
    handles = []
    for module in network.modules():
        handles += [
            module.register_forward_pre_hook(lambda module, args: recorder.running.append([module, 0]), prepend=True),
            module.register_forward_hook(lambda *_: recorder.running.pop() and None, always_call=True),
        ]
        if isinstance(module, MultiHeadSelfAttention):
            handles.append(module.register_forward_pre_hook(keeper(recorder)))
        elif module in recorder.apart:
            handles.append(mixed_in(module).register_forward_pre_hook(keeper_of_mixture(recorder, module)))
    modes = {module: module.training for module in network.modules()}
    try:
        with recorder, watched_flex(network, recorder.keep), torch.no_grad():
            call(network.eval(), inputs)
    finally:
        for module, mode in modes.items():
            module.training = mode
        for handle in handles:
            handle.remove()
    if not recorder.seen:
        raise UsageError("C2A501", f"{type(network).__name__} did not attend to anything on these inputs")
    return {name: torch.cat(pieces) for name, pieces in recorder.seen.items()}


def call(network: nn.Module, inputs: Tensor | tuple[Any, ...] | Mapping[str, Any]) -> Any:
    """`network` called with one tensor, several positional arguments, or named ones."""
    if isinstance(inputs, Mapping):
        return network(**inputs)
    return network(*inputs) if isinstance(inputs, tuple) else network(inputs)


def keeper(recorder: Capture) -> Callable[[nn.Module, Any], None]:
    """A hook that keeps what a layer of this project attends to."""

    def keep(module: nn.Module, args: Any) -> None:
        assert isinstance(module, MultiHeadSelfAttention)
        recorder.seen[recorder.names[module]].append(module.attention(args[0]).expand(len(args[0]), -1, -1, -1))

    return keep


def mixed_in(module: nn.Module) -> nn.Module:
    """The child that the attention of a layer goes through as a whole, softmaxes mixed."""
    return module.get_submodule(rule_for(module, MIXED))


def keeper_of_mixture(recorder: Capture, layer: nn.Module) -> Callable[[nn.Module, Any], None]:
    """A hook that keeps, as the attention of `layer`, what goes through its child."""

    def keep(child: nn.Module, args: Any) -> None:
        recorder.seen[recorder.names[layer]].append(args[0].detach().clone())

    return keep
