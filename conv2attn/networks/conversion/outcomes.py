"""The outcome for each convolution of a network: the rows of a conversion, and its warnings."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from conv2attn.arguments import check_network
from conv2attn.errors import AlphaError, Conv2AttnWarning, UsageError
from conv2attn.networks.layers import attention_layers
from conv2attn.theory.bounds import leaked_mass

CONVERTED, SKIPPED, UNSUPPORTED = "converted", "skipped", "unsupported"
CHECKED = "checked on the example input"
SURE_ALPHA = 46
CONVERSION_ATTRIBUTE = "_conv2attn_conversion"
SAVE = "save_pretrained"


@final
@dataclass(frozen=True)
class ConversionRow:
    """The outcome for one convolution: `outcome` is converted, skipped (on request) or unsupported.

    `reason` says why it was not converted, or has a remark if it was.
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
        """Warns (C2A310), then saves as the owner's class does."""
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
        UsageError: it was not made by `convert` (C2A008).
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
    """The result of `conversion_of`, or None if `convert` did not make the network."""
    conversion = vars(network).get(CONVERSION_ATTRIBUTE)
    return conversion if isinstance(conversion, Conversion) else None


def leak_warning(alpha: float | str, axes: int) -> str:
    """A note on the leak of an alpha below 46; empty otherwise."""
    if isinstance(alpha, str) or float(alpha) >= SURE_ALPHA:
        return ""
    leak = leaked_mass(alpha := float(alpha), axes)
    text = f"alpha={alpha:g} leaves up to {leak:.3g} of a head's attention to other keys"
    return str(AlphaError("C2A131", text, 'Pass alpha="auto" for exactly one-hot attention.'))


def no_convolution_text(network: nn.Module) -> str:
    """The text of the warning about a network without convertible convolutions; graph convolutions are mentioned."""
    kinds = {
        type(module).__name__
        for module in network.modules()
        if type(module).__module__.partition(".")[0] == "torch_geometric"
    }
    graphs = sorted(kind for kind in kinds if kind.endswith("Conv"))
    if graphs:
        reason = f"{type(network).__name__} has only graph convolutions ({', '.join(graphs)})"
        return f"{reason}, each of which as_basis(layer, graph) reads or refuses"
    return f"{type(network).__name__} has no convolution"


def warnings_about(network: nn.Module, conversion: Conversion, trainable: bool) -> Iterator[Conv2AttnWarning]:
    """The warnings about a converted network; `trainable` if its positions are to be trained."""
    layers, rows = attention_layers(network).values(), conversion.rows
    if not layers and rows and all(row.outcome == UNSUPPORTED for row in rows):
        sentence = f"no convolution of the {type(network).__name__} was converted: {rows[0].reason.rstrip('.')}"
        yield Conv2AttnWarning("C2A109", sentence, "See conversion_of(network), which has the reason for each.")
    if not layers and not rows:
        yield Conv2AttnWarning(
            "C2A109",
            f"{no_convolution_text(network)}: this is a plain copy of it",
            "Pass a model with convolutions, as layers or as calls of torch.nn.functional."
            if conversion.functional_calls == CHECKED
            else "Pass a model with convolutions, and example_input if it calls them as functions.",
        )
    trained = [layer.positions for layer in layers if trainable]
    alphas = [alpha for heads in trained for alpha in heads.numbers().alphas]
    if alphas and min(alphas) >= SURE_ALPHA:
        reason = f"alpha={min(alphas):g} leaves almost no gradient, so centres and sharpness do not move"
        yield Conv2AttnWarning(
            "C2A132", reason, "Pass a smaller alpha, such as alpha=5, at which they move; the attention leaks then."
        )
