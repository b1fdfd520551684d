"""The work of check-span, heads, recover and explore, from files of networks or attention to written files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from torch import nn

from conv2attn import plots
from conv2attn.arguments import Patterns, Selection, as_inputs
from conv2attn.cli.options import TokenOptions
from conv2attn.cli.replace_options import ReplaceOptions
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.examples import example_image
from conv2attn.files import RECOVERED, arrays_in, read_labels, write_atomically, write_text_atomically
from conv2attn.files.array_files import holds_attention
from conv2attn.files.reading_options import Reading
from conv2attn.lab.explore import explore, explored_photo
from conv2attn.lab.explore.exploring import EXAMPLE, size_for
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks import attention_layers
from conv2attn.networks.positions import Unread
from conv2attn.networks.provenance import assumed_of, published_size
from conv2attn.networks.reading.records import Reads
from conv2attn.networks.specimens import Inputs, Specimen, wanted_inputs, with_others
from conv2attn.report.progress import progress
from conv2attn.span import HeadsReport, SpanReport, check_span, recover
from conv2attn.span.attending import ask_attention, needs_inputs, own_alone
from conv2attn.span.attention_rows import AttentionRows
from conv2attn.span.certificate import MARK, Rechecked, certificates, recheck_span
from conv2attn.span.graded_facts.measuring import heads
from conv2attn.span.reading import ON_PIXELS, rows_of_read
from conv2attn.span.recover import Recovered, nearest_in

Attending = nn.Module | dict[str, Any]
"""A network, or arrays of attention by name."""
BEGINNING = 2**20
"""A certificate of `check-span` begins within this many bytes of a file."""
LARGEST = 2**30
"""Most bytes of certificates: a thousand times those of a refuted layer of 256 tokens."""


def attending_in(path: str, tokens: TokenOptions, reading: Reading) -> tuple[Attending, Specimen | None]:
    """The network in a file and its inputs, or the attention in the file. With --arch the file is a state dict.

    Raises:
        UsageError: inputs are passed for attention itself, or their size without them (C2A004).
        CheckpointError: a file cannot be read.
    """
    if reading.arch is None and holds_attention(path):
        if tokens.inputs or tokens.input_size:
            option = "--inputs" if tokens.inputs else "--input-size"
            reason = f"{option} is for networks, but {path} has attention itself"
            raise UsageError("C2A004", reason, "Leave it out.")
        return arrays(path), None
    network = reading.load(path)
    if tokens.input_size and not tokens.inputs:
        if not own_alone(network):
            reason = "--input-size is for the images of --inputs, which are missing"
            raise UsageError("C2A004", reason, "Pass --inputs: attention of this network may depend on them.")
        return network, Specimen(as_inputs(network, tuple(tokens.input_size)))
    return network, inputs_for(network, tokens.inputs, tokens.input_size, reading) if tokens.inputs else None


def inputs_for(network: nn.Module, inputs: str, size: Sequence[int] | None, reading: Reading) -> Specimen:
    """The inputs of a network's call from a file; images with the other arguments that its library passes.

    Raises:
        CheckpointError, UsageError: the inputs cannot be read, or are not arguments of the network.
    """
    if call := reading.call(inputs, network, size):
        (positional, named), described = call
        arguments: Any = named or positional
        return Specimen(arguments, described)
    return with_others(network, *reading.images(inputs, network, size))


@contextmanager
def naming_inputs(images: Inputs | None) -> Iterator[None]:
    """Adds the options to pass to the error of a network that does not run on its images.

    Raises:
        UsageError: the network does not run (C2A009).
    """
    try:
        yield
    except UsageError as error:
        if error.code != "C2A009" or images is None:
            raise
        remedy = "Pass --inputs that it takes, or their size with --input-size."
        raise UsageError("C2A009", error.found, remedy) from error


def arrays(path: str) -> dict[str, Any]:
    """Attention arrays in a file by name, (heads, queries, keys) or (layers or images, heads, queries, keys).

    The first axis of a single array with four axes counts layers. A list of tensors has one for each layer.
    """
    layers = arrays_in(Path(path))
    if len(layers) == 1 and next(iter(layers.values())).ndim == 4 and "layer 0" not in layers:
        (name, stacked), *_ = layers.items()
        return {f"{name}[{index}]": layer for index, layer in enumerate(stacked)}
    return layers


def layers_in(path: str, tokens: TokenOptions, reading: Reading, only: Patterns = ()) -> tuple[Reads, Attending, str]:
    """All attention in a file by name, a description of the file, and the inputs in words.

    Raises:
        UsageError: attention depends on inputs that are missing (C2A502), or positions alone are requested for arrays
            or with inputs (C2A004).
    """
    position_only = tokens.position_only
    if position_only and reading.arch is None and holds_attention(path):
        raise UsageError("C2A004", "--position-only needs a network, not an array", "Leave it out.")
    attending, specimen = attending_in(path, tokens, reading)
    if not isinstance(attending, nn.Module):
        return ask_attention(attending, only=only).reads(), attending, ""
    images = None if specimen is None else specimen.inputs
    if images is None and not position_only:
        needs_inputs(attending)
    asked = ask_attention(attending, images, tokens.grid, only, position_only)
    with naming_inputs(images):
        reads = asked.reads()
    if tokens.grid is None and isinstance(attending, MultiHeadSelfAttention) and images is None:
        raise UsageError("C2A005", "the size of the grid is unknown", "Pass --grid.")
    described = "" if specimen is None else specimen.described
    return reads, attending, "; ".join(filter(None, (described, asked.header)))


def check_file(
    path: str,
    *,
    tokens: TokenOptions,
    reading: Reading,
    only: Patterns,
    certificate: str | None,
    force: bool,
    **question: Any,
) -> SpanReport:
    """The report on all attention in a file, and certificates, if asked for.

    Raises:
        UsageError: see `layers_in` and `check_span`.
        CheckpointError: the file cannot be read, or the picture cannot be written.
    """
    reads, attending, inputs = layers_in(path, tokens, reading, only)
    if tokens.extra_tokens and not reads.sampled:
        on_pixels = [read.name for read in reads if isinstance(read.attention, ON_PIXELS)]
        if on_pixels:
            raise UsageError("C2A004", f"{on_pixels[0]} attends to pixels alone", "Leave out --extra-tokens.")
    question |= {"grid": tokens.grid, "extra_tokens": tokens.extra_tokens, "exact": tokens.exact}
    with progress() as bar:
        report = check_span(reads, progress=bar, **question)
    if certificate:
        wanted = [row.name for row in report.rows if row.heads]
        rows = rows_in(reads, tokens, wanted, question["memory_limit"])
        write_text_atomically(certificate, certificates(report, rows, question["eps"], question["max_phi"]), force)
    assumed = assumed_of(attending if isinstance(attending, nn.Module) else None)
    return SpanReport(report.rows, report.asked + (f"; network {assumed}" if assumed else ""), inputs)


def rows_in(
    reads: Reads, tokens: TokenOptions, names: Sequence[str], memory_limit: int = 2**29
) -> dict[str, AttentionRows]:
    """The rows of these layers."""
    placed = dict[str, AttentionRows]()
    for read in reads.make(names):
        options = {"exact": tokens.exact}
        rows = rows_of_read(read, tokens.grid, tokens.extra_tokens, reads.counts, memory_limit, **options)
        if not isinstance(rows, Unread):
            placed[read.name] = rows
    return placed


def is_span_certificate(path: str) -> bool:
    """Whether a regular file holds certificates of `check-span`, and not of `verify`."""
    try:
        with Path(path).open("rb") as file:
            return any(line.startswith(MARK.encode()) for line in file.read(BEGINNING).splitlines())
    except OSError:
        return False


def recheck_spans(path: str, model: str | None, tokens: TokenOptions, reading: Reading) -> Rechecked:
    """Checks the certificates of `check-span` in a file against their model or array.

    Raises:
        UsageError: no model or array is passed (C2A004).
        CheckpointError: a file cannot be read, or the certificates are larger than `LARGEST` (C2A307).
    """
    if (size := Path(path).stat().st_size) > LARGEST:
        reason = f"{path} has {size:,} bytes, more than {LARGEST:,}"
        raise CheckpointError("C2A307", reason, "Check that it is a certificate of check-span.")
    if model is None:
        raise UsageError("C2A004", f"{path} needs the file with its attention", "Name it: recheck CERTIFICATE MODEL.")
    reads, *_ = layers_in(model, tokens, reading)
    rows = rows_in(reads, tokens, reads.names)
    return recheck_span(Path(path).read_text(encoding="utf-8"), rows)


def facts_in(
    path: str,
    *,
    tokens: TokenOptions,
    reading: Reading,
    only: Patterns,
    plot: str | None = None,
    curves: str | None = None,
    replacing: ReplaceOptions | None = None,
    force: bool = False,
) -> HeadsReport:
    """The facts of all attention in a file, with pictures: of arrays, of a network on inputs, or by position alone.

    Raises:
        UsageError: inputs are passed with an array (C2A004), names fit no layer (C2A008), or nothing attends (C2A501).
    """
    report, _ = facts_of_file(path, tokens, reading, only, replacing)
    if plot and any(layer.heads for layer in report.layers):
        plots.write(plots.draw_facts(report), plot, force)
    if curves:
        plots.write(plots.draw_curves(report), curves, force)
    return report


def facts_of_file(
    path: str,
    tokens: TokenOptions,
    reading: Reading,
    only: Patterns,
    replacing: ReplaceOptions | None = None,
) -> tuple[HeadsReport, Attending]:
    """The facts of a file, and a description of it."""
    attending, specimen = attending_in(path, tokens, reading)
    images = None if specimen is None else specimen.inputs
    with naming_inputs(images), progress() as bar:
        extra, grid = tokens.extra_tokens, tokens.grid
        options: dict[str, Any] = {"only": only}
        if replacing is not None and replacing.replace:
            options |= {"replace": replacing.replace, "replaced_heads": replacing.replaced_heads}
            if replacing.labels and specimen is not None:
                options |= {"labels": read_labels(replacing.labels, tokens.inputs or "", len(specimen.main))}
        report = heads(attending, images, grid=grid, extra_tokens=extra, progress=bar, **options)
    if not isinstance(attending, nn.Module):
        return report, attending
    needed = f"--inputs {wanted_inputs(attending)[1]}" if report.needed else ""
    ran_on = "; ".join(filter(None, ("" if specimen is None else specimen.described, report.inputs)))
    return replace(report, read_as=assumed_of(attending), needed=needed, inputs=ran_on), attending


def write_recovered(
    path: str, output: str, *, kernel_size: int, tokens: TokenOptions, reading: Reading, only: Patterns, force: bool
) -> HeadsReport:
    """The facts of a file, whose nearest convolutions of one size are written to `output`, a dictionary by layer.

    Layers of this project that read no content are written as the convolution that `recover` finds. Nothing is written
    if no layer has a convolution.

    Raises:
        UsageError: no layer's values and outputs could be read (C2A505), or a size without a convolution (C2A001).
        CheckpointError: the file cannot be written.
    """
    report, attending = facts_of_file(path, tokens, reading, only)
    own_layers = attention_layers(attending) if isinstance(attending, nn.Module) else {}
    nearest, convolutions = nearest_in(report, kernel_size), {}
    for layer in report.layers:
        own, fact = own_layers.get(layer.name, own_layers.get("")), layer.convolution(kernel_size)
        if isinstance(own, MultiHeadSelfAttention) and not own.has_content:
            padding = own.image_padding
            sides = [k - b - a for k, b, a in zip(layer.grid, padding.before, padding.after, strict=True)]
            convolutions[layer.name] = in_words(recover(own, kernel_size=kernel_size, grid=sides))
        elif fact is not None:
            convolutions[layer.name] = in_words(nearest[layer.name]) | {"error": fact.error}
    if not convolutions:
        reason = f"no layer of {path} has values and outputs that are read"
        raise UsageError("C2A505", reason, "Ask what its attention does: conv2attn heads FILE.")
    write_atomically(output, {"format": RECOVERED, "layers": convolutions}, force)
    return report


def in_words(recovered: Recovered) -> dict[str, Any]:
    """A convolution as a module in words, and its tensors."""
    module = recovered.module
    parts = list(module) if isinstance(module, nn.Sequential) else []
    words = f"Sequential({', '.join(map(repr, parts))})" if parts else repr(module)
    tensors = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    return {"module": words, "state": tensors, "share": recovered.share}


def explore_file(
    path: str,
    output: str,
    inputs: str | None,
    input_size: Sequence[int] | None,
    only: Selection,
    reading: Reading,
    force: bool,
) -> list[str]:
    """Writes the page of the network in a file; as .png, the photo with the attention of all selected layers.

    Returns:
        Lines on omitted layers, and on the written file.

    Raises:
        UsageError: the network does not take the image, or does not state its size (C2A120).
        UnsupportedError: no layer can be shown (C2A110).
    """
    network = reading.load(path)
    if inputs and reading.call(inputs, network, input_size):
        reason = f"a page shows images, and {inputs} holds several inputs of a call"
        raise UsageError("C2A004", reason, "Pass images alone.")
    captured = not attention_layers(network)
    size = tuple(input_size or size_for(network, captured))
    if inputs is None and len(size) != 3:
        reason = f"--input-size {input_size} is not channels, rows and columns, as a page shows them"
        raise UsageError("C2A007", reason, "Write 3x224x224, say.")
    if inputs is None:
        image, words = example_image(*size), EXAMPLE
    else:
        # The size is that of `heads`: stated by the network, otherwise that of the picture. A page cannot show as many
        # tokens as a photo has, so a larger picture is resized to the page's default.
        image, words = reading.images(inputs, network, input_size)
        if not input_size and max(image.shape[1:]) > max(size):
            image, words = reading.images(inputs, network, None, size)
        image = image if image.ndim == 4 else image[None]
    if Path(output).suffix == ".png":
        picture, left_out = explored_photo(network, image[:1].to(next(network.parameters())), only)
        plots.write(picture, output, force)
        return [*(f"not shown: {reason}" for reason in left_out), f"wrote {output}"]
    by_default = captured and not input_size and tuple(image.shape[1:]) == size
    default_size = [f"{'x'.join(map(str, size))}{published_size(network)}"] if by_default else []
    assumed = list(filter(None, [assumed_of(network)]))
    described = "; ".join((words, *default_size, *(f"the network is {each}" for each in assumed)))
    page = explore(network, image, only=only, title=Path(path).name, described=described)
    page.save(output, force)
    return [*assumed, *(f"not shown: {reason}" for reason in page.left_out), f"wrote {output}"]
