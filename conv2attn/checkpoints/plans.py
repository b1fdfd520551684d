"""The plan of a converted network, stored beside its tensors, and the network rebuilt from both."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.plan import from_plan
from conv2attn.checkpoints.architectures import Architecture, architecture, first_line, of_config
from conv2attn.checkpoints.contents import Contents
from conv2attn.checkpoints.kinds import Kind
from conv2attn.errors import CheckpointError, Conv2AttnError
from conv2attn.models.conversion.assembly import substituted
from conv2attn.models.conversion.chains import ChainPlan, build_chain
from conv2attn.models.conversion.described_calls import attend_to_calls
from conv2attn.models.conversion.outcomes import Conversion, ConversionRow, remember
from conv2attn.models.provenance import Provenance, with_provenance
from conv2attn.models.zoo.classifier import AttentionClassifier, ClassifierPlan
from conv2attn.models.zoo.resnet import ResNetPlan, build

FORMAT = "conv2attn.network/2"
MISFITS = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)
ARCHITECTURES: dict[str, tuple[Any, Any]] = {
    "resnet": (ResNetPlan, build),
    "classifier": (ClassifierPlan, AttentionClassifier),
    "chain": (ChainPlan, build_chain),
}
REGISTRIES = ("torchvision:", "timm:")
GIVE_MODEL = "Pass that network with load(path, model=...), or --arch file.py:factory."


@final
@dataclass(frozen=True)
class Foreign:
    """A network that is not of this project: how it is built, or only its class where that is not known.

    `name` is an `--arch`; `kind` the class; `config` a configuration of transformers.
    """

    kind: str
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] | None = None

    def architecture(self) -> Architecture:
        """The architecture, if it is built by a library and no code has to be run because a file names it.

        Raises:
            CheckpointError: it is not (C2A304).
        """
        if self.config is not None:
            return of_config(self.name, self.config)
        plain = all(isinstance(each, (int, float)) and "pretrained" not in key for key, each in self.arguments.items())
        if self.name.startswith(REGISTRIES) and plain:
            return architecture(self.name, self.arguments)
        built = f", built by {self.name}, which is code, and no file makes it run" if self.name else ""
        remedy = (
            f"Pass --arch {self.name}, or the network with load(path, model=...)." if ":" in self.name else GIVE_MODEL
        )
        raise CheckpointError("C2A304", f"the converted network is a {self.kind}{built}", remedy)


@final
@dataclass(frozen=True)
class SavedPlan:
    """The plan of a stored network: the architecture, the attention layers in it, and how they came about."""

    architecture: ResNetPlan | ClassifierPlan | ChainPlan | Foreign | None
    layers: dict[str, dict[str, Any]]
    conversion: Conversion | None
    refuted: bool
    tied: tuple[tuple[str, ...], ...] = ()
    frozen: tuple[str, ...] = ()
    source: Provenance | None = None
    calls: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The architecture's name, or "layer" for a single one."""
        if isinstance(self.architecture, Foreign):
            return self.architecture.name or self.architecture.kind
        return self.architecture.name if self.architecture else "layer"


def recognise(held: Contents) -> SavedPlan | None:
    """The plan of a file that `save` wrote, or None.

    Raises:
        CheckpointError: it says that it is one, and is not (C2A303).
    """
    content: Mapping[Any, Any] = held.content
    if held.kind is Kind.SAFETENSORS and "conv2attn" in held.metadata:
        content = metadata_of(held)
    if content.get("conv2attn") != FORMAT:
        return None
    try:
        return plan_of(content, len(tensors_of(held)))
    except MISFITS as error:
        raise CheckpointError("C2A303", f"its {FORMAT} plan is not whole ({error})") from error


def metadata_of(held: Contents) -> Mapping[str, Any]:
    """The plan in the metadata of a safetensors file."""
    try:
        found = json.loads(held.metadata["conv2attn"])
    except (ValueError, RecursionError) as error:
        raise CheckpointError("C2A303", f"its {FORMAT} plan is not JSON ({error})") from error
    return found if isinstance(found, dict) else {}


def tensors_of(held: Contents) -> dict[str, Tensor]:
    """The state dict of a file that `save` wrote."""
    found = held.content if held.kind is Kind.SAFETENSORS else held.content["state_dict"]
    if not all(isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in found.items()):
        raise TypeError("not all of its state dict is a tensor with a name")
    return dict(found)


