"""The attention of any model, as it runs: every softmax over keys, named by the module it happened in."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import as_inputs, check_network, renamed, running
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import UsageError
from conv2attn.models.attending import attention_of_sdpa
from conv2attn.models.axes import heads_of, with_one_query_axis
from conv2attn.models.flex import watched_flex
from conv2attn.models.positions.attention import Unread
from conv2attn.models.positions.places import is_of, rule_for
from conv2attn.models.positions.reading import ATTENDS
from conv2attn.models.tokens import Sources, Tokens, Windows, windows_of
from conv2attn.models.windows import said_of_windows

MIXED = {"convit.GPSA": "attn_drop"}
"""Kinds of layers whose attention is a mixture of softmaxes, and the child that it goes through."""
SOFTMAXES = {torch.softmax, F.softmax, Tensor.softmax, torch.nn.functional.softmax, torch.special.softmax}
NORMS = {F.layer_norm, torch.layer_norm}
PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
Captured = Tensor | Unread


class Args(NamedTuple):
    """Arguments of a call, positional and named."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Call = tuple[tuple[Any, ...], dict[str, Any]]


@final
class NamedAttention(dict[str, Any]):
    """Attention by the name of its module, with `notes` on some of the names, which reports repeat.

    `tokens` says of captured attention what its tokens are, and `calls` with what its module was called.
    """

    def __init__(
        self,
        layers: Mapping[str, Any],
        notes: Mapping[str, str] | None = None,
        tokens: Mapping[str, Tokens] | None = None,
        calls: Mapping[str, Call] | None = None,
    ):
        super().__init__(layers)
        self.notes, self.tokens, self.calls = notes or {}, tokens or {}, calls or {}

    def only(self, patterns: Sequence[str]) -> "NamedAttention":
        """The layers whose names fit a pattern, as of files; all without one."""
        kept = {name: each for name, each in self.items() if is_wanted(name, patterns)}
        return NamedAttention(kept, self.notes, self.tokens, self.calls)


