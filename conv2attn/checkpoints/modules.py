"""Whole pickled modules: unpickled as inert records, audited, and built anew from classes of known libraries."""

import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from conv2attn.checkpoints.reading import check_tensors
from conv2attn.checkpoints.records import DATA, Held, stand_ins
from conv2attn.checkpoints.states import WRAPPERS, is_plain
from conv2attn.errors import CheckpointError

LIBRARIES = ("torch.nn", "torchvision", "timm", "conv2attn")
INTERNAL = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training")
ALLOW = (
    "Pass --allow CLASS for each class of modules that you trust, save the weights alone with "
    "torch.save(model.state_dict(), path), or pass --trust-pickle to run the code in the file."
)


@final
class Modules:
    """The modules of one file, built anew: classes by name, and what was refused is told with its place."""

    def __init__(self, path: Path, classes: Mapping[str, type[nn.Module]]):
        self.path, self.classes, self.made = path, classes, dict[int, nn.Module]()

    def refused(self, place: str, what: str) -> CheckpointError:
        """The error for a module that is not what its class says."""
        return CheckpointError("C2A303", f"{self.path}: {place or 'the module'} {what}, and nothing was run", ALLOW)

    def built(self, held: Any, place: str = "") -> nn.Module:
        """A fresh module for a record; one for each record, however often it is used."""
        if not isinstance(held, Held) or held.name not in self.classes:
            raise self.refused(place, f"is a {type(held).__name__}")
        if id(held) not in self.made:
            self.made[id(held)] = self.fresh(held, place)
        return self.made[id(held)]

    def fresh(self, held: Held, place: str) -> nn.Module:
        """A module of the same class with the same tensors, checked against what its attributes claim."""
        cls, state = self.classes[held.name], held.state
        attributes = {name: each for name, each in state.items() if name not in INTERNAL and "hook" not in name}
        self.audit(place, cls, state, attributes)
        tensors = {**state.get("_parameters", {}), **state.get("_buffers", {})}
        check_tensors(self.path, tensors)
        kept = {name: self.valued(each) for name, each in attributes.items()}
        if not state.get("_modules") and cls.__module__.startswith("torch.nn.") and not issubclass(cls, CONTAINERS):
            return self.leaf(place, cls, kept, tensors)
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        vars(module).update(kept)
        for name, tensor in state.get("_parameters", {}).items():
            module.register_parameter(name, tensor)
        for name, tensor in state.get("_buffers", {}).items():
            module.register_buffer(name, tensor, name not in state.get("_non_persistent_buffers_set", ()))
        for name, each in state.get("_modules", {}).items():
            module.add_module(name, None if each is None else self.built(each, f"{place}.{name}".lstrip(".")))
        return module

    def audit(self, place: str, cls: type[nn.Module], state: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        """Refuses hooks, attributes in the place of methods, and attributes that are not plain values or classes."""
        if hooks := [name for name in state if "hook" in name and state[name]]:
            raise self.refused(place, f"has {hooks[0]}")
        if methods := [name for name in attributes if callable(getattr(cls, name, None)) or name.startswith("__")]:
            raise self.refused(place, f"replaces the {methods[0]} of {cls.__name__}")
        if odd := [name for name, each in attributes.items() if not (is_plain(each) or is_class(each))]:
            raise self.refused(place, f"has an attribute {odd[0]} that is a {type(attributes[odd[0]]).__name__}")

    def valued(self, value: Any) -> Any:
        """A plain value as it is, and a class of modules for the record that stands for it."""
        return self.classes[value.name] if is_class(value) else value

    def leaf(
        self, place: str, cls: type[nn.Module], attributes: Mapping[str, Any], tensors: Mapping[str, Tensor | None]
    ) -> nn.Module:
        """A layer of torch made by its constructor from these attributes, with these tensors."""
        wanted = inspect.signature(cls).parameters.keys() - {"device", "dtype"}
        flags = {name: tensors[name] is not None for name in wanted if name in tensors}
        arguments = {name: attributes[name] for name in wanted if name in attributes} | flags
        present = {name: each for name, each in tensors.items() if each is not None}
        try:
            with torch.device("meta"):
                layer = cls(**arguments)
            layer.load_state_dict(present, strict=True, assign=True)
        except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            raise self.refused(place, f"is no {cls.__name__} of its attributes ({first_line(error)})") from error
        for name, value in vars(layer).items():
            if not name.startswith("_") and name in attributes and attributes[name] != value:
                raise self.refused(place, f"says {name}={attributes[name]!r}, where its weights say {value!r}")
        return layer


CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def is_class(value: Any) -> bool:
    """Whether something stands for a class that the pickle names."""
    return isinstance(value, type) and issubclass(value, Held) and value.name not in DATA


def first_line(error: BaseException) -> str:
    """The first line of a message."""
    return " ".join(str(error).split())[:100]


def code_in(path: Path) -> list[str]:
    """Every global in a file of torch.save that `torch.load` does not know as harmless; none where it is damaged."""
    try:
        return sorted(get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:
        return []


def read_module(path: Path, names: Sequence[str], allow: Iterable[str] = ()) -> nn.Module:
    """The module in a file of torch.save, built anew from its classes; nothing of the pickle runs.

    Args:
        path: a file that was inspected before.
        names: all globals that it names.
        allow: classes, by their full names, beside those of torch.nn, torchvision, timm and this project.
    Raises:
        CheckpointError: it names other code, or a module is not what its class and tensors say (C2A303).
    """
    classes = {name: found for name in names if (found := module_class(name, allow))}
    if others := [name for name in names if name not in classes and name not in DATA]:
        told = f"{path} holds more than tensors: it names {', '.join(others)}, which is code, and nothing was run"
        raise CheckpointError("C2A303", told, ALLOW)
    try:
        with safe_globals(stand_ins(names)), path.open("rb") as file:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError("C2A303", f"{path} holds a module that is not whole ({first_line(error)})") from error
    return Modules(path, classes).built(module_in(path, content))


def module_in(path: Path, content: Any) -> Any:
    """The module in a file, or in a dict of it under one of the usual keys."""
    if isinstance(content, Mapping):
        found = [content[key] for key in WRAPPERS if isinstance(content.get(key), (Held, nn.Module))]
        if not found:
            raise CheckpointError("C2A303", f"{path} holds a dict in which no module stands under a usual key")
        return found[0]
    return content


def module_class(name: str, allow: Iterable[str]) -> type[nn.Module] | None:
    """The class of modules of that name, of a library that is known or where the user allows it; else None."""
    module, _, own = name.rpartition(".")
    if name not in allow and not any(f"{module}.".startswith(f"{each}.") for each in LIBRARIES):
        return None
    try:
        found = getattr(importlib.import_module(module), own, None)
    except (ImportError, RuntimeError, OSError, ValueError):
        return None
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def trusted(path: Path) -> nn.Module | dict[Any, Any]:
    """The module, or the dict around a state dict, that a pickle makes when it is run; it may do anything.

    Raises:
        CheckpointError: it raises, or is neither (C2A303).
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        told = f"{path} was run, and raised {type(error).__name__} ({first_line(error)})"
        raise CheckpointError("C2A303", told) from error
    if isinstance(content, Mapping):
        known = {key: each for key, each in content.items() if key in WRAPPERS or isinstance(each, Tensor)}
        modules = [each for each in known.values() if isinstance(each, nn.Module)]
        return modules[0] if modules else known
    if not isinstance(content, nn.Module):
        raise CheckpointError("C2A303", f"{path} holds a {type(content).__name__}, not a network or its state dict")
    return content
