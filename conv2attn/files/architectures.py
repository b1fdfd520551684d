"""`--arch`: builds the network whose weights are in a file."""

import importlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from conv2attn.errors import CheckpointError, Conv2AttnError, UsageError, first_line
from conv2attn.extras import optional
from conv2attn.files.budget import Budget
from conv2attn.files.kinds import read_json

COUNTED = re.compile("num_|n_|layers|depth|labels")
FORMS = "Pass torchvision:NAME, timm:NAME, transformers:FOLDER, package.module:factory or file.py:factory."


@final
@dataclass(frozen=True)
class Architecture:
    """A network without its weights: a name, and a function that builds it from keyword arguments.

    Args:
        name: the value of `--arch`.
        factory: builds the network.
        arguments: the keyword arguments of the factory.
        classes: the argument that sets the number of outputs, if there is one.
        describe: returns input size, mean and standard deviation of a built network's images, as far as known.
    """

    name: str
    factory: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    classes: str | None = None
    describe: Callable[[Any], dict[str, Any]] = lambda network: {}
    config: dict[str, Any] | None = None

    def build(self, budget: Budget | None = None) -> nn.Module:
        """The network with fresh weights.

        Args:
            budget: budget of the file, if the file rather than the user names the architecture: bytes of parameters and
                the number of modules are drawn from it, on the meta device first.
        Raises:
            UsageError: the factory raises (C2A009), or returns something else (C2A006).
            CheckpointError: the network is out of proportion to the file (C2A307).
        """
        try:
            if budget is not None:
                self.measure(budget)
            network = self.factory(**self.arguments)
        except Conv2AttnError:
            raise
        except Exception as error:
            reason = f"--arch {self.name} raised {type(error).__name__} ({first_line(error)})"
            raise UsageError("C2A009", reason, "Pass its arguments with --arch-args '{\"name\": value}'.") from error
        if not isinstance(network, nn.Module):
            raise UsageError("C2A006", f"--arch {self.name} builds a {type(network).__name__}, not an nn.Module", FORMS)
        return network

    def measure(self, budget: Budget) -> None:
        """Draws the network's parameters, buffers and modules from the budget, before any of them has numbers.

        Raises:
            CheckpointError: they are out of proportion to the file (C2A307).
        """
        # Configurations create lists with one entry per layer and label before any module is built.
        counts = [each for key, each in (self.config or {}).items() if COUNTED.search(key) and type(each) is int]
        budget.visit(sum(each for each in counts if each > 0))
        try:
            with copy(budget).building(), torch.device("meta"):
                self.factory(**self.arguments)
        except (NotImplementedError, RuntimeError):
            # Some constructors read numbers that they create, which fails on meta. Parameters are registered before
            # they are filled, so a refused one has reserved memory but not used it.
            with budget.building():
                self.factory(**self.arguments)

    def with_classes(self, classes: int) -> "Architecture | None":
        """This architecture with another number of outputs; None if no argument sets it."""
        if self.classes is None or self.classes in self.arguments:
            return None
        return replace(self, arguments={**self.arguments, self.classes: classes})


def parse_arguments(text: str | None) -> dict[str, Any]:
    """The keyword arguments in a JSON text such as '{"num_classes": 10}'.

    Raises:
        UsageError: the text is not a JSON object (C2A006).
    """
    try:
        arguments = json.loads(text) if text else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        remedy = "Write '{\"num_classes\": 10}', say."
        raise UsageError("C2A006", f"--arch-args {text} is not a JSON object of arguments", remedy)
    return arguments


def architecture(arch: str, arguments: Mapping[str, Any] | None = None) -> Architecture:
    """The architecture named by a text.

    Args:
        arch: "torchvision:NAME", "timm:NAME", "transformers:FOLDER", "package.module:factory", or "file.py:factory".
            Modules are searched in the working folder too. The last two run the code of the named module.
        arguments: keyword arguments of the factory.
    Raises:
        UsageError: the text names nothing that can be built; the error suggests near names (C2A002).
    """
    kind, _, name = arch.rpartition(":") if arch.count(":") > 1 and ".py:" in arch else arch.partition(":")
    if not kind or not name:
        raise UsageError("C2A002", f"--arch {arch} names no architecture", FORMS)
    keywords = dict(arguments or {})
    match kind:
        case "torchvision":
            return torchvision_architecture(name, keywords)
        case "timm":
            return timm_architecture(name, keywords)
        case "transformers":
            path = Path(name)  # code in the folder never runs
            config = read_json(path / "config.json" if path.is_dir() else path)
            return configured_architecture(arch, {**config, **keywords}, path)
        case _:
            return Architecture(arch, factory_named(arch, kind, name), keywords)


def unknown_name(arch: str, name: str, names: list[str], kind: str) -> UsageError:
    """The error for a name missing in a registry, with the nearest names in it."""
    return UsageError(
        "C2A002", f"--arch {arch} is not one of the {len(names)} models of {kind}", near_names(name, names, f"{kind}:")
    )


def near_names(name: str, names: Sequence[str], prefix: str) -> str:
    """A suggestion of near names, or the forms of an architecture if none is near."""
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(prefix + each for each in near)}?" if near else FORMS


