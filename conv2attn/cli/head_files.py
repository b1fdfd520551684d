"""The work of `heads`, `recover` and `explore`, between the files of networks or arrays and what is written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from conv2attn import plots
from conv2attn.arguments import Patterns, Selection
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints.arrays import arrays_in, holds_attention
from conv2attn.checkpoints.atomic_files import write_atomically, write_text_atomically
from conv2attn.checkpoints.examples import example_image
from conv2attn.checkpoints.reading_options import Reading
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.explore import explore, moving_picture
from conv2attn.explore.exploring import EXAMPLE, as_attention, size_for
from conv2attn.models import attention_layers
from conv2attn.models.provenance import assumed_of, published_size
from conv2attn.report.progress import progress
from conv2attn.span import recover
from conv2attn.span.facts import Compared, HeadsComparison, HeadsReport
from conv2attn.span.facts_document import numbers_of
from conv2attn.span.measuring import heads
from conv2attn.span.recover import Recovered, nearest_in


def network_in(path: str, inputs: str | None, reading: Reading) -> nn.Module | None:
    """The network in a file; None where it holds attention itself. With an architecture, it holds a state dict.

    Raises:
        UsageError: inputs are given for attention itself (C2A004).
    """
    if reading.arch is not None or not holds_attention(path):
        return reading.load(path)
    if inputs:
        raise UsageError("C2A004", f"--inputs runs a network, and {path} holds attention itself", "Leave it out.")
    return None


def inputs_for(network: nn.Module, inputs: str, size: str | None, reading: Reading) -> tuple[Tensor, str]:
    """What a network takes, from a file: ids of words in an array of integers of two axes, otherwise images.

    Raises:
        CheckpointError: the images cannot be read, or have numbers that are not finite (C2A303).
    """
    if inputs.endswith(".npy"):
        array = next(iter(arrays_in(Path(inputs)).values()), None)
        if isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.dtype != np.uint8 and array.ndim == 2:
            ids = torch.from_numpy(np.array(array, dtype=np.int64))
            return ids, f"{len(ids)} sequences of {ids.shape[1]} ids"
    images, told = reading.images(inputs, network, numbers(size, "--input-size", "3x224x224") if size else None)
    if not bool(images.isfinite().all()):
        raise CheckpointError("C2A303", f"{inputs} holds numbers that are not finite", "Pass images.")
    return images, told


@contextmanager
def told_of(network: nn.Module, images: Any) -> Iterator[None]:
    """Says of images on which a network does not run what to pass on the command line.

    Raises:
        UsageError: it does not (C2A009).
    """
    try:
        yield
    except UsageError as error:
        if error.code != "C2A009" or images is None:
            raise
        remedy = "Pass --inputs that it takes, or their size with --input-size."
        raise UsageError("C2A009", error.found, remedy) from error


def arrays(path: str) -> dict[str, Any]:
    """Attention arrays (heads, queries, keys), (layers or images, heads, queries, keys), by name.

    A four-axis array in a file with one array is split into layers; a list of tensors is one of layers already.
    """
    held = arrays_in(Path(path))
    if len(held) == 1 and next(iter(held.values())).ndim == 4 and "layer 0" not in held:
        (name, whole), *_ = held.items()
        return {f"{name}[{index}]": layer for index, layer in enumerate(whole)}
    return held


def numbers(text: str, option: str, example: str = "14x14") -> tuple[int, ...]:
    """`14x14` as numbers; one number stands alone. The refusal of others shows the example.

    Raises:
        UsageError: they are not positive integers with an x between them (C2A006).
    """
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(
            "C2A006", f"{option} {text} is not positive integers with an x between them", f"Write {example}, say."
        )
    return tuple(int(part) for part in parts)


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


def explore_file(
    model: str,
    output: str,
    inputs: str | None,
    only: Selection,
    reading: Reading,
    force: bool,
    input_size: str | None = None,
) -> list[str]:
    """Writes the page of the network in a file, or as .svg a moving picture of its first layer of such a name.

    Returns what to tell: layers that are not shown, and the file.

    Raises:
        UsageError: the network does not take the image, or does not tell its size (C2A120).
        UnsupportedError: no layer can be shown (C2A110).
    """
    network = reading.load(model)
    if Path(output).suffix == ".svg":
        layers = attention_layers(as_attention(network))
        only.check(list(layers), "layer to draw")
        found = [(name, layer) for name, layer in layers.items() if only.wants(name)]
        if not found:
            raise UsageError("C2A008", f"{model} has no layer to draw", "Leave one in with --only and --skip.")
        write_text_atomically(output, moving_picture(found[0][1], found[0][0]), force)
        return [f"wrote {output}"]
    size = numbers(input_size, "--input-size", "3x224x224") if input_size else None
    captured = not attention_layers(network)
    channels, side = (size[0], size[-1]) if size else size_for(network, captured)
    if inputs is None:
        shown, words = example_image(channels, side), EXAMPLE
    else:
        batch, words = reading.images(inputs, network, size or (channels, side, side))
        batch = batch if batch.ndim == 4 else batch[None]
        shown, words = batch[:1], words if len(batch) == 1 else f"the first of {words}"
    whose = [f"{channels}x{side}x{side}{published_size(network)}"] if captured and not size else []
    assumed = [told] if (told := assumed_of(network)) else []
    page = explore(network, shown, only=only, title=Path(model).name, described="; ".join((words, *whose, *assumed)))
    page.save(output, force)
    return [*assumed, *(f"not shown: {reason}" for reason in page.left_out), f"wrote {output}"]
