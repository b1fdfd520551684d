"""Finds state dicts in files and loads them into networks: every key and shape counts, numbers are kept as stored."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.errors import CheckpointError, first_line
from conv2attn.files.architectures import Architecture

WRAPPERS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "net",
    "network",
    "module",
    "weights",
    "params",
    "state_dict_ema",
    "model_ema",
    "ema_state_dict",
    "params_ema",
    "ema",
)
DEEPEST = 4


class Record:
    """An empty placeholder for other objects that training scripts store with weights."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


@final
@dataclass(frozen=True)
class State:
    """The tensors of a state dict by name, and one sentence per assumption made to find them.

    `metadata` is torch's record of class versions, by the name of each module.
    """

    tensors: dict[str, Tensor]
    assumed: tuple[str, ...] = ()
    metadata: Mapping[str, Any] | None = None

    def without(self, prefix: str) -> "State":
        """These tensors with a prefix removed from all names."""
        assumption = f"prefix '{prefix}' removed from {len(self.tensors)} keys"
        tensors = {key.removeprefix(prefix): tensor for key, tensor in self.tensors.items()}
        metadata = {f"{name}.".removeprefix(prefix)[:-1]: each for name, each in (self.metadata or {}).items() if name}
        return State(tensors, (*self.assumed, assumption), metadata or None)


def state_in(content: Mapping[Any, Any]) -> State | None:
    """The state dict that `content` is or wraps; None if there is none.

    >>> state = state_in({"epoch": 3, "state_dict": {"module.fc.bias": torch.zeros(2)}})
    >>> list(state.tensors), state.assumed
    (['module.fc.bias'], ("weights under the key 'state_dict'",))
    """
    path, mapping = list[str](), content
    other_keys = list[str]()
    for _ in range(DEEPEST):
        keys = [key for key in WRAPPERS if holds_tensors(mapping.get(key))]
        if not keys:
            break
        path.append(keys[0])
        other_keys += keys[1:]
        mapping = mapping[keys[0]]
    tensors = {
        key: torch.Tensor.detach(tensor)
        for key, tensor in mapping.items()
        if isinstance(key, str) and isinstance(tensor, Tensor)
    }
    other_entries = [key for key in mapping if key not in tensors]
    if not tensors or any(not is_plain_value(mapping[key], Record) for key in other_entries):
        return None
    assumed = [f"weights under the key {'.'.join(path)!r}"] if path else []
    assumed += [f"the weights under {key!r} not read" for key in other_keys]
    assumed += (
        [f"{len(other_entries)} entries without tensors not read, {str(other_entries[0])!r} first"]
        if other_entries
        else []
    )
    metadata = getattr(mapping, "_metadata", None)
    return State(tensors, tuple(assumed), metadata if isinstance(metadata, Mapping) else None)


def holds_tensors(value: Any) -> bool:
    """Whether `value` is a dict that contains a tensor, directly or in a dict under a key of `WRAPPERS`."""
    if not isinstance(value, Mapping):
        return False
    return any(isinstance(each, Tensor) for each in value.values()) or any(
        holds_tensors(value.get(k)) for k in WRAPPERS if value.get(k) is not value
    )


def is_plain_value(value: Any, *kinds: type) -> bool:
    """Whether `value` is a number, text, None, of `kinds`, or a container of these, without tensors."""
    if isinstance(value, Mapping):
        return all(is_plain_value(each, *kinds) for each in value.values())
    if isinstance(value, (list, tuple, set)):
        return all(is_plain_value(each, *kinds) for each in value)
    return isinstance(value, (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, *kinds))


def prefix_readings(state: State) -> Iterator[State]:
    """The state, then the state without the first part of all names, repeatedly while they share it.

    >>> [list(each.tensors) for each in prefix_readings(State({"module.net.bias": torch.zeros(2)}))]
    [['module.net.bias'], ['net.bias'], ['bias']]
    """
    yield state
    while len({key.partition(".")[0] for key in state.tensors}) == 1 and all("." in key for key in state.tensors):
        state = state.without(next(iter(state.tensors)).partition(".")[0] + ".")
        yield state


