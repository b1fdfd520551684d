"""A converted network in one file of tensors and plain data, and back, bit for bit."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.plan import to_plan
from conv2attn.checkpoints.changes import first_change
from conv2attn.checkpoints.contents import contents_of
from conv2attn.checkpoints.exporting import export
from conv2attn.checkpoints.plans import ARCHITECTURES, Foreign, SavedPlan, encoded, rebuild, recognise
from conv2attn.checkpoints.writing import replacing, write_torch
from conv2attn.errors import CheckpointError
from conv2attn.models import attention_layers
from conv2attn.models.conversion.chains import chain_of
from conv2attn.models.conversion.described_calls import describe_calls
from conv2attn.models.conversion.outcomes import remembered
from conv2attn.models.conversion.redirection import CHILD
from conv2attn.models.provenance import provenance_of

TORCH = (".pt", ".pth")
PROGRAMS = (".pt2", ".onnx")
SUFFIXES = (*TORCH, ".safetensors", *PROGRAMS)


def save(
    network: nn.Module, path: str | PathLike[str], *, force: bool = False, refuted: bool = False, **options: Any
) -> tuple[str, ...]:
    """Writes a network to one file and loads it back to see that it is the network; what was found.

    From .pt and .safetensors `conv2attn.load` rebuilds it bit for bit; .pt2 and .onnx run without this project.

    A network whose class is none of this project's, torchvision's, timm's or transformers' is rebuilt by
    `load(path, model=...)` only: a file holds tensors and plain data, never code.

    Args:
        network: an attention layer, or a network with attention layers in it.
        path: .pt or .pth for a file of `torch.save`, .safetensors for one of safetensors, its plan as metadata; .pt2
            for torch.export, .onnx for ONNX.
        force: overwrite an existing file.
        refuted: mark the file as one whose certificate was refuted.
        options: of `exporting.export`, for .pt2 and .onnx.
    Raises:
        CheckpointError: the file exists (C2A305), the suffix is none of these (C2A308), or the network is not what
            would be rebuilt from one (C2A306), or the exported program does not compute it (C2A309).
    Examples:
        >>> import conv2attn, tempfile, torch
        >>> layer, image = conv2attn.convert(torch.nn.Conv2d(3, 4, 3)), torch.randn(1, 3, 6, 7)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = conv2attn.save(layer, f"{folder}/layer.pt")
        ...     again = conv2attn.load(f"{folder}/layer.pt")
        >>> torch.equal(again(image), layer(image))
        True
    """
    path = Path(path)
    check_suffix(path)
    if path.suffix in PROGRAMS:
        with replacing(path, force) as temporary:
            return export(network, temporary, path.suffix, **options)
    plan, state = plan_to_save(network, refuted), dict(network.state_dict())
    with replacing(path, force) as temporary:
        write(temporary, path.suffix, plan, state)
        check_rebuilds(network, temporary)
    return ()


def check_suffix(path: Path) -> None:
    """Refuses a name under which nothing known is written (C2A308)."""
    if path.suffix not in SUFFIXES:
        found = f"{path} ends in {path.suffix!r}" if path.suffix else f"{path} has no suffix"
        raise CheckpointError("C2A308", found, f"Name it with one of {', '.join(SUFFIXES)}.")


def write(path: Path, suffix: str, plan: SavedPlan, state: Mapping[str, Tensor]) -> None:
    """The plan and the tensors in the format of a suffix."""
    if suffix in TORCH:
        write_torch(path, {**encoded(plan), "state_dict": dict(state)})
    else:
        tensors = {key: tensor.detach().clone().contiguous() for key, tensor in state.items()}
        save_file(tensors, path, metadata={"format": "pt", "conv2attn": json.dumps(encoded(plan), allow_nan=False)})


def plan_to_save(network: nn.Module, refuted: bool = False) -> SavedPlan:
    """The plan of `network` that a file needs beside its tensors.

    Raises:
        CheckpointError: it has no attention layers, and is of no class of this project (C2A306).
    """
    layers = {name: each for name, each in attention_layers(network).items() if CHILD not in name.split(".")}
    calls = describe_calls(network)
    if not layers and not calls and getattr(network, "plan", None) is None:
        raise CheckpointError("C2A306", f"{type(network).__name__} has no attention layers, and is not known here")
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
    )


def architecture_of(network: nn.Module) -> Any:
    """The plan of a network of this project, how another was built as far as that is known, or None for a layer."""
    plan = getattr(network, "plan", None)
    if any(isinstance(plan, plans) for plans, _ in ARCHITECTURES.values()):
        return plan
    if isinstance(network, MultiHeadSelfAttention):
        return None
    if (chain := chain_of(network)) is not None:
        return chain
    kind, source = f"{type(network).__module__}.{type(network).__qualname__}", provenance_of(network)
    if source is None:
        return Foreign(kind)
    return Foreign(kind, source.architecture, source.arguments, source.config)


def check_rebuilds(network: nn.Module, path: Path) -> None:
    """Loads a file back and compares it with `network`, whose class may be one that only the caller can build.

    Raises:
        CheckpointError: it is another network (C2A306).
    """
    try:
        held = contents_of(path)
        plan = recognise(held)
        assert plan is not None
        foreign = isinstance(plan.architecture, Foreign)
        rebuilt = rebuild(plan, held, model=network if foreign else None)
    except CheckpointError as error:
        raise CheckpointError(
            "C2A306", f"{type(network).__name__} has changed since it was built: {error.found}"
        ) from error
    modes = {name: module.training for name, module in network.named_modules()}
    for name, module in rebuilt.named_modules():
        module.training = modes.get(name, module.training)
    if different := first_change(network, rebuilt):
        raise CheckpointError("C2A306", f"a file does not hold all of {type(network).__name__}: {different}")
