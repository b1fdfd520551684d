"""The work of distil, from the file of a network to the written one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from conv2attn.arguments import Selection
from conv2attn.cli.attention_files import inputs_for, naming_inputs
from conv2attn.cli.replace_options import by_layer
from conv2attn.errors import UsageError
from conv2attn.files import read_labels, save
from conv2attn.files.reading_options import Reading
from conv2attn.span.distillation import distil
from conv2attn.span.distillation_report import Distillation
from conv2attn.suffixes import EXPORTS


def distil_file(
    path: str,
    output: str,
    *,
    max_loss: float,
    heads: Sequence[tuple[str, tuple[int, ...]]],
    kernel_size: int,
    labels: str | None,
    only: Selection,
    inputs: str,
    input_size: Sequence[int] | None,
    reading: Reading,
    force: bool,
) -> Distillation[nn.Module]:
    """Distils the network in a file, and writes it if a head was replaced.

    Raises:
        UsageError: as `distil` does.
        CheckpointError: the file cannot be written, or no file rebuilds the network (C2A306).
    """
    named = by_layer(heads)
    network = reading.load(path)
    images = inputs_for(network, inputs, input_size, reading).inputs
    if not isinstance(images, Tensor):
        raise UsageError("C2A006", f"{inputs} is not a tensor of images", "Pass images.")
    classes = read_labels(labels, inputs, len(images)) if labels else None
    with naming_inputs(images):
        options: Any = {"max_loss": max_loss, "kernel_size": kernel_size, "heads": named, "labels": classes}
        result = distil(network, images, only=only, **options)
    if any(layer.convolved for layer in result.layers):
        example = images if Path(output).suffix in EXPORTS else None
        save(result.network, output, force=force, example_input=example)
    return result
