"""The outcome for each convolution of a network: the rows that every conversion comes with."""

import warnings
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from conv2attn.arguments import check_network
from conv2attn.errors import AlphaError, Conv2AttnWarning, UnsupportedError, UsageError
from conv2attn.layers.theorem import STOCK
from conv2attn.networks.conversion.functional import FunctionalCall
from conv2attn.networks.conversion.replacement import Settings
from conv2attn.theory.bounds import leaked_mass

CONVERTED, SKIPPED, UNSUPPORTED = "converted", "skipped", "unsupported"
SURE_ALPHA = 46
CONVERSION_ATTRIBUTE = "_conv2attn_conversion"
SAVE = "save_pretrained"


@final
@dataclass(frozen=True)
class ConversionRow:
    """The outcome for one convolution: `outcome` is converted, skipped (on request) or unsupported.

    `reason` says why it is not converted, or what to know about it if it is.
    """

    name: str
    signature: str
    outcome: str
    reason: str = ""


@final
@dataclass(frozen=True)
class Conversion:
    """The outcomes for all convolutions of a network, and how its functional calls were searched."""

    rows: tuple[ConversionRow, ...]
    functional_calls: str

    @property
    def remaining(self) -> tuple[ConversionRow, ...]:
        """The convolutions that were not converted, and why."""
        return tuple(row for row in self.rows if row.outcome != CONVERTED)


def remember(network: nn.Module, conversion: Conversion) -> nn.Module:
    """Stores `conversion` on `network`, so that copies, pickles and files keep it; returns the network."""
    attributes: dict[str, Any] = {CONVERSION_ATTRIBUTE: conversion}
    if callable(getattr(type(network), SAVE, None)):
        attributes[SAVE] = WarnedSave(network)
    vars(network).update(attributes)
    if isinstance(network, torch.fx.GraphModule):
        network.meta.setdefault("_user_preserved_attributes", {}).update(attributes)
    return network


@final
class WarnedSave:
    """`save_pretrained` of a converted network of transformers, which warns that loading rebuilds the convolutions."""

    def __init__(self, owner: nn.Module):
        self.owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Warns (C2A310), and saves as the class of the owner does."""
        name = type(self.owner).__name__
        warnings.warn(
            Conv2AttnWarning(
                "C2A310",
                f"from_pretrained builds the convolutions of {name} again",
                "Use conv2attn.save(network, path) and conv2attn.load(path).",
            )
        )
        return getattr(type(self.owner), SAVE)(self.owner, *args, **kwargs)


def conversion_of(network: nn.Module) -> Conversion:
    """Reports the outcome for each convolution when `network` was made by `convert`.

    Raises:
        UsageError: it was not (C2A008).
    Examples:
        >>> import conv2attn, torch
        >>> network = conv2attn.convert(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()))
        >>> [row.name for row in conv2attn.conversion_of(network).rows]
        ['0']
    """
    check_network(network)
    if (conversion := remembered(network)) is None:
        raise UsageError(
            "C2A008",
            f"this {type(network).__name__} was not made by conv2attn.convert",
            "Pass a network that conv2attn.convert returned.",
        )
    return conversion


def remembered(network: nn.Module) -> Conversion | None:
    """The result of `conversion_of`, or None where `convert` did not make the network."""
    conversion = vars(network).get(CONVERSION_ATTRIBUTE)
    return conversion if isinstance(conversion, Conversion) else None


def leak_warning(alpha: float | str, axes: int) -> str:
    """A note on the leak of an alpha below 46; empty otherwise."""
    if isinstance(alpha, str) or float(alpha) >= SURE_ALPHA:
        return ""
    leak = leaked_mass(alpha := float(alpha), axes)
    text = f"alpha={alpha:g} leaves up to {leak:.3g} of a head's attention to other keys"
    return str(AlphaError("C2A131", text, 'Pass alpha="auto" for exactly one-hot attention.'))


def row_of_call(call: FunctionalCall, converted: bool, settings: Settings) -> ConversionRow:
    """The row of a functional call."""
    if not converted:
        return ConversionRow(call.name, call.signature, SKIPPED, "on request")
    if call.convolution is None:
        return ConversionRow(call.name, call.signature, UNSUPPORTED, call.reason)
    return ConversionRow(
        call.name, call.signature, CONVERTED, leak_warning(settings.alpha, len(call.convolution.kernel_size))
    )


def unreadable_rows(network: nn.Module) -> list[ConversionRow]:
    """Rows for convolutions with quantised weights or compiled by torch.jit, which cannot be converted."""
    rows = []
    for name, module in network.named_modules():
        kind, reason = type(module).__name__, ""
        if isinstance(module, torch.jit.ScriptModule):
            kind, reason = module.original_name, "is compiled by torch.jit"
        elif "quantized" in type(module).__module__ and not isinstance(module, STOCK):
            reason = "has quantised weights"
        if reason and "Conv" in kind:
            found = f"{name or 'the network'} ({kind}) {reason}"
            text = str(UnsupportedError("C2A102", found, "Convert the network before it is quantised or compiled."))
            rows.append(ConversionRow(name, kind, UNSUPPORTED, text))
    return rows
