"""Finds the architectures with the keys and shapes of a state dict: this project's, torchvision's and timm's."""

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from conv2attn.errors import UsageError
from conv2attn.extras import optional
from conv2attn.files.architectures import (
    Architecture,
    architecture,
    timm_architecture,
    torchvision_architecture,
)
from conv2attn.files.states import State, misfit_of, prefix_readings, with_own_classes
from conv2attn.networks.zoo import AttentionClassifier, ResNet, published, recognise_resnet

Maker = Callable[[str, dict[str, Any]], Architecture]
MODEL_LIBRARIES: dict[str, tuple[str, Maker]] = {
    "torchvision": ("torchvision.models", torchvision_architecture),
    "timm": ("timm", timm_architecture),
}
DEFAULT_CLASSES = 1000
"""The registries' default number of outputs, which a file's own number replaces."""
MOST_DISCARDED = 8
"""A model may build and discard up to this many parameters, as EfficientNet does, before it counts as another model."""


SEARCHED: dict[tuple[str | None, frozenset[tuple[str, tuple[int, ...]]]], list[Architecture]] = {}
"""Results for a name and shapes, kept in this process."""


@final
@dataclass(frozen=True)
class Match:
    """An architecture that fits a state dict.

    Args:
        name: name of the architecture.
        build: builds the architecture, and may import its library.
        state: the tensors by the architecture's names.
        read_as: the assumptions, if only keys and shapes support it.
    """

    name: str
    build: Callable[[], Architecture]
    state: State
    read_as: str


def matches_of(state: State, path: Path, name: str | None = None) -> tuple[list[Match], bool]:
    """The architectures that fit a state dict, this project's before those of registries; and whether all were tried.

    Args:
        path: the file, whose name is a hint.
        name: the only name to try.
    """
    for reading in prefix_readings(state):
        if plan := published.recognise_published(reading.tensors):
            tensors = published.own_state(reading.tensors, plan)
            return [own_match(plan, AttentionClassifier, replace(reading, tensors=tensors), published.READ_AS)], True
        if resnet_plan := recognise_resnet(reading.tensors):
            own = own_match(resnet_plan, ResNet, reading, resnet_plan.read_as)
            return [
                own,
                *(registry_match(twin, partial(architecture, twin), state) for twin in resnet_plan.twins),
            ], True
    fitting, all_tried = fitting_models([each.tensors for each in prefix_readings(state)], path, name)
    return [registry_match(each.name, partial(replace, each), state) for each in fitting], all_tried


def own_match(plan: Any, build: Callable[[Any], nn.Module], state: State, read_as: str) -> Match:
    """The match of a network of this project, which is built from a plan."""
    base = Architecture(plan.name, lambda: build(plan), describe=lambda network: {"input_size": plan.input_size})
    return Match(plan.name, lambda: base, state, read_as)


def registry_match(name: str, build: Callable[[], Architecture], state: State) -> Match:
    """The match of a registry's model."""
    return Match(name, build, state, f"architecture {name}")


class OtherModel(Exception):
    """Raised if more parameters are missing in the state dict than a model discards."""


def fitting_models(
    states: Sequence[Mapping[str, Tensor]], path: Path, name: str | None
) -> tuple[list[Architecture], bool]:
    """Models of the installed registries that fit one of these state dicts, and whether all models were tried.

    Models in the name of the file are tried first; if they fit, no others are tried. The result of a complete search is
    cached.

    Args:
        states: a state dict, and the same without the prefixes of its names.
        path: the file, whose name is a hint.
        name: the only name to try.
    """
    models = [model for registry in installed_registries() for model in models_of(registry) if name in (None, model[1])]
    if name is None:
        hints = {own_name(each) for each in hinted_names((each for _, each in models), path)}
        if matches := models_that_fit([(maker, each) for maker, each in models if each in hints], states):
            return matches, False
    # A search builds hundreds of models, so its result is kept.
    shapes = frozenset((key, tuple(each.shape)) for key, each in states[0].items())
    if (name, shapes) not in SEARCHED:
        SEARCHED[name, shapes] = models_that_fit(models, states)
    return SEARCHED[name, shapes], name is None


