"""Theorem 1 over a whole network: a copy in which every convolution is a multi-head self-attention."""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Padding
from conv2attn.errors import Conv2AttnError, Conv2AttnWarning, UnsupportedError, UsageError
from conv2attn.models.conversion.discovery import Discovery, copy_network, discover, record
from conv2attn.models.conversion.functional import FunctionalCall
from conv2attn.models.conversion.outcomes import (
    SKIPPED,
    SURE_ALPHA,
    UNSUPPORTED,
    Conversion,
    ConversionRow,
    conversion_of,
    convolutions,
    describe,
    remember,
    row_of_call,
    row_of_layer,
    rows_of_the_closed,
)
from conv2attn.models.conversion.redirection import leave_alone, redirect_calls
from conv2attn.models.conversion.replacement import (
    EncodingName,
    Settings,
    StrideBy,
    Ties,
    attention_from,
    attention_layers,
    carry_over,
    present,
)
from conv2attn.models.conversion.selection import Selection
from conv2attn.models.conversion.sharing import held_together

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
    only: str | Sequence[str]
    skip: str | Sequence[str]


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
    only: str | Sequence[str] = (),
    skip: str | Sequence[str] = (),
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
        alpha, encoding, d_head, stride_by, trainable: see `theorem.attention_for`. Centres and sharpness of a
            trainable conversion move at an alpha of about 5 to 10, and do not from 46 on.
        only, skip: glob patterns of layer names ("layer1.*") to convert, or to leave; a functional call goes by its
            module's name, "(root)" for the network itself.
    Returns:
        A MultiHeadSelfAttention for a convolution layer, otherwise a network of the class of `model`.
    Warns:
        Conv2AttnWarning: there is no convolution (C2A109), or positions that are to be trained do not move (C2A132).
    Raises:
        UnsupportedError: `model` is one convolution that cannot be converted (C2A101 to C2A106), or a network that
            does not run with attention in it (C2A108).
        UsageError: a pattern that fits no convolution, or an argument out of range (C2A001).
    Source: Cordonnier et al. 2020, Theorem 1.
    """
    if not isinstance(model, nn.Module):
        raise UsageError("C2A101", f"{type(model).__name__} is not a torch.nn.Module")
    if any(not row.name for row in rows_of_the_closed(model)):
        raise UnsupportedError("C2A102", f"{type(model).__name__} has quantised or compiled weights")
    settings, selection = Settings(alpha, encoding, d_head, stride_by, trainable), Selection.of(only, skip)
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
    """What to know of a conversion before its result is used."""
    layers = attention_layers(network).values()
    if not layers and not conversion_of(network).rows:
        yield Conv2AttnWarning("C2A109", f"{type(network).__name__} has no convolution: this is a plain copy of it")
    encodings = [layer.encoding for layer in layers if settings.trainable]
    alphas = [least for encoding in encodings for least in encoding.get_parameter("alpha").tolist()]
    if alphas and min(alphas) >= SURE_ALPHA:
        found = f"alpha={min(alphas):g} leaves no gradient to speak of, so that centres and sharpness do not move"
        yield Conv2AttnWarning("C2A132", found)


def names_of(network: nn.Module, module: nn.Module) -> list[str]:
    """All names of a module in `network`; the network itself is (root) too."""
    named = [name for name, other in network.named_modules(remove_duplicate=False) if other is module]
    return [*named, "(root)"] if module is network else named


def names_of_call(network: nn.Module, call: FunctionalCall) -> list[str]:
    """What a functional call can be selected by: the names of its module, and its own."""
    return [*names_of(network, network.get_submodule(call.owner)), call.name]


def selectable(network: nn.Module, discovery: Discovery) -> Iterator[str]:
    """All names by which a convolution can be selected."""
    for module in convolutions(network).values():
        yield from names_of(network, module)
    for call in discovery.calls:
        yield from names_of_call(network, call)


def converted(
    model: nn.Module, discovery: Discovery, settings: Settings, selection: Selection, kept: Mapping[str, str]
) -> nn.Module:
    """The converted copy of `model`, in which the convolutions named in `kept` stay modules of their class."""
    draft, called = copy_network(model), {call.owner for call in discovery.calls}
    found = {name: module for name, module in convolutions(draft).items() if name not in called}
    left = {name: row for name in found if (row := row_if_left(model, draft, name, selection))}
    able = {name: module for name, module in found.items() if name not in left}
    kept = {**kept, **held_together(draft, {name: module for name, module in able.items() if name not in kept})}
    network = substituted(model, attentions(able, kept, settings))
    untouched = [call for call in discovery.calls if not selection.wants(names_of_call(model, call))]
    attending = [call for call in discovery.calls if call not in untouched and call.convolution is not None]
    attending += [call_of(able[name], name) for name in able if name in kept]
    redirect_calls(network, attending, settings, untouched)
    if attending:
        resting = {*convolutions(network), *(call.owner for call in untouched)}
        resting -= {call.owner for call in attending}
        leave_alone(network.get_submodule(name) for name in resting)
    rows = [left.get(name) or row_of_layer(name, found[name], kept.get(name, ""), settings) for name in found]
    rows += [row_of_call(call, call not in untouched, settings) for call in discovery.calls]
    return remember(network, Conversion((*rows_of_the_closed(draft), *rows), discovery.looked))


def row_if_left(model: nn.Module, draft: nn.Module, name: str, selection: Selection) -> ConversionRow | None:
    """The row of a convolution that is not to be, or cannot be, converted.

    Raises:
        UnsupportedError: it cannot be, and is all there is (C2A101 to C2A106).
    """
    module = draft.get_submodule(name)
    if not selection.wants(names_of(model, model.get_submodule(name))):
        return ConversionRow(name, describe(module), SKIPPED, "on request")
    try:
        with naming(name), present(module):
            return None
    except UnsupportedError as error:
        if module is draft:
            raise
        return ConversionRow(name, describe(module), UNSUPPORTED, str(error))


def attentions(
    able: Mapping[str, nn.Module], kept: Mapping[str, str], settings: Settings
) -> dict[str, MultiHeadSelfAttention]:
    """The attention layers that take the place of those convolutions that are not kept."""
    ties, layers = Ties(), {}
    for name, module in able.items():
        if name not in kept:
            with naming(name):
                layers[name] = attention_from(module, name or "attention", settings, ties)
    return layers


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts the name of a layer in front of errors about it."""
    try:
        yield
    except Conv2AttnError as error:
        raise type(error)(error.code, f"{name}: {error.found}" if name else error.found, error.remedy) from error


