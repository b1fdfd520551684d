"""The modules of a network by name, as twins compare them: layers separately, hooks in order, attributes one by one."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx, nn
from torch.nn.modules import module as every_module

from conv2attn.equality.layers.compared_layers import LAYERS
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import has_own_forward
from conv2attn.networks.conversion.computed_weights import reparametrisations
from conv2attn.networks.conversion.redirection import CHILD, AttendingCalls, pause, resume

HOOKS = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")
PRE_HOOKS = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")
OF_CONVERSION = ("_conv2attn_conversion", "_conv2attn_provenance", "save_pretrained")
OF_TRANSFORMERS = ("_is_hf_initialized", "_no_split_modules")
"""Attributes that no forward reads: set by convert and load, and by transformers for random weights or several devices.
"""
OF_GRAPHS = ("_graph", "meta", "_code", "_lineno_map", "_prologue_start")
"""Attributes of the nodes of an fx graph, whose code and targets are compared instead."""
EVERYWHERE = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks_always_called")


def hooks_on_all_modules() -> bool:
    """Whether hooks act on all modules of the process, which no network refers to."""
    return any(getattr(every_module, each) for each in EVERYWHERE)


def is_layer(module: object) -> bool:
    """Whether a module is a layer that is compared as a value: a subclass with its own forward is not."""
    if not isinstance(module, LAYERS) or CHILD in module._modules:
        return False
    return isinstance(module, MultiHeadSelfAttention) or not has_own_forward(module)


def attending(module: nn.Module | None) -> AttendingCalls | None:
    """The attention that replaces the functional convolutions of a module."""
    calls = module._modules[CHILD] if module is not None and CHILD in module._modules else None
    return calls if isinstance(calls, AttendingCalls) else None


def modules_outside_layers(network: nn.Module) -> dict[str, nn.Module]:
    """The modules by all their names, except those inside layers and inside attention that replaces functions."""
    outside = dict[str, nn.Module]()
    inside: list[str] = []
    for name, module in network.named_modules(remove_duplicate=False):
        # A layer is compared as one value, so its parts are not walked.
        if any(name.startswith(each) for each in inside):
            continue
        if isinstance(module, AttendingCalls):
            inside.append(name)
            continue
        outside[name] = module
        if is_layer(module):
            inside.append(f"{name}." if name else "")
    return outside


def paired_layers(
    ours: Mapping[str, nn.Module], theirs: Mapping[str, nn.Module]
) -> Iterator[tuple[str, nn.Module, nn.Module]]:
    """The layers with the same names; a pair with several names by its first."""
    paired = set[tuple[int, int]]()
    for name, module in ours.items():
        other = theirs.get(name)
        if other is not None and is_layer(module) and is_layer(other) and (id(module), id(other)) not in paired:
            paired.add((id(module), id(other)))
            yield name, module, other


def hooks_of(module: nn.Module, kinds: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The hooks of a module with their options, except those by which convert excludes a module from redirections."""
    hooks, *options = (vars(module).get(kind) or {} for kind in kinds)
    named = [(hook, *(key in option for option in options)) for key, hook in hooks.items()]
    return [each for each in named if each[0] not in (pause, resume)]


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """A module's attributes that are compared one by one; hooks are compared by order, since torch numbers them."""
    computed = {name for hook in reparametrisations(module).values() if (name := getattr(hook, "name", ""))}
    graphs = OF_GRAPHS if isinstance(module, fx.GraphModule) else ()
    left_out = {*HOOKS, *PRE_HOOKS, *OF_CONVERSION, *OF_TRANSFORMERS, *graphs, *computed, "_modules"}
    if isinstance(module, AttendingCalls):
        left_out.add("later_layers")
    attributes = dict[str, Any]()
    for key, value in vars(module).items():
        if key not in left_out and key.endswith("_hooks") and isinstance(value, dict):
            attributes |= {f"{key} {place}": hook for place, hook in enumerate(value.values())}
        elif key not in left_out:
            attributes[key] = value
    return attributes


def trained(layer: nn.Module) -> bool:
    """Whether a layer has parameters that train."""
    return any(parameter.requires_grad for parameter in layer.parameters())
