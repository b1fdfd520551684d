"""Theorem 1 over a whole network: a copy in which every convolution is a multi-head self-attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, final

from torch import Tensor, nn

from conv2attn.errors import Conv2AttnError, UnsupportedError, UsageError
from conv2attn.models.calls import FunctionalCall, copy_network, find_calls, run_on, traced_calls
from conv2attn.models.redirection import redirect_calls
from conv2attn.models.replacement import Settings, Ties, replace_module
from conv2attn.theorem import STOCK, read

CONVERTED, SKIPPED, UNSUPPORTED = "converted", "skipped", "unsupported"


@final
@dataclass(frozen=True)
class ConversionRow:
    """What became of one convolution: `outcome` is converted, skipped (on request) or unsupported (with its reason)."""

    name: str
    signature: str
    outcome: str
    reason: str = ""


@final
@dataclass(frozen=True)
class Conversion:
    """What became of every convolution of a network, and how its functional calls were looked for."""

    rows: tuple[ConversionRow, ...]
    functional_calls: str

    @property
    def remaining(self) -> tuple[ConversionRow, ...]:
        """The convolutions that were not converted, and why."""
        return tuple(row for row in self.rows if row.outcome != CONVERTED)


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

    Names, sharing, hooks, mode, requires_grad, buffers and all other layers stay as they are. What was not converted,
    and why, is `conversion_of(network)`.

    Args:
        model: a convolution layer, or any network.
        example_input: what the network can be called with: a tensor, positional or named arguments. The network is run
            on it once, so that torch.nn.functional convolutions, in layers with a forward of their own too, are found
            and converted.
        alpha, encoding, d_head, stride_by, trainable: see `theorem.attention_for`.
        only, skip: glob patterns of layer names ("layer1.*") to convert, or to leave.
    Returns:
        A MultiHeadSelfAttention for a convolution layer, otherwise a network of the class of `model`.
    Raises:
        UnsupportedError: `model` is one convolution that cannot be converted (C2A101 to C2A106).
        UsageError: a pattern that fits no convolution, or an argument out of range (C2A001).
    Source: Cordonnier et al. 2020, Theorem 1.
    """
    settings = Settings(alpha, encoding, d_head, stride_by, trainable)
    network = copy_network(model)
    if isinstance(network, STOCK) and example_input is None:
        return with_conversion(replace_module(network, "attention", settings, Ties()), Conversion((), "none"))
    named = {name: module for name, module in network.named_modules() if isinstance(module, STOCK)}
    quantised = {name: module for name, module in network.named_modules() if "quantized" in type(module).__module__}
    calls, looked = functional_calls(network, example_input)
    wanted = selection([*named, *(call.owner for call in calls)], only, skip)
    rows = [row_of_quantised(name, module) for name, module in quantised.items() if "Conv" in type(module).__name__]
    layers: dict[nn.Module, nn.Module] = {}
    ties, owners = Ties(), {call.owner for call in calls}
    borrowed = {call.weight_of: call.owner for call in calls}
    for name, module in named.items():
        if name in owners:
            continue
        signature = describe(module)
        if name not in wanted:
            rows.append(ConversionRow(name, signature, SKIPPED, "on request"))
        elif name in borrowed:
            reason = f"its weight is read by a functional call in {borrowed[name] or 'the network'}"
            rows.append(ConversionRow(name, signature, SKIPPED, reason))
        else:
            try:
                layers[module] = replace_module(module, name, settings, ties)
                rows.append(ConversionRow(name, signature, CONVERTED))
            except UnsupportedError as error:
                rows.append(ConversionRow(name, signature, UNSUPPORTED, str(error)))
            except Conv2AttnError as error:
                raise type(error)(error.code, f"{name}: {error.found}", error.remedy) from error
    network = substitute(network, layers)
    rows += [row_of_call(call, wanted) for call in calls]
    redirected = [call for call in calls if call.owner in wanted and not call.reason]
    left = [module for name, module in named.items() if module not in layers and name not in {*owners, *borrowed}]
    redirect_calls(network, redirected, settings, left)
    if example_input is not None:
        check_it_runs(network, example_input)
    return with_conversion(network, Conversion(tuple(rows), looked))


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


def selection(names: Sequence[str], only: str | Sequence[str], skip: str | Sequence[str]) -> set[str]:
    """The names that fit a pattern of `only` (all, if there is none) and no pattern of `skip`.

    Raises:
        UsageError: a pattern that fits no name (C2A001).
    """
    only, skip = ([patterns] if isinstance(patterns, str) else list(patterns) for patterns in (only, skip))
    for pattern in [*only, *skip]:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError("C2A001", f"the pattern {pattern!r} fits no convolution", "See the names in the report.")
    kept = [name for name in names if not only or any(fnmatchcase(name, pattern) for pattern in only)]
    return {name for name in kept if not any(fnmatchcase(name, pattern) for pattern in skip)}


def functional_calls(network: nn.Module, example_input: Any) -> tuple[list[FunctionalCall], str]:
    """The convolutions called outside a convolution layer, and a sentence on how they were looked for."""
    if example_input is not None:
        return find_calls(network, example_input), "checked on the example input"
    calls = traced_calls(network)
    return calls or [], "not checked" if calls is None else "traced"


def check_it_runs(network: nn.Module, example_input: Any) -> None:
    """Raises UnsupportedError (C2A108) where the network's own code asks a convolution for what attention has not."""
    try:
        run_on(copy_network(network), example_input)
    except AttributeError as error:
        raise UnsupportedError("C2A108", f"the converted network does not run: {error}") from error


def substitute(network: nn.Module, layers: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """`network` with each module that is a key replaced, under every name that it has."""
    if network in layers:
        return layers[network]
    for parent in list(network.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in layers:
                parent._modules[name] = layers[child]
    return network


def describe(module: nn.Module) -> str:
    """A convolution in one line: `Conv2d 3->64 k7 s2`; its class alone where it cannot be read."""
    kind = type(module).__name__.removeprefix("Parametrized")
    try:
        return read(module).describe(kind)
    except Conv2AttnError:
        return kind


def row_of_quantised(name: str, module: nn.Module) -> ConversionRow:
    """The row of a quantised convolution, which has no attention equal to it."""
    reason = str(UnsupportedError("C2A102", f"{name} is {type(module).__name__} with quantised weights"))
    return ConversionRow(name, type(module).__name__, UNSUPPORTED, reason)


def row_of_call(call: FunctionalCall, wanted: set[str]) -> ConversionRow:
    """The row of a functional call."""
    name = f"{call.owner or '(root)'}:{call.function}"
    if call.owner not in wanted:
        return ConversionRow(name, call.signature, SKIPPED, "on request")
    if call.reason:
        return ConversionRow(name, call.signature, UNSUPPORTED, call.reason)
    return ConversionRow(name, call.signature, CONVERTED)