def is_wanted(name: str, only: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns, or there is none."""
    return not only or any(fnmatchcase(name, pattern) for pattern in only)


@dataclass
class Running:
    """A module that runs: how often it has attended, its batch, and its first tensor."""

    module: nn.Module
    times: int
    batch: int | None
    first: Tensor | None
    call: Call


@dataclass
class Place:
    """What one attention of a module tells of its tokens: how many sources were there, and the tensors around it."""

    sources: int
    value: tuple[int, ...] | None
    heads: int
    tokens: int | None
    channels: int | None
    windows: Windows | None = None


class Capture(TorchFunctionMode):
    """While active, keeps the attention of every wanted module whose forward runs, in the order of its calls."""

    def __init__(
        self, network: nn.Module, inputs: Any, heads: int | None = None, only: Sequence[str] = (), cuts: bool = False
    ):
        super().__init__()
        self.names = {module: name for name, module in network.named_modules()}
        self.apart = {each for each in self.names if isinstance(each, MultiHeadSelfAttention) or is_of(each, *MIXED)}
        self.heads, self.only, self.cuts = heads, only, cuts
        self.running: list[Running] = []
        self.seen: defaultdict[str, list[Captured]] = defaultdict(list)
        self.sources = Sources(inputs)
        self.places: dict[str, Place] = {}
        self.calls: dict[str, Call] = {}
        self.normed: Tensor | None = None
        self.fed: Tensor | None = None
        self.open: list[tuple[int, str | None, Tensor]] = []
        self.passed = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`, and keeps its attention if it is one of the ways to attend."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            value = args[2] if len(args) > 2 else kwargs["value"]
            self.keep(attention_of_sdpa(*args, **kwargs), tuple(value.shape))
        elif func is F.multi_head_attention_forward:
            asked = {**kwargs, "need_weights": True, "average_attn_weights": False}
            weights = func(*args, **asked)[1]
            assert weights is not None
            self.keep(weights if weights.ndim == 4 else weights[None])
        elif func is F.linear:
            self.fed = args[0]
        result = func(*args, **kwargs)
        self.sources.saw(func, args, result)
        if func in NORMS:
            self.normed = result
        if func in PRODUCTS and len(args) > 1 and isinstance(args[1], Tensor):
            self.multiplied(args[0], args[1])
        if func in SOFTMAXES and isinstance(result, Tensor) and result.ndim > 1:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, result.ndim - 1):
                if result.ndim > 2:
                    self.keep(with_one_query_axis(result), result=result)
                elif result.shape[0] == result.shape[1]:
                    self.open = [*self.open[-8:], (result.data_ptr(), None, result)]
            elif result.ndim > 2 and axis in (-2, result.ndim - 2) and result.shape[-1] == result.shape[-2]:
                self.keep(result.mT)
        return result

    def multiplied(self, left: Any, right: Tensor) -> None:
        """A product whose left side is a softmax: what it mixes, and that a plane of numbers was one head."""
        if not isinstance(left, Tensor):
            return
        for pointer, name, result in self.open:
            if pointer == left.data_ptr() and result.shape == left.shape and right.ndim >= 2:
                if name is not None and (place := self.places.get(name)) is not None:
                    place.value = tuple(right.shape)
                elif name is None and right.shape[-2] == result.shape[-1]:
                    self.keep(result[None, None], tuple(right.shape))
                self.open = [each for each in self.open if each[2] is not result]
                return

    def keep(self, attention: Any, value: tuple[int, ...] | None = None, result: Tensor | None = None) -> None:
        """Keeps `attention` (batch, heads, queries, keys) under the name of the module that runs, an nn.Softmax apart.

        Some modules have hooks of their own instead.
        """
        if not self.running:
            return
        inner = len(self.running) > 1 and isinstance(self.running[-1].module, nn.Softmax)
        entry = self.running[-2 if inner else -1]
        name = self.names[entry.module] + (f"#{entry.times + 1}" if entry.times else "")
        if entry.module in self.apart:
            return
        entry.times += 1
        if not is_wanted(name or "(root)", self.only):
            self.passed += 1
            return
        whole = heads_of(attention, entry.module, self.batch_of(entry, attention), self.heads)
        self.seen[name].append(whole.detach().clone() if isinstance(whole, Tensor) and not self.cuts else whole)
        first = entry.first
        shape = first.shape if first is not None else ()
        tokens = math.prod(shape[1:-1]) if len(shape) > 2 and getattr(entry.module, "batch_first", True) else None
        heads = whole.shape[1] if isinstance(whole, Tensor) else 0
        place = Place(len(self.sources.sides), value, heads, tokens, shape[-1] if len(shape) > 1 else None)
        if self.cuts and isinstance(whole, Tensor):
            inputs = [each.first for each in reversed(self.running) if each.first is not None]
            around = [each for each in (self.normed, *inputs) if each is not None]
            place.windows = windows_of(len(whole), self.fed, around, self.sources)
        self.places.setdefault(name, place)
        self.calls.setdefault(name, entry.call)
        if result is not None:
            self.open = [*self.open[-8:], (result.data_ptr(), name, result)]

    def batch_of(self, entry: Running, attention: Tensor) -> int | None:
        """How many images or windows the first axis of attention is of, beside heads.

        The axis of the module's input that is not its tokens: the first, or the second where tokens come first.
        """
        first = entry.first
        if first is None or first.ndim < 3:
            return entry.batch
        sequence, batch = first.shape[:2]
        tokens_first = first.ndim == 3 and sequence == attention.shape[-2] != batch
        return int(batch) if tokens_first else entry.batch

    def started(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A hook: `module` runs, on a batch of this size if its first tensor has tokens and channels besides."""
        first = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        batch = None if first is None else len(first) if first.ndim > 2 else 1
        self.running.append(Running(module, 0, batch, first, (args, kwargs)))


@renamed(inputs="example_input")
def capture(
    network: nn.Module,
    example_input: Tensor | tuple[Any, ...] | Mapping[str, Any],
    *,
    heads: int | None = None,
    only: Sequence[str] = (),
) -> NamedAttention:
    """The attention of each module of `network` on `example_input`: (batch, heads, queries, keys).

    Calls are joined as a batch. A module that attends twice in one forward appears a second time as
    `name#2`. A module appears as an `Unread`, with the reason, if it attends by its name and nothing was seen, if its
    heads cannot be told from its images, or if it attends between channels.

    Intercepted are scaled_dot_product_attention, multi_head_attention_forward, flex_attention, every softmax over the
    last axis of at least three, or over the columns of squares, a square softmax of two axes that is multiplied by
    values (one head), the layers of this project, and ConViT's mixtures of two softmaxes as a whole. The network is run
    once, without gradients, in evaluation mode, and left in the modes that its modules had; where layers attend within
    windows, once more on an image of noise, which tells where the windows are. `tokens` of the result says what the
    tokens of each layer are, as far as the run tells.

    Args:
        example_input: a tensor, positional or named arguments; or (channels, *sides), a size for one image of noise.
        heads: the number of heads, where neither a module nor its input tells.
        only: patterns of the names to keep, as of files; every name if there is none.
    Raises:
        UsageError: no attention was seen (C2A501), or none of such a name (C2A008); the network does not run (C2A009),
            or an argument is of another kind (C2A006).
    Examples:
        >>> import conv2attn, torch
        >>> block = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> attention = conv2attn.capture(block, torch.randn(1, 5, 8))
        >>> {name: tuple(seen.shape) for name, seen in attention.items()}
        {'self_attn': (1, 2, 5, 5)}
    """
    check_network(network)
    inputs = as_inputs(network, example_input)
    with running(network, inputs):
        recorder = run_with(Capture(network, inputs, heads, only), network, inputs)
    found = {name: joined(pieces) for name, pieces in recorder.seen.items()}
    missed = {n: reason for n, reason in unseen(network, found).items() if n not in found and is_wanted(n, only)}
    if not found and not missed and recorder.passed:
        raise UsageError("C2A008", f"{' '.join(only)} fits no layer that attends", "Name one as it is reported.")
    if not found and not missed:
        raise UsageError("C2A501", f"{type(network).__name__} did not attend to anything on these inputs")
    tokens, notes = {}, {}
    windows = windows_in(network, inputs, recorder, found)
    for name, each in found.items():
        if isinstance(each, Tensor) and (place := recorder.places.get(name)) is not None:
            answer = tokens_at(name, each, place, recorder, network)
            if name in windows:
                notes[name] = said_of_windows(placed=windows[name] is not None)
                answer = Tokens(sides_of_window(each), 0, windows[name])
            if isinstance(answer, str):
                found[name] = Unread(answer)
            elif answer is not None:
                tokens[name] = answer
    order = {name: place for place, name in enumerate(dict(network.named_modules()))}
    seen = dict(sorted((found | missed).items(), key=lambda item: order.get(item[0].split("#")[0], 0)))
    return NamedAttention(seen, notes, tokens, recorder.calls)


def run_with(recorder: Capture, network: nn.Module, inputs: Any) -> Capture:
    """The recorder after one run of the network."""
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
    return recorder


def tokens_at(name: str, attention: Tensor, place: Place, recorder: Capture, network: nn.Module) -> Tokens | str | None:
    """The tokens of captured attention; why they are none; None where nothing tells."""
    queries, keys = attention.shape[-2:]
    if place.channels is not None and place.tokens is not None and queries == keys:
        width = place.channels // place.heads if place.heads and place.channels % place.heads == 0 else None
        mixes = place.value[-1] if place.value is not None else None
        other = mixes == place.tokens != width if mixes is not None else queries == width != place.tokens
        if queries == width and (other or (queries == place.tokens and mixes_channels(name, recorder, network))):
            return f"it attends between the {queries} channels of each head, not between tokens"
    return recorder.sources.tokens(queries, keys, place.sources)


def mixes_channels(name: str, recorder: Capture, network: nn.Module) -> bool:
    """Whether another first token changes more than a row and a column of a layer's attention, each row by a factor.

    So it is asked of layers with as many tokens as channels of a head.
    """
    module = network.get_submodule(name.split("#")[0])
    args, kwargs = recorder.calls[name]
    if not args or not isinstance(args[0], Tensor) or args[0].ndim != 3:
        return False
    moved = args[0].clone()
    moved[:, 0] = torch.randn(moved[:, 0].shape, generator=torch.Generator().manual_seed(0)).to(moved)
    found = []
    for given in (args[0], moved):
        again = run_with(Capture(module, given), module, Args((given, *args[1:]), kwargs))
        first = next(iter(again.seen.values()))[0]
        if isinstance(first, Unread):
            return False
        rest = first[..., 1:, 1:].double()
        found.append(rest / rest.sum(-1, keepdim=True))
    before, after = found
    return bool((before - after).abs().max() > 1e-3 * before.abs().max())


def windows_in(
    network: nn.Module, inputs: Any, recorder: Capture, found: Mapping[str, Captured]
) -> dict[str, Windows | None]:
    """The layers that cut an image into windows, with the places of these where an image of noise tells them."""
    images = recorder.sources.images
    cut = [
        name
        for name, each in found.items()
        if isinstance(each, Tensor) and images and len(each) > images and len(each) % images == 0
        if each.shape[-1] == each.shape[-2] and len(recorder.seen[name]) == 1
    ]
    picture = inputs if isinstance(inputs, Tensor) else next(iter(inputs), None) if isinstance(inputs, tuple) else None
    if not cut or not isinstance(picture, Tensor) or picture.ndim != 4 or not picture.is_floating_point():
        return dict.fromkeys(cut)
    drawn = torch.randn(picture[:1].shape, generator=torch.Generator().manual_seed(0)).to(picture)
    noise = drawn if isinstance(inputs, Tensor) else (drawn, *inputs[1:])
    again = run_with(Capture(network, noise, recorder.heads, recorder.only, cuts=True), network, noise)
    return {name: again.places[name].windows if name in again.places else None for name in cut}


def sides_of_window(attention: Tensor) -> tuple[int, ...]:
    """The sides of one window: a square where its tokens form one, otherwise a line."""
    tokens = attention.shape[-1]
    side = math.isqrt(tokens)
    return (side, side) if side**2 == tokens else (tokens,)


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


def call(network: nn.Module, inputs: Any) -> Any:
    """`network` called with one tensor, several positional arguments, or named ones."""
    if isinstance(inputs, Args):
        return network(*inputs.args, **inputs.kwargs)
    if isinstance(inputs, Mapping):
        return network(**inputs)
    return network(*inputs) if isinstance(inputs, tuple) else network(inputs)


def keeper(recorder: Capture) -> Callable[[nn.Module, Any], None]:
    """A hook that keeps what a layer of this project attends to."""

    def keep(module: nn.Module, args: Any) -> None:
        assert isinstance(module, MultiHeadSelfAttention)
        if is_wanted(name := recorder.names[module], recorder.only) and not recorder.cuts:
            recorder.seen[name].append(module.attention(args[0]).expand(len(args[0]), -1, -1, -1))

    return keep


def mixed_in(module: nn.Module) -> nn.Module:
    """The child that the attention of a layer goes through as a whole, softmaxes mixed."""
    return module.get_submodule(rule_for(module, MIXED))


def keeper_of_mixture(recorder: Capture, layer: nn.Module) -> Callable[[nn.Module, Any], None]:
    """A hook that keeps, as the attention of `layer`, what goes through its child."""

    def keep(child: nn.Module, args: Any) -> None:
        if is_wanted(name := recorder.names[layer], recorder.only):
            recorder.seen[name].append(args[0].detach().clone())

    return keep