def plan_of(content: Mapping[Any, Any], tensors: int) -> SavedPlan:
    """The plan in a dict; one of more blocks than tensors is refused before anything is built."""
    found: Any = None
    if content["architecture"] is not None:
        kind, sizes = content["architecture"]
        lists = {key: tuple(item) for key, item in sizes.items() if isinstance(item, list)}
        blocks = sum(lists["depths"]) if "depths" in lists else sizes.get("layers", 0)
        if blocks > tensors:
            raise ValueError(f"{blocks} blocks of {tensors} tensors")
        found = Foreign(**sizes) if kind == "foreign" else ARCHITECTURES[kind][0](**{**sizes, **lists})
    made = content["conversion"]
    conversion = made and Conversion(tuple(ConversionRow(**row) for row in made["rows"]), made["functional_calls"])
    tied = tuple(tuple(map(str, names)) for names in content.get("tied", ()))
    source = content.get("source")
    if source is not None:
        told: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in source.items()}
        source = Provenance(**told)
    layers, frozen = dict(content["layers"]), tuple(content.get("frozen", ()))
    return SavedPlan(
        found, layers, conversion, bool(content["refuted"]), tied, frozen, source, dict(content.get("calls", {}))
    )


def rebuild(
    plan: SavedPlan,
    held: Contents,
    built: Architecture | None = None,
    model: nn.Module | None = None,
    arch: str | None = None,
) -> nn.Module:
    """The network of `plan` with the file's tensors: same bits, same strides, same dtypes.

    Args:
        built, model: the architecture, or the network, into which the layers go; else that of the plan.
        arch: the name that the plan must have, unless it is built.
    Raises:
        CheckpointError: plan and tensors do not fit each other (C2A303), or the network is not known (C2A304).
    """
    if arch is not None and built is None and arch != plan.name:
        raise CheckpointError("C2A304", f"{held.path} holds {plan.name}, not {arch}", f"Pass --arch {plan.name}.")
    try:
        layers = {name: from_plan(arguments) for name, arguments in plan.layers.items()}
        network = attend_to_calls(skeleton(plan, layers, built, model), plan.calls)
        network = filled(network, plan, tensors_of(held))
    except (*MISFITS, RuntimeError, Conv2AttnError) as error:
        if isinstance(error, CheckpointError):
            raise
        told = f"its plan and its tensors do not fit each other ({first_line(error)})"
        raise CheckpointError("C2A303", told) from error
    if plan.source is not None:
        with_provenance(network, plan.source)
    return remember(network, plan.conversion) if plan.conversion else network


def skeleton(
    plan: SavedPlan,
    layers: Mapping[str, MultiHeadSelfAttention],
    built: Architecture | None,
    model: nn.Module | None,
) -> nn.Module:
    """The network without its weights, the attention layers in their places."""
    if model is not None:
        return substituted(deepcopy(model), layers) if "" not in layers else layers[""]
    if built is not None:
        return substituted(built.build(), layers)
    if plan.architecture is None:
        return layers[""]
    if isinstance(plan.architecture, Foreign):
        return substituted(plan.architecture.architecture().build(), layers)
    with torch.device("meta"):
        network: nn.Module = next(
            build for plans, build in ARCHITECTURES.values() if isinstance(plan.architecture, plans)
        )(plan.architecture)
    for name, layer in layers.items():
        parent, _, child = name.rpartition(".")
        network.get_submodule(name)
        setattr(network.get_submodule(parent), child, layer)
    return network


def filled(network: nn.Module, plan: SavedPlan, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The network with these tensors, its tied parameters tied again, and those frozen that were."""
    state = {key: tensor.clone() for key, tensor in tensors.items()}
    for key, tensor in state.items():
        whole = not tensor.is_floating_point() and not key.endswith(".num_batches_tracked")
        if tensor.is_complex() or (whole and not isinstance(plan.architecture, Foreign)):
            raise TypeError(f"{key} is {tensor.dtype}")
    dtypes = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    if len(dtypes) == 1 and isinstance(plan.architecture, Foreign):
        network.to(dtype=next(iter(dtypes)))
    network.load_state_dict(state, strict=True, assign=True)
    for first, *others in plan.tied:
        for name in others:
            parent, _, child = name.rpartition(".")
            network.get_submodule(parent)._parameters[child] = network.get_parameter(first)
    for name in plan.frozen:
        network.get_parameter(name).requires_grad_(False)
    return network


def encoded(plan: SavedPlan) -> dict[str, Any]:
    """The plan as plain data, which `recognise` reads."""
    kind = next((kind for kind, (plans, _) in ARCHITECTURES.items() if isinstance(plan.architecture, plans)), "foreign")
    return {
        "conv2attn": FORMAT,
        "architecture": None if plan.architecture is None else [kind, asdict(plan.architecture)],
        "layers": plan.layers,
        "conversion": asdict(plan.conversion) if plan.conversion else None,
        "refuted": plan.refuted,
        "frozen": list(plan.frozen),
        "tied": [list(names) for names in plan.tied],
        "source": asdict(plan.source) if plan.source else None,
        "calls": plan.calls,
    }
