"""One convolution layer of a network becomes an attention layer in place, with its hooks, buffers and attributes."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from conv2attn.arguments import argument
from conv2attn.choices import EncodingName, StrideBy
from conv2attn.errors import UnsupportedError
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.layers.theorem import Convolution, attention_for, read_convolution
from conv2attn.torch_internals import ParametrisedSpectralNorm

Content = Literal["none", "silent"]

REPARAMETRISATIONS = (WeightNorm, SpectralNorm, BasePruningMethod)
SHARED = {"weight", "bias", "groups", "kernel_size", "transposed", "name", "training"}
"""Attributes of a convolution that its attention has too: they stay as they are."""
HOOKS_OF_GRAPHS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)  # fmt: skip
"""The hooks that a deep copy of an fx graph leaves behind; attributes of its own it drops too."""
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
    max_error: float | None = None

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `theorem.attention_for`."""
        return dict(vars(self))


def attend(module: nn.Module, name: str, settings: Settings) -> None:
    """Makes `module` the attention that computes what this convolution does now.

    Raises:
        UnsupportedError, UsageError: as `current_convolution`, `theorem.attention_for` and `become`.
    """
    with current_convolution(module) as convolution:
        layer = attention_for(convolution, **settings.arguments())
    layer.name = name or "attention"
    for factor in (layer.value, layer.output):
        if factor is not None:
            factor.requires_grad_(bool(module.weight.requires_grad))
    become(module, layer)


def become(module: nn.Module, layer: MultiHeadSelfAttention) -> None:
    """Makes the convolution `module` compute as `layer` does.

    The object stays, and with it all references to it, its parameters, what computes them, buffers, hooks and
    attributes. Its weight goes only where the layer has `value` and `output` instead.

    Raises:
        UnsupportedError: it has a name that attention needs, or a computed weight that would have to go (C2A106).
    """
    attributes = {key: part for key, part in vars(layer).items() if not key.startswith("_") and key not in SHARED}
    parameters = {key: part for key, part in layer._parameters.items() if key not in SHARED}
    names = {*vars(module), *module._parameters, *module._buffers, *module._modules} - SHARED
    if clash := sorted(names & {*attributes, *parameters, *layer._modules, *OF_ATTENTION}):
        raise UnsupportedError("C2A106", f"{class_name(module)} has a {clash[0]} of its own", "Give it another name.")
    extras = subclass_attributes(type(module))
    if layer.weight is None and "weight" not in module._parameters:
        reason = f"{class_name(module)} computes its weight, which value and output would replace"
        raise UnsupportedError("C2A106", reason, "Leave d_head and max_error unset, or make its weight plain.")
    try:
        module.__class__ = attending_class(module)
    except TypeError as error:  # slots
        reason = f"{class_name(module)} keeps attributes in slots, which attention has not"
        raise UnsupportedError("C2A106", reason, "Leave __slots__ out of its class.") from error
    if layer.weight is None:
        del module._parameters["weight"]
        vars(module)["weight"] = None
    else:
        vars(module)["kernel_size"] = layer.kernel_size
    vars(module).update(attributes, _facts=layer._facts, _engine=layer.engine)
    vars(module).setdefault("name", layer.name)
    module._parameters.update(parameters)
    module._modules.update(layer._modules)
    for key, part in extras.items():
        if not hasattr(module, key):
            vars(module)[key] = partial(part, module) if isinstance(part, FunctionType) else part


def attending_class(module: nn.Module) -> type[MultiHeadSelfAttention]:
    """The class of the attention that takes the place of `module`: with the parametrisations of torch, one over it."""
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


