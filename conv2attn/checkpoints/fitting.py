"""A state dict into a network: every key and every shape accounted for, numbers and dtypes as stored."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.checkpoints.architectures import first_line
from conv2attn.checkpoints.states import State
from conv2attn.errors import CheckpointError

UNREAD = "pooler."
SHOWN = 4
COUNTER = ".num_batches_tracked"


@final
@dataclass(frozen=True)
class Misfit:
    """Keys that only the network has, keys that only the file has, and keys of two shapes (name, file's, network's)."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    shapes: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]

    @property
    def fits(self) -> bool:
        """Whether nothing is missing but counters of batches, which only training reads."""
        return not (self.unexpected or self.shapes or any(not key.endswith(COUNTER) for key in self.missing))

    @property
    def size(self) -> int:
        """How many keys do not fit."""
        return len(self.missing) + len(self.unexpected) + len(self.shapes)

    def to_text(self) -> str:
        """The keys that do not fit, each list cut after its first few."""
        shapes = [f"{key} {'x'.join(map(str, file))} for {'x'.join(map(str, net))}" for key, file, net in self.shapes]
        lists = (("missing", self.missing), ("unexpected", self.unexpected), ("of another shape", shapes))
        return "; ".join(f"{len(found)} {what}: {listed(found)}" for what, found in lists if found)


def listed(names: tuple[str, ...] | list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(name[:80] for name in names[:SHOWN]) + more


def misfit(network: nn.Module, tensors: Mapping[str, Tensor]) -> Misfit:
    """How the tensors of a file differ from those of a network, by name and shape; nothing is changed."""
    return misfit_of({key: tuple(value.shape) for key, value in network.state_dict().items()}, tensors)


def misfit_of(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> Misfit:
    """How the tensors of a file differ from those of a network of which only names and shapes are known."""
    there = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    return Misfit(
        tuple(key for key in expected if key not in there),
        tuple(key for key in there if key not in expected),
        tuple((key, there[key], expected[key]) for key in expected if key in there and there[key] != expected[key]),
    )


def fill(network: nn.Module, state: State, path: str, name: str) -> tuple[str, ...]:
    """Copies the tensors into the network, each in the dtype of the file; what was assumed.

    Tied parameters stay tied. Buffers that the file does not have take the dtype of the weights, if they have one.
    Versions of modules that the file does not have are those of the network.

    Raises:
        CheckpointError: names or shapes differ, or a module of the network refuses them (C2A304), or a weight has
            another kind of number (C2A303).
    """
    tensors = state.tensors
    found = misfit(network, tensors)
    if not found.fits:
        remedy = "Pass the --arch, and the --arch-args, that these weights are of; inspect lists the keys."
        raise CheckpointError("C2A304", f"{path} does not fit {name}: {found.to_text()}", remedy)
    held = network.state_dict(keep_vars=True)
    for key, tensor in tensors.items():
        if held[key].is_floating_point() != tensor.is_floating_point() or tensor.is_complex():
            raise CheckpointError(
                "C2A303",
                f"{path}: {key!r} is {tensor.dtype}, where {name} has {held[key].dtype}",
                "Convert it to that dtype, and save it again.",
            )
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(dtypes) == 1:
        network.to(dtype=next(iter(dtypes)))
        held = network.state_dict(keep_vars=True)
    for key, tensor in tensors.items():
        if held[key].dtype != tensor.dtype:
            held[key].data = held[key].data.to(tensor.dtype)
    loaded: Any = OrderedDict(tensors)
    loaded._metadata = getattr(held, "_metadata", {}) if state.metadata is None else state.metadata
    try:
        with torch.no_grad():
            network.load_state_dict(loaded, strict=False)
    except Exception as error:
        told = f"{path} does not fit {name}: load_state_dict raises {type(error).__name__} ({first_line(error)})"
        raise CheckpointError("C2A304", told, "Pass --arch with the architecture that the weights are of.") from error
    assumed = [f"{len(found.missing)} counters of batches not stored, left at 0"] if found.missing else []
    infinite = [key for key, tensor in tensors.items() if not tensor.isfinite().all()]
    return (*assumed, *([f"not finite: {listed(infinite)}"] if infinite else []))


def differing_classes(found: Misfit) -> tuple[int, int] | None:
    """The numbers of classes (file's, network's), where shapes differ in one way only and nothing else is wrong."""
    if found.unexpected or any(not key.endswith(COUNTER) for key in found.missing) or not found.shapes:
        return None
    pairs = {
        (ours, theirs)
        for _, file, network in found.shapes
        for ours, theirs in zip(file, network, strict=False)
        if ours != theirs
    }
    same_rank = all(len(file) == len(network) for _, file, network in found.shapes)
    return next(iter(pairs)) if len(pairs) == 1 and same_rank else None


def fill_by_transformers(
    network: Any, tensors: Mapping[str, Tensor], path: str, name: str
) -> tuple[nn.Module, tuple[str, ...]]:
    """A network of the same class and configuration with these weights, and what was assumed.

    A missing pooler keeps fresh weights, which is said: no attention and no convolution comes after it.

    Raises:
        CheckpointError: weights are missing, left over, or of another shape (C2A304).
    """
    try:
        model, told = type(network).from_pretrained(
            None, config=network.config, state_dict=dict(tensors), output_loading_info=True
        )
    except (RuntimeError, ValueError, OSError, KeyError, TypeError) as error:
        raise CheckpointError(
            "C2A304",
            f"{path} does not fit {name} ({str(error).splitlines()[0]})",
            "Pass --arch with the architecture that the weights are of.",
        ) from error
    pooler = sorted(key for key in told["missing_keys"] if key.startswith(UNREAD))
    lists = {
        "missing": sorted(key for key in told["missing_keys"] if not key.startswith(UNREAD)),
        "unexpected": sorted(told["unexpected_keys"]),
        "of another shape": sorted(str(each) for each in told["mismatched_keys"]),
    }
    if any(lists.values()):
        found = "; ".join(f"{len(keys)} {what}: {listed(keys)}" for what, keys in lists.items() if keys)
        raise CheckpointError("C2A304", f"{path} does not fit {name}: {found}", "Pass the state dict of such a model.")
    return model, (f"the pooler is not stored and has fresh weights ({listed(pooler)})",) if pooler else ()
