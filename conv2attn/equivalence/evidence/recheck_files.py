"""Two stored networks held against each other, all but their layers bit for bit: short code that reads files itself."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from conv2attn.equivalence.evidence.recheck_forms import Objection
from conv2attn.equivalence.evidence.recheck_layers import identical, of_layers

WRAPPERS = ("state_dict", "model_state_dict", "model")
PREFIXES = ("module.", "_orig_mod.")
MEAN, COUNTER = ".running_mean", ".num_batches_tracked"  # files older than torch 0.4.1 have no counter, which is 0 then


def tensors_of(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file by the names that the network gives them, whatever wrapped it when it was saved.

    Raises:
        TypeError: it holds something else.
    """
    held = next((state[key] for key in WRAPPERS if isinstance(state.get(key), Mapping)), state)
    if not all(isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in held.items()):
        raise TypeError("not all of it is a tensor with a name")
    tensors = dict(held)
    while prefix := next((each for each in PREFIXES if tensors and all(key.startswith(each) for key in tensors)), None):
        tensors = {key.removeprefix(prefix): tensor for key, tensor in tensors.items()}
    means = [key.removesuffix(MEAN) for key in tensors if key.endswith(MEAN)]
    return {**{f"{name}{COUNTER}": torch.tensor(0) for name in means}, **tensors}


def objections(
    first: Mapping[str, Any], second: Mapping[str, Any], names: Mapping[str, bool], forms: Mapping[str, Any]
) -> Iterator[Objection]:
    """What of the second file is not what the first one needs, for layers that were proved or bounded.

    Args:
        forms: by name, the form of the first layer as the certificate has it.
    """
    states = tensors_of(first), tensors_of(second)
    apart = []
    for name, proved in names.items():
        known, plan = (state.get("layers", {}).get(name.rstrip(".")) for state in (first, second))
        weights = [f"{name}weight" in state for state in states]
        if plan is not None and (known is not None or weights[0]):
            yield from of_layers(name, (known, plan), states, forms[name], proved=proved)
        elif weights == [True, True]:
            yield from of_numbers(name, *states)
        else:
            continue
        apart.append(name)
    yield from unequal(*states, {key for state in states for key in state if not key.startswith(tuple(apart))})


def of_numbers(name: str, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> Iterator[Objection]:
    """What of two convolutions of the same geometry differs as a number, or is none."""
    for key in sorted({key for state in (ours, theirs) for key in state if key.startswith(name)}):
        if key not in ours or key not in theirs or not identical(ours[key], theirs[key]):
            yield Objection(f"{key} differs")


def unequal(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], keys: set[str]) -> Iterator[Objection]:
    """The tensors of these names that are not the same, bit for bit."""
    for key in sorted(keys):
        if key not in ours or key not in theirs or not same_bits(ours[key], theirs[key]):
            yield Objection(f"{key} differs")


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Same dtype, shape and bits: zeros have signs, and a NaN is itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (a, b)))
