"""Loads the network in a file, from its contents, the caller's options, and recorded assumptions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from conv2attn.arguments import check_kind, check_network
from conv2attn.errors import CheckpointError, UsageError, first_line
from conv2attn.files import kinds, plans
from conv2attn.files.architectures import Architecture, architecture, configured_architecture
from conv2attn.files.budget import Budget
from conv2attn.files.contents import PROGRAM_KINDS, Contents, contents_of
from conv2attn.files.kinds import LARGEST_FILE
from conv2attn.files.onnx_graph import OnnxGraph
from conv2attn.files.registries import hinted_names, installed_registries, matches_of, own_name
from conv2attn.files.states import (
    State,
    fill_by_transformers,
    fill_network,
    first_names,
    misfit,
    prefix_readings,
    state_in,
    with_own_classes,
)
from conv2attn.networks.copies import copy_network
from conv2attn.networks.provenance import Provenance, provenance_of, with_provenance

NAME_IT = "Pass --arch torchvision:NAME, timm:NAME, transformers:FOLDER, package.module:factory or file.py:factory."


def load(
    path: str | PathLike[str],
    arch: str | None = None,
    *,
    model: nn.Module | None = None,
    arch_args: Mapping[str, Any] | None = None,
    max_size: int = LARGEST_FILE,
    allow: Sequence[str] = (),
) -> nn.Module:
    """The network in a file, in evaluation mode, its weights as stored; nothing in the file is executed.

    A state dict does not name its network. If neither `arch` nor `model` does, the network is recognised from keys and
    shapes: a ResNet with torchvision's keys, or the only fitting model of the installed torchvision and timm. The
    assumptions are `provenance_of(network).assumed`.

    Args:
        path: a file of `torch.save` (a state dict, or a whole module of known classes), of safetensors, torch.export
            or ONNX, or a Hugging Face folder.
        arch: how to build the network; see `architecture`. A name without a colon is a check: the recognised network
            must have it.
        model: a network that the weights belong to. It is copied, and the copy gets the weights. If the file has a
            converted network, the copy's convolutions become the attention layers of the file. A program of
            torch.export or ONNX is a complete network, for which `arch` and `model` are ignored.
        arch_args: keyword arguments of the architecture.
        max_size: the most bytes that are read.
        allow: further allowed classes of modules in a whole pickled module, by full names, besides those of torch.nn,
            torchvision, timm and this project.
    Raises:
        CheckpointError: the weights fit no network, or not the one named (C2A304); or as `contents_of`.
        UsageError: `arch` names nothing, or is passed together with `model` (C2A004), or an argument has a wrong type
            (C2A006).
    Examples:
        >>> import conv2attn
        >>> from conv2attn.examples import demo_files
        >>> type(conv2attn.load(demo_files().model)).__name__
        'ResNet'
    """
    check_kind(path, "path", str | PathLike, "Pass the name of a file or folder.")
    check_kind(arch, "arch", str | None, NAME_IT)
    check_kind(arch_args, "arch_args", Mapping | None, "Pass the keyword arguments of the architecture by name.")
    check_kind(max_size, "max_size", int | float, "Pass a number of bytes.")
    check_kind(allow, "allow", Sequence, "Pass the full names of classes, such as ['package.Class'].")
    if model is not None:
        check_network(model, "model")
    allow = [allow] if isinstance(allow, str) else allow
    if arch is not None and model is not None:
        raise UsageError("C2A004", "arch and model both name the network of the weights", "Pass one.")
    if arch_args and (arch is None or ":" not in arch):
        raise UsageError("C2A004", "arguments are passed without an architecture for them", NAME_IT)
    architecture_argument = architecture(arch, arch_args) if arch is not None and ":" in arch else None
    contents = contents_of(Path(path), max_size, allow)
    if contents.network is not None and (contents.kind in PROGRAM_KINDS or (arch, model) == (None, None)):
        name = f"the {contents.kind.words}" if contents.kind in PROGRAM_KINDS else type(contents.network).__name__
        details = {"input_size": contents.network.input_size} if isinstance(contents.network, OnnxGraph) else {}
        source = contents_provenance(contents, name, contents.assumed, **details)
        return with_provenance(contents.network, source).eval()
    if saved_plan := plans.recognise_plan(contents):
        return plans.rebuild(*saved_plan, contents.path, architecture_argument, model, arch).eval()
    state = state_in(contents.network.state_dict() if contents.network is not None else contents.content)
    if state is None:
        raise CheckpointError(
            "C2A303",
            f"{path} holds a dict, but not one of names and tensors",
            kinds.SAVE_STATE,
        )
    state = replace(state, assumed=(*contents.assumed, *state.assumed))
    if model is not None:
        architecture_argument = Architecture(type(model).__name__, lambda: copy_network(model))
    # An architecture that the file selects may be as large as the file says; one that the user names is the user's
    # choice.
    budget = Budget.of(contents.path) if architecture_argument is None or architecture_argument.config else None
    if architecture_argument is None and contents.config is not None:
        architecture_argument = folder_architecture(contents)
    network = (
        fitted_network(architecture_argument, state, contents, budget)
        if architecture_argument
        else recognised_network(state, contents, arch)
    )
    return network.eval()


def folder_architecture(contents: Contents) -> Architecture:
    """The architecture named by a folder's config.json, for transformers or timm."""
    config = dict(contents.config or {})
    if "model_type" not in config and isinstance(config.get("architecture"), str):
        arguments = config.get("model_args") or {}
        if not isinstance(arguments, Mapping):
            reason = f"{contents.path}/config.json has model_args that are a {type(arguments).__name__}, not an object"
            raise CheckpointError("C2A303", reason, "Download the whole folder again.")
        return architecture(f"timm:{config['architecture']}", arguments)
    return configured_architecture(f"transformers:{contents.path}", config, contents.path)