POOLER = "pooler."
MOST_LISTED = 4
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
        """Whether only counters of batches are missing, which only training reads."""
        # Files from before torch 0.4.1 have no counters of batches, and evaluation does not read them.
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
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(name[:80] for name in names[:MOST_LISTED]) + more


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
    """Copies the tensors into the network, in the dtype of the file; returns the assumptions.

    Tied parameters stay tied. Buffers that are missing in the file get the common dtype of the weights, if there is
    one; counters of batches keep the network's. Missing versions of modules are those of the network.

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
    # Some training scripts cast a whole state dict, its integer counters included.
    tensors = {key: each.to(own_state[key].dtype) if key.endswith(COUNTER) else each for key, each in tensors.items()}
    for key, tensor in tensors.items():
        # `load_state_dict` would cast the number silently.
        if own_state[key].is_floating_point() != tensor.is_floating_point() or tensor.is_complex():
            raise CheckpointError(
                "C2A303",
                f"{path}: {key!r} is {tensor.dtype}, but {name} has {own_state[key].dtype}",
                "Convert it to that dtype, and save it again.",
            )
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    # `load_state_dict` casts to the network's dtype, so the network gets the file's dtype first.
    if len(dtypes) == 1:
        network.to(dtype=next(iter(dtypes)))
        own_state = network.state_dict(keep_vars=True)
    for key, tensor in tensors.items():
        if own_state[key].dtype != tensor.dtype:
            own_state[key].data = own_state[key].data.to(tensor.dtype)
    loaded: Any = OrderedDict(tensors)
    # A module reads the version of its format here, and may convert older tensors.
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


def with_own_classes(base: Architecture, difference: Misfit) -> Architecture | None:
    """The architecture with the file's number of outputs; None if more than that differs, or nothing."""
    if difference.unexpected or any(not key.endswith(COUNTER) for key in difference.missing):
        return None
    if any(len(file) != len(own) for _, file, own in difference.shapes):
        return None
    sides = [pair for _, file, own in difference.shapes for pair in zip(file, own, strict=True)]
    # A replaced classifier changes one number, in its weight and its bias alike.
    sizes = {(file, own) for file, own in sides if file != own}
    return base.with_classes(next(iter(sizes))[0]) if len(sizes) == 1 else None


def fill_by_transformers(
    network: Any, tensors: Mapping[str, Tensor], path: str, name: str
) -> tuple[nn.Module, tuple[str, ...]]:
    """A network of the same class and configuration with these weights, and what was assumed.

    A missing pooler keeps fresh weights, which is reported; no attention and no convolution comes after it.

    Raises:
        CheckpointError: weights are missing, left over, or of another shape (C2A304).
    """
    try:
        model, loading_info = type(network).from_pretrained(
            None, config=network.config, state_dict=dict(tensors), output_loading_info=True
        )
    except (RuntimeError, ValueError, OSError, KeyError, TypeError) as error:
        reason = f"{path} does not fit {name} ({first_line(error)})"
        raise CheckpointError("C2A304", reason, "Pass --arch with the architecture that the weights are of.") from error
    missing, unexpected = (sorted(loading_info[f"{part}_keys"]) for part in ("missing", "unexpected"))
    shapes = sorted((key, tuple(file), tuple(own)) for key, file, own in loading_info["mismatched_keys"])
    pooler = [key for key in missing if key.startswith(POOLER)]
    difference = Misfit(tuple(key for key in missing if key not in pooler), tuple(unexpected), tuple(shapes))
    if difference.size:
        reason = f"{path} does not fit {name}: {difference.to_text()}"
        raise CheckpointError("C2A304", reason, "Pass the state dict of such a model.")
    return model, (f"the pooler is not stored and has fresh weights ({first_names(pooler)})",) if pooler else ()