def torchvision_architecture(name: str, arguments: dict[str, Any]) -> Architecture:
    """A model of `torchvision.models`, without weights; the image size is that of its first published weights."""
    models = optional("torchvision.models", f"--arch torchvision:{name}")
    names = models.list_models()
    if name not in names:
        raise unknown_name(f"torchvision:{name}", name, names, "torchvision")
    builder = models.get_model_builder(name)

    def factory(**keywords: Any) -> Any:
        both = {"weights": None, "weights_backbone": None}  # backbone weights would be downloaded by default
        return builder(**((both if "weights_backbone" in inspect.signature(builder).parameters else {}) | keywords))

    def describe(network: Any) -> dict[str, Any]:
        weights = next(iter(models.get_model_weights(name)), None)
        side = getattr(getattr(weights, "transforms", None), "keywords", {}).get("crop_size")
        return {"input_size": (3, side, side)} if isinstance(side, int) else {}

    return Architecture(f"torchvision:{name}", factory, arguments, "num_classes", describe)


def timm_architecture(name: str, arguments: dict[str, Any]) -> Architecture:
    """A model of timm, without weights; image size and normalisation are from its configuration."""
    timm = optional("timm", f"--arch timm:{name}")
    if not timm.is_model(name.partition(".")[0]):
        raise unknown_name(f"timm:{name}", name, timm.list_models(), "timm")

    def factory(**keywords: Any) -> Any:
        return timm.create_model(name, pretrained=False, **keywords)

    def describe(network: Any) -> dict[str, Any]:
        config = getattr(network, "pretrained_cfg", None) or {}
        description = {key: tuple(config[key]) for key in ("input_size", "mean", "std") if config.get(key)}
        return description | ({"crop": float(config["crop_pct"])} if config.get("crop_pct") else {})

    return Architecture(f"timm:{name}", factory, arguments, "num_classes", describe)


def configured_architecture(name: str, config: dict[str, Any], folder: Path | None = None) -> Architecture:
    """The model of a configuration of transformers: of the class that it names, otherwise the base model."""
    if owner := config.get("_class_name"):
        reason = f"{name}: its config.json is of diffusers, for the class {owner}"
        remedy = "Pass its file of weights with --arch file.py:factory, where factory() builds that class."
        raise CheckpointError("C2A304", reason, remedy)
    transformers = optional("transformers", f"--arch {name}")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        names = list(transformers.CONFIG_MAPPING)
        reason = f"{name}: model_type {kind!r} is not one of the {len(names)} that transformers supports"
        raise CheckpointError("C2A304", reason, near_names(str(kind), names, ""))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    def factory() -> Any:
        entries = {key: value for key, value in config.items() if key != "auto_map"}
        configuration = transformers.CONFIG_MAPPING[kind].from_dict(entries)
        classes = [getattr(transformers, each, None) for each in config.get("architectures") or ()]
        kinds = [each for each in classes if isinstance(each, type) and issubclass(each, nn.Module)]
        return kinds[0](configuration) if kinds else transformers.AutoModel.from_config(configuration)

    def describe(network: Any) -> dict[str, Any]:
        return description_of_config(network.config, folder)

    return Architecture(name, factory, {}, None, describe, config)


def description_of_config(config: Any, folder: Path | None) -> dict[str, Any]:
    """Input size, mean and standard deviation, from a configuration and the preprocessor's configuration."""
    description: dict[str, Any] = {}
    side, channels = getattr(config, "image_size", None), getattr(config, "num_channels", 3)
    if isinstance(side, int):
        description["input_size"] = (channels, side, side)
    elif isinstance(side, (list, tuple)):
        description["input_size"] = (channels, *side)
    if folder is not None and (folder / "preprocessor_config.json").is_file():
        preprocessor = read_json(folder / "preprocessor_config.json")
        pairs = (("mean", "image_mean"), ("std", "image_std"))
        description |= {ours: tuple(preprocessor[theirs]) for ours, theirs in pairs if preprocessor.get(theirs)}
        crop, resize = preprocessor.get("crop_size"), preprocessor.get("size")
        if isinstance(crop, dict) and isinstance(resize, dict) and "height" in crop and "shortest_edge" in resize:
            description["input_size"] = (channels, crop["height"], crop["width"])
            description["crop"] = crop["height"] / resize["shortest_edge"]
    return description


def factory_named(arch: str, module: str, name: str) -> Callable[..., Any]:
    """The factory in a module, or in a file, which is then run.

    Raises:
        UsageError: the module cannot be imported (C2A003), or has no such part; the error suggests near names (C2A002).
    """
    search_working_folder()
    try:
        module_object = module_in_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except Exception as error:
        reason = f"--arch {arch}: {module} cannot be imported ({type(error).__name__}: {first_line(error)})"
        raise UsageError("C2A003", reason, FORMS) from error
    factory = module_object
    for part in name.split("."):
        if not hasattr(factory, part):
            callable_names = [
                key for key, value in vars(module_object).items() if callable(value) and not key.startswith("_")
            ]
            remedy = near_names(part, callable_names, f"{module}:")
            raise UsageError("C2A002", f"--arch {arch}: {module} has no {part}", remedy)
        factory = getattr(factory, part)
    if not callable(factory):
        raise UsageError("C2A006", f"--arch {arch}: {name} is a {type(factory).__name__}, not a function", FORMS)
    return factory


def search_working_folder() -> None:
    """Makes the modules in the working folder importable, as for a script in it."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)


def module_in_file(path: Path) -> Any:
    """The module in a Python file, with the file's folder importable."""
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve(strict=True))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module
