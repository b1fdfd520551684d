"""The plan of a converted network, stored with its state dict, and the network rebuilt from both."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, final

import msgspec
import torch
from torch import Tensor, nn

from conv2attn.errors import CheckpointError, Conv2AttnError, first_line
from conv2attn.files import kinds
from conv2attn.files.architectures import Architecture, architecture, configured_architecture
from conv2attn.files.budget import JSON_TIMES, Budget
from conv2attn.files.chains import ChainPlan, build_chain
from conv2attn.files.contents import Contents
from conv2attn.layers.attention.distilled import from_distilled_plan
from conv2attn.layers.attention.plan import from_plan, to_plan
from conv2attn.layers.theorem import STOCK
from conv2attn.networks import attention_layers
from conv2attn.networks.conversion.computed_weights import evaluated_weight
from conv2attn.networks.conversion.outcomes import Conversion, remember
from conv2attn.networks.conversion.redirection import AttendingCalls, redirect_owners
from conv2attn.networks.conversion.replacement import Settings, become
from conv2attn.networks.copies import copy_network
from conv2attn.networks.provenance import Provenance, with_provenance
from conv2attn.networks.zoo.classifier import AttentionClassifier, ClassifierPlan
from conv2attn.networks.zoo.resnet import ResNet, ResNetPlan

PLAN_FORMAT = "conv2attn.network/4"
PLAN_ERRORS = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, msgspec.ValidationError)
ARCHITECTURES: dict[str, tuple[Any, Any]] = {
    "resnet": (ResNetPlan, ResNet),
    "classifier": (ClassifierPlan, AttentionClassifier),
    "chain": (ChainPlan, build_chain),
}
REGISTRIES = ("torchvision:", "timm:")
GIVE_MODEL = "Pass --arch file.py:factory, or in Python that network as model."


def full_name(kind: type) -> str:
    """A class by its module and name: `torch.nn.modules.container.Sequential`."""
    return f"{kind.__module__}.{kind.__qualname__}"


class NotBuiltError(CheckpointError):
    """Raised for a converted network whose class only its own code can build (C2A304)."""

    kind = ""


@final
@dataclass(frozen=True)
class Foreign:
    """A network of another library or of the user: its builder, or only its class.

    `name` is an `--arch`; `kind` the class; `config` a configuration of transformers.
    """

    kind: str
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] | None = None

    @property
    def built_by_library(self) -> bool:
        """Whether a library builds it, so that no code named by a file has to run."""
        plain = all(isinstance(each, (int, float)) and "pretrained" not in key for key, each in self.arguments.items())
        return self.config is not None or (self.name.startswith(REGISTRIES) and plain)

    def architecture(self, path: Path | None) -> Architecture:
        """The architecture of the network in the file at `path`, if a library builds it.

        Raises:
            NotBuiltError: no library builds it (C2A304).
        """
        if self.config is not None:
            return configured_architecture(self.name, self.config)
        if self.built_by_library:
            return architecture(self.name, self.arguments)
        builder = f", built by {self.name}, which is code, and files never run code" if self.name else ""
        remedy = f"Pass --arch {self.name}, or in Python the network as model." if ":" in self.name else GIVE_MODEL
        error = NotBuiltError("C2A304", f"{path}: the converted network is a {self.kind}{builder}", remedy)
        error.kind = self.kind
        raise error

    def matches_architecture(self, requested: Architecture) -> bool:
        """Whether the user's architecture equals this one: equal names, and no other arguments.

        If only the class is known, the names of classes are compared.
        """
        if not self.name:
            return type(requested.build()).__name__ == self.kind.rpartition(".")[2]
        if self.config is not None:
            return requested.config == self.config
        same_arguments = all(
            key in self.arguments and self.arguments[key] == each for key, each in requested.arguments.items()
        )
        return same_arguments and Path(self.name).name == Path(requested.name).name


@final
@dataclass(frozen=True)
class SavedPlan:
    """The plan of a stored network: the architecture, its attention layers, and the record of the conversion.

    Args:
        architecture: a plan of `ARCHITECTURES`, a `Foreign`, or None for a single layer.
        tied: groups of names that share one parameter.
        frozen: names of the frozen parameters.
        calls: the attention of functional convolutions, by the name of the module that calls them.
        distilled: the sizes of layers some of whose heads became convolutions, by name.
    """

    architecture: Any
    layers: dict[str, dict[str, Any]]
    conversion: Conversion | None
    refuted: bool
    tied: tuple[tuple[str, ...], ...] = ()
    frozen: tuple[str, ...] = ()
    source: Provenance | None = None
    calls: dict[str, Any] = field(default_factory=dict)
    distilled: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The architecture's name, or "layer" for a single one."""
        if isinstance(self.architecture, Foreign):
            return self.architecture.name or self.architecture.kind
        return self.architecture.name if self.architecture else "layer"


