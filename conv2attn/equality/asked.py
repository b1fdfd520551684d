"""The checked arguments of `certify`: networks, inputs, classes, a range, and modes."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import check_has_numbers, first_weight
from conv2attn.equality.calls import MODES
from conv2attn.equality.certificate.results import CallInput
from conv2attn.equality.failures import a_kind
from conv2attn.equality.fingerprint.field import Progress
from conv2attn.equality.output_parts import is_dense, output_parts
from conv2attn.equality.outputs import plainly
from conv2attn.equality.twins.bits import sha256_of
from conv2attn.errors import UsageError
from conv2attn.networks.specimens import (
    Arguments,
    Inputs,
    Specimen,
    arguments,
    own_size,
    specimen_of,
    takes_ids,
    with_others,
)
from conv2attn.torch_internals import tree_leaves

MOST_NUMBERS = 1 << 26  # numbers: 256 MiB in float32; outputs of layers are larger still
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
IDS = (torch.int32, torch.int64)
SEED_RANGE = range(-(1 << 63), 1 << 64)  # the seeds that torch accepts


@final
@dataclass(frozen=True, eq=False)
class Asked:
    """The checked arguments of `certify`; each step reads its part of them.

    Args:
        networks: the first and the second.
        specimens: the inputs on which both run: those passed, if any, then one random input of each size.
        labels: the classes of the first inputs.
        modes: of gradients in which both run beside the usual ones.
        progress, match: see `certify`.
    """

    networks: tuple[nn.Module, nn.Module]
    specimens: tuple[Specimen, ...]
    labels: Tensor | None
    modes: Sequence[str]
    progress: Progress | None
    match: Mapping[Any, Any] | None


def asked_of(
    original: nn.Module,
    network: nn.Module,
    call: Arguments,
    sizes: Sequence[Any],
    *,
    described: str | None,
    labels: Any,
    input_range: Any,
    modes: Sequence[str],
    seed: Any,
    **options: Any,
) -> Asked:
    """Checks each argument once.

    Args:
        call: the positional and the named arguments of a call, both empty if none are passed.
        sizes: (channels, *sides) of random inputs, or None for the architecture's own.
        described: the name of the first inputs in the report.
    Raises:
        UsageError: a network is not a module or has no numbers, a mode is unknown, or an argument is of the wrong
            kind or shape (C2A001, C2A002, C2A006, C2A007); the size of an image is unknown (C2A005).
    """
    check_has_numbers(original, "original")
    check_has_numbers(network, "network")
    if isinstance(modes, str) or not set(modes) <= MODES.keys():
        mode_names = ", ".join(map(repr, MODES))
        raise UsageError("C2A002", f"also_modes={modes!r} are not modes of gradients", f"Pass some of {mode_names}.")
    input_range = not_negative(input_range, "input_range")
    check_seed(seed, "seed")
    specimens = [given_specimen(original, *call)] if any(call) else []
    check_labels(labels, len(specimens[0].main) if specimens else 1)
    specimens += [random_specimen(original, size, input_range, seed) for size in sizes]
    first = replace(specimens[0], described=described or specimens[0].described)
    return Asked((original, network), (first, *specimens[1:]), labels, modes, **options)


def check_labels(labels: Any, count: int) -> None:
    """Refuses labels that are not a dense tensor of integers, one for each of `count` images.

    Raises:
        UsageError: they are not (C2A006, C2A007).
    """
    if labels is None:
        return
    if not is_dense(labels) or labels.dtype not in WHOLE:
        kind = f"a tensor of {labels.dtype}" if isinstance(labels, Tensor) else a_kind(labels)
        raise UsageError("C2A006", f"labels are {kind}, not a tensor of whole numbers", "Pass the classes' numbers.")
    if labels.shape != (count,):
        sentence = f"labels are {tuple(labels.shape)}, not one for each of {count} images"
        raise UsageError("C2A007", sentence, "Pass one class per image.")


def not_negative(value: Any, name: str) -> float:
    """A finite real number of at least 0 as a float; a bool is refused.

    Raises:
        UsageError: it is anything else (C2A001).
    """
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if not 0 <= number < math.inf:
        sentence = f"{name}={value!r} is not a finite number of at least 0"
        raise UsageError("C2A001", sentence, "Pass a finite number of at least 0.")
    return number


def given_specimen(original: nn.Module, inputs: Sequence[Any], forward: Any) -> Specimen:
    """The inputs of a call as passed; for a single tensor, with the other arguments that the network requires.

    Raises:
        UsageError: `forward` is not a dictionary by names, a tensor is not dense, or none holds floating-point numbers
            or ids of tokens, with a batch (C2A006, C2A007).
    """
    if not isinstance(forward, Mapping) or not all(isinstance(name, str) for name in forward):
        sentence = f"forward is {a_kind(forward)}, not a dictionary by names of arguments"
        raise UsageError("C2A006", sentence, "Pass forward={'mask': mask}, say.")
    if len(inputs) == 1 and not forward and not isinstance(inputs[0], list | tuple | Mapping):
        images = inputs[0]
        check_main(original, images, "images")
        return with_others(original, images, f"{len(images)} given images")
    call = Arguments(tuple(inputs), dict(forward))
    leaves = tree_leaves(call)
    for leaf in leaves:
        if isinstance(leaf, Tensor) and not (is_dense(leaf) and leaf.numel()):
            sentence = "an input is an empty, sparse, quantised or nested tensor"
            raise UsageError("C2A006", sentence, "Pass dense tensors with numbers in them.")
    tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    ids = [place for place in tensors[:1] if leaves[place].dtype in IDS and takes_ids(original)]
    place = next((place for place in [*ids, *tensors] if place in ids or leaves[place].is_floating_point()), None)
    if place is None:
        sentence = "no input is a tensor of floating-point numbers, or of ids of tokens that the network embeds"
        raise UsageError("C2A006", sentence, "Pass the inputs as the networks are called.")
    check_main(original, leaves[place], "inputs")
    sizes = " and ".join(size_in_words(leaves[place]) for place in tensors)
    return Specimen(call if inputs else call.named, f"the given inputs ({sizes})", place)


def inputs_in(inputs: Inputs) -> Iterator[CallInput]:
    """The tensors and plain values of a call, by the name or place of the argument, each with its sha256."""
    positional, named = arguments(inputs)
    values = {f"argument {place}": each for place, each in enumerate(positional, start=1)} | named
    for name, value in values.items():
        for path, leaf in output_parts(value, name):
            if isinstance(leaf, Tensor):
                yield CallInput(path, tuple(leaf.shape), str(leaf.dtype).removeprefix("torch."), sha256_of(leaf))
            else:
                yield CallInput(path, (), "", hashlib.sha256(plainly(leaf).encode()).hexdigest())


def size_in_words(tensor: Tensor) -> str:
    """The size of a tensor, with its dtype unless that is floating."""
    dtype = "" if tensor.is_floating_point() else f" {str(tensor.dtype).removeprefix('torch.')}"
    return f"{'x'.join(map(str, tensor.shape)) or 'a number'}{dtype}"


def check_main(original: nn.Module, images: Any, what: str) -> None:
    """Refuses a main input that is not a dense tensor of floating-point numbers, or of token ids, with a batch.

    Raises:
        UsageError: it is not (C2A006, C2A007).
    """
    if not is_dense(images) or not images.numel():
        kind = "an empty, sparse, quantised or nested tensor" if isinstance(images, Tensor) else a_kind(images)
        sentence = f"{what} are {kind}, not a dense tensor with numbers in it"
        raise UsageError("C2A006", sentence, "Pass a tensor (batch, channels, *sides) of floating-point numbers.")
    if not images.is_floating_point() and not (images.dtype in IDS and takes_ids(original)):
        sentence = f"{what} are {images.dtype}, neither floating-point numbers nor ids that the network embeds"
        raise UsageError("C2A006", sentence, "Pass images.float(), scaled as the network takes them.")
    if not images.ndim:
        raise UsageError("C2A007", f"{what} are a single number", "Pass (batch, channels, *sides).")


def like_weights(network: nn.Module) -> Tensor:
    """An empty tensor with the dtype and device of a network's weights."""
    weight = first_weight(network)
    # A lazy parameter has a dtype and a device, and no methods of tensors.
    return torch.empty(0) if weight is None else torch.empty(0, dtype=weight.dtype, device=weight.device)


