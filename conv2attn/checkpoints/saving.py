"""A converted network in one file of tensors and plain data, and back, bit for bit."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, final

import torch
from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.plan import from_plan, to_plan
from conv2attn.checkpoints.writing import write_atomically
from conv2attn.errors import CheckpointError, Conv2AttnError
from conv2attn.models import attention_layers, resnet
from conv2attn.models.conversion import Conversion, ConversionRow, conversion_of, with_conversion

FORMAT = "conv2attn.network/1"


@final
@dataclass(frozen=True)
class SavedPlan:
    """What a file says of its network: the architecture, the attention layers in it, and how they came about."""

    architecture: resnet.ResNetPlan | None
    layers: dict[str, dict[str, Any]]
    conversion: Conversion
    refuted: bool

    @property
    def name(self) -> str:
        """The architecture's name, or "layer" for a single one."""
        return self.architecture.name if self.architecture else "layer"


def save(network: nn.Module, path: str | PathLike[str], *, force: bool = False, refuted: bool = False) -> None:
    """Writes a converted network to one file, which `conv2attn.load` rebuilds bit for bit.

    Args:
        network: made by `convert` from a layer, or from an architecture that `load` recognises.
        force: overwrite an existing file.
        refuted: mark the file as one whose certificate was refuted.
    Raises:
        CheckpointError: the file exists (C2A305), or the architecture is not one that can be rebuilt (C2A306).
        UsageError: the network was not made by `convert` (C2A001).
    """
    plan, conversion = getattr(network, "plan", None), conversion_of(network)
    if not isinstance(plan, resnet.ResNetPlan) and not isinstance(network, MultiHeadSelfAttention):
        raise CheckpointError("C2A306", f"{type(network).__name__} is not an architecture known here")
    payload = {
        "conv2attn": FORMAT,
        "architecture": asdict(plan) if isinstance(plan, resnet.ResNetPlan) else None,
        "layers": {name: to_plan(layer) for name, layer in attention_layers(network).items()},
        "conversion": {
            "rows": [asdict(row) for row in conversion.rows],
            "functional_calls": conversion.functional_calls,
        },
        "refuted": refuted,
        "state_dict": dict(network.state_dict()),
    }
    write_atomically(path, payload, force)


def recognise(content: Mapping[Any, Any]) -> SavedPlan | None:
    """The plan of a file that `save` wrote, or None.

    Raises:
        CheckpointError: it says that it is one, and is not (C2A303).
    """
    if content.get("conv2attn") != FORMAT:
        return None
    try:
        plan = content["architecture"]
        architecture = resnet.ResNetPlan(**{**plan, "depths": tuple(plan["depths"])}) if plan is not None else None
        rows = tuple(ConversionRow(**row) for row in content["conversion"]["rows"])
        conversion = Conversion(rows, content["conversion"]["functional_calls"])
        return SavedPlan(architecture, dict(content["layers"]), conversion, bool(content["refuted"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
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
                network = resnet.build(plan.architecture)
            for name, layer in layers.items():
                parent, _, child = name.rpartition(".")
                network.get_submodule(name)
                setattr(network.get_submodule(parent), child, layer)
        state = {key: tensor.clone() for key, tensor in content["state_dict"].items()}
        network.load_state_dict(state, strict=True, assign=True)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, Conv2AttnError) as error:
        sentence = str(error).splitlines()[0]
        raise CheckpointError("C2A303", f"its plan and its tensors do not fit each other ({sentence})") from error
    return with_conversion(network, plan.conversion)
