"""The models of torchvision and timm whose keys and shapes are those of a state dict, searched without any weights."""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from conv2attn.checkpoints.architectures import Architecture, of_timm, of_torchvision
from conv2attn.checkpoints.fitting import Misfit, differing_classes, misfit

LIBRARIES: dict[str, tuple[str, Callable[[str, dict[str, Any]], Architecture]]] = {
    "torchvision": ("torchvision.models", of_torchvision),
    "timm": ("timm", of_timm),
}
CLASSES = 1000
"""The number of outputs with which the registries build; a file's own number takes its place."""
SPARE = 8
"""Parameters that a model may build and throw away, as EfficientNet does, before it counts as another model."""


class OtherModel(Exception):
    """More parameters were registered that the state dict does not have than a model throws away."""


def candidates(tensors: Mapping[str, Tensor]) -> list[Architecture]:
    """Every model of the installed registries that these tensors fit, with the file's own number of classes."""
    found = []
    for name, (module, architecture) in LIBRARIES.items():
        try:
            models = importlib.import_module(module).list_models()
        except (ImportError, RuntimeError, OSError):
            continue
        if name == "torchvision":
            models = [each for each in models if "quantized" not in each]
        found += [fit for each in models if (fit := fitting(architecture(each, {}), tensors))]
    return found


def installed() -> list[str]:
    """The registries that can be imported here."""
    found = []
    for name, (module, _) in LIBRARIES.items():
        try:
            importlib.import_module(module)
            found.append(name)
        except (ImportError, RuntimeError, OSError):
            continue
    return found


def fitting(architecture: Architecture, tensors: Mapping[str, Tensor]) -> Architecture | None:
    """The architecture, with the number of classes of the tensors where it is another; None if they do not fit."""
    found = misfit_on_meta(architecture, tensors)
    if found is None or found.fits:
        return architecture if found else None
    classes = differing_classes(found)
    adapted = architecture.with_classes(classes[0]) if classes else None
    if adapted is None:
        return None
    again = misfit_on_meta(adapted, tensors)
    return adapted if again and again.fits else None


def misfit_on_meta(architecture: Architecture, tensors: Mapping[str, Tensor]) -> Misfit | None:
    """How the tensors fit the architecture; None as soon as parameters show that they do not."""
    shapes = {(key.rpartition(".")[2], tuple(tensor.shape)) for key, tensor in tensors.items()}
    patterns = {(name, tuple(other)) for name, shape in shapes for other in with_default_classes(shape)}

    odd = list[str]()

    def check(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and (name, tuple(parameter.shape)) not in patterns:
            odd.append(name)
        if len(odd) > SPARE:
            raise OtherModel

    handle = register_module_parameter_registration_hook(check)
    try:
        for device in ("meta", "cpu"):
            odd.clear()
            try:
                with torch.device(device):
                    return misfit(architecture.factory(**architecture.arguments), tensors)
            except (NotImplementedError, RuntimeError):
                continue
        return None
    except Exception:
        return None
    finally:
        handle.remove()


def with_default_classes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """A shape, and the same with the registries' number of classes in place of the first side."""
    return [shape, (CLASSES, *shape[1:])] if shape else [shape]


def hinted(names: Iterable[str], path: Path) -> list[str]:
    """Those of several architectures whose names, the longest ones, are in the name of the file; its library's first.

    >>> hinted(["resnet50", "timm:resnetblur50"], Path("resnetblur50-ra2.pth"))
    ['timm:resnetblur50']
    """
    text = re.sub(r"[^a-z0-9]+", "_", path.name.lower())
    inside = [each for each in names if re.sub(r"[^a-z0-9]+", "_", own_name(each).lower()) in text]
    longest = max((len(own_name(each)) for each in inside), default=0)
    inside = [each for each in inside if len(own_name(each)) == longest]
    return [each for each in inside if ":" in each and each.partition(":")[0] in text] or inside


def own_name(name: str) -> str:
    """The name of an architecture without its registry."""
    return name.rpartition(":")[2]
