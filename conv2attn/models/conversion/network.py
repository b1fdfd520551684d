"""Theorem 1 over a whole network: a copy in which every convolution is a multi-head self-attention."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from traceback import walk_tb
from typing import Any

from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Padding
from conv2attn.errors import Conv2AttnError, UnsupportedError, UsageError
from conv2attn.models.conversion.discovery import Discovery, copy_network, discover, record
from conv2attn.models.conversion.functional import FunctionalCall
from conv2attn.models.conversion.outcomes import (
    CONVERTED,
    SKIPPED,
    UNSUPPORTED,
    Conversion,
    ConversionRow,
    convolutions,
    describe,
    row_of_call,
    row_of_layer,
    rows_of_the_closed,
)
from conv2attn.models.conversion.redirection import leave_alone, redirect_calls
from conv2attn.models.conversion.replacement import (
    Settings,
    Ties,
    attention_from,
    attention_layers,
    carry_over,
    present,
)
from conv2attn.models.conversion.selection import Selection
from conv2attn.models.conversion.sharing import held_together

__all__ = ["CONVERTED", "SKIPPED", "Conversion", "ConversionRow", "conversion_of", "convert", "describe"]


def convert(
    model: nn.Module,
    example_input: Tensor | Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    alpha: float | str = "auto",
    encoding: str = "quadratic",
    d_head: int | None = None,
    stride_by: str = "queries",
    trainable: bool = False,
    only: str | Sequence[str] = (),
    skip: str | Sequence[str] = (),
) -> Any:
    """A copy of `model` with every convolution replaced by an equal multi-head self-attention.

    Names, sharing, hooks, mode, requires_grad, buffers and all other layers stay as they are. A convolution on whose
    weight others hold (a tied parameter, a functional call, code that reads it) stays a module of its class, and what
    it computes becomes attention with that weight. What became of each, and why, is `conversion_of(network)`.

    Args:
        model: a convolution layer, or any network.
        example_input: what the network can be called with: a tensor, positional or named arguments. Copies of the
            network, before and after, are run on it without gradients, so that torch.nn.functional convolutions, in
            layers with a forward of their own too, are found and converted.
        alpha, encoding, d_head, stride_by, trainable: see `theorem.attention_for`.
        only, skip: glob patterns of layer names ("layer1.*") to convert, or to leave; a functional call goes by its
            module's name, "(root)" for the network itself.
    Returns:
        A MultiHeadSelfAttention for a convolution layer, otherwise a network of the class of `model`.
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
    while True:
        network = converted(model, discovery, settings, selection, kept)
        missed = {} if discovery.ran is None else missed_layers(network, example_input, discovery.ran)
        if not missed:
            return network
        if known := missed.keys() & kept.keys():
            raise UnsupportedError("C2A108", f"{sorted(known)[0]}: {missed[sorted(known)[0]]}")
        kept |= missed


def conversion_of(network: nn.Module) -> Conversion:
    """What became of each convolution when `network` was made by `convert`.

    Raises:
        UsageError: it was not (C2A001).
    """
    conversion = vars(network).get("_conv2attn_conversion")
    if not isinstance(conversion, Conversion):
        raise UsageError("C2A001", f"this {type(network).__name__} was not made by conv2attn.convert")
    return conversion


def with_conversion(network: nn.Module, conversion: Conversion) -> nn.Module:
    """`network`, remembering what became of its convolutions."""
    vars(network)["_conv2attn_conversion"] = conversion
    return network


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
        resting = {*convolutions(network), *attention_layers(network), *(call.owner for call in untouched)}
        resting -= {call.owner for call in attending}
        leave_alone(network.get_submodule(name) for name in resting)
    rows = [left.get(name) or row_of_layer(name, found[name], kept.get(name, ""), settings) for name in found]
    rows += [row_of_call(call, call not in untouched, settings) for call in discovery.calls]
    return with_conversion(network, Conversion((*rows_of_the_closed(draft), *rows), discovery.looked))


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


def missed_layers(network: nn.Module, example_input: Any, ran: Collection[str]) -> dict[str, str]:
    """The attention layers that the network's own code does not take for a convolution, and how that shows.

    Raises:
        AttributeError: the network's own, which has nothing to do with attention.
    """
    layers = attention_layers(network)
    try:
        now = record(network, example_input).ran
    except AttributeError as error:
        holders = [frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__)]
        asked = [holder.name for holder in holders if isinstance(holder, MultiHeadSelfAttention)]
        if not asked:
            raise
        return {"" if asked[-1] == "attention" else asked[-1]: "the network's own code reads it"}
    return {name: "the network's own code asks for its class" for name in layers if name in ran and name not in now}