def recognise_plan(contents: Contents) -> tuple[SavedPlan, dict[str, Tensor]] | None:
    """The plan and the state dict of a file written by `save`, or None.

    Raises:
        CheckpointError: the file has the mark of this format, and its plan is damaged (C2A303).
    """
    content: Mapping[Any, Any] = contents.content
    if contents.kind is kinds.SAFETENSORS and "conv2attn" in contents.metadata:
        content = metadata_of(contents)
    mark = content.get("conv2attn")
    if not isinstance(mark, str):
        return None
    # A plan of another format could be read wrongly without an error.
    if mark != PLAN_FORMAT:
        reason = f"{contents.path} is a network of format {mark[:40]!r}, and this version reads {PLAN_FORMAT!r}"
        raise CheckpointError("C2A303", reason, "Convert the network again, and save it.")
    try:
        tensors = contents.content if contents.kind is kinds.SAFETENSORS else content["state_dict"]
        if not all(isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in tensors.items()):
            raise TypeError("not all of its state dict is a tensor with a name")
        return plan_of(content, len(tensors)), dict(tensors)
    except PLAN_ERRORS as error:
        raise CheckpointError(
            "C2A303",
            f"its {PLAN_FORMAT} plan is incomplete ({error})",
            "Save the network again with conv2attn.save.",
        ) from error


def metadata_of(contents: Contents) -> Mapping[str, Any]:
    """The plan in the metadata of a safetensors file."""
    text = contents.metadata["conv2attn"]
    Budget.of(contents.path).draw(JSON_TIMES * len(text), "its plan")
    try:
        plan = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            "C2A303", f"its {PLAN_FORMAT} plan is not JSON ({error})", "Save the network again with conv2attn.save."
        ) from error
    return plan if isinstance(plan, dict) else {}


def plan_of(content: Mapping[Any, Any], tensors: int) -> SavedPlan:
    """Reads the plan; raises before building if it has more blocks than there are tensors."""
    # The kind of the architecture decides the type of its plan, so it is converted separately.
    plan = msgspec.convert({**content, "architecture": None}, SavedPlan)
    if content["architecture"] is None:
        return plan
    kind, entries = content["architecture"]
    architecture_plan: Any = msgspec.convert(entries, Foreign if kind == "foreign" else ARCHITECTURES[kind][0])
    blocks = sum(getattr(architecture_plan, "depths", (getattr(architecture_plan, "layers", 0),)))
    if blocks > tensors:
        raise ValueError(f"{blocks} blocks of {tensors} tensors")
    return replace(plan, architecture=architecture_plan)


def rebuild(
    plan: SavedPlan,
    tensors: Mapping[str, Tensor],
    path: Path | None = None,
    architecture_argument: Architecture | None = None,
    model: nn.Module | None = None,
    arch: str | None = None,
) -> nn.Module:
    """The network of `plan` with these tensors: same bits, same strides, same dtypes.

    Args:
        architecture_argument, model: the architecture, or the network, that gets the layers; by default that of the
            plan.
        arch: the user's name of the network.
    Raises:
        CheckpointError: plan and tensors do not fit each other (C2A303), or the network is unknown or not the named one
            (C2A304).
    """
    foreign = plan.architecture if isinstance(plan.architecture, Foreign) else None
    matches = (
        foreign.matches_architecture(architecture_argument)
        if foreign and architecture_argument
        else arch in (None, plan.name)
    )
    if not matches and (plan.architecture is not None or architecture_argument is None):
        remedy = f"Leave --arch out, or pass --arch {plan.name}."
        raise CheckpointError("C2A304", f"{path} holds {plan.name}, not {arch}", remedy)
    if foreign and architecture_argument:
        architecture_argument = replace(
            architecture_argument, arguments={**foreign.arguments, **architecture_argument.arguments}
        )
    try:
        network = with_layers(skeleton(plan, path, architecture_argument, model), plan.layers)
        for name, sizes in plan.distilled.items():
            network.set_submodule(name, from_distilled_plan(sizes))
        redirect_owners(network, {owner: calls_of_plan(owner_plan) for owner, owner_plan in plan.calls.items()})
        network = with_tensors(network, plan, tensors)
    except (*PLAN_ERRORS, RuntimeError, Conv2AttnError) as error:
        if isinstance(error, CheckpointError):
            raise
        owner_plan = f"its plan and its tensors do not fit each other ({first_line(error)})"
        raise CheckpointError("C2A303", owner_plan, "Save the network again with conv2attn.save.") from error
    if plan.source is not None:
        with_provenance(network, plan.source)
    return remember(network, plan.conversion) if plan.conversion else network