def check_seed(seed: Any, name: str) -> None:
    """Refuses a seed that torch does not accept.

    Raises:
        UsageError: it is not an int of 64 bits (C2A006).
    """
    if type(seed) is not int or seed not in SEED_RANGE:
        raise UsageError("C2A006", f"{name}={seed!r} is not a whole number of 64 bits", "Pass an int.")


def random_specimen(original: nn.Module, input_size: Any, input_range: float = 1.0, seed: int = 0) -> Specimen:
    """One seeded random input of this size, or of the architecture's own, with the dtype and device of the weights."""
    size, whose = own_size(original) if input_size is None else (input_size, "")
    if size is None:
        sentence = "the size of the networks' images is unknown"
        raise UsageError("C2A005", sentence, "Pass --input-size, such as 3x224x224, or --inputs.")
    if not isinstance(size, Sequence) or not all(isinstance(side, int) and side > 0 for side in size):
        sentence = f"input_size={size!r} is not positive whole numbers (channels, *sides)"
        raise UsageError("C2A001", sentence, "Pass --input-size as positive whole numbers, such as 3x224x224.")
    sides = "x".join(map(str, size))
    if math.prod(size) > MOST_NUMBERS:
        raise UsageError("C2A001", f"an image {sides} has more than 2^26 numbers", "Pass a smaller --input-size.")
    specimen = specimen_of(original, size, input_range, seed, like_weights(original))
    if not specimen.main.isfinite().all():
        sentence = f"an input range of {input_range:g} is beyond {specimen.main.dtype}"
        raise UsageError("C2A001", sentence, "Lower --input-range, or compute in a wider --dtype.")
    return replace(specimen, described=specimen.described + whose)