def class_name(module: nn.Module) -> str:
    """The name of the class of a convolution, without a parametrisation's."""
    return type(module).__name__.removeprefix("Parametrized")


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Within the block `network` is in evaluation mode; afterwards each module has the mode that it had."""
    modes = {module: module.training for module in network.modules()}
    try:
        network.eval()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def evaluated_weight(module: nn.Module) -> Iterator[None]:
    """Within the block `module` has the weight of evaluation mode, in which spectral norms do not iterate."""
    with evaluating(module):
        for hook in reparametrisations(module).values():
            hook(module, ())
        yield


@contextmanager
def current_convolution(module: nn.Module) -> Iterator[Convolution]:
    """The convolution that `module` computes now, with its weight as in evaluation mode.

    Raises:
        UnsupportedError, UsageError: as `theorem.read_convolution`; the weight is on the meta device (C2A103).
    """
    with evaluated_weight(module):
        convolution = read_convolution(module)
        if convolution.weight.is_meta:
            raise UnsupportedError(
                "C2A103",
                f"{type(module).__name__} is on the meta device, so it has no weights",
                "Give it weights first: network.to_empty(device='cpu'), then load_state_dict.",
            )
        yield convolution


def weight_changes(module: nn.Module) -> bool:
    """Whether each call of `module` changes its weight: in training mode a spectral norm iterates."""
    iterating = any(isinstance(part, ParametrisedSpectralNorm) and part.training for part in module.modules())
    computed = any(isinstance(hook, SpectralNorm) for hook in reparametrisations(module).values())
    return iterating or (computed and module.training)


def reparametrisations(module: nn.Module) -> dict[int, Any]:
    """The pre-hooks with which torch.nn.utils computes a weight or a bias before each call."""
    return {key: hook for key, hook in module._forward_pre_hooks.items() if isinstance(hook, REPARAMETRISATIONS)}


def hooked(module: nn.Module) -> bool:
    """Whether a module has hooks other than those that compute a weight."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return len(hooks) > len(reparametrisations(module))


def attention_layers(network: nn.Module) -> dict[str, MultiHeadSelfAttention]:
    """The attention layers of `network` by name, each once."""
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, MultiHeadSelfAttention)}


def layer_inputs(network: nn.Module, inputs: Any) -> dict[str, Tensor]:
    """The last input of each attention layer of `network` in a run on `inputs`, by name, as they first ran."""
    tensors: dict[str, Tensor] = {}

    def keep(layer: nn.Module, args: Any, kwargs: Any) -> None:
        assert isinstance(layer, MultiHeadSelfAttention)
        tensors[names[layer]] = argument(args, kwargs, 0, "input")

    names = {layer: name for name, layer in attention_layers(network).items()}
    hooks = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in names]
    try:
        network(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return tensors


def encodings_of(network: nn.Module) -> list[Encoding]:
    """The positions of the attention layers of `network`, each once."""
    return list(dict.fromkeys(layer.encoding for layer in attention_layers(network).values()))


def copy_network(network: nn.Module) -> Any:
    """A deep copy, also where hooks have left computed tensors, which torch does not copy, as attributes.

    A module whose own `__deepcopy__` returns itself is copied all the same: what is done to the copy must not be done
    to the original. Attributes of parameters, which torch does not copy either, are those of the original.
    """
    attributes = (value for module in network.modules() for value in vars(module).values())
    computed = [value for value in attributes if isinstance(value, Tensor) and not value.is_leaf]
    detached = {id(tensor): tensor.detach().clone() for tensor in computed}
    memo: dict[int, Any] = dict(detached)
    copied = copy.deepcopy(network, memo)
    for graph in (each for each in network.modules() if isinstance(each, torch.fx.GraphModule)):  # its copy drops it
        twin = memo.get(id(graph))
        for key, value in vars(graph).items() if twin is not None else ():
            if key not in vars(twin) or (key in HOOKS_OF_GRAPHS and value and not vars(twin)[key]):
                vars(twin)[key] = copy.deepcopy(value, memo)
    originals = set(network.modules())
    for parameter in network.parameters():
        if id(parameter) in memo and vars(parameter):
            vars(memo[id(parameter)]).update(vars(parameter))
    if not (uncopied := [module for module in copied.modules() if module in originals]):
        return copied
    emptied = {module: type(module).__new__(type(module)) for module in uncopied}
    memo = {**detached, **{id(module): empty for module, empty in emptied.items()}}
    for module, empty in emptied.items():
        vars(empty).update({key: copy.deepcopy(value, memo) for key, value in vars(module).items()})
    return copy.deepcopy(network, memo)


def move(network: nn.Module, device: torch.device, *, double: bool = False) -> nn.Module:
    """Moves a network, in float64 if `double`; its parameters keep attributes where torch makes them anew."""
    attributes = {name: vars(each) for name, each in network.named_parameters(remove_duplicate=False)}
    network = network.to(device).double() if double else network.to(device)
    for name, parameter in network.named_parameters(remove_duplicate=False):
        vars(parameter).update(attributes[name])
    return network
