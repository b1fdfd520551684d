"""The work of `heads` and `recover`, between their options and the report."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from torch import nn

from conv2attn import plots
from conv2attn.arguments import Patterns
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints.options import Reading
from conv2attn.checkpoints.writing import write_atomically
from conv2attn.cli.span_files import arrays, inputs_for, network_in, numbers, told_of
from conv2attn.errors import UsageError
from conv2attn.models import attention_layers
from conv2attn.models.provenance import assumed_of
from conv2attn.report.progress import progress
from conv2attn.span import recover
from conv2attn.span.facts import Compared, HeadsComparison, HeadsReport
from conv2attn.span.facts_document import numbers_of
from conv2attn.span.measuring import heads
from conv2attn.span.recover import Recovered, nearest_in

RECOVERED = "conv2attn.recovered/1"


def facts_in(
    path: str,
    grid: str | None,
    inputs: str | None,
    input_size: str | None,
    reading: Reading,
    only: Patterns = (),
    extra_tokens: int | None = None,
    plot: str | None = None,
    curves: str | None = None,
    force: bool = False,
) -> HeadsReport:
    """The facts of all attention in a file: of arrays, of a network on inputs, or of positions alone; with pictures.

    Raises:
        UsageError: inputs beside an array (C2A004), or names that fit no layer (C2A008); nothing attends (C2A501).
    """
    found, network = facts_of_file(path, grid, inputs, input_size, reading, only, extra_tokens)
    if plot and any(layer.heads for layer in found.layers):
        plots.write(plots.draw_facts(found), plot, force)
    if curves:
        plots.write(plots.draw_curves([found]), curves, force)
    return replace(found, read_as=assumed_of(network))


def facts_of_file(
    path: str,
    grid: str | None,
    inputs: str | None,
    input_size: str | None,
    reading: Reading,
    only: Patterns,
    extra_tokens: int | None,
) -> tuple[HeadsReport, nn.Module | None]:
    """The facts of a file, and its network, if it is one."""
    sides = numbers(grid, "--grid") if grid else None
    network = network_in(path, inputs, reading)
    asked: dict[str, Any] = {"grid": sides, "extra_tokens": extra_tokens, "only": only}
    if network is None:
        with progress() as shown:
            return heads(arrays(path), progress=shown, **asked), None
    if inputs is None:
        with progress() as shown:
            return heads(network, progress=shown, **asked), network
    images, _ = inputs_for(network, inputs, input_size, reading)
    with told_of(network, images), progress() as shown:
        return heads(network, images, progress=shown, **asked), network


def compared_in(
    path: str, others: Sequence[str], *, curves: str | None, force: bool, reading: Reading, **given: Any
) -> HeadsComparison:
    """The facts of several files, side by side; their curves over the layers in one picture.

    Raises:
        UsageError: as `facts_in`.
    """
    reports = [facts_in(each, reading=reading, **given) for each in (path, *others)]
    if curves:
        plots.write(plots.draw_curves(reports), curves, force)
    return HeadsComparison(tuple(Compared(*each) for each in numbers_of(reports)))


def recovered_in(
    path: str,
    output: str,
    *,
    kernel_size: int,
    grid: str | None,
    inputs: str | None,
    input_size: str | None,
    reading: Reading,
    only: Patterns = (),
    force: bool = False,
) -> HeadsReport:
    """The facts of a file, whose nearest convolutions of one size are written to `output`, a dictionary by layer.

    Layers of this project that read no content are written as the convolution that `recover` finds. Nothing is written
    where no layer has one.

    Raises:
        UsageError: no layer's values and outputs could be read (C2A505), or a size without a convolution (C2A001).
        CheckpointError: the file cannot be written.
    """
    report, network = facts_of_file(path, grid, inputs, input_size, reading, only, None)
    own = {} if network is None else attention_layers(network)
    found, written = nearest_in(report, kernel_size), {}
    for layer in report.layers:
        ours, fact = own.get(layer.name, own.get("")), layer.convolution(kernel_size)
        if isinstance(ours, MultiHeadSelfAttention) and not ours.has_content:
            padding = ours.image_padding
            sides = [k - b - a for k, b, a in zip(layer.grid, padding.before, padding.after, strict=True)]
            written[layer.name] = in_words(recover(ours, kernel_size=kernel_size, grid=sides))
        elif fact is not None:
            written[layer.name] = in_words(found[layer.name]) | {"error": fact.error}
    if not written:
        raise UsageError(
            "C2A505",
            f"no layer of {path} has values and outputs that are read",
            "Ask what its attention does: conv2attn heads FILE.",
        )
    write_atomically(output, {"format": RECOVERED, "layers": written}, force)
    return replace(report, read_as=assumed_of(network))


def in_words(found: Recovered) -> dict[str, Any]:
    """A convolution as a module in words, and its tensors."""
    parts = list(found.module) if isinstance(found.module, nn.Sequential) else []
    words = f"Sequential({', '.join(map(repr, parts))})" if parts else repr(found.module)
    tensors = {name: tensor.detach().clone() for name, tensor in found.module.state_dict().items()}
    return {"module": words, "state": tensors, "share": found.share}
