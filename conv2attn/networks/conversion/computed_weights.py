"""The weights of convolutions: those computed before each call, and those that cannot be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.layers.theorem import STOCK, Convolution, read_convolution
from conv2attn.networks.conversion.outcomes import UNSUPPORTED, ConversionRow
from conv2attn.networks.copies import evaluating
from conv2attn.torch_internals import ParametrisedSpectralNorm

REPARAMETRISATIONS = (WeightNorm, SpectralNorm, BasePruningMethod)


@contextmanager
def evaluated_weight(module: nn.Module) -> Iterator[None]:
    """Within the block, `module` has its weight of evaluation mode, in which spectral norms do not iterate."""
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
        check_has_weights(module, convolution.weight)
        yield convolution


def check_has_weights(module: nn.Module, *tensors: Tensor) -> None:
    """Refuses a layer or a network whose tensors are all on the meta device (C2A103)."""
    if tensors and all(tensor.is_meta for tensor in tensors):
        raise UnsupportedError(
            "C2A103",
            f"{type(module).__name__} is on the meta device, so it has no weights",
            "Give it weights first: network.to_empty(device='cpu'), then load_state_dict.",
        )


def describe(module: nn.Module) -> str:
    """A convolution in one line: `Conv2d 3->64 k7 s2`; its class alone if it cannot be read."""
    try:
        with current_convolution(module) as convolution:
            return convolution.describe(class_name(module))
    except Conv2AttnError:
        return class_name(module)


def unreadable_rows(model: nn.Module) -> list[ConversionRow]:
    """Rows for convolutions with quantised weights, compiled by torch.jit, or deformable, which cannot be converted.

    Raises:
        UnsupportedError: `model` is such a convolution itself (C2A101, C2A102).
    """
    rows = []
    for name, module in model.named_modules():
        kind, reason, code = type(module).__name__, "", "C2A102"
        remedy = "Convert the network before it is quantised or compiled."
        if isinstance(module, torch.jit.ScriptModule):
            kind, reason = module.original_name, "is compiled by torch.jit"
        elif "quantized" in type(module).__module__ and not isinstance(module, STOCK):
            reason = "has quantised weights"
        elif type(module).__module__ == "torchvision.ops.deform_conv":
            reason, code = "is bilinear between pixels, while attention is a Gaussian around the moved centre", "C2A101"
            remedy = "For offsets at whole pixels, see conv2attn.layers.theorem.deformable_as_attention."
        if reason and "Conv" in kind:
            error = UnsupportedError(code, f"{name} ({kind}) {reason}" if name else f"{kind} {reason}", remedy)
            if not name:
                raise error
            rows.append(ConversionRow(name, kind, UNSUPPORTED, str(error)))
    return rows


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


def class_name(module: nn.Module) -> str:
    """The name of the class of a convolution, without a parametrisation's."""
    return type(module).__name__.removeprefix("Parametrized")
