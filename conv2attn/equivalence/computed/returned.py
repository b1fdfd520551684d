"""What two networks return beside dense tensors: it is compared where it is plain, and else decides that nothing is."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from conv2attn.equivalence.readings.finding import Finding, undecided

PLAIN = (type(None), str, bytes, bool, int, float, complex, torch.dtype, torch.device, torch.Size)
REMEDY = "only dense tensors in nested tuples, lists and mappings are compared"


def is_dense(thing: object) -> bool:
    """Whether something is a tensor whose numbers can be read one by one: not sparse, quantised or nested."""
    if not isinstance(thing, Tensor) or thing.is_nested:
        return False
    return thing.layout == torch.strided and not thing.is_quantized


def rest(output: Any, where: str = "output") -> Iterator[tuple[str, Any]]:
    """What an output holds that is no dense tensor, each with the path to it; what is empty counts as such."""
    if isinstance(output, Mapping) and output:
        for key, item in output.items():
            yield from rest(item, f"{where}[{key!r}]")
    elif isinstance(output, list | tuple) and output:
        for index, item in enumerate(output):
            yield from rest(item, f"{where}[{index}]")
    elif not is_dense(output):
        yield where, output


def findings_returned(first: Any, second: Any, failure: str) -> list[Finding]:
    """A finding on each thing in either output that is no dense tensor, unless it is plain and the same in both.

    None refutes: a number or a name that was read off a tensor may turn with its rounding.
    """
    if failure:
        return []
    ours, theirs = dict(rest(first)), dict(rest(second))
    told = (difference(where, ours, theirs) for where in {**ours, **theirs})
    return [undecided("outputs", "C2A407", sentence) for sentence in told if sentence]


def difference(where: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Why what stands at a place is not known to be the same in both, or nothing where it is."""
    sides = [side[where] for side in (ours, theirs) if where in side]
    for thing in sides:
        if not isinstance(thing, (*PLAIN, Mapping, list, tuple)):
            return f"{where} is of the kind {type(thing).__name__}, and {REMEDY}"
    if len(sides) == 1:
        return f"{where} is {sides[0]!r} in one of the two, and another kind of thing or nothing in the other"
    if type(sides[0]) is not type(sides[1]) or repr(sides[0]) != repr(sides[1]):
        return f"{where} is {sides[1]!r}, not {sides[0]!r}, and {REMEDY}"
    return ""
