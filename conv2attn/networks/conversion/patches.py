"""A convolution on patch tokens: space-to-depth, a convolution of tokens, and back (Li et al. 2021)."""

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from conv2attn.errors import UnsupportedError, whole_number
from conv2attn.layers.theorem import DepthToSpace, SpaceToDepth, as_patches, module_of
from conv2attn.networks.conversion.computed_weights import current_convolution, hooked, weight_changes


def on_patches(layer: nn.Module, patch: int | Sequence[int]) -> nn.Sequential:
    """The network on patch tokens that equals a convolution layer on images of whole patches.

    The layer becomes a convolution of tokens whose weights are numbers of its own and zeros.

    Args:
        patch: its side in pixels of the input, or its sides.
    Raises:
        UnsupportedError: it is no convolution layer (C2A101), has hooks, a forward of its own or a weight that changes
            at each call (C2A106), or a geometry that `as_patches` refuses (C2A111).
        UsageError: the patch has other axes, or is not positive (C2A007).
    """
    if altered(layer) or weight_changes(layer):
        sentence = f"{type(layer).__name__} does more than its class, so it has no patch tokens"
        raise UnsupportedError("C2A106", sentence, "Pass a plain layer, or convert without patch.")
    given = list(patch) if isinstance(patch, Iterable) and not isinstance(patch, str) else None
    sides = [whole_number(side, "patch") for side in ([patch] if given is None else given)]
    with current_convolution(layer) as convolution:
        first = tuple(sides * len(convolution.kernel_size) if given is None else sides)
        on_tokens, last = as_patches(convolution, first)
        trains = isinstance(layer.weight, Tensor) and layer.weight.requires_grad
        attending = module_of(on_tokens).requires_grad_(trains)
    modules = attending if isinstance(attending, nn.Sequential) else [attending]
    inverse = [DepthToSpace(last)] if max(last) > 1 else []
    return nn.Sequential(SpaceToDepth(first), *modules, *inverse).train(layer.training)


def altered(module: nn.Module) -> bool:
    """Whether `module` does more than its class does."""
    return hooked(module) or "forward" in vars(module)
