"""A chain of convolutions on patch tokens: space-to-depth, convolutions of tokens, and back (Li et al. 2021)."""

import copy
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn

from conv2attn.errors import UnsupportedError, whole_number
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import DepthToSpace, SpaceToDepth, as_patches, module_of
from conv2attn.networks.conversion.replacement import current_convolution, hooked, weight_changes
from conv2attn.theory.basis import MODES

POINTWISE = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Tanh, nn.Sigmoid,
)  # fmt: skip
PADS = [MODES[mode].layer(axes) for mode in ("zeros", "circular") for axes in (1, 2, 3)]
STAGES: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (*POINTWISE, *PADS, SpaceToDepth, DepthToSpace)}
"""The modules without weights that a chain has between its attention layers."""
ATTENTION = "attention"


def on_patches(model: nn.Module, patch: int | Sequence[int]) -> nn.Sequential:
    """The network on patch tokens that equals `model` on images of whole patches.

    Every convolution becomes one of tokens whose weights are numbers of its own and zeros; activations commute with
    the rearrangement.

    Args:
        model: a convolution layer, or a `Sequential` of such layers and pointwise activations.
        patch: its side in pixels of the input, or its sides.
    Raises:
        UnsupportedError: another kind of module (C2A101), one with hooks, a forward of its own or a weight that changes
            at each call (C2A106), or a geometry that `as_patches` refuses (C2A111).
        UsageError: the patch has other axes, or is not positive (C2A007).
    """
    stages = list(model) if type(model) is nn.Sequential else [model]
    if altered_module := next((each for each in (model, *stages) if altered(each) or weight_changes(each)), None):
        raise UnsupportedError(
            "C2A106",
            f"{type(altered_module).__name__} does more than its class, so it has no patch tokens",
            "Pass a Sequential of plain layers, or convert without patch.",
        )
    patch_list = list(patch) if isinstance(patch, Iterable) and not isinstance(patch, str) else None
    patch_side = whole_number(patch, "patch") if patch_list is None else 0
    sides = first = None if patch_list is None else tuple(whole_number(side, "patch") for side in patch_list)
    modules: list[nn.Module] = []
    for stage in stages:
        if type(stage) in POINTWISE:
            modules.append(copy.deepcopy(stage))
            continue
        with current_convolution(stage) as convolution:
            if sides is None:
                sides = first = (patch_side,) * len(convolution.kernel_size)
            assert sides is not None
            on_tokens, sides = as_patches(convolution, sides)
            requires_grad = isinstance(stage.weight, Tensor) and stage.weight.requires_grad
            layer = module_of(on_tokens).requires_grad_(requires_grad)
            modules += [*layer] if isinstance(layer, nn.Sequential) else [layer]
    if first is None or sides is None:
        raise UnsupportedError(
            "C2A101",
            "there is no convolution, so nothing says how many axes a patch has",
            "Pass a network with a convolution, or convert without patch.",
        )
    inverse = [DepthToSpace(sides)] if max(sides) > 1 else []
    return nn.Sequential(SpaceToDepth(first), *modules, *inverse).train(model.training)


def altered(module: nn.Module) -> bool:
    """Whether `module` does more than its class does."""
    return hooked(module) or "forward" in vars(module)


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
