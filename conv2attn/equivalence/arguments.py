"""Checks of the arguments of `certify`: a wrong one is refused in a sentence, before anything runs."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.equivalence.outputs import is_dense
from conv2attn.errors import UsageError

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SEEDS = range(-(1 << 63), 1 << 64)  # what a generator of torch takes


def check_arguments(original: Any, network: Any, *, images: Any, labels: Any, **numbers: Any) -> None:
    """Refuses what is no network, no number, no images or no classes of them.

    Args:
        original, network: modules.
        images: None, or a dense tensor of floating-point numbers, the batch first.
        labels: None, or one whole number for each image.
        numbers: `tolerance`, `input_range`, `input_size` and `seed` as they were given.
    Raises:
        UsageError: one of them is of another kind (C2A006).
    """
    for which, given in (("original", original), ("network", network)):
        if not isinstance(given, nn.Module):
            raise UsageError("C2A006", f"{which} is {a_kind(given)}, not an nn.Module", "Pass two networks or layers.")
        if any(tensor.is_meta for tensor in (*given.parameters(), *given.buffers())):
            raise UsageError("C2A006", f"{which} is on the meta device, without numbers", "Load its numbers first.")
    check_numbers(**numbers)
    if images is not None:
        check_images(images)
    if labels is not None:
        check_labels(labels, 1 if images is None else len(images))


def check_numbers(tolerance: Any, input_range: Any, input_size: Any, seed: Any) -> None:
    """Refuses a tolerance or a range that is no number, sides that are no sequence, and a seed that is not whole."""
    if tolerance is not None and not (is_number(tolerance) and 0 <= tolerance < math.inf):
        raise UsageError("C2A001", f"tolerance={tolerance!r} is not a finite number of at least 0")
    if not (is_number(input_range) and input_range >= 0):
        raise UsageError("C2A001", f"input_range={input_range!r} is not a number of at least 0")
    if input_size is not None and not isinstance(input_size, Sequence):
        sentence = f"input_size={input_size!r} is not (channels, *sides)"
        raise UsageError("C2A006", sentence, "Pass a tuple of whole numbers.")
    if type(seed) is not int or seed not in SEEDS:
        raise UsageError("C2A006", f"seed={seed!r} is not a whole number of 64 bits", "Pass an int.")


def check_images(images: Any) -> None:
    """Refuses images that are no dense tensor of floating-point numbers with a batch."""
    if isinstance(images, Tensor) and not is_dense(images):
        sentence = "images are a sparse, quantised or nested tensor"
        raise UsageError("C2A006", sentence, "Pass a dense one: images.to_dense(), or images.dequantize().")
    if not isinstance(images, Tensor) or not images.numel():
        raise UsageError("C2A006", "images are not a tensor with numbers in it")
    if not images.is_floating_point():
        sentence = f"images are {images.dtype}, and ranges are those of floating-point numbers"
        raise UsageError("C2A006", sentence, "Pass images.float(), scaled as the network takes them.")
    if not images.ndim:
        raise UsageError("C2A007", "images are a single number", "Pass (batch, channels, *sides).")


def check_labels(labels: Any, count: int) -> None:
    """Refuses labels that are not one class for each of `count` images."""
    if not is_dense(labels) or labels.dtype not in WHOLE:
        kind = f"a tensor of {labels.dtype}" if isinstance(labels, Tensor) else a_kind(labels)
        raise UsageError("C2A006", f"labels are {kind}, not a tensor of whole numbers", "Pass the classes' numbers.")
    if labels.shape != (count,):
        shape = tuple(labels.shape)
        raise UsageError("C2A007", f"labels are {shape}, not one for each of {count} images", "Pass a class an image.")


def is_number(given: Any) -> bool:
    """Whether something is a real number; truth values are none."""
    return isinstance(given, int | float) and not isinstance(given, bool)


def a_kind(thing: object) -> str:
    """The class of something, with its article."""
    name = type(thing).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