def substituted(model: nn.Module, layers: Mapping[str, MultiHeadSelfAttention]) -> nn.Module:
    """A copy of `model` with a layer in place of each module named, wherever the network refers to it."""
    replaced = {name: model.get_submodule(name) for name in layers}
    memo: dict[int, Any] = {id(module): layers[name] for name, module in replaced.items()}
    network = copy_network(model, memo)
    for name, module in replaced.items():
        carry_over(module, layers[name], memo)
    return network


def call_of(module: nn.Module, name: str) -> FunctionalCall:
    """The functional call that a convolution layer makes; it has padded by itself, except with zeros."""
    with present(module) as convolution:
        if convolution.padding.mode != "zeros":
            none = Padding.none(len(convolution.kernel_size))
            convolution = replace(convolution, padding=none)
        return FunctionalCall(name, type(module).__name__, convolution)


def missed_layers(network: nn.Module, example_input: Any, ran: Collection[str] | None) -> dict[str, str]:
    """The attention layers that the network's own code does not take for a convolution, and how its run shows that.

    `ran` are the modules that ran in the original, or None where there is no example to run it on.

    Raises:
        AttributeError: the network's own, which has nothing to do with attention.
    """
    if ran is None:
        return {}
    trial = copy_network(network)
    layers = attention_layers(trial)
    try:
        now = record(trial, example_input).ran
    except AttributeError as error:
        asked = {name: f"the network's own code reads its {error.name}" for name in layers if layers[name] is error.obj}
        if not asked:
            raise
        return asked
    return {name: "the network's own code asks for its class" for name in layers if name in ran and name not in now}
