"""Theorem 1 over a whole network: a copy in which every convolution is a multi-head self-attention."""

import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from conv2attn.arguments import Patterns, Selection, as_inputs, call_network, check_network, running
from conv2attn.choices import EncodingName, StrideBy
from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import STOCK
from conv2attn.layers.theorem.convolution import Stock
from conv2attn.networks.conversion.computed_weights import (
    check_has_weights,
    class_name,
    current_convolution,
    unreadable_rows,
)
from conv2attn.networks.conversion.functional import record
from conv2attn.networks.conversion.outcomes import (
    CHECKED,
    CONVERTED,
    SKIPPED,
    UNSUPPORTED,
    Conversion,
    ConversionRow,
    leak_warning,
    remember,
    warnings_about,
)
from conv2attn.networks.conversion.redirection import CHILD, attend_in_calls
from conv2attn.networks.conversion.replacement import Content, Settings, attend
from conv2attn.networks.copies import copy_network, evaluating

Input = Tensor | Sequence[Any] | Mapping[str, Any]
Network = TypeVar("Network", bound=nn.Module)


class Options(TypedDict, total=False):
    """The keyword arguments of `convert`."""

    alpha: float | Literal["auto"]
    encoding: EncodingName
    d_head: int | None
    stride_by: StrideBy
    trainable: bool
    content: Content
    only: Patterns
    skip: Patterns


@contextmanager
def outside_inference_mode() -> Iterator[None]:
    """Tensors created inside can be trained, even if the caller is in inference mode."""
    with torch.inference_mode(False):
        yield


@overload
def convert(model: Stock, example_input: Input | None = None, **options: Unpack[Options]) -> MultiHeadSelfAttention: ...
@overload
def convert(model: Network, example_input: Input | None = None, **options: Unpack[Options]) -> Network: ...
@outside_inference_mode()
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
    only: Patterns = (),
    skip: Patterns = (),
) -> nn.Module:
    """A copy of `model` with every convolution replaced by an equal multi-head self-attention.

    A layer keeps the convolution's parameters, with their names, shapes and parametrisations, and its hooks, buffers
    and attributes; everything else in the network is unchanged. So the network has the state dict of `model`, and
    either loads the other's. `conversion_of(network)` gives the outcome for each convolution.

    torchvision's DeformConv2d is not converted: between pixels it is bilinear, unlike any attention; see
    `theorem.deformable_as_attention` for integer offsets.

    Args:
        model: a convolution layer, or any network.
        example_input: arguments of a call: a tensor, positional or named arguments; or (channels, *sides), a size for
            one image of noise. A copy runs on it once without gradients, so that torch.nn.functional convolutions, also
            in layers with a custom forward, are found and converted. Without an example they stay convolutions. Lazy
            layers of the copy draw in that run the weights that `model` would draw next; `model` stays lazy.
        alpha, encoding, d_head, stride_by, trainable, content: see `theorem.attention_for`. Centres and sharpness of a
            trainable conversion move at an alpha of about 5 to 10, and not at all from 46 on. A `d_head` replaces the
            weight by `value` and `output`, which are then not shared with another layer.
        only, skip: glob patterns of layer names ("layer1.*") to convert, or to leave out; a functional call has its
            module's name, "(root)" for the network itself.
    Returns:
        A MultiHeadSelfAttention for a convolution layer, otherwise a network of the class of `model`.
    Warns: Conv2AttnWarning: there is no convolution, or none that can be converted (C2A109), or trainable positions do
        not move (C2A132).
    Raises:
        UnsupportedError: `model` is one convolution that cannot be converted (C2A101 to C2A106), or a network on the
            meta device (C2A103), or the example shows that the network's code reads an attribute that only a
            convolution has (C2A108).
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
    check_network(model, "model")
    example_input = None if example_input is None else as_inputs(model, example_input)
    unreadable = unreadable_rows(model)
    check_has_weights(model, *model.parameters(), *model.buffers())
    network = copy_network(model)
    if example_input is not None and any(map(is_lazy, network.parameters())):
        with evaluating(network), running(network, example_input), torch.no_grad():
            call_network(network, example_input)
    settings = Settings(alpha, encoding, d_head, stride_by, trainable, content)
    selection, names = Selection.of(only, skip), module_names(network)
    chosen = {name for name, all_names in names.items() if selection.wants(*all_names)}
    rows, errors = attend_in_layers(network, chosen, settings)
    calls, class_readers = record(copy_network(network), example_input) if example_input is not None else ([], {})
    call_names = {call: [*names[call.owner], call.name] for call in calls}
    all_names = (*map(names.__getitem__, rows), *call_names.values())
    selection.check([name for each in all_names for name in each], "convolution")
    chosen_calls = [call for call in calls if selection.wants(*call_names[call])]
    if "" in errors and not chosen_calls:
        raise errors[""]
    call_rows = attend_in_calls(network, calls, chosen_calls, settings)
    for name, caller in class_readers.items():
        reasons = filter(None, (rows[name].reason, f"{caller} reads its class, which is not a convolution's"))
        rows[name] = replace(rows[name], reason="; ".join(reasons))
    owners = {call.owner for call in calls}
    own_rows = (row for name, row in rows.items() if name not in owners)
    functional_calls = CHECKED if example_input is not None else "not searched, without an example input"
    conversion = Conversion((*unreadable, *own_rows, *call_rows), functional_calls)
    remember(network, conversion)
    for warning in warnings_about(network, conversion, trainable):
        warnings.warn(warning, stacklevel=3)  # above the decorator
    return network


def attend_in_layers(
    network: nn.Module, chosen: Container[str], settings: Settings
) -> tuple[dict[str, ConversionRow], dict[str, Conv2AttnError]]:
    """Converts the chosen layers of `network`; returns a row for each convolution, and the errors of unsupported ones.

    Raises:
        UsageError: an argument is out of range; the message begins with the name of the layer.
    """
    rows, errors = dict[str, ConversionRow](), dict[str, Conv2AttnError]()
    for name, module in [*network.named_modules()]:
        if not isinstance(module, STOCK) or CHILD in module._modules:
            continue
        signature, outcome, reason = class_name(module), SKIPPED, "on request"
        try:
            with error_prefix(name), current_convolution(module) as convolution:
                signature = convolution.describe(signature)
                if name in chosen:
                    attend(module, convolution, name, settings)
                    outcome, reason = CONVERTED, leak_warning(settings.alpha, len(convolution.kernel_size))
        except Conv2AttnError as error:
            # A skipped layer is only described in its row, and may be unreadable.
            if name in chosen:
                if not isinstance(error, UnsupportedError):
                    raise
                errors[name], outcome, reason = error, UNSUPPORTED, str(error)
        rows[name] = ConversionRow(name, signature, outcome, reason)
    return rows, errors


@contextmanager
def error_prefix(name: str) -> Iterator[None]:
    """Prefixes errors about a layer with its name."""
    try:
        yield
    except Conv2AttnError as error:
        raise type(error)(error.code, f"{name}: {error.found}" if name else error.found, error.remedy) from error


def module_names(network: nn.Module) -> dict[str, list[str]]:
    """All names of each module, by its first name; the network itself is also called (root)."""
    names: dict[nn.Module, list[str]] = {}
    for name, module in network.named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    names[network].append("(root)")
    return {each[0]: each for each in names.values()}
