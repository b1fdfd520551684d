"""Turns one convolution layer of a network into an attention layer in place, with its hooks, buffers and attributes."""

from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, Literal, final

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from conv2attn.choices import EncodingName, StrideBy
from conv2attn.errors import UnsupportedError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import Convolution, attention_for
from conv2attn.networks.conversion.computed_weights import class_name

Content = Literal["none", "silent"]

SHARED = {"weight", "bias", "groups", "kernel_size", "transposed", "name", "training"}
"""Attributes that a convolution and its attention share; they are unchanged."""
OF_ATTENTION = {name for name in dir(MultiHeadSelfAttention) if not name.startswith("_")} - {*dir(nn.Module)}


@final
@dataclass(frozen=True)
class Settings:
    """How convolutions are converted; see `theorem.attention_for`."""

    alpha: float | Literal["auto"] = "auto"
    encoding: EncodingName = "quadratic"
    d_head: int | None = None
    stride_by: StrideBy = "queries"
    trainable: bool = False
    content: Content = "none"

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `theorem.attention_for`."""
        return dict(vars(self))


def attend(module: nn.Module, convolution: Convolution, name: str, settings: Settings) -> None:
    """Turns `module`, which computes `convolution`, into the equal attention.

    Raises:
        UnsupportedError, UsageError: as `theorem.attention_for` and `become`.
    """
    layer = attention_for(convolution, **settings.arguments())
    layer.name = name or "attention"
    for factor in (layer.value, layer.output):
        if factor is not None:
            factor.requires_grad_(bool(module.weight.requires_grad))
    become(module, layer)


def become(module: nn.Module, layer: MultiHeadSelfAttention) -> None:
    """Makes the convolution `module` compute the map of `layer`.

    The object stays, with all references to it, its parameters, parametrisations, buffers, hooks and attributes. Its
    weight is removed only if the layer has `value` and `output` instead.

    Raises:
        UnsupportedError: an attribute has a name that attention needs, or the weight is computed and would be removed
            (C2A106).
    """
    attributes = {key: part for key, part in vars(layer).items() if not key.startswith("_") and key not in SHARED}
    parameters = {key: part for key, part in layer._parameters.items() if key not in SHARED}
    names = {*vars(module), *module._parameters, *module._buffers, *module._modules} - SHARED
    if clash := sorted(names & {*attributes, *parameters, *layer._modules, *OF_ATTENTION}):
        raise UnsupportedError("C2A106", f"{class_name(module)} has a {clash[0]} of its own", "Give it another name.")
    extras = subclass_attributes(type(module))
    if layer.weight is None and "weight" not in module._parameters:
        reason = f"{class_name(module)} computes its weight, which would be replaced by value and output"
        raise UnsupportedError("C2A106", reason, "Leave d_head unset, or make its weight plain.")
    try:
        module.__class__ = attending_class(module)
    except TypeError as error:  # slots
        reason = f"{class_name(module)} keeps attributes in slots, which attention does not have"
        raise UnsupportedError("C2A106", reason, "Leave __slots__ out of its class.") from error
    if layer.weight is None:
        del module._parameters["weight"]
        vars(module)["weight"] = None
    else:
        vars(module)["kernel_size"] = layer.kernel_size
    vars(module).update(attributes, _facts={}, _engine=layer.engine)
    vars(module).setdefault("name", layer.name)
    module._parameters.update(parameters)
    module._modules.update(layer._modules)
    for key, part in extras.items():
        if not hasattr(module, key):
            vars(module)[key] = partial(part, module) if isinstance(part, FunctionType) else part


def attending_class(module: nn.Module) -> type[MultiHeadSelfAttention]:
    """The class of the attention that replaces `module`; a subclass if torch parametrises the module."""
    if not is_parametrized(module):
        return MultiHeadSelfAttention
    namespace = {
        key: part for key, part in vars(type(module)).items() if key not in ("__dict__", "__weakref__", "__doc__")
    }
    return type(f"Parametrized{MultiHeadSelfAttention.__name__}", (MultiHeadSelfAttention,), namespace)


def subclass_attributes(kind: type) -> dict[str, Any]:
    """The functions and plain values that subclasses of torch's convolutions add, by name."""
    classes = [each for each in reversed(kind.__mro__) if not each.__module__.startswith(("torch.", "builtins"))]
    added = {key: part for each in classes for key, part in vars(each).items() if not key.startswith("__")}
    return {key: part for key, part in added.items() if isinstance(part, FunctionType) or not hasattr(part, "__get__")}