def recognised_network(state: State, contents: Contents, arch: str | None) -> nn.Module:
    """The network with the keys and shapes of a state dict, from this project or the installed registries.

    Raises:
        CheckpointError: no network fits, several different ones fit and the file's name does not decide, or `arch` does
            not fit (C2A304).
    """
    matches, all_tried = matches_of(state, contents.path, arch)
    names = [each.name for each in matches]
    if not matches:
        registries = [f"the models of {each}" for each in installed_registries()]
        searched = " and ".join(["a ResNet with torchvision's keys", *registries])
        keys = ", ".join(repr(key)[:60] for key in list(state.tensors)[:5])
        reason = f"{contents.path} begins with the keys {keys}, and does not fit {searched}"
        raise CheckpointError("C2A304", reason, NAME_IT)
    wanted = [each for each in matches if arch in (None, own_name(each.name))]
    if not wanted:
        reason = f"{contents.path} holds {' or '.join(names)}, not {arch}"
        raise CheckpointError("C2A304", reason, f"Pass --arch {names[0]}.")
    # Variants such as resnet50 and resnetblur50 have equal keys and shapes: only the file's name distinguishes them.
    hinted = hinted_names([each.name for each in wanted], contents.path)
    chosen = wanted if len(wanted) == 1 else [each for each in wanted if each.name in hinted]
    if len(chosen) != 1:
        fit = f"the weights in {contents.path} fit {len(names)} models: {', '.join(names)}"
        raise CheckpointError("C2A304", fit, f"Choose one, such as --arch {names[0]}, or name the file after it.")
    (match,) = chosen
    others = [each for each in names if each != match.name]
    if all_tried and not others:
        explanation = "from keys and shapes alone"
    else:
        alternatives = f"{first_names(others)} {'fits' if len(others) == 1 else 'fit'} too"
        reason = f"--arch {arch}" if arch else "the file's name"
        explanation = f"by {reason} ({alternatives if others else 'no other model was tried'})"
    assumed = (*match.state.assumed, f"{match.read_as}, {explanation}")
    return fitted_network(match.build(), replace(match.state, assumed=assumed), contents, Budget.of(contents.path))


def fitted_network(base: Architecture, state: State, contents: Contents, budget: Budget | None) -> nn.Module:
    """The network of an architecture with the tensors of the file, under the prefix that fits best.

    Args:
        budget: budget of the file, if the file selects the architecture; None if the user names it.
    """
    network = base.build(budget)
    misfits = [(reading, misfit(network, reading.tensors)) for reading in prefix_readings(state)]
    # Prefixes such as `module.` come from wrappers of training, and the network may have one of its own.
    reading, difference = min(misfits, key=lambda each: (not each[1].fits, each[1].size))
    assumed: tuple[str, ...] = ()
    if not difference.fits and (adapted := with_own_classes(base, difference)):
        network = adapted.build(budget and Budget.of(contents.path))
        assumed = (
            f"{base.classes}={adapted.arguments[str(base.classes)]}, from the shape of {difference.shapes[0][0]}",
        )
        base = adapted
    if base.config is not None and not misfit(network, reading.tensors).fits:
        network, assumptions = fill_by_transformers(network, state.tensors, str(contents.path), base.name)
        assumed, reading = (*assumed, *assumptions), state
    else:
        assumed = (*assumed, *fill_network(network, reading, str(contents.path), base.name))
    try:
        description = base.describe(network)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        reason = f"{contents.path}: its configuration does not describe its images ({first_line(error)})"
        raise CheckpointError("C2A303", reason, "Download the whole folder again.") from error
    source = {"arguments": base.arguments, "config": base.config, **description}
    return with_provenance(network, contents_provenance(contents, base.name, (*reading.assumed, *assumed), **source))


def contents_provenance(contents: Contents, name: str, assumed: tuple[str, ...], **details: Any) -> Provenance:
    """The provenance of a network built from these contents."""
    words = (
        contents.kind.words
        if contents.kind is kinds.FOLDER or contents.network
        else f"state dict in a {contents.kind.words}"
    )
    return Provenance(str(contents.path), words, name, assumed, contents.sha256, **details)


__all__ = ["load", "provenance_of"]
