"""The layers of two networks that are compared as values of `Basis`, and how each is run alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equality.layers.bases import comparable_basis
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import STOCK, Convolution
from conv2attn.networks.conversion.computed_weights import reparametrisations
from conv2attn.networks.conversion.redirection import AttendingCalls
from conv2attn.theory.basis import Basis, Padding, Weights, isotropic

LAYERS = (*STOCK, MultiHeadSelfAttention)


@final
@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution or an attention of a network; a convolution called as a function has no module.

    Args:
        name: the dotted path of a module; `owner:function` for a convolution that is called as a function.
        module: the layer, or the attention in place of the function; None if the function itself is called.
        basis: basis for a function: its weight is arbitrary, so every tap is a different number.
    """

    name: str
    module: nn.Module | None
    basis: Basis

    @property
    def label(self) -> str:
        """The name in reports."""
        return self.name or "(root)"


def softened_module(layer: nn.Module) -> nn.Module:
    """The layer; for attention, a copy with the same parameters whose quadratic heads are softmaxes."""
    if not isinstance(layer, MultiHeadSelfAttention):
        return layer
    # The parameters stay the same objects, so the layer itself is measured, with another engine.
    module = object.__new__(type(layer))  # parametrized modules refuse to be copied
    module.__setstate__(dict(vars(layer)))
    module.engine = "separable" if isotropic(module.operators()) is not None else "auto"
    return module


def own(layer: nn.Module, *arguments: Any, **keywords: Any) -> Tensor:
    """The output of a layer by its class, without its hooks except those that compute its weight."""
    # By the class: a forward or hooks on the instance are code around the layer, and are compared as code.
    for hook in reparametrisations(layer).values():
        hook(layer, ())
    result: Tensor = type(layer).forward(layer, *arguments, **keywords)
    return result


def function_layers(name: str, calls: AttendingCalls, like: Tensor) -> Iterator[tuple[tuple[Any, ...], Layer, Layer]]:
    """For each geometry of the functional convolutions of one module, the function and the attention in its place.

    The weight is arbitrary: the attention takes that of each call, so the comparison holds for all weights.

    Args:
        like: a tensor of the dtype and the device of the network.
    Raises:
        UnsupportedError: an attention cannot be read.
    """
    layers = [*zip(calls.geometries, calls.layers, strict=True), *calls.later_layers.items()]
    for geometry, layer in layers:
        convolution, label = any_convolution(geometry, like), str(layer.name)
        if ":" not in label:  # a geometry that first occurred after the conversion
            label = f"{name or '(root)'}:conv{len(geometry[2])}d"
        second = Layer(label, layer, comparable_basis(layer, tap_weights(convolution)))
        yield geometry, Layer(label, None, comparable_basis(convolution)), second


def any_convolution(geometry: tuple[Any, ...], like: Tensor) -> Convolution:
    """A convolution of this geometry whose taps are all different numbers; see `functional.geometry_of`."""
    shape, groups, stride, dilation, before, after, mode, spacing = geometry
    # Each tap is a different number, so exchanged taps are detected.
    taps = torch.arange(1, 1 + torch.Size(shape[2:]).numel(), dtype=torch.float64, device="cpu").reshape(shape[2:])
    weight = torch.ones(shape, dtype=torch.float64, device="cpu").mul(taps).to(like)
    return Convolution(weight, None, stride, dilation, Padding(before, after, mode, spacing), groups)


def tap_weights(convolution: Convolution) -> Weights:
    """The channel matrices of a convolution, in the form of the attention that replaces it."""
    return Weights(None, convolution.taps(), convolution.bias, convolution.groups)


def with_weights(layer: nn.Module, image: Tensor, convolution: Convolution) -> Tensor:
    """The output of the attention in place of a function, with the weight of this call."""
    result: Tensor = type(layer).forward(layer, image, weights=tap_weights(convolution))
    return result
