"""Reads whole pickled modules by torch's unpickler for weights: objects of known classes, and no code runs.

A class of modules is unpickled as a stand-in whose constructor a pickle cannot call; other objects stored by training
scripts become empty records. The remaining checks concern data: an attribute instead of a method, hooks, sizes that a
torch class would not have.
"""

import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from conv2attn.errors import CheckpointError, first_line
from conv2attn.files.architectures import search_working_folder
from conv2attn.files.budget import Budget, plain_content
from conv2attn.files.kinds import SAVE_STATE
from conv2attn.files.states import WRAPPERS, Record, is_plain_value
from conv2attn.files.torch_files import check_tensors, plain_load

MODULE_LIBRARIES = ("torch.nn", "torchvision", "timm", "conv2attn")
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
MODULE_PARTS: dict[str, Any] = {"_parameters": nn.Parameter, "_buffers": Tensor, "_modules": nn.Module}
INTERNALS = (*MODULE_PARTS, "_non_persistent_buffers_set", "training")
DATA_GLOBALS = (
    "argparse.Namespace",
    "types.SimpleNamespace",
    "datetime.date",
    "datetime.datetime",
    "datetime.timedelta",
    "datetime.timezone",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.dtype",
    "_codecs.encode",
)
"""Globals that training scripts store with weights: arguments, dates, paths and measures, without any weights."""
RECORDS: list[Any] = [(type("Record", (Record,), {}), name) for name in DATA_GLOBALS]
ALLOW = (
    "Pass --allow CLASS for each class of modules that you trust, or save the weights alone with "
    "torch.save(model.state_dict(), path)."
)

IMPORT = (
    "Run this in the folder of its module, or save the weights alone with torch.save(model.state_dict(), path), and "
    "pass --arch file.py:factory."
)


def code_in(path: Path) -> list[str]:
    """Every global in a file of torch.save that `torch.load` does not list as harmless; none for a damaged file."""
    try:
        return sorted(get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:
        return []


def module_class(name: str, allow: Iterable[str]) -> type[nn.Module] | None:
    """The class of modules with that name, from a known library or allowed by the user; otherwise None.

    A class allowed by the user may be in the working folder.
    """
    module, _, class_name = name.rpartition(".")
    if name in allow:
        # A script imports from its own folder; a command does so only for a class that the user allowed.
        search_working_folder()
    elif not any(f"{module}.".startswith(f"{each}.") for each in MODULE_LIBRARIES):
        return None
    try:
        value = getattr(importlib.import_module(module), class_name, None)
    except (ImportError, RuntimeError, OSError, ValueError):
        return None
    return value if isinstance(value, type) and issubclass(value, nn.Module) else None


def stand_in(kind: type[nn.Module]) -> type[nn.Module]:
    """A class that replaces `kind` in a pickle: neither the constructor nor any code of `kind` runs."""

    # A pickle can call any class that it may name, with arguments of its choice.
    def refuse(module: nn.Module, *_: Any) -> None:
        raise TypeError(f"the constructor of {kind.__name__} is called")

    return type(kind.__name__, (kind,), {"__init__": refuse, "__setstate__": nn.Module.__setstate__})


def read_module(path: Path, names: Sequence[str], allow: Iterable[str] = ()) -> nn.Module:
    """The module in a file of torch.save; nothing of the pickle runs.

    Args:
        path: a file that was inspected before.
        names: all globals in it.
        allow: further allowed classes, by full names, besides those of torch.nn, torchvision, timm and this project.
    Raises:
        CheckpointError: the file names other code, or a module does not fit its class and tensors (C2A303).
    """
    kinds = {name: kind for name in names if (kind := module_class(name, allow))}
    if unknown_code := [name for name in names if name not in kinds and name not in DATA_GLOBALS]:
        if not_found := [name for name in unknown_code if name in allow]:
            reason = f"{path} names {', '.join(not_found)}, and there is no such class of modules to import"
            raise CheckpointError("C2A303", reason, IMPORT)
        reason = (
            f"{path} holds more than tensors: it names {', '.join(unknown_code)}, which is code, and nothing was run"
        )
        raise CheckpointError("C2A303", reason, ALLOW)
    budget = Budget.of(path)
    classes = {stand_in(kind): kind for kind in kinds.values()}
    safe: list[Any] = [*zip(classes, kinds, strict=True), *RECORDS]
    try:
        with safe_globals(safe), path.open("rb") as file:
            content = plain_load(file)
        if isinstance(content, Mapping):
            content = next((content[key] for key in WRAPPERS if isinstance(content.get(key), nn.Module)), None)
        if not isinstance(content, nn.Module):
            raise CheckpointError(
                "C2A303",
                f"{path} has no module, directly or under a usual key",
                "Save the model itself or its state dict: torch.save(model.state_dict(), path).",
            )
        # Everything is checked before the first module gets its real class, whose methods would then run on unchecked
        # data.
        for name, module in [*content.named_modules()]:
            if fault := first_fault(module, classes, budget):
                raise CheckpointError("C2A303", f"{path}: {name or 'the module'} {fault}, and nothing was run", ALLOW)
            check_tensors(path, {**module._parameters, **module._buffers}, budget)
        for module in [*content.modules()]:
            module.__class__ = kind = classes[type(module)]
            vars(module).update({key: classes[each] for key, each in vars(module).items() if isinstance(each, type)})
            kind.__setstate__(module, dict(vars(module)))
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            "C2A303",
            f"{path} has an incomplete module ({first_line(error)})",
            SAVE_STATE,
        ) from error
    return content


