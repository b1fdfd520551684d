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


def objections(first: Mapping[str, Any], second: Mapping[str, Any], names: Mapping[str, bool]) -> Iterator[Objection]:
    """What of the second file is not what the first one needs, for layers that were proved or bounded."""
    states = tensors_of(first), tensors_of(second)
    yield from of_architectures(first, second, states[0])
    apart = []
    for name, proved in names.items():
        known, plan = (state.get("layers", {}).get(name.rstrip(".")) for state in (first, second))
        weights = [f"{name}weight" in state for state in states]
        if plan is not None and (known is not None or weights[0]):
            yield from of_layers(name, (known, plan), states, proved=proved)
        elif weights == [True, True]:
            yield from of_numbers(name, *states)
        else:
            continue
        apart.append(name)
    yield from unequal(*states, {key for state in states for key in state if not key.startswith(tuple(apart))})


def of_architectures(
    first: Mapping[str, Any], second: Mapping[str, Any], ours: Mapping[str, Tensor]
) -> Iterator[Objection]:
    """Where the second file does not tell the architecture of the first, which a state dict shows by its shapes."""
    told = second.get("architecture")
    if "architecture" in first or told is None:
        needed = first.get("architecture")
    else:
        needed = ["resnet", resnet(ours)]
    if plain(told) != plain(needed):
        yield Objection(f"the architecture is {told}, not {needed}")


def plain(told: Any) -> Any:
    """An architecture, with lists and tuples alike."""
    if isinstance(told, Mapping):
        return {key: plain(size) for key, size in told.items()}
    return tuple(map(plain, told)) if isinstance(told, list | tuple) else told


def resnet(ours: Mapping[str, Tensor]) -> dict[str, Any]:
    """The sizes of a ResNet, from the shapes of its state dict."""
    (width, channels, side, _), (inner, fan_in, _, _) = (
        ours[f"{name}.weight"].shape for name in ("conv1", "layer1.0.conv2")
    )
    blocks = {tuple(key.split(".")[:2]) for key in ours}
    return {
        "block": "bottleneck" if "layer1.0.conv3.weight" in ours else "basic",
        "depths": tuple(sum(stage == f"layer{number}" for stage, *_ in blocks) for number in range(1, 5)),
        "width": width,
        "classes": len(ours.get("fc.weight", ())),
        "channels": channels,
        "stem": "imagenet" if side == 7 else "cifar",
        "inner": None if inner == width else inner,
        "groups": inner // fan_in,
    }


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
