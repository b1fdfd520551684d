"""The work of `heads` and `recover`, between their options and the report."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import torch
from torch import nn

from conv2attn import plots
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints.options import Reading
from conv2attn.checkpoints.writing import write_atomically
from conv2attn.cli.progress import progress
from conv2attn.cli.span_checks import numbers
from conv2attn.cli.span_files import arrays, attends, network_in, positions_in, told_of
from conv2attn.errors import UsageError
from conv2attn.models import attention_layers
from conv2attn.models.provenance import assumed_of
from conv2attn.span import recover
from conv2attn.span.comparison import HeadsComparison
from conv2attn.span.facts import HeadsReport, LayerFacts, heads
from conv2attn.span.measures import NearestConvolution

RECOVERED = "conv2attn.recovered/1"


def facts_in(
    path: str,
    grid: str | None,
    inputs: str | None,
    reading: Reading,
    only: Sequence[str] = (),
    extra_tokens: int | None = None,
    plot: str | None = None,
    curves: str | None = None,
    force: bool = False,
) -> HeadsReport:
    """The facts of all attention in a file: of arrays, of a network on inputs, or of positions alone; with pictures.

    Raises:
        UsageError: inputs beside an array (C2A004), or names that fit no layer (C2A008); nothing attends (C2A501).
    """
    for picture in filter(None, (plot, curves)):
        plots.check_drawable(picture)
    sides = numbers(grid, "--grid") if grid else None
    network = network_in(path, inputs, reading)
    if network is None:
        with progress() as shown:
            found = heads(arrays(path), grid=sides, extra_tokens=extra_tokens, progress=shown)
    else:
        found = facts_of_network(network, sides, inputs, reading, extra_tokens)
    kept = tuple(layer for layer in found.layers if not only or any(fnmatchcase(layer.name, each) for each in only))
    if not kept:
        raise UsageError("C2A008", f"--only {' '.join(only)} fits no layer of {path}")
    if plot and any(layer.mass is not None for layer in kept):
        plots.write(plots.draw_facts(replace(found, layers=kept)), plot, force)
    if curves:
        plots.write(plots.draw_curves([replace(found, layers=kept)]), curves, force)
    return replace(found, layers=kept, read_as=assumed_of(network))


def compared_in(path: str, other: str, *, curves: str | None, force: bool, **given: Any) -> HeadsComparison:
    """The facts of two files, side by side; their curves over the layers in one picture.

    Raises:
        UsageError: as `facts_in`.
    """
    if curves:
        plots.check_drawable(curves)
    both = [facts_in(each, **given) for each in (path, other)]
    if curves:
        plots.write(plots.draw_curves(both), curves, force)
    return HeadsComparison(*both)


def facts_of_network(
    network: nn.Module, sides: Any, inputs: str | None, reading: Reading, extra_tokens: int | None
) -> HeadsReport:
    """The facts of a network, on inputs where there are some."""
    own = attention_layers(network)
    if inputs is not None and not (own and not any(layer.has_content for layer in own.values())):
        images, _ = reading.images(inputs, network)
        with told_of(network, images), progress() as shown:
            return heads(network, images, grid=sides, extra_tokens=extra_tokens, progress=shown)
    if own:
        parts = positions_in(network, sides)
        reports = [heads(part.layers, grid=part.sides) for part in parts]
        return HeadsReport(tuple(layer for report in reports for layer in report.layers))
    if not attends(network):
        found = f"{type(network).__name__} has no layer that is known to attend"
        raise UsageError("C2A501", found, "Pass --inputs if it attends nevertheless.")
    with progress() as shown:
        return heads(network, grid=sides, progress=shown)


def recovered_in(
    path: str,
    output: str,
    *,
    kernel_size: int,
    grid: str | None,
    inputs: str | None,
    reading: Reading,
    only: Sequence[str] = (),
    force: bool = False,
) -> HeadsReport:
    """The facts of a file, whose nearest convolutions of one size are written to `output`, a dictionary by layer.

    Layers of this project that read no content are written as the convolution that `recover` finds. Nothing is written
    where no layer has one.

    Raises:
        UsageError: no layer's values and outputs could be read (C2A505), or a size without a convolution (C2A001).
        CheckpointError: the file cannot be written.
    """
    report = facts_in(path, grid, inputs, reading, only)
    network = network_in(path, inputs, reading)
    own = {} if network is None else attention_layers(network)
    held: dict[str, Any] = {}
    for layer in report.layers:
        ours = own.get("" if layer.name == "(root)" else layer.name)
        found = next((each for each in layer.convolutions if each.size == kernel_size), None)
        if isinstance(ours, MultiHeadSelfAttention) and not ours.has_content:
            held[layer.name] = of_own(ours, kernel_size, layer.grid)
        elif found is not None:
            held[layer.name] = of_layer(layer, found)
    if not held:
        raise UsageError("C2A505", f"no layer of {path} has values and outputs that are read")
    write_atomically(output, {"format": RECOVERED, "layers": held}, force)
    return report


def of_own(layer: MultiHeadSelfAttention, kernel_size: int, keys: tuple[int, ...]) -> dict[str, Any]:
    """The convolution that a layer of this project is or is nearest to, as a module in words and its tensors."""
    padding = layer.padding
    sides = tuple(k - b - a for k, b, a in zip(keys, padding.before, padding.after, strict=True))
    found = recover(layer, kernel_size=kernel_size, grid=sides)
    tensors = {name: tensor.detach().clone() for name, tensor in found.module.state_dict().items()}
    return {"module": repr(found.module), "state": tensors, "share": found.share}


def of_layer(layer: LayerFacts, found: NearestConvolution) -> dict[str, Any]:
    """The nearest convolution of a layer, zero-padded; of pooled keys, each output serves its cell."""
    axes, cell = len(layer.grid), layer.queries[0] // layer.grid[0]
    stride = 1 if cell else -(-layer.grid[0] // layer.queries[0])
    weight = torch.from_numpy(found.taps).permute(1, 2, 0).unflatten(-1, (found.size,) * axes).float()
    state = {"weight": weight.contiguous()}
    if layer.bias is not None:
        state["bias"] = torch.from_numpy(layer.bias).float()
    d_out, d_in = weight.shape[:2]
    strided = f", stride={stride}" if stride > 1 else ""
    module = f"Conv{axes}d({d_in}, {d_out}, kernel_size={found.size}, padding={found.size // 2}{strided})"
    if cell > 1:
        module = f"Sequential({module}, Upsample(scale_factor={cell}))"
        state = {f"0.{name}": tensor for name, tensor in state.items()}
    assert prod(weight.shape[2:]) == len(found.offsets)
    return {"module": module, "state": state, "share": found.share, "error": found.error}
