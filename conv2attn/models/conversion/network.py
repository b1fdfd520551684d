"""Theorem 1 over a whole network: a copy in which every convolution is a multi-head self-attention."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import Conv2AttnWarning, UnsupportedError, UsageError
from conv2attn.models.conversion.assembly import converted, selectable
from conv2attn.models.conversion.discovery import discover
from conv2attn.models.conversion.outcomes import SURE_ALPHA, conversion_of, rows_of_the_closed
from conv2attn.models.conversion.patches import on_patches
from conv2attn.models.conversion.recording import missed_layers
from conv2attn.models.conversion.replacement import Content, EncodingName, Settings, StrideBy, attention_layers
from conv2attn.models.conversion.selection import Selection

Input = Tensor | Sequence[Any] | Mapping[str, Any]
Stock = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
Network = TypeVar("Network", bound=nn.Module)


class Options(TypedDict, total=False):
    """The keyword arguments of `convert`."""

    alpha: float | Literal["auto"]
    encoding: EncodingName
    d_head: int | None
    stride_by: StrideBy
    trainable: bool
    content: Content
    max_error: float | None
    only: str | Sequence[str]
    skip: str | Sequence[str]


@overload
def convert(
    model: nn.Module, example_input: Input | None = None, *, patch: int | Sequence[int], **options: Unpack[Options]
) -> nn.Sequential: ...
@overload
def convert(model: Stock, example_input: Input | None = None, **options: Unpack[Options]) -> MultiHeadSelfAttention: ...
@overload
def convert(model: Network, example_input: Input | None = None, **options: Unpack[Options]) -> Network: ...
def convert(
    model: nn.Module,
    example_input: Input | None = None,
    *,
    alpha: float | Literal["auto"] = "auto",
    encoding: EncodingName = "quadratic",
    d_head: int | None = None,
    stride_by: StrideBy = "queries",
    trainable: bool = False,
    content: Content = "none",
    max_error: float | None = None,
    only: str | Sequence[str] = (),
    skip: str | Sequence[str] = (),
    patch: int | Sequence[int] | None = None,
) -> nn.Module:
    """A copy of `model` with every convolution replaced by an equal multi-head self-attention.

    Names, sharing, hooks, mode, requires_grad, buffers and all other layers stay as they are. A convolution on whose
    weight others hold (a tied parameter, a functional call, code that reads it) stays a module of its class, and what
    it computes becomes attention with that weight. What became of each, and why, is `conversion_of(network)`.

    Args:
        model: a convolution layer, or any network.
        example_input: what the network can be called with: a tensor, positional or named arguments. Copies of the
            network, before and after, are run on it without gradients, so that torch.nn.functional convolutions, in
            layers with a forward of their own too, are found and converted.
        alpha, encoding, d_head, stride_by, trainable, content: see `theorem.attention_for`. Centres and sharpness of a
            trainable conversion move at an alpha of about 5 to 10, and do not from 46 on.
        max_error: fewer or narrower heads by which no output of a layer moves further, for images within [-1, 1]; it
            bounds each layer alone, and not what a network makes of it. Functional calls stay equal.
        only, skip: glob patterns of layer names ("layer1.*") to convert, or to leave; a functional call goes by its
            module's name, "(root)" for the network itself.
        patch: of a convolution layer, or a `Sequential` of such layers and pointwise activations: attend to patches of
            so many pixels along each side. A K x K kernel of stride 1 takes `(2 ceil((K - 1) / 2P) + 1)^2` heads on P^2
            times fewer tokens, 9 while K - 1 is at most 2 P; a patch embedding, whose kernel and stride are the patch,
            takes one. Fewer heads do not do: claim PATCH of proofs/.
    Returns:
        A MultiHeadSelfAttention for a convolution layer, otherwise a network of the class of `model`.
    Warns:
        Conv2AttnWarning: there is no convolution (C2A109), or positions that are to be trained do not move (C2A132).
    Raises:
        UnsupportedError: `model` is one convolution that cannot be converted (C2A101 to C2A106), or a network that
            does not run with attention in it (C2A108).
        UsageError: a pattern that fits no convolution (C2A008), or an argument out of range (C2A001, C2A002).
    Source: Cordonnier et al. 2020, Theorem 1.
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(16, 32, 3, stride=2, padding=1)
        >>> layer = conv2attn.convert(conv)
        >>> layer.heads, layer.attention(sides=(8, 9)).shape
        (9, torch.Size([1, 9, 20, 110]))
        >>> network = conv2attn.convert(torch.nn.Sequential(conv, torch.nn.ReLU()))
        >>> [type(module).__name__ for module in network]
        ['MultiHeadSelfAttention', 'ReLU']
    """
    if not isinstance(model, nn.Module):
        raise UsageError("C2A101", f"{type(model).__name__} is not a torch.nn.Module")
    if any(not row.name for row in rows_of_the_closed(model)):
        raise UnsupportedError("C2A102", f"{type(model).__name__} has quantised or compiled weights")
    if patch is not None:
        model = on_patches(model, patch)
    settings = Settings(alpha, encoding, d_head, stride_by, trainable, content, max_error)
    selection = Selection.of(only, skip)
    discovery = discover(model, example_input)
    selection.check(selectable(model, discovery))
    kept = dict(discovery.read)
    while missed := missed_layers(
        network := converted(model, discovery, settings, selection, kept), example_input, discovery.ran
    ):
        if known := missed.keys() & kept.keys():
            raise UnsupportedError("C2A108", f"{sorted(known)[0]}: {missed[sorted(known)[0]]}")
        kept |= missed
    for warning in warnings_about(network, settings):
        warnings.warn(warning, stacklevel=2)
    return network


def warnings_about(network: nn.Module, settings: Settings) -> Iterator[Conv2AttnWarning]:
    """Notes on a conversion, to be read before its result is used."""
    layers = attention_layers(network).values()
    if not layers and not conversion_of(network).rows:
        yield Conv2AttnWarning("C2A109", f"{type(network).__name__} has no convolution: this is a plain copy of it")
    encodings = [layer.encoding for layer in layers if settings.trainable]
    alphas = [least for encoding in encodings for least in encoding.get_parameter("alpha").tolist()]
    if alphas and min(alphas) >= SURE_ALPHA:
        found = f"alpha={min(alphas):g} leaves no gradient to speak of, so that centres and sharpness do not move"
        yield Conv2AttnWarning("C2A132", found)
