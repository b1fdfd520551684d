"""Saves a converted network in one file of tensors and plain data, and checks that it loads bit for bit."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.arguments import check_has_numbers, check_kind, first_weight, is_size
from conv2attn.equality.twins.bits import same_bits
from conv2attn.equality.twins.lockstep import Lockstep
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.files.atomic_files import replacing, write_torch
from conv2attn.files.chains import chain_of
from conv2attn.files.contents import contents_of
from conv2attn.files.exporting import export
from conv2attn.files.plans import (
    ARCHITECTURES,
    Foreign,
    SavedPlan,
    calls_plan,
    full_name,
    plan_as_data,
    rebuild,
    recognise_plan,
)
from conv2attn.files.registries import models_of_class
from conv2attn.layers.attention import DistilledAttention, MultiHeadSelfAttention
from conv2attn.layers.attention.plan import to_plan
from conv2attn.networks import attention_layers
from conv2attn.networks.conversion.outcomes import remembered
from conv2attn.networks.conversion.redirection import CHILD, AttendingCalls
from conv2attn.networks.copies import copy_network
from conv2attn.networks.provenance import provenance_of
from conv2attn.suffixes import EXPORTS, NETWORK_SUFFIXES, TENSOR_SUFFIXES

NOTES_OF_CONFIGURATIONS = ("architectures", "model_type", "transformers_version", "_name_or_path")
IN_PYTHON = "Save network.state_dict() with torch.save, and rebuild the network in Python."


def save(
    network: nn.Module,
    path: str | PathLike[str],
    *,
    force: bool = False,
    refuted: bool = False,
    engine: Any = None,
    example_input: Any = None,
    notes: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Writes a network to one file, loads it back and compares it; returns notes on programs.

    From .pt and .safetensors `conv2attn.load` rebuilds it bit for bit; .pt2 and .onnx run without this project.

    A network whose class is not from this project, torchvision, timm or transformers can only be rebuilt by `load(path,
    model=...)`, since a file has tensors and plain data, never code.

    Args:
        network: an attention layer, or a network with attention layers in it.
        path: .pt or .pth for a file of `torch.save`, .safetensors for one of safetensors, its plan as metadata; .pt2
            for torch.export, .onnx for ONNX.
        force: overwrite an existing file.
        refuted: mark the file as one whose certificate was refuted.
        example_input: for .pt2 and .onnx: a tensor (batch, channels, *sides), or (channels, *sides), the size of traced
            images; by default the architecture's own.
        engine, notes: for .pt2 and .onnx; see `exporting.export`.
    Raises:
        UsageError: `network` is not a network (C2A006), or an option does not apply to this suffix (C2A004).
        CheckpointError: the file exists (C2A305), the suffix is none of these (C2A308), the rebuilt network would
            differ (C2A306), or the exported program gives another output (C2A309).
    Examples:
        >>> import conv2attn, tempfile, torch
        >>> layer, image = conv2attn.convert(torch.nn.Conv2d(3, 4, 3)), torch.randn(1, 3, 6, 7)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = conv2attn.save(layer, f"{folder}/layer.pt")
        ...     again = conv2attn.load(f"{folder}/layer.pt")
        >>> torch.equal(again(image), layer(image))
        True
    """
    check_has_numbers(network)
    check_kind(path, "path", str | PathLike, "Pass the name of a file.")
    path = Path(path)
    check_network_suffix(path)
    options: dict[str, Any] = {"engine": engine, "example_input": example_input, "notes": notes}
    if path.suffix in EXPORTS:
        example = options.pop("example_input")
        if not isinstance(example, Tensor | None) and not is_size(example):
            raise UsageError("C2A006", "example_input is neither a tensor nor a size", "Pass one image.")
        size = example.shape[1:] if isinstance(example, Tensor) else example
        with replacing(path, force) as temporary:
            return export(network, temporary, path.suffix, input_size=size, **options)
    if unused := [name for name, value in options.items() if value is not None]:
        raise UsageError(
            "C2A004", f"{unused[0]} is for {' and '.join(EXPORTS)}, not for {path.suffix}", "Leave it out."
        )
    plan, state = plan_to_save(network, refuted), dict(network.state_dict())
    if isinstance(plan.architecture, Foreign):
        plan = replace(plan, architecture=rebuilding_architecture(plan, network, state))
    with replacing(path, force) as temporary:
        write_network(temporary, path.suffix, plan, state)
        check_rebuilds(network, temporary)
    return ()


def check_network_suffix(path: Path) -> None:
    """Refuses a name with an unknown suffix (C2A308)."""
    if path.suffix not in NETWORK_SUFFIXES:
        reason = f"{path} ends in {path.suffix!r}" if path.suffix else f"{path} has no suffix"
        raise CheckpointError("C2A308", reason, f"Name it with one of {', '.join(NETWORK_SUFFIXES)}.")


def write_network(path: Path, suffix: str, plan: SavedPlan, state: Mapping[str, Tensor]) -> None:
    """The plan and the tensors in the format of a suffix."""
    if suffix in TENSOR_SUFFIXES:
        write_torch(path, {**plan_as_data(plan), "state_dict": dict(state)})
    else:
        # safetensors refuses tensors that share memory or have gaps.
        tensors = {key: tensor.detach().clone().contiguous() for key, tensor in state.items()}
        save_file(
            tensors, path, metadata={"format": "pt", "conv2attn": json.dumps(plan_as_data(plan), allow_nan=False)}
        )


