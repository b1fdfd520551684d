"""The converted copy of a network: which convolutions are replaced, which stay in place, which are left."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Padding
from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.models.conversion.discovery import Discovery
from conv2attn.models.conversion.functional import FunctionalCall
from conv2attn.models.conversion.outcomes import (
    SKIPPED,
    UNSUPPORTED,
    Conversion,
    ConversionRow,
    convolutions,
    describe,
    remember,
    row_of_call,
    row_of_layer,
    rows_of_the_closed,
)
from conv2attn.models.conversion.recording import copy_network
from conv2attn.models.conversion.redirection import leave_alone, redirect_calls
from conv2attn.models.conversion.replacement import Settings, Ties, attention_from, carry_over, present
from conv2attn.models.conversion.selection import Selection
from conv2attn.models.conversion.sharing import held_together


def names_of(network: nn.Module, module: nn.Module) -> list[str]:
    """All names of a module in `network`; the network itself is (root) too."""
    named = [name for name, other in network.named_modules(remove_duplicate=False) if other is module]
    return [*named, "(root)"] if module is network else named


def names_of_call(network: nn.Module, call: FunctionalCall) -> list[str]:
    """The names by which a functional call can be selected: those of its module, and its own."""
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
