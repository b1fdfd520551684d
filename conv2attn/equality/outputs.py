"""Outputs of two networks side by side: dense tensors in nested tuples, lists and mappings, and plain values."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor, nn

from conv2attn.equality.certificate.results import Finding, Gap, Outputs, axis_names, holds, refuted, undecided
from conv2attn.equality.distances import distance, largest_difference, other_kind, place_of_largest, real_numbers, wide
from conv2attn.equality.output_parts import PLAIN_KINDS, dense_parts, is_dense, output_parts
from conv2attn.errors import UsageError
from conv2attn.networks.copies import in_training
from conv2attn.report import counted
from conv2attn.verdicts import Strength

MOST_BITS = 1 << 10  # bits of an integer that is printed in decimals
ONLY_COMPARED = "only dense tensors in nested tuples, lists and mappings are compared"


@final
@dataclasses.dataclass(frozen=True)
class Matching:
    """Which tensors of two outputs are compared: pairs of paths, such as ("output", "output['logits']").

    Args:
        pairs: None if both outputs have the same tensors at the same paths.
        by_order: whether only their order pairs the tensors. Equality is then conclusive; a difference may be due to
            wrong pairs.
    """

    pairs: tuple[tuple[str, str], ...] | None = None
    by_order: bool = False

    @property
    def in_words(self) -> str:
        """The pairs as a clause of a claim; empty if nothing was matched."""
        pairs = (one if one == other else f"{one} and {other}" for one, other in self.pairs or ())
        return f", of {'; '.join(pairs)}" if self.pairs else ""

    def of(self, output: Any, side: int) -> Any:
        """The compared tensors of the output of the first (side 0) or second network, both in one packaging."""
        if self.pairs is None:
            return output
        tensors = dict(output_parts(output))  # by path: in a run over a field no number can be read
        chosen = [tensors[pair[side]] for pair in self.pairs]
        return chosen[0] if len(chosen) == 1 else tuple(chosen)


def match_outputs(first: Any, second: Any, match: Mapping[Any, Any] | None = None) -> Matching:
    """Pairs the tensors of two outputs: by `match`, otherwise by equal paths, as single tensors, or by order.

    Packaging does not matter: a tensor, a tuple, a dictionary and a dataclass may hold the same tensor, and one output
    may have more tensors. If nothing pairs the tensors, both outputs stay unchanged.

    Args:
        match: maps an index or a name in the first output to that in the second, as {"logits": 0}.
    Raises:
        UsageError: an output has no such tensor (C2A002).
    """
    ours, theirs = list(dict(dense_parts(first))), list(dict(dense_parts(second)))
    if match:
        return Matching(tuple((path_of(a, ours, "first"), path_of(b, theirs, "second")) for a, b in match.items()))
    if ours == theirs or not ours or not theirs:
        return Matching()
    if len(ours) == len(theirs) == 1:
        return Matching(((ours[0], theirs[0]),))
    if shared := [path for path in ours if path in theirs]:
        return Matching(tuple((path, path) for path in shared))
    forms = [[(each.shape, each.dtype) for _, each in dense_parts(side)] for side in (first, second)]
    if forms[0] == forms[1]:
        return Matching(tuple(zip(ours, theirs, strict=True)), by_order=True)
    return Matching()


def path_of(key: Any, paths: Sequence[str], which: str) -> str:
    """The path of the tensor with this index or name.

    Raises:
        UsageError: there is no such tensor (C2A002).
    """
    wanted = (f"output[{key!r}]", str(key), f"output{key}", f"output[{key}]")
    match = next((path for path in wanted if path in paths), None)
    if match is None and key == 0 and list(paths) == ["output"]:
        return "output"
    if match is None:
        raise UsageError(
            "C2A002", f"the {which} network returns no tensor {key!r}", f"Match some of {', '.join(paths)}."
        )
    return match


@final
class Picked(nn.Module):
    """A network that returns the compared tensors of its output alone; see `Matching`."""

    def __init__(self, network: nn.Module, matching: Matching, side: int):
        super().__init__()
        self.network, self.matching, self.side = network, matching, side
        self.training = in_training(network)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The tensors."""
        return self.matching.of(self.network(*inputs, **named), self.side)


