"""Attention layers in a row, as files describe them: a `Sequential` of them and of modules without weights."""

import inspect
from dataclasses import dataclass
from typing import Any, final

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.conversion.computed_weights import hooked, reparametrisations
from conv2attn.theory.basis import MODES

POINTWISE = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Tanh, nn.Sigmoid,
)  # fmt: skip
PADS = [MODES[mode].layer(axes) for mode in ("zeros", "circular") for axes in (1, 2, 3)]
STAGES: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (*POINTWISE, *PADS)}
"""The modules without weights that may be between the attention layers of a chain."""
ATTENTION = "attention"


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
    """The plan of `network`, or None if it is not a chain."""
    numbered = list(network._modules) == [str(place) for place in range(len(network._modules))]
    tensors = (*network._parameters, *network._buffers)
    altered = any(hooked(each) or "forward" in vars(each) for each in network.modules())
    if type(network) is not nn.Sequential or not numbered or tensors or altered:
        return None
    layers = [stage for stage in network if isinstance(stage, MultiHeadSelfAttention)]
    # Each stage is built anew from a file: a layer that occurs twice would become two, and a weight that is computed
    # would become a parameter.
    computed = any(is_parametrized(layer) or reparametrisations(layer) for layer in layers)
    if len(set(layers)) < len(layers) or computed:
        return None
    stages: list[tuple[str, dict[str, Any]]] = []
    for stage in network:
        if isinstance(stage, MultiHeadSelfAttention):
            stages.append((ATTENTION, {}))
        elif STAGES.get(type(stage).__name__) is type(stage):
            # Classes without arguments have those of nn.Module, *args and **kwargs, which are no attributes.
            arguments = inspect.signature(type(stage)).parameters.values()
            names = [each.name for each in arguments if each.kind is each.POSITIONAL_OR_KEYWORD]
            stages.append((type(stage).__name__, {name: getattr(stage, name) for name in names}))
        else:
            return None
    return ChainPlan(tuple(stages))


def build_chain(plan: ChainPlan) -> nn.Sequential:
    """The chain, with identities for its attention layers.

    Raises:
        KeyError: a stage has a class that is not allowed in a chain.
        TypeError, ValueError: the arguments of a stage do not fit its class.
    """
    modules = []
    for name, arguments in plan.stages:
        modules.append(nn.Identity() if name == ATTENTION else STAGES[name](**arguments))
    return nn.Sequential(*modules)
