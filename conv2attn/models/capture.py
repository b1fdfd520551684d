"""The attention of any model, as it runs: every softmax over keys, named by the module it happened in."""

import math
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection, as_inputs, check_network, renamed, running
from conv2attn.errors import UsageError
from conv2attn.models.positions.attention import Unread
from conv2attn.models.positions.reading import ATTENDS
from conv2attn.models.recorder import Args, Call, Captured, Place, Recorder, run_with
from conv2attn.models.tokens import Tokens, Windows, said_of_windows


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

    def only(self, patterns: Patterns) -> "NamedAttention":
        """The layers that are chosen.

        Raises:
            UsageError: a pattern fits none (C2A008).
        """
        selection = Selection.of(patterns)
        selection.check(list(self), "layer that attends")
        kept = {name: each for name, each in self.items() if selection.wants(name)}
        return NamedAttention(kept, self.notes, self.tokens, self.calls)


@renamed(inputs="example_input")
def capture(
    network: nn.Module,
    example_input: Tensor | tuple[Any, ...] | Mapping[str, Any],
    *,
    heads: int | None = None,
    only: Patterns = (),
    skip: Patterns = (),
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
        only, skip: patterns of the names to keep, every name if there is none, and of those to leave out.
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
        recorder = run_with(Recorder(network, inputs, heads, Selection.of(only, skip)), network, inputs)
    found = {name: joined(pieces) for name, pieces in recorder.seen.items()}
    silent = unseen(network, found)
    if recorder.passed or found or silent:
        own = {recorder.names[module] for module in recorder.apart}
        known = {name or "(root)" for name in {*found, *silent, *own}} | recorder.passed
        recorder.selection.check(sorted(known), "layer that attends")
    missed = {n: reason for n, reason in silent.items() if n not in found and recorder.selection.wants(n)}
    if not found and not missed and recorder.passed:
        raise UsageError("C2A008", "every layer that attends is skipped", "Leave one in.")
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


def tokens_at(
    name: str, attention: Tensor, place: Place, recorder: Recorder, network: nn.Module
) -> Tokens | str | None:
    """The tokens of captured attention; why they are none; None where nothing tells."""
    queries, keys = attention.shape[-2:]
    if place.channels is not None and place.tokens is not None and queries == keys:
        width = place.channels // place.heads if place.heads and place.channels % place.heads == 0 else None
        mixes = place.value[-1] if place.value is not None else None
        other = mixes == place.tokens != width if mixes is not None else queries == width != place.tokens
        if queries == width and (other or (queries == place.tokens and mixes_channels(name, recorder, network))):
            return f"it attends between the {queries} channels of each head, not between tokens"
    return recorder.sources.tokens(queries, keys, place.sources)


def mixes_channels(name: str, recorder: Recorder, network: nn.Module) -> bool:
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
        again = run_with(Recorder(module, given), module, Args((given, *args[1:]), kwargs))
        first = next(iter(again.seen.values()))[0]
        if isinstance(first, Unread):
            return False
        rest = first[..., 1:, 1:].double()
        found.append(rest / rest.sum(-1, keepdim=True))
    before, after = found
    return bool((before - after).abs().max() > 1e-3 * before.abs().max())


def windows_in(
    network: nn.Module, inputs: Any, recorder: Recorder, found: Mapping[str, Captured]
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
    again = run_with(Recorder(network, noise, recorder.heads, recorder.selection, cuts=True), network, noise)
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
