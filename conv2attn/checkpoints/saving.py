"""A converted network in one file of tensors and plain data, and back, bit for bit."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, final

import torch
from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.plan import from_plan, to_plan
from conv2attn.certificates.surroundings.structure import Comparison
from conv2attn.checkpoints.writing import write_atomically
from conv2attn.errors import CheckpointError, Conv2AttnError
from conv2attn.models import attention_layers
from conv2attn.models.conversion.outcomes import Conversion, ConversionRow, remember, remembered
from conv2attn.models.zoo.classifier import AttentionClassifier, ClassifierPlan
from conv2attn.models.zoo.resnet import ResNetPlan, build

FORMAT = "conv2attn.network/2"
MISFITS = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)
ARCHITECTURES: dict[str, tuple[Any, Any]] = {
    "resnet": (ResNetPlan, build),
    "classifier": (ClassifierPlan, AttentionClassifier),
}


@final
@dataclass(frozen=True)
class SavedPlan:
    """What a file says of its network: the architecture, the attention layers in it, and how they came about."""

    architecture: ResNetPlan | ClassifierPlan | None
    layers: dict[str, dict[str, Any]]
    conversion: Conversion | None
    refuted: bool

    @property
    def name(self) -> str:
        """The architecture's name, or "layer" for a single one."""
        return self.architecture.name if self.architecture else "layer"


def save(network: nn.Module, path: str | PathLike[str], *, force: bool = False, refuted: bool = False) -> None:
    """Writes a network to one file, which `conv2attn.load` rebuilds bit for bit.

    Args:
        network: an attention layer, a ResNet or an attention classifier of ours, converted or not.
        force: overwrite an existing file.
        refuted: mark the file as one whose certificate was refuted.
    Raises:
        CheckpointError: the file exists (C2A305), or the network is not what would be rebuilt from one (C2A306).
    """
    plan = getattr(network, "plan", None)
    kind = next((kind for kind, (plans, _) in ARCHITECTURES.items() if isinstance(plan, plans)), None)
    if kind is None and not isinstance(network, MultiHeadSelfAttention):
        raise CheckpointError("C2A306", f"{type(network).__name__} is not an architecture known here")
    conversion = remembered(network)
    payload = {
        "conv2attn": FORMAT,
        "architecture": None if kind is None or plan is None else [kind, asdict(plan)],
        "layers": {name: to_plan(layer) for name, layer in attention_layers(network).items()},
        "conversion": asdict(conversion) if conversion else None,
        "refuted": refuted,
        "frozen": [name for name, parameter in network.named_parameters() if not parameter.requires_grad],
        "state_dict": dict(network.state_dict()),
    }
    check_rebuilds(network, payload)
    write_atomically(path, payload, force)


def check_rebuilds(network: nn.Module, payload: Mapping[str, Any]) -> None:
    """Raises CheckpointError (C2A306) where the network that `load` would rebuild is another than `network`."""
    try:
        plan = recognise(payload)
        assert plan is not None
        rebuilt = rebuild(plan, payload)
    except CheckpointError as error:
        raise CheckpointError(
            "C2A306", f"{type(network).__name__} has changed since it was built: {error.found}"
        ) from error
    modes = {name: module.training for name, module in network.named_modules()}
    for name, module in rebuilt.named_modules():
        module.training = modes.get(name, module.training)
    if different := Comparison(network, rebuilt, attention_layers(network).keys()).run().different:
        raise CheckpointError("C2A306", f"a file does not hold all of {type(network).__name__}: {different[0]}")


def recognise(content: Mapping[Any, Any]) -> SavedPlan | None:
    """The plan of a file that `save` wrote, or None.

    Raises:
        CheckpointError: it says that it is one, and is not (C2A303).
    """
    if content.get("conv2attn") != FORMAT:
        return None
    try:
        architecture = None
        if content["architecture"] is not None:
            kind, sizes = content["architecture"]
            lists = {key: tuple(item) for key, item in sizes.items() if isinstance(item, list)}
            blocks = sum(lists["depths"]) if "depths" in lists else sizes.get("layers", 0)
            if blocks > len(content["state_dict"]):
                raise ValueError(f"{blocks} blocks of {len(content['state_dict'])} tensors")
            architecture = ARCHITECTURES[kind][0](**{**sizes, **lists})
        told = content["conversion"]
        conversion = told and Conversion(tuple(ConversionRow(**row) for row in told["rows"]), told["functional_calls"])
        return SavedPlan(architecture, dict(content["layers"]), conversion, bool(content["refuted"]))
    except MISFITS as error:
        raise CheckpointError("C2A303", f"its {FORMAT} plan is not whole ({error})") from error


def rebuild(plan: SavedPlan, content: Mapping[Any, Any]) -> nn.Module:
    """The network of `plan` with the file's tensors: same bits, same strides, same dtypes.

    Raises:
        CheckpointError: plan and tensors do not fit each other (C2A303).
    """
    try:
        layers = {name: from_plan(arguments) for name, arguments in plan.layers.items()}
        if plan.architecture is None:
            network: nn.Module = layers[""]
        else:
            with torch.device("meta"):
                network = next(
                    build for plans, build in ARCHITECTURES.values() if isinstance(plan.architecture, plans)
                )(plan.architecture)
            for name, layer in layers.items():
                parent, _, child = name.rpartition(".")
                network.get_submodule(name)
                setattr(network.get_submodule(parent), child, layer)
        state = {key: tensor.clone() for key, tensor in content["state_dict"].items()}
        for key, tensor in state.items():
            if not tensor.is_floating_point() and not key.endswith(".num_batches_tracked"):
                raise TypeError(f"{key} is {tensor.dtype}")
        network.load_state_dict(state, strict=True, assign=True)
        for name in content.get("frozen", ()):
            network.get_parameter(name).requires_grad_(False)
    except (*MISFITS, RuntimeError, Conv2AttnError) as error:
        sentence = str(error).splitlines()[0]
        raise CheckpointError("C2A303", f"its plan and its tensors do not fit each other ({sentence})") from error
    return remember(network, plan.conversion) if plan.conversion else network