def skeleton(
    plan: SavedPlan, path: Path | None, architecture_argument: Architecture | None, model: nn.Module | None
) -> nn.Module:
    """The network of the plan before its layers are put into it; for a single layer, a placeholder."""
    if model is not None:
        copied: nn.Module = copy_network(model)
        return copied
    if architecture_argument is not None:
        return architecture_argument.build()
    if plan.architecture is None:
        return nn.Identity()
    if isinstance(plan.architecture, Foreign):
        return plan.architecture.architecture(path).build(Budget.of(path) if path is not None else None)
    with torch.device("meta"):
        network: nn.Module = next(
            build for plans, build in ARCHITECTURES.values() if isinstance(plan.architecture, plans)
        )(plan.architecture)
    return network


def with_layers(network: nn.Module, plans: Mapping[str, Mapping[str, Any]]) -> nn.Module:
    """The network with the layers of these plans: convolutions become attention, other modules are replaced."""
    for name, plan in plans.items():
        layer, module = from_plan(dict(plan)), network.get_submodule(name)
        if isinstance(module, STOCK) and weight_fits(module, layer.weight, layer.transposed):
            become(module, layer)
        elif name:
            parent, _, child = name.rpartition(".")
            setattr(network.get_submodule(parent), child, layer)
        else:
            network = layer
    return network


def weight_fits(convolution: nn.Module, weight: Tensor | None, transposed: bool) -> bool:
    """Whether the weight of a layer, if it has one, has the shape of the convolution's."""
    with evaluated_weight(convolution):
        fits = weight is None or convolution.weight.shape == weight.shape
    return fits and (weight is None or bool(convolution.transposed) is transposed)


def calls_plan(attending: AttendingCalls) -> dict[str, Any]:
    """The attention of functional convolutions as plain data."""
    layers = [to_plan(layer) for layer in attention_layers(attending).values()]
    parts = {"untouched": attending.untouched, "geometries": attending.geometries}
    return {"settings": attending.settings.arguments(), **parts, "layers": layers}


def calls_of_plan(calls: Mapping[str, Any]) -> AttendingCalls:
    """The attention that `calls_plan` described; weights are passed at each call.

    Raises:
        KeyError, TypeError, UsageError: the data are not those of a plan.
    """
    attending = AttendingCalls(Settings(**calls["settings"]), calls["untouched"])
    attending.geometries = [as_tuples(geometry) for geometry in calls["geometries"]]
    for plan in calls["layers"]:
        layer = from_plan({**plan, "value": True, "output": True, "kernel_size": None})
        # Layers of functional calls have no weights of their own, and a plan without any would be refused.
        layer.value = layer.output = None
        attending.layers.append(layer)
    return attending


def as_tuples(value: Any) -> Any:
    """Nested lists as tuples."""
    return tuple(as_tuples(each) for each in value) if isinstance(value, (list, tuple)) else value


def with_tensors(network: nn.Module, plan: SavedPlan, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The network with these tensors, its parameters tied and frozen as the plan says."""
    # Names that share numbers keep sharing them: separate copies could take a multiple of the file.
    copies = dict[Any, Tensor]()
    state = {
        key: copies.setdefault((each.data_ptr(), each.dtype, each.shape, each.stride()), each)
        for key, each in tensors.items()
    }
    clones = {id(each): each.clone() for each in copies.values()}
    state = {key: clones[id(each)] for key, each in state.items()}
    for key, tensor in state.items():
        is_integer = not tensor.is_floating_point() and not key.endswith(".num_batches_tracked")
        if tensor.is_complex() or (is_integer and not isinstance(plan.architecture, Foreign)):
            raise TypeError(f"{key} is {tensor.dtype}")
    dtypes = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    if len(dtypes) == 1 and isinstance(plan.architecture, Foreign):
        network.to(dtype=next(iter(dtypes)))
    # `assign` keeps strides and dtypes of the file, which a copy into existing tensors would lose.
    network.load_state_dict(state, strict=True, assign=True)
    for first, *aliases in plan.tied:
        for name in aliases:
            parent, _, child = name.rpartition(".")
            network.get_submodule(parent)._parameters[child] = network.get_parameter(first)
    for name in plan.frozen:
        network.get_parameter(name).requires_grad_(False)
    for layer in attention_layers(network).values():
        layer.prepare()
    return network


def plan_as_data(plan: SavedPlan) -> dict[str, Any]:
    """The plan as plain data, which `recognise_plan` reads."""
    # Classes have no name in JSON, so the file names the kind.
    kind = next((kind for kind, (plans, _) in ARCHITECTURES.items() if isinstance(plan.architecture, plans)), "foreign")
    architecture_data = None if plan.architecture is None else [kind, plan.architecture]
    data = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return {"conv2attn": PLAN_FORMAT, **msgspec.to_builtins({**data, "architecture": architecture_data})}
