"""What `check-span` does, between a file and the report: our own networks, arrays, and models that the user builds."""

import importlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from conv2attn import plots
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints import load
from conv2attn.checkpoints.images import read_images
from conv2attn.checkpoints.reading import read_tensors
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.models import attention_layers
from conv2attn.models.capture import capture
from conv2attn.span import SpanReport, check_span

ARRAYS = (".npz", ".npy", ".safetensors")


def check_file(
    path: str,
    *,
    kernel_size: str,
    dilation: int,
    offsets: str | None,
    grid: str | None,
    inputs: str | None,
    arch: str | None,
    plot: str | None = None,
    force: bool = False,
    **limits: Any,
) -> SpanReport:
    """The report on all attention in a file, and a picture of it in the file `plot`, if any.

    Raises:
        UsageError: content-dependent attention without inputs, an option that cannot be read, or no matplotlib for a
            picture (C2A001).
        CheckpointError: the file cannot be read, or the picture cannot be written.
    """
    if plot:
        plots.check_drawable(plot)
    sizes = numbers(kernel_size, "--kernel-size")
    asked = {
        "kernel_size": sizes[0] if len(sizes) == 1 else sizes,
        "dilation": dilation,
        "offsets": None if offsets is None else parse_offsets(offsets),
        **limits,
    }
    parts = attention_in(path, numbers(grid, "--grid") if grid else None, inputs, arch)
    ours = [name for part, _ in parts for name, given in part.items() if isinstance(given, MultiHeadSelfAttention)]
    if limits.get("extra_tokens", 0) and ours:
        raise UsageError("C2A001", f"{ours[0]} attends to pixels alone", "Leave out --extra-tokens.")
    reports = [check_span(part, grid=sides, **asked) for part, sides in parts]
    if plot:
        layers = [
            plots.heads_around(row.name, part[row.name], sides or row.grid, limits.get("extra_tokens", 0))
            for report, (part, sides) in zip(reports, parts, strict=True)
            for row in report.rows
        ]
        plots.write(plots.draw(layers), plot, force)
    return SpanReport(tuple(row for report in reports for row in report.rows), reports[0].asked)


def attention_in(
    path: str, sides: tuple[int, ...] | None, inputs: str | None, arch: str | None
) -> list[tuple[dict[str, Any], tuple[int, ...] | None]]:
    """All attention in a file, by name, in parts that share a grid, and the sides of that grid where they are known."""
    if Path(path).suffix in ARRAYS:
        return [(arrays(path), sides)]
    images = read_images(inputs) if inputs else None
    network = built(arch, path) if arch else load(path)
    layers = attention_layers(network)
    if not layers or any(layer.has_content for layer in layers.values()):
        if images is None:
            raise UsageError("C2A001", f"attention in {path} depends on the content", "Pass images with --inputs.")
        return [(dict(capture(network, images)), sides)]
    given = [sides] * len(layers) if sides else grids(network, layers, images)
    return [({name or "(root)": layer}, inside) for (name, layer), inside in zip(layers.items(), given, strict=True)]


def grids(
    network: nn.Module, layers: Mapping[str, MultiHeadSelfAttention], images: Tensor | None
) -> list[tuple[int, ...]]:
    """Sides of the image that each layer is given when the network runs on `images`, or on its own input size.

    Raises:
        UsageError: neither says how large an image the network takes (C2A001).
    """
    size: tuple[int, ...] | None = getattr(getattr(network, "plan", None), "input_size", None)
    like = next(network.parameters())
    if images is None:
        if size is None:
            raise UsageError("C2A001", "nothing says how large the grid is", "Pass --grid.")
        images = torch.zeros(1, *size)
    seen: dict[nn.Module, tuple[int, ...]] = {}
    handles = [
        layer.register_forward_pre_hook(lambda layer, args: seen.setdefault(layer, tuple(args[0].shape[2:])) and None)
        for layer in layers.values()
    ]
    with torch.no_grad():
        network(images[:1].to(like))
    for handle in handles:
        handle.remove()
    return [seen[layer] for layer in layers.values()]


def arrays(path: str) -> dict[str, Any]:
    """Attention arrays (heads, queries, keys), (layers or images, heads, queries, keys), by name.

    A four-axis array in a file with one array is split into layers.

    Raises:
        CheckpointError: missing, or not such a file (C2A301, C2A303).
    """
    if not Path(path).is_file():
        raise CheckpointError("C2A301", f"{path} does not exist")
    try:
        if Path(path).suffix == ".safetensors":
            held: dict[str, Any] = dict(load_file(path))
        else:
            stored = np.load(path, allow_pickle=False)
            held = dict(stored) if isinstance(stored, np.lib.npyio.NpzFile) else {"attention": stored}
    except (OSError, ValueError, ImportError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
        raise CheckpointError("C2A303", f"{path} does not hold arrays ({str(error).splitlines()[0]})") from error
    if len(held) == 1 and next(iter(held.values())).ndim == 4:
        (name, whole), *_ = held.items()
        return {f"{name}[{index}]": layer for index, layer in enumerate(whole)}
    return held


def built(arch: str, path: str) -> nn.Module:
    """The model that `arch` names, with the state dict in `path`.

    Args:
        arch: "transformers:FOLDER", "timm:NAME", or "package.module:factory", which is called without arguments.
    Raises:
        UsageError: it names nothing that can be built here (C2A001).
        CheckpointError: the state dict is not the model's (C2A304).
    """
    kind, _, name = arch.partition(":")
    try:
        if kind == "transformers":
            model = importlib.import_module("transformers").AutoModel.from_pretrained(name, local_files_only=True)
            return model.eval()
        if kind == "timm":
            model = importlib.import_module("timm").create_model(name, pretrained=False)
        else:
            model = getattr(importlib.import_module(kind), name)()
    except (ImportError, AttributeError, OSError, ValueError, RuntimeError) as error:
        raise UsageError("C2A001", f"--arch {arch} builds nothing here ({str(error).splitlines()[0]})") from error
    try:
        model.load_state_dict(read_tensors(path))
    except RuntimeError as error:
        raise CheckpointError("C2A304", f"{path} does not fit {arch} ({str(error).splitlines()[0]})") from error
    return model.eval()


def numbers(text: str, option: str) -> tuple[int, ...]:
    """`14x14` as numbers; one number stands alone.

    Raises:
        UsageError: they are not positive integers with an x between them (C2A001).
    """
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError("C2A001", f"{option} {text} is not positive integers with an x between them")
    return tuple(int(part) for part in parts)


def parse_offsets(text: str) -> list[tuple[int, ...]]:
    """`0,-1 0,0 0,1` as offsets.

    Raises:
        UsageError: it is not integers, separated by commas within an offset and by blanks between them (C2A001).
    """
    try:
        found = [tuple(int(number) for number in offset.split(",")) for offset in text.split()]
    except ValueError:
        found = []
    if not found:
        raise UsageError("C2A001", f"--offsets {text!r} is not offsets", "Write '0,-1 0,0 0,1', say.")
    return found
