"""The attention of functional convolutions as plain data, and back into a network of the same class."""

from typing import Any

from torch import nn

from conv2attn.attention.plan import from_plan, to_plan
from conv2attn.models.conversion.redirection import CHILD, AttendedForward, AttendingCalls, leave_alone, pause
from conv2attn.models.conversion.replacement import Settings


def describe_calls(network: nn.Module) -> dict[str, Any]:
    """Which modules compute functional convolutions by attention, how, and which modules are left out; plain data."""
    modules = dict(network.named_modules())
    attending = {name.rpartition(CHILD)[0].removesuffix("."): each for name, each in modules.items() if is_calls(each)}
    if not attending:
        return {}
    paused = [name for name, each in modules.items() if pause in each._forward_pre_hooks.values()]
    return {"owners": {name: described(each) for name, each in attending.items()}, "paused": paused}


def is_calls(module: nn.Module) -> bool:
    """Whether a module stands for functional convolutions."""
    return isinstance(module, AttendingCalls)


def described(calls: Any) -> dict[str, Any]:
    """Settings, functions left alone, and geometries with their layers."""
    settings, layers = calls.settings.arguments(), [to_plan(layer) for layer in calls.layers]
    return {"settings": settings, "untouched": calls.untouched, "geometries": calls.geometries, "layers": layers}


def attend_to_calls(network: nn.Module, told: dict[str, Any]) -> nn.Module:
    """`network` with the attention that `describe_calls` described; its tensors are to be loaded.

    Raises:
        AttributeError: the network has no module of a name.
        KeyError, TypeError, UsageError: it is not such data.
    """
    for name, each in told.get("owners", {}).items():
        owner = network.get_submodule(name)
        attending = AttendingCalls(Settings(**each["settings"]), each["untouched"])
        attending.geometries = [as_tuples(geometry) for geometry in each["geometries"]]
        attending.layers.extend(positions(plan) for plan in each["layers"])
        if isinstance(former := vars(owner).get("forward"), AttendedForward):
            vars(owner).pop("forward") if former.replaced is None else vars(owner).update(forward=former.replaced)
        setattr(owner, CHILD, attending)
        vars(owner)["forward"] = AttendedForward(owner)
    modules = [network.get_submodule(name) for name in told.get("paused", ())]
    leave_alone(each for each in modules if pause not in each._forward_pre_hooks.values())
    return network


def positions(plan: dict[str, Any]) -> nn.Module:
    """A layer without weights, which each call brings."""
    layer = from_plan({**plan, "value": True, "output": True})
    layer.value = layer.output = None
    return layer


def as_tuples(value: Any) -> Any:
    """Nested lists as tuples."""
    return tuple(as_tuples(each) for each in value) if isinstance(value, (list, tuple)) else value
