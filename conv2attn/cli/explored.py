"""The work of explore, between the file of a network and the page."""

from pathlib import Path

from conv2attn.arguments import Selection
from conv2attn.checkpoints.examples import example_image
from conv2attn.checkpoints.options import Reading
from conv2attn.checkpoints.writing import write_text_atomically
from conv2attn.cli.span_files import numbers
from conv2attn.errors import UsageError
from conv2attn.explore import explore, moving_picture
from conv2attn.explore.exploring import EXAMPLE, as_attention, size_for
from conv2attn.models import attention_layers
from conv2attn.models.provenance import assumed_of, published_size


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
    size = numbers(input_size, "--input-size") if input_size else None
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
