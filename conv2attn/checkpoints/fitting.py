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
        """The number of keys that do not fit."""
        return len(self.missing) + len(self.unexpected) + len(self.shapes)

    def to_text(self) -> str:
        """The keys that do not fit, each list cut after its first few."""
        shapes = [f"{key} {'x'.join(map(str, file))} for {'x'.join(map(str, net))}" for key, file, net in self.shapes]
        lists = (("missing", self.missing), ("unexpected", self.unexpected), ("of another shape", shapes))
        return "; ".join(f"{len(names)} {problem}: {first_names(names)}" for problem, names in lists if names)


def first_names(names: tuple[str, ...] | list[str]) -> str:
    """The first few names, and the number of further ones."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(name[:80] for name in names[:SHOWN]) + more


def misfit(network: nn.Module, tensors: Mapping[str, Tensor]) -> Misfit:
    """The keys and shapes in which the tensors of a file and of a network differ."""
    return misfit_of({key: tuple(value.shape) for key, value in network.state_dict().items()}, tensors)


def misfit_of(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> Misfit:
    """The keys and shapes in which tensors differ from those of a network with these names and shapes."""
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    return Misfit(
        tuple(key for key in expected if key not in shapes),
        tuple(key for key in shapes if key not in expected),
        tuple((key, shapes[key], expected[key]) for key in expected if key in shapes and shapes[key] != expected[key]),
    )


def fill_network(network: nn.Module, state: State, path: str, name: str) -> tuple[str, ...]:
    """Copies the tensors into the network, each in the dtype of the file; returns the assumptions.

    Tied parameters stay tied. Buffers that the file does not have take the dtype of the weights, if they have one;
    counters of batches keep that of the network.
    Versions of modules that the file does not have are those of the network.

    Raises:
        CheckpointError: names or shapes differ, or a module of the network refuses them (C2A304), or a weight has
            another kind of number (C2A303).
    """
    tensors = state.tensors
    difference = misfit(network, tensors)
    if not difference.fits:
        remedy = "Pass the --arch, and the --arch-args, that these weights are of; inspect lists the keys."
        raise CheckpointError("C2A304", f"{path} does not fit {name}: {difference.to_text()}", remedy)
    own_state = network.state_dict(keep_vars=True)
    tensors = {key: each.to(own_state[key].dtype) if key.endswith(COUNTER) else each for key, each in tensors.items()}
    for key, tensor in tensors.items():
        if own_state[key].is_floating_point() != tensor.is_floating_point() or tensor.is_complex():
            raise CheckpointError(
                "C2A303",
                f"{path}: {key!r} is {tensor.dtype}, where {name} has {own_state[key].dtype}",
                "Convert it to that dtype, and save it again.",
            )
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(dtypes) == 1:
        network.to(dtype=next(iter(dtypes)))
        own_state = network.state_dict(keep_vars=True)
    for key, tensor in tensors.items():
        if own_state[key].dtype != tensor.dtype:
            own_state[key].data = own_state[key].data.to(tensor.dtype)
    loaded: Any = OrderedDict(tensors)
    loaded._metadata = getattr(own_state, "_metadata", {}) if state.metadata is None else state.metadata
    try:
        with torch.no_grad():
            network.load_state_dict(loaded, strict=False)
    except Exception as error:
        reason = f"{path} does not fit {name}: load_state_dict raises {type(error).__name__} ({first_line(error)})"
        raise CheckpointError("C2A304", reason, "Pass --arch with the architecture that the weights are of.") from error
    assumed = [f"{len(difference.missing)} counters of batches not stored, left at 0"] if difference.missing else []
    not_finite = [key for key, tensor in tensors.items() if not tensor.isfinite().all()]
    return (*assumed, *([f"not finite: {first_names(not_finite)}"] if not_finite else []))


def differing_classes(difference: Misfit) -> tuple[int, int] | None:
    """The numbers of classes (file's, network's), where shapes differ in one way only and nothing else is wrong."""
    if difference.unexpected or any(not key.endswith(COUNTER) for key in difference.missing) or not difference.shapes:
        return None
    pairs = {
        (file_size, network_size)
        for _, file, network in difference.shapes
        for file_size, network_size in zip(file, network, strict=False)
        if file_size != network_size
    }
    same_rank = all(len(file) == len(network) for _, file, network in difference.shapes)
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
        model, loading_info = type(network).from_pretrained(
            None, config=network.config, state_dict=dict(tensors), output_loading_info=True
        )
    except (RuntimeError, ValueError, OSError, KeyError, TypeError) as error:
        raise CheckpointError(
            "C2A304",
            f"{path} does not fit {name} ({str(error).splitlines()[0]})",
            "Pass --arch with the architecture that the weights are of.",
        ) from error
    pooler = sorted(key for key in loading_info["missing_keys"] if key.startswith(UNREAD))
    lists = {
        "missing": sorted(key for key in loading_info["missing_keys"] if not key.startswith(UNREAD)),
        "unexpected": sorted(loading_info["unexpected_keys"]),
        "of another shape": sorted(str(each) for each in loading_info["mismatched_keys"]),
    }
    if any(lists.values()):
        problems = "; ".join(f"{len(keys)} {problem}: {first_names(keys)}" for problem, keys in lists.items() if keys)
        raise CheckpointError(
            "C2A304", f"{path} does not fit {name}: {problems}", "Pass the state dict of such a model."
        )
    return model, (f"the pooler is not stored and has fresh weights ({first_names(pooler)})",) if pooler else ()
