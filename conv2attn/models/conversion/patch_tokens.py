"""A chain of convolutions on patch tokens: space-to-depth, convolutions of tokens, and back (Li et al. 2021)."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from conv2attn.basis import Offset
from conv2attn.errors import UnsupportedError, whole_number
from conv2attn.models.conversion.replacement import current_convolution, hooked, weight_changes
from conv2attn.theorem import Convolution, DepthToSpace, SpaceToDepth, as_patches

POINTWISE = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Tanh, nn.Sigmoid,
)  # fmt: skip
CONVOLUTIONS: tuple[Any, ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
PADS: dict[str, tuple[Any, ...]] = {
    "zeros": (nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
    "circular": (nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d),
}


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
    if altered_module := next(
        (m for m in (model, *stages) if hooked(m) or weight_changes(m) or "forward" in vars(m)), None
    ):
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
            requires_grad = isinstance(stage.weight, torch.Tensor) and stage.weight.requires_grad
            modules += [part.requires_grad_(requires_grad) for part in modules_of(on_tokens)]
    if first is None or sides is None:
        raise UnsupportedError(
            "C2A101",
            "there is no convolution, so nothing says how many axes a patch has",
            "Pass a network with a convolution, or convert without patch.",
        )
    inverse = [DepthToSpace(sides)] if max(sides) > 1 else []
    return nn.Sequential(SpaceToDepth(first), *modules, *inverse).train(model.training)


def modules_of(convolution: Convolution) -> Iterator[nn.Module]:
    """A convolution of stride and dilation 1 as a layer of torch, behind one that pads where the sides differ."""
    axes, padding = len(convolution.kernel_size) - 1, convolution.padding
    amounts: Offset = padding.before
    mode = "zeros" if padding.is_identity else padding.mode
    if padding.before != padding.after:
        ends = [n for pair in zip(reversed(padding.before), reversed(padding.after), strict=True) for n in pair]
        yield PADS[mode][axes](tuple(ends))
        amounts, mode = (0,) * len(amounts), "zeros"
    layer = CONVOLUTIONS[axes](
        convolution.d_in,
        convolution.d_out,
        convolution.kernel_size,
        padding=amounts,
        padding_mode=mode,
        groups=convolution.groups,
        bias=convolution.bias is not None,
        device="meta",
    )
    layer.weight = nn.Parameter(convolution.weight.detach())
    if convolution.bias is not None:
        layer.bias = nn.Parameter(convolution.bias.detach())
    yield layer


def on_tokens_of(original: nn.Module, network: nn.Module) -> nn.Module:
    """`original` on the patch tokens of `network`; `original` itself where `network` has none."""
    first, original_first = (m[0] if type(m) is nn.Sequential and len(m) else None for m in (network, original))
    if not isinstance(first, SpaceToDepth) or isinstance(original_first, SpaceToDepth):
        return original
    try:
        return on_patches(original, first.patch)
    except UnsupportedError:
        return original