def models_of_class(kind: type[nn.Module], state: Mapping[str, Tensor]) -> list[Architecture]:
    """Models with these names and shapes in the registry of a class."""
    library = kind.__module__.partition(".")[0]
    if library not in MODEL_LIBRARIES:
        return []
    homes: dict[str, Any] = {
        "torchvision": sys.modules[kind.__module__.rpartition(".")[0]],
        "timm": kind.__module__.rpartition(".")[2],
    }
    return models_that_fit(models_of(library, module=homes[library]), [state])


def models_of(registry: str, **selection: Any) -> list[tuple[Maker, str]]:
    """The names of a registry's models, each with a function that builds its architecture."""
    module, maker = MODEL_LIBRARIES[registry]
    names = optional(module).list_models(**selection)
    # Quantised models need a backend that may be missing, and have no floating-point weights.
    return [(maker, name) for name in names if "quantized" not in name]


def models_that_fit(models: Iterable[tuple[Maker, str]], states: Sequence[Mapping[str, Tensor]]) -> list[Architecture]:
    """The models that fit one of the state dicts; warnings of their libraries are suppressed."""
    with warnings.catch_warnings(action="ignore"):
        return [fit for maker, name in models if (fit := fitting_architecture(maker(name, {}), states))]


def installed_registries() -> list[str]:
    """The registries that can be imported here."""
    names = []
    for name, (module, _) in MODEL_LIBRARIES.items():
        try:
            optional(module)
            names.append(name)
        except UsageError:
            continue
    return names


def fitting_architecture(architecture: Architecture, states: Sequence[Mapping[str, Tensor]]) -> Architecture | None:
    """The architecture, with the tensors' number of classes if it differs; None if no state fits."""
    shapes = shapes_on_meta(architecture, states[0])
    if shapes is None:
        return None
    for state in states:
        difference = misfit_of(shapes, state)
        if difference.fits:
            return architecture
        adapted = with_own_classes(architecture, difference)
        adapted_shapes = shapes_on_meta(adapted, state) if adapted else None
        if adapted_shapes is not None and misfit_of(adapted_shapes, state).fits:
            return adapted
    return None


def shapes_on_meta(architecture: Architecture, tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]] | None:
    """The names and shapes of an architecture; None as soon as parameters do not fit `tensors`."""
    shapes = {(key.rpartition(".")[2], tuple(tensor.shape)) for key, tensor in tensors.items()}
    # The classifier may have another number of classes in the file.
    patterns = shapes | {(name, (DEFAULT_CLASSES, *shape[1:])) for name, shape in shapes if shape}
    unexpected = list[str]()

    def check(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and (name, tuple(parameter.shape)) not in patterns:
            unexpected.append(name)
        if len(unexpected) > MOST_DISCARDED:
            raise OtherModel

    # Building a model ends once more than MOST_DISCARDED parameters do not fit, for most models in their first layers.
    handle = register_module_parameter_registration_hook(check)
    try:
        # Some constructors read the values of their tensors, and tensors on the meta device have none.
        for device in ("meta", "cpu"):
            unexpected.clear()
            try:
                with torch.device(device):
                    network = architecture.factory(**architecture.arguments)
                return {key: tuple(each.shape) for key, each in network.state_dict().items()}
            except (NotImplementedError, RuntimeError):
                continue
        return None
    except Exception:
        return None
    finally:
        handle.remove()


def hinted_names(names: Iterable[str], path: Path) -> list[str]:
    """The architectures with the longest names that the file's name contains; if it names a library, only that
    library's.

    >>> hinted_names(["resnet50", "timm:resnetblur50"], Path("resnetblur50-ra2.pth"))
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
