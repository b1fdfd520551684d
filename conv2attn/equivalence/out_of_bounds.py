"""Heads whose target can be off the padded grid, where a softmax moves on to the nearest key.

Whether they read the right pixels is decided for every input size. The axes do not depend on each other, so the pixels
that a query reads are any combination of those along its axes, and of these there are finitely many.
"""

import itertools
from collections.abc import Sequence

from conv2attn.basis import Basis, EnumeratedSoftmax, Offset, Sides, offsets
from conv2attn.equivalence.border import NOTHING, farthest, patterns, pixels
from conv2attn.equivalence.finding import Finding, holds, refuted, undecided
from conv2attn.equivalence.heads import heads_out_of_bounds
from conv2attn.equivalence.tap_sums import different_sums, starts_in_use
from conv2attn.errors import GeometryError

FARTHEST = 256  # pixels by which starts, paddings and rooms may reach out; eight times as many sizes are compared


def judge_out_of_bounds(original: Basis, converted: Basis) -> Finding:
    """Whether the pixels that heads read instead of targets off the grid are those that `original` reads.

    Exact for hard heads; the leak has a finding of its own. Both layers have equal forms, and equal sums of taps at
    equal starts unless the finding on the weights says otherwise: so the taps of `original` stand for both.
    """
    outside = {side: heads_out_of_bounds(side) for side in (converted, original)}
    side, heads = next(each for each in outside.items() if each[1])
    sentence = f"head {heads[0]} attends to {offsets(side.operators)[heads[0]]}, which can lie off the padded grid"
    starts = sorted(starts_in_use(original) & set(converted.starts))
    if any(isinstance(side.operators, EnumeratedSoftmax) and len(side.form.stride) > 1 for side in outside):
        return undecided("geometry", "C2A401", f"{sentence}, and where an enumeration goes on is not compared")
    if farthest(original, converted, starts) > FARTHEST:
        return undecided("geometry", "C2A401", f"{sentence}, by more than is compared")
    try:
        axes = [
            patterns(original, converted, axis, [start[axis] for start in starts])
            for axis in range(len(original.form.stride))
        ]
    except GeometryError as error:
        return undecided("geometry", "C2A401", f"{sentence}; its padding does not fit all inputs: {error.found}")
    if all(each.ours == each.theirs for axis in axes for each in axis):
        return holds("geometry")
    for combination in itertools.product(*axes):
        ours, theirs = (pixels(combination, which) for which in ("ours", "theirs"))
        if ours != theirs and reads_otherwise(original, starts, ours, theirs):
            sides, query = (tuple(getattr(each, which) for each in combination) for which in ("side", "query"))
            return elsewhere(converted, starts, ours, theirs, f"for query {query} of an input {joined(sides)}")
    return holds("geometry")


def elsewhere(
    converted: Basis, starts: Sequence[Offset], ours: Sequence[Offset], theirs: Sequence[Offset], where: str
) -> Finding:
    """The finding that a head reads another pixel than it should."""
    term = next(term for term, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    head = converted.starts.index(starts[term])
    read_there = f"it reads {named_pixel(theirs[term])}, and not {named_pixel(ours[term])}"
    sentence = f"head {head} attends to {offsets(converted.operators)[head]}, off the padded grid {where}: {read_there}"
    return refuted("geometry", "C2A401", sentence)


def joined(sides: Sides) -> str:
    """Sides joined by x."""
    return "x".join(map(str, sides))


def reads_otherwise(
    original: Basis, starts: Sequence[Offset], ours: Sequence[Offset], theirs: Sequence[Offset]
) -> bool:
    """Whether the taps that come to read one pixel add up to different numbers."""
    own = original.starts
    moved = [
        tuple(dict(zip(starts, each, strict=True)).get(start, NOTHING) for start in own) for each in (ours, theirs)
    ]
    places = tuple(dict.fromkeys([NOTHING, *ours, *theirs]))
    return bool(different_sums(original, original, places, (moved[0], moved[1]))[1:].any())


def named_pixel(pixel: Offset) -> str:
    """A pixel for a sentence, or `zero`."""
    return "zero" if pixel == NOTHING else f"pixel {pixel}"
