"""Attention layers in a row as plain data: patch tokens, padding and pointwise activations between them."""

import inspect
from dataclasses import dataclass
from typing import Any, final

from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.models.conversion.patch_tokens import PADS, POINTWISE
from conv2attn.models.conversion.replacement import hooked
from conv2attn.theorem import DepthToSpace, SpaceToDepth

ATTENTION = "attention"
STAGES: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (*POINTWISE, *(pad for pads in PADS.values() for pad in pads), SpaceToDepth, DepthToSpace)
}


@final
@dataclass(frozen=True)
class ChainPlan:
    """A `Sequential` of attention layers and of modules without weights, each by the name and arguments of its class.

    Its attention layers are described elsewhere: here they are named `attention`, and built as identities.
    """

    stages: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def name(self) -> str:
        """The name of the architecture."""
        return "chain"


def chain_of(network: nn.Module) -> ChainPlan | None:
    """The plan of `network`, or None where it is more than a chain."""
    numbered = list(network._modules) == [str(place) for place in range(len(network._modules))]
    tensors = (*network._parameters, *network._buffers)
    if type(network) is not nn.Sequential or not numbered or tensors or any(map(altered, network.modules())):
        return None
    stages: list[tuple[str, dict[str, Any]]] = []
    for stage in network:
        if isinstance(stage, MultiHeadSelfAttention):
            stages.append((ATTENTION, {}))
        elif STAGES.get(type(stage).__name__) is type(stage):
            names = () if type(stage) is nn.Identity else inspect.signature(type(stage)).parameters
            stages.append((type(stage).__name__, {name: getattr(stage, name) for name in names}))
        else:
            return None
    return ChainPlan(tuple(stages))


def altered(module: nn.Module) -> bool:
    """Whether `module` does more than its class does."""
    return hooked(module) or "forward" in vars(module)


def build_chain(plan: ChainPlan) -> nn.Sequential:
    """The chain, with identities for its attention layers.

    Raises:
        KeyError: a stage is of no class that a chain has.
        TypeError, ValueError: its arguments do not fit the class.
    """
    modules = []
    for name, arguments in plan.stages:
        if name != ATTENTION:
            for number in arguments.get("patch", ()):
                if type(number) is not int or number < 1:
                    raise ValueError(f"{name} has a patch of {number!r}")
        modules.append(nn.Identity() if name == ATTENTION else STAGES[name](**arguments))
    return nn.Sequential(*modules)
