"""The attention of any model, as it runs: every softmax over keys, named by the module it happened in."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection, as_inputs, call_network, check_network, renamed, running
from conv2attn.errors import UsageError
from conv2attn.models.positions.position_attention import ATTENDS
from conv2attn.models.positions.position_rules import Unread
from conv2attn.models.recorder import AttentionRecorder, Captured, ModuleCall, TokenEvidence, run_with
from conv2attn.models.tokens import Tokens, Windows, windows_note


@final
class NamedAttention(dict[str, Any]):
    """Attention by the name of its module.

    `notes` are repeated by reports, `tokens` describes the tokens of each layer, and `calls` has the arguments with
    which each module was called. Arrays that are `sampled` were seen in a run, which knows no others.
    """

    def __init__(
        self,
        layers: Mapping[str, Any],
        notes: Mapping[str, str] | None = None,
        tokens: Mapping[str, Tokens] | None = None,
        calls: Mapping[str, ModuleCall] | None = None,
        sampled: bool = False,
    ):
        super().__init__(layers)
        self.notes, self.tokens, self.calls, self.sampled = notes or {}, tokens or {}, calls or {}, sampled

    def only(self, patterns: Patterns) -> "NamedAttention":
        """The layers whose names match the patterns.

        Raises:
            UsageError: a pattern fits none (C2A008).
        """
        selection = Selection.of(patterns)
        selection.check(list(self), "layer that attends")
        chosen = {name: each for name, each in self.items() if selection.wants(name)}
        return NamedAttention(chosen, self.notes, self.tokens, self.calls, self.sampled)


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
    `name#2`. A module appears as an `Unread`, with the reason, if its class is named after attention and no softmax was
    recorded, if heads and images share an axis and their numbers are unknown, or if it attends between channels.

    Intercepted are scaled_dot_product_attention, multi_head_attention_forward, flex_attention, every softmax over the
    last axis of at least three, or over the columns of squares, a square softmax of two axes that is multiplied by
    values (one head), the layers of this project, and ConViT's mixtures of two softmaxes as a whole. The network is run
    once, without gradients, in evaluation mode, and left in the modes that its modules had; where layers attend within
    windows, once more on an image of noise, which locates the windows. `tokens` of the result describes the tokens
    of each layer, as far as the run shows them.

    Args:
        example_input: a tensor, positional or named arguments; or (channels, *sides), a size for one image of noise.
        heads: the number of heads, where it follows from neither a module nor its input.
        only, skip: patterns of the names to keep, every name if there is none, and of those to leave out.
    Raises:
        UsageError: no attention was recorded (C2A501) or none of such a name (C2A008); it does not run (C2A009),
            or an argument is of another kind (C2A006).
    Examples:
        >>> import conv2attn, torch
        >>> block = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> attention = conv2attn.capture(block, torch.randn(1, 5, 8))
        >>> {name: tuple(maps.shape) for name, maps in attention.items()}
        {'self_attn': (1, 2, 5, 5)}
    """
    check_network(network)
    inputs = as_inputs(network, example_input)
    with running(network, inputs):
        recorder = AttentionRecorder(network, inputs, heads, Selection.of(only, skip))
        run_with(recorder, network, lambda: call_network(network, inputs))
    attention = {name: concatenate_calls(pieces) for name, pieces in recorder.attention.items()}
    unobserved = unobserved_layers(network, attention)
    if recorder.deselected or attention or unobserved:
        special_names = {recorder.names[module] for module in recorder.special}
        layer_names = {name or "(root)" for name in {*attention, *unobserved, *special_names}} | recorder.deselected
        recorder.selection.check(sorted(layer_names), "layer that attends")
    unread = {n: reason for n, reason in unobserved.items() if n not in attention and recorder.selection.wants(n)}
    if not attention and not unread and recorder.deselected:
        raise UsageError("C2A501", "every layer that attends is skipped", "Leave one in.")
    if not attention and not unread:
        raise UsageError(
            "C2A501",
            f"{type(network).__name__} did not attend to anything on these inputs",
            "Pass inputs on which the model attends, or the attention itself as an array.",
        )
    tokens, notes = {}, {}
    windows = windows_in(network, inputs, recorder, attention)
    for name, layer_attention in attention.items():
        if isinstance(layer_attention, Tensor) and (place := recorder.places.get(name)) is not None:
            layer_tokens = tokens_at(name, layer_attention, place, recorder, network)
            if name in windows:
                notes[name] = windows_note(placed=windows[name] is not None)
                layer_tokens = Tokens(sides_of_window(layer_attention), 0, windows[name])
            if isinstance(layer_tokens, str):
                attention[name] = Unread(layer_tokens)
            elif layer_tokens is not None:
                tokens[name] = layer_tokens
    order = {name: place for place, name in enumerate(dict(network.named_modules()))}
    ordered = dict(sorted((attention | unread).items(), key=lambda item: order.get(item[0].split("#")[0], 0)))
    return NamedAttention(ordered, notes, tokens, recorder.calls, sampled=True)


