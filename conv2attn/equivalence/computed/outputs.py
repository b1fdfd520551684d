"""What two networks return, side by side: tensors, or nested tuples, lists and mappings of tensors."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equivalence.computed.axes import in_axes
from conv2attn.equivalence.computed.returned import is_dense
from conv2attn.equivalence.readings.finding import Finding, holds, refuted, undecided
from conv2attn.report import counted
from conv2attn.verdicts import Strength

CHUNK = 1 << 22  # numbers compared at a time, so that float64 copies stay small


@final
@dataclass(frozen=True)
class Outputs:
    """The outputs of both networks on some images: measured, not bounded.

    `stable` counts the images whose two largest classes are further apart than both outputs' differences on them.
    """

    images: str
    count: int
    max_difference: float
    largest_output: float
    same_top1: int | None = None
    correct: tuple[int, int] | None = None
    stable: int | None = None
    bound: float | None = None
    vacuous: bool | None = None
    stable_by_bound: int | None = None


def leaves(output: Any, where: str = "output") -> Iterator[tuple[str, Tensor]]:
    """The dense tensors in an output, each with the path to it; anything else that it holds has no path."""
    if is_dense(output):
        yield where, output
    elif isinstance(output, Mapping):
        for key, item in output.items():
            yield from leaves(item, f"{where}[{key!r}]")
    elif isinstance(output, list | tuple):
        for index, item in enumerate(output):
            yield from leaves(item, f"{where}[{index}]")


def largest_difference(first: Tensor, second: Tensor) -> float:
    """max |first - second|; NaN where the first is not finite; infinite where the second alone is not, where shapes,
    dtypes or devices differ, and where there is nothing to compare."""
    if (first.shape, first.dtype, first.device) != (second.shape, second.dtype, second.device) or not first.numel():
        return math.inf
    if not bool(first.isfinite().all()):
        return math.nan
    if not bool(second.isfinite().all()):
        return math.inf
    chunks = zip(first.reshape(-1).split(CHUNK), second.reshape(-1).split(CHUNK), strict=True)
    return max((wide(ours) - wide(theirs)).abs().max().item() for ours, theirs in chunks)


def wide(tensor: Tensor) -> Tensor:
    """The numbers of any dtype, truth values too, with 53 bits."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def other_kind(first: Tensor, second: Tensor) -> str:
    """Which of shape, dtype and device of the second is another than the first's, in words; empty if none is."""
    for what in ("shape", "dtype", "device"):
        ours, theirs = (getattr(side, what) for side in (first, second))
        if ours != theirs:
            ours, theirs = (tuple(side) if what == "shape" else side for side in (ours, theirs))
            return f"has {what} {theirs}, not {ours}"
    return ""


def judge(first: Any, second: Any, failure: str, overflow: str = "") -> Finding:
    """The finding on the outputs of both, of which the second may have failed to come."""
    if failure:
        return refuted("outputs", "C2A407", f"the second does not run where the first does: {failure}")
    return judge_outputs(first, second, overflow)


def judge_outputs(first: Any, second: Any, overflow: str = "") -> Finding:
    """Whether the second network returns what the first returns in kind: structure, shapes, dtypes, finite numbers.

    After an `overflow` inside the first, the order of its sums decides which numbers are finite: that refutes nothing.
    """
    ours, theirs = dict(leaves(first)), dict(leaves(second))
    if not ours:
        return undecided("outputs", "C2A407", f"the first returns {type(first).__name__} without any tensor")
    if list(ours) != list(theirs):
        missing, more = [k for k in ours if k not in theirs], [k for k in theirs if k not in ours]
        told = [f"{k} is missing" for k in missing] + [f"{k} is new" for k in more] or ["they come in another order"]
        return refuted("outputs", "C2A407", "; ".join(told))
    for where, tensor in ours.items():
        other = theirs[where]
        if kind := other_kind(tensor, other):
            return refuted("outputs", "C2A407", f"{where} {kind}")
        difference = largest_difference(tensor, other)
        if tensor.numel() == 0:
            return undecided("outputs", "C2A407", f"{where} is empty in both: there is nothing to compare")
        if math.isnan(difference):
            return undecided("outputs", "C2A407", f"{where} of the first is not finite on these inputs")
        if difference == math.inf:
            bad = (~other.isfinite()).nonzero().tolist()
            many = f"{where}: {counted(len(bad), 'number')} of the second"
            if overflow:
                return undecided("outputs", "C2A407", f"{many} overflow; {overflow}")
            if not bad:
                return refuted("outputs", "C2A407", f"{where}: the difference is beyond float64")
            at = in_axes(bad[0])
            return refuted("outputs", "C2A407", f"{many} not finite{at and f', the first at {at}'}")
    return holds("outputs", Strength.SAMPLED)


def compare_outputs(
    first: Any, second: Any, described: str, labels: Tensor | None, bound: float | None = None
) -> Outputs | None:
    """The numbers, where the outputs are the same in kind; classes where there is one output (images, classes)."""
    ours, theirs = dict(leaves(first)), dict(leaves(second))
    if list(ours) != list(theirs) or not ours:
        return None
    differences = [largest_difference(ours[key], theirs[key]) for key in ours]
    if not all(map(math.isfinite, differences)):
        return None
    one = next(iter(ours.values()))
    count = len(one) if one.ndim else 1
    largest = max(wide(tensor).abs().max().item() for tensor in ours.values())
    if len(ours) > 1 or one.ndim != 2 or one.shape[1] < 2 or not one.is_floating_point():
        return Outputs(described, count, max(differences), largest, bound=bound, vacuous=is_vacuous(bound, largest))
    other = next(iter(theirs.values()))
    classes = one.argmax(1), other.argmax(1)
    correct = None
    if labels is not None:
        right = [int((found == labels.to(found.device)).sum()) for found in classes]
        correct = right[0], right[1]
    top = one.double().topk(2, 1).values
    margin = top[:, 0] - top[:, 1]
    stable = int((margin > 2 * (one.double() - other.double()).abs().amax(1)).sum())
    by_bound = int((margin > 2 * bound).sum()) if bound is not None else None
    same = int((classes[0] == classes[1]).sum())
    vacuous = is_vacuous(bound, largest)
    return Outputs(described, count, max(differences), largest, same, correct, stable, bound, vacuous, by_bound)


def is_vacuous(bound: float | None, largest: float) -> bool | None:
    """Whether a bound on the difference says less than the outputs' own size."""
    return None if bound is None else not bound <= largest
