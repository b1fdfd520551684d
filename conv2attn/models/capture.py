"""The attention of any model, as it runs: every softmax over keys, named by the module it happened in."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import UsageError
from conv2attn.models.attending import attention_of_sdpa
from conv2attn.models.axes import heads_of, with_one_query_axis
from conv2attn.models.flex import watched_flex
from conv2attn.models.positions.attention import Unread
from conv2attn.models.positions.places import is_of, rule_for
from conv2attn.models.positions.reading import ATTENDS
from conv2attn.models.windows import notes_on_windows

MIXED = {"convit.GPSA": "attn_drop"}
"""Kinds of layers whose attention is a mixture of softmaxes, and the child that it goes through."""
SOFTMAXES = {torch.softmax, F.softmax, Tensor.softmax, torch.nn.functional.softmax, torch.special.softmax}
Captured = Tensor | Unread


@final
class NamedAttention(dict[str, Any]):
    """Attention by the name of its module, with `notes` on some of the names, which reports repeat."""

    def __init__(self, layers: Mapping[str, Any], notes: Mapping[str, str] | None = None):
        super().__init__(layers)
        self.notes = notes or {}


class Capture(TorchFunctionMode):
    """While active, keeps the attention of every module whose forward runs, in the order of its calls."""

    def __init__(self, network: nn.Module, heads: int | None = None):
        super().__init__()
        self.names = {module: name for name, module in network.named_modules()}
        self.apart = {each for each in self.names if isinstance(each, MultiHeadSelfAttention) or is_of(each, *MIXED)}
        self.heads = heads
        self.running: list[list[Any]] = []
        self.seen: defaultdict[str, list[Captured]] = defaultdict(list)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`, and keeps its attention if it is one of the ways to attend."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.keep(attention_of_sdpa(*args, **kwargs))
        elif func is F.multi_head_attention_forward:
            asked = {**kwargs, "need_weights": True, "average_attn_weights": False}
            weights = func(*args, **asked)[1]
            assert weights is not None
            self.keep(weights if weights.ndim == 4 else weights[None])
        result = func(*args, **kwargs)
        if func in SOFTMAXES and isinstance(result, Tensor) and result.ndim > 2:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, result.ndim - 1):
                self.keep(with_one_query_axis(result))
            elif axis in (-2, result.ndim - 2) and result.shape[-1] == result.shape[-2]:
                self.keep(result.mT)
        return result

    def keep(self, attention: Any) -> None:
        """Keeps `attention` (batch, heads, queries, keys) under the name of the module that runs, an nn.Softmax apart.

        Some modules have hooks of their own instead.
        """
        if not self.running:
            return
        inner = len(self.running) > 1 and isinstance(self.running[-1][0], nn.Softmax)
        entry = self.running[-2 if inner else -1]
        module, before, batch = entry
        if module not in self.apart:
            whole = heads_of(attention, module, batch, self.heads)
            entry[1] += 1
            name = self.names[module] + (f"#{before + 1}" if before else "")
            self.seen[name].append(whole.detach().clone() if isinstance(whole, Tensor) else whole)

    def started(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A hook: `module` runs, on a batch of this size if its first tensor has tokens and channels besides."""
        first = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        self.running.append([module, 0, None if first is None else len(first) if first.ndim > 2 else 1])


def capture(
    network: nn.Module, inputs: Tensor | tuple[Any, ...] | Mapping[str, Any], *, heads: int | None = None
) -> NamedAttention:
    """The attention of each module of `network` on `inputs`: (batch, heads, queries, keys), calls joined as a batch.

    A module that attends twice in one forward appears a second time as `name#2`. A module appears as an `Unread`, with
    the reason, if it attends by its name and nothing was seen, or if its heads cannot be told from its images.

    Intercepted are scaled_dot_product_attention, multi_head_attention_forward, flex_attention, every softmax over the
    last axis of at least three, or over the columns of squares, the layers of this project, and ConViT's mixtures of
    two softmaxes as a whole. The network is run once, without gradients, in evaluation mode, and left in the modes
    that its modules had. `notes` of the result name the layers that attend within windows.

    Args:
        heads: the number of heads, where neither a module nor its input tells.
    Raises:
        UsageError: no attention was seen (C2A501).
    Examples:
        >>> import conv2attn, torch
        >>> block = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> attention = conv2attn.capture(block, torch.randn(1, 5, 8))
        >>> {name: tuple(seen.shape) for name, seen in attention.items()}
        {'self_attn': (1, 2, 5, 5)}
    """
    recorder = Capture(network, heads)
    handles = []
    for module in network.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue
        start = module.register_forward_pre_hook(recorder.started, prepend=True, with_kwargs=True)
        handles += [start, module.register_forward_hook(lambda *_: recorder.running.pop() and None, always_call=True)]
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
    found = {name: joined(pieces) for name, pieces in recorder.seen.items()}
    missed = {name: reason for name, reason in unseen(network, found).items() if name not in found}
    if not found and not missed:
        raise UsageError("C2A501", f"{type(network).__name__} did not attend to anything on these inputs")
    order = {name: place for place, name in enumerate(dict(network.named_modules()))}
    seen = dict(sorted((found | missed).items(), key=lambda item: order.get(item[0].split("#")[0], 0)))
    return NamedAttention(seen, notes_on_windows(network, seen, inputs))


def joined(pieces: list[Captured]) -> Captured:
    """The calls of a module as one batch; why there is none, if one of them has none."""
    tensors = [piece for piece in pieces if isinstance(piece, Tensor)]
    if len(tensors) < len(pieces):
        return next(piece for piece in pieces if isinstance(piece, Unread))
    if len({piece.shape[1:] for piece in tensors}) > 1:
        return Unread(f"its calls attend to {len({piece.shape[1:] for piece in tensors})} different grids")
    return torch.cat(tensors)


def unseen(network: nn.Module, found: Mapping[str, Captured]) -> dict[str, Unread]:
    """The modules that attend by their names, outermost, in which, around which and below which nothing was seen."""
    seen = {name.split("#")[0] for name in found}
    missed: dict[str, Unread] = {}
    for name, module in network.named_modules():
        compiled = isinstance(module, torch.jit.ScriptModule)
        kind = module.original_name if compiled else type(module).__name__
        around = {name, ""} | {name[:at] for at, letter in enumerate(name) if letter == "."}
        below = any(each == name or not name or each.startswith(f"{name}.") for each in seen)
        if not ATTENDS.search(kind) or around & (seen | missed.keys()) or below:
            continue
        reason = "it is compiled by torch.jit" if compiled else "no softmax over keys was seen in it"
        missed[name] = Unread(f"{reason}, and a {kind} attends")
    return missed


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