def first_fault(module: nn.Module, classes: Mapping[type, type[nn.Module]], budget: Budget) -> str:
    """The first attribute that no constructor of this class would set, in words; empty if there is none."""
    kind = classes[type(module)]
    attributes = {name: each for name, each in vars(module).items() if name not in INTERNALS and "hook" not in name}
    for name, value in vars(module).items():
        if "hook" in name and value:
            return f"has {name}"
        if name in MODULE_PARTS and any(not isinstance(each, MODULE_PARTS[name] | None) for each in value.values()):
            return f"has {name} of a wrong type"
        if name not in attributes:
            continue
        # An attribute of an instance hides the method of the same name.
        if callable(getattr(kind, name, None)) or name.startswith("__"):
            return f"replaces the {name} of {kind.__name__}"
        if not is_plain_value(plain_content(value, budget)) and not (isinstance(value, type) and value in classes):
            return f"has an attribute {name} that is a {type(value).__name__}"
    # A cycle of modules has no end for code that walks them.
    if any(module in child.modules() for child in module.children()):
        return "contains itself"
    leaf = not module._modules and kind.__module__.startswith("torch.nn.") and not issubclass(kind, CONTAINERS)
    with budget.building():
        return layer_difference(module, kind, attributes) if leaf else ""


def layer_difference(module: nn.Module, kind: type[nn.Module], attributes: Mapping[str, Any]) -> str:
    """The difference between a torch layer and one that its class builds from its attributes; empty if none."""
    tensors = {**module._parameters, **module._buffers}
    parameters = inspect.signature(kind).parameters.keys() - {"device", "dtype"}
    arguments = {name: attributes[name] for name in parameters if name in attributes}
    try:
        with torch.device("meta"):
            rebuilt = kind(**arguments, **{name: tensors[name] is not None for name in parameters if name in tensors})
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        return f"is not a {kind.__name__} with its attributes ({first_line(error)})"
    both = tensors, {**rebuilt._parameters, **rebuilt._buffers}
    shapes = [{name: each.shape for name, each in part.items() if each is not None} for part in both]
    if shapes[0] != shapes[1]:
        return f"is not a {kind.__name__} with its attributes: its tensors have other names or sizes"
    plain = {name: value for name, value in vars(rebuilt).items() if name in attributes and is_plain_value(value)}
    differing = next((name for name, value in plain.items() if attributes[name] != value), "")
    return differing and f"has {differing}={attributes[differing]!r}, but weights for {plain[differing]!r}"