def plan_to_save(network: nn.Module, refuted: bool = False) -> SavedPlan:
    """The plan of `network`, stored with its tensors.

    Raises:
        CheckpointError: the network has no attention layers and no class of this project (C2A306).
    """
    layers = {name: each for name, each in attention_layers(network).items() if CHILD not in name.split(".")}
    owners = {name: each for name, each in network.named_modules() if isinstance(each, AttendingCalls)}
    calls = {name.rpartition(CHILD)[0].removesuffix("."): calls_plan(each) for name, each in owners.items()}
    distilled = {
        name: asdict(each.plan) for name, each in network.named_modules() if isinstance(each, DistilledAttention)
    }
    if not layers and not calls and not distilled and getattr(network, "plan", None) is None:
        raise CheckpointError(
            "C2A306",
            f"{type(network).__name__} has no attention layers, and is unknown to conv2attn",
            IN_PYTHON,
        )
    # A state dict stores a tied parameter once per name, and its tie is lost unless the plan names it.
    names: dict[int, list[str]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    source = provenance_of(network)
    return SavedPlan(
        architecture_of(network),
        {name: to_plan(layer) for name, layer in layers.items()},
        remembered(network),
        refuted,
        tuple(tuple(tied) for tied in names.values() if len(tied) > 1),
        tuple(name for name, parameter in network.named_parameters() if not parameter.requires_grad),
        source,
        calls,
        distilled,
    )


def rebuilding_architecture(plan: SavedPlan, network: nn.Module, state: Mapping[str, Tensor]) -> Foreign:
    """The library architecture that rebuilds `network`: the recorded one, or one with the same shapes."""
    recorded: Any = plan.architecture
    options = [recorded] if recorded.built_by_library else []
    if not recorded.name:
        options += [Foreign(recorded.kind, each.name, each.arguments) for each in models_of_class(type(network), state)]
        options += configured(network, recorded.kind)
    rebuilding = (way for way in options if not rebuilt_difference(network, replace(plan, architecture=way), state))
    return next(rebuilding, Foreign(recorded.kind) if recorded.built_by_library else recorded)


def configured(network: Any, kind: str) -> list[Foreign]:
    """The record of a network that transformers builds from its configuration."""
    if not kind.startswith("transformers.") or not hasattr(network, "config"):
        return []
    config = json.loads(network.config.to_json_string(use_diff=False))
    entries = {**config, "architectures": [type(network).__name__]}
    return [Foreign(kind, f"transformers:{network.config.model_type}", {}, entries)]


def architecture_of(network: nn.Module) -> Any:
    """The plan of a network of this project, the builder of another if known, or None for a layer."""
    plan = getattr(network, "plan", None)
    if any(isinstance(plan, plans) for plans, _ in ARCHITECTURES.values()):
        return plan
    if isinstance(network, MultiHeadSelfAttention):
        return None
    if (chain := chain_of(network)) is not None:
        return chain
    kind, source = full_name(type(network)), provenance_of(network)
    if source is None:
        return Foreign(kind)
    return Foreign(kind, source.architecture, source.arguments, source.config)


def check_rebuilds(network: nn.Module, path: Path) -> None:
    """Reads a file back and compares it with `network`; also the rebuilt network, if that needs no code.

    Raises:
        CheckpointError: the file has another network (C2A306).
    """
    # The file itself is read: the plan in memory would still have what the text of the file has lost.
    saved = recognise_plan(contents_of(path))
    assert saved is not None
    plan, tensors = saved
    state = network.state_dict()
    difference = next((k for k in state if k not in tensors or not same_bits(state[k], tensors[k])), "")
    if not difference and (not isinstance(plan.architecture, Foreign) or plan.architecture.built_by_library):
        difference = rebuilt_difference(network, plan, tensors)
    if difference:
        reason = f"a file cannot store all of {type(network).__name__}: {difference}"
        raise CheckpointError("C2A306", reason, IN_PYTHON)


def rebuilt_difference(network: nn.Module, plan: SavedPlan, tensors: Mapping[str, Tensor]) -> str:
    """The difference between `network` and the one rebuilt from its plan and tensors; empty if none."""
    try:
        # The tensors of the file replace all weights, so none needs to be drawn.
        with torch.device("meta"):
            rebuilt = rebuild(plan, tensors)
    except CheckpointError as error:
        return f"it has changed since it was built: {error.found}"
    for name, module in rebuilt.named_modules():  # a file does not store modes
        with contextlib.suppress(AttributeError):
            module.training = network.get_submodule(name).training
    if (ours := configuration_of(network)) and ours == configuration_of(rebuilt):  # equal configurations
        # Modules of transformers refer to the configuration, and a copy of it would count as a difference.
        shared = {id(rebuilt.config): network.config}
        for module in rebuilt.modules():
            vars(module).update({key: shared[id(each)] for key, each in vars(module).items() if id(each) in shared})
    like = first_weight(network)
    here = network if like is None or like.device.type == "cpu" else copy_network(network).cpu()
    walk = Lockstep(here, rebuilt, numbers=False)
    if walk.difference:
        return walk.difference
    pairs = list(walk.layers)  # settings of this project's layers are in their lines
    for name, (before, calls) in walk.calls.items():
        pairs += [(name, *pair) for pair in zip(before.layers if before else (), calls.layers, strict=True)]
    lines = ((name, *map(line_of, pair)) for name, *pair in pairs)
    return next((f"{name}: {other}, not {mine}" for name, mine, other in lines if mine != other), "")


def configuration_of(network: Any) -> dict[str, Any]:
    """The configuration of a transformers network without its bookkeeping; empty for other networks."""
    if not hasattr(getattr(network, "config", None), "to_json_string"):
        return {}
    entries = json.loads(network.config.to_json_string(use_diff=False))
    return {key: value for key, value in entries.items() if key not in NOTES_OF_CONFIGURATIONS}


def line_of(layer: nn.Module) -> str:
    """A layer in one line, with its class."""
    return f"{type(layer).__name__}({layer.extra_repr()})"
