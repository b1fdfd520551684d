"""State dicts as people store them: under a key, beside other values, with prefixes of wrapping modules."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

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
    """An empty placeholder for objects that training scripts store beside weights."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


@final
@dataclass(frozen=True)
class State:
    """The tensors of a state dict by name, and one sentence per assumption made to find them.

    `metadata` is what torch stores beside them: by the name of each module, the version of its class.
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

    >>> found = state_in({"epoch": 3, "state_dict": {"module.fc.bias": torch.zeros(2)}})
    >>> list(found.tensors), found.assumed
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
    """Whether `value` is a dict with a tensor in it, or in a dict under a key of `WRAPPERS`."""
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
    """The state, and then without the first part of all names, as long as they share it.

    >>> [list(each.tensors) for each in prefix_readings(State({"module.net.bias": torch.zeros(2)}))]
    [['module.net.bias'], ['net.bias'], ['bias']]
    """
    yield state
    while len({key.partition(".")[0] for key in state.tensors}) == 1 and all("." in key for key in state.tensors):
        state = state.without(next(iter(state.tensors)).partition(".")[0] + ".")
        yield state