def tokens_at(
    name: str, attention: Tensor, place: TokenEvidence, recorder: AttentionRecorder, network: nn.Module
) -> Tokens | str | None:
    """The tokens of captured attention; a reason where it attends between channels; None where they are unknown."""
    queries, keys = attention.shape[-2:]
    if place.channels is not None and place.tokens is not None and queries == keys:
        width = place.channels // place.heads if place.heads and place.channels % place.heads == 0 else None
        mixed = place.value[-1] if place.value is not None else None
        channel_sized = mixed == place.tokens != width if mixed is not None else queries == width != place.tokens
        if queries == width and (
            channel_sized or (queries == place.tokens and mixes_channels(name, recorder, network))
        ):
            return f"it attends between the {queries} channels of each head, not between tokens"
    return recorder.sources.tokens(queries, keys, place.sources)


def mixes_channels(name: str, recorder: AttentionRecorder, network: nn.Module) -> bool:
    """Whether a layer attends between channels, for layers with as many tokens as channels of a head.

    Another first token then changes more of the attention than a row, a column and a factor of each row.
    """
    module = network.get_submodule(name.split("#")[0])
    args, kwargs = recorder.calls[name]
    if not args or not isinstance(args[0], Tensor) or args[0].ndim != 3:
        return False
    changed = args[0].clone()
    changed[:, 0] = torch.randn(changed[:, 0].shape, generator=torch.Generator().manual_seed(0)).to(changed)
    shares = []
    for tokens in (args[0], changed):
        call = partial(module, tokens, *args[1:], **kwargs)
        recorder_again = run_with(AttentionRecorder(module, tokens), module, call)
        layer_attention = next(iter(recorder_again.attention.values()))[0]
        if isinstance(layer_attention, Unread):
            return False
        others = layer_attention[..., 1:, 1:].cpu().double()
        shares.append(others / others.sum(-1, keepdim=True))
    before, after = shares
    return bool((before - after).abs().max() > 1e-3 * before.abs().max())


def windows_in(
    network: nn.Module, inputs: Any, recorder: AttentionRecorder, attention: Mapping[str, Captured]
) -> dict[str, Windows | None]:
    """The layers that cut an image into windows, with the windows where a run on noise locates them, else None."""
    images = recorder.sources.images
    cut = [
        name
        for name, layer_attention in attention.items()
        if isinstance(layer_attention, Tensor)
        and images
        and len(layer_attention) > images
        and len(layer_attention) % images == 0
        if layer_attention.shape[-1] == layer_attention.shape[-2] and len(recorder.attention[name]) == 1
    ]
    image = inputs if isinstance(inputs, Tensor) else next(iter(inputs), None) if isinstance(inputs, tuple) else None
    if not cut or not isinstance(image, Tensor) or image.ndim != 4 or not image.is_floating_point():
        return dict.fromkeys(cut)
    noise_image = torch.randn(image[:1].shape, generator=torch.Generator().manual_seed(0)).to(image)
    noise = noise_image if isinstance(inputs, Tensor) else (noise_image, *inputs[1:])
    recorder_on_noise = AttentionRecorder(network, noise, recorder.heads, recorder.selection, cuts=True)
    run_with(recorder_on_noise, network, lambda: call_network(network, noise))
    return {name: recorder_on_noise.places[name].windows if name in recorder_on_noise.places else None for name in cut}


def sides_of_window(attention: Tensor) -> tuple[int, ...]:
    """The sides of one window: a square where its tokens form one, otherwise a line."""
    tokens = attention.shape[-1]
    side = math.isqrt(tokens)
    return (side, side) if side**2 == tokens else (tokens,)


def concatenate_calls(pieces: list[Captured]) -> Captured:
    """The attention of all calls of a module as one batch; an `Unread` if one call is unread or the grids differ."""
    tensors = [piece for piece in pieces if isinstance(piece, Tensor)]
    if len(tensors) < len(pieces):
        return next(piece for piece in pieces if isinstance(piece, Unread))
    if len({piece.shape[1:] for piece in tensors}) > 1:
        return Unread(f"its calls attend to {len({piece.shape[1:] for piece in tensors})} different grids")
    return torch.cat(tensors)


def unobserved_layers(network: nn.Module, attention: Mapping[str, Captured]) -> dict[str, Unread]:
    """The outermost modules whose class names say that they attend, and in and around which no softmax was recorded."""
    observed = {name.split("#")[0] for name in attention}
    silent: dict[str, Unread] = {}
    for name, module in network.named_modules():
        compiled = isinstance(module, torch.jit.ScriptModule)
        kind = module.original_name if compiled else type(module).__name__
        around = {name, ""} | {name[:at] for at, letter in enumerate(name) if letter == "."}
        below = any(each == name or not name or each.startswith(f"{name}.") for each in observed)
        if not ATTENDS.search(kind) or around & (observed | silent.keys()) or below:
            continue
        reason = "it is compiled by torch.jit" if compiled else "no softmax over keys was seen in it"
        silent[name] = Unread(f"{reason}, and a {kind} attends")
    return silent