def judge_outputs(first: Any, second: Any, overflow: str = "") -> Finding:
    """Whether both outputs have the same kind: structure, shapes, dtypes, finite numbers.

    After an `overflow` inside the first, the order of sums decides which numbers are finite, so differences refute
    nothing.
    """
    ours, theirs = dict(dense_parts(first)), dict(dense_parts(second))
    if not ours:
        return undecided("outputs", "C2A407", f"the first network returns {type(first).__name__} without any tensor")
    if list(ours) != list(theirs):
        names = " and ".join(", ".join(side) or "no tensor" for side in (ours, theirs))
        sentence = f"the tensors of the outputs cannot be paired ({names}): name them with --match A=B"
        return undecided("outputs", "C2A407", sentence)
    for where, tensor in ours.items():
        other = theirs[where]
        if kind := other_kind(tensor, other):
            return refuted("outputs", "C2A407", f"{where} {kind}")
        difference = largest_difference(tensor, other)
        if tensor.numel() == 0:
            return undecided("outputs", "C2A407", f"{where} is empty in both: there is nothing to compare")
        if math.isnan(difference):
            return undecided("outputs", "C2A407", f"{where} of the first network is not finite on these inputs")
        if difference == math.inf:
            bad = (~wide(other).isfinite()).nonzero().tolist()
            many = f"{where}: {counted(len(bad), 'number')} of the second network"
            if overflow:
                return undecided("outputs", "C2A407", f"{many} overflow; {overflow}")
            if not bad:
                return refuted("outputs", "C2A407", f"{where}: the difference is beyond float64")
            at = in_axes(bad[0])
            return refuted("outputs", "C2A407", f"{many} not finite{at and f', beginning at {at}'}")
    return holds("outputs", Strength.SAMPLED)


def compare_outputs(first: Any, second: Any, described: str, labels: Tensor | None) -> Outputs | None:
    """The measurements of outputs of the same kind; with classes if there is one output (images, classes)."""
    ours, theirs = dict(dense_parts(first)), dict(dense_parts(second))
    if list(ours) != list(theirs) or not ours:
        return None
    pairs = {where: (tensor, theirs[where]) for where, tensor in ours.items()}
    differences = [largest_difference(*pair) for pair in pairs.values()]
    if not all(map(math.isfinite, differences)):
        return None
    one, other = next(iter(pairs.values()))
    count = len(one) if one.ndim else 1
    largest = max(wide(tensor).abs().max().item() for tensor in ours.values())
    gaps = tuple(gap for where, pair in pairs.items() if (gap := widest_gap(where, *pair)))
    if len(ours) > 1 or one.ndim != 2 or one.shape[1] < 2 or not one.is_floating_point():
        return Outputs(described, count, max(differences), largest, gaps=gaps)
    classes = one.argmax(1), other.argmax(1)
    right = [int((chosen == labels.to(chosen.device)).sum()) for chosen in classes] if labels is not None else []
    top = wide(one).topk(2, 1).values
    margin = top[:, 0] - top[:, 1]
    stable = int((margin > 2 * distance(one, other).amax(1)).sum())
    same = int((classes[0] == classes[1]).sum())
    measured = described, count, max(differences), largest
    return Outputs(*measured, same, (right[0], right[1]) if right else None, stable, gaps)


def findings_returned(first: Any, second: Any) -> list[Finding]:
    """A finding on each part that is not a dense tensor, unless it is a plain value, equal in both.

    Such a finding never refutes: a number or a name that was computed from a tensor may change with rounding.
    """
    ours, theirs = ({w: part for w, part in output_parts(side) if not is_dense(part)} for side in (first, second))
    sentences = (difference_in_kind(where, ours, theirs) for where in {**ours, **theirs})
    return [undecided("outputs", "C2A407", sentence) for sentence in sentences if sentence]


def difference_in_kind(where: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The reason why two parts are not known to be equal; empty if they are."""
    sides = [side[where] for side in (ours, theirs) if where in side]
    for thing in sides:
        if not isinstance(thing, (*PLAIN_KINDS, Mapping, list, tuple)):
            return f"{where} is of the kind {type(thing).__name__}, and {ONLY_COMPARED}"
    if len(sides) == 1:
        return f"{where} is {plainly(sides[0])} in one of the two, and another kind of thing or nothing in the other"
    words = [plainly(thing) for thing in sides]
    if type(sides[0]) is not type(sides[1]) or words[0] != words[1]:
        return f"{where} is {words[1]}, not {words[0]}, and {ONLY_COMPARED}"
    return ""


def plainly(value: Any) -> str:
    """A plain value as text; Python refuses to print integers of thousands of digits."""
    return hex(value) if type(value) is int and value.bit_length() > MOST_BITS else repr(value)


def in_axes(place: Sequence[int]) -> str:
    """A place in an output, with named axes."""
    return ", ".join(f"{name} {number}" for name, number in zip(axis_names(len(place)), place, strict=True))


def widest_gap(where: str, ours: Tensor, theirs: Tensor) -> Gap | None:
    """The widest gap between two tensors of one kind; None if the first has no finite number."""
    numbers, others = real_numbers(ours), real_numbers(theirs)
    gaps = distance(numbers, others).masked_fill(~numbers.isfinite(), -1.0)
    if gaps.max() < 0:
        return None
    place = place_of_largest(gaps)
    count = int((gaps.reshape(ours.numel(), -1) > 0).any(1).sum())  # counts complex numbers, not their parts
    return Gap(where, place[: ours.ndim], numbers[place].item(), others[place].item(), count)
