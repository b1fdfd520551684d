"""Heads whose target can be off the padded grid, where a softmax moves on to the nearest key.

Whether they read the right pixels is decided for every input size. The axes do not depend on each other, so the pixels
that a query reads are any combination of those along its axes, and of these there are finitely many.
"""

import itertools
from collections.abc import Sequence

from conv2attn.basis import Basis, Offset, Sides, offsets
from conv2attn.equivalence.border import NOTHING, farthest, nearest, patterns, pixels
from conv2attn.equivalence.finding import Finding, holds, refuted, undecided
from conv2attn.equivalence.heads import heads_out_of_bounds, is_enumerated
from conv2attn.equivalence.tap_sums import different_sums, starts_in_use
from conv2attn.errors import GeometryError

FARTHEST = 256  # pixels by which starts, paddings and rooms may reach out; eight times as many sizes are compared
FARTHEST_ENUMERATED = 8  # such pixels of an enumeration, of which every query of one grid is compared


def judge_out_of_bounds(original: Basis, converted: Basis) -> Finding:
    """Whether the pixels that heads read instead of targets off the grid are those that `original` reads.

    Exact for hard heads; the leak has a finding of its own. Both layers have equal forms, and equal sums of taps at
    equal starts unless the finding on the weights says otherwise: so the taps of `original` stand for both.
    """
    outside = {side: heads_out_of_bounds(side) for side in (converted, original)}
    side, heads = next(each for each in outside.items() if each[1])
    sentence = f"head {heads[0]} attends to {offsets(side.operators)[heads[0]]}, which can lie off the padded grid"
    starts = sorted(starts_in_use(original) & set(converted.starts))
    enumerated = any(heads and is_enumerated(side) for side, heads in outside.items())
    if farthest(original, converted, starts) > (FARTHEST_ENUMERATED if enumerated else FARTHEST):
        return undecided("geometry", "C2A401", f"{sentence}, by more than is compared")
    if enumerated:
        return judge_enumerated(original, converted, starts, sentence)
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


def judge_enumerated(original: Basis, converted: Basis, starts: Sequence[Offset], sentence: str) -> Finding:
    """The finding where Lemma 1's enumeration decides which key is nearest: a small grid can refute, none proves."""
    sides = tuple(farthest(original, converted, starts) + 3 + axis for axis in range(len(original.form.stride)))
    form = original.form
    counts = [
        (spacing * (side - 1) + room) // stride + 1
        for side, room, stride, spacing in zip(sides, form.room, form.stride, form.spacing, strict=True)
    ]
    for query in itertools.product(*map(range, counts)):
        at = tuple(o * stride for o, stride in zip(query, form.stride, strict=True))
        ours, theirs = ([nearest(each, sides, at, start) for start in starts] for each in (original, converted))
        if ours != theirs and reads_otherwise(original, starts, ours, theirs):
            return elsewhere(converted, starts, ours, theirs, f"for query {query} of an input {joined(sides)}")
    return undecided("geometry", "C2A401", f"{sentence}: on an input {joined(sides)} it is right")


def elsewhere(
    converted: Basis, starts: Sequence[Offset], ours: Sequence[Offset], theirs: Sequence[Offset], where: str
) -> Finding:
    """The finding that a head reads another pixel than it should."""
    term = next(term for term, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    head = converted.starts.index(starts[term])
    read_there = f"it reads {in_words(theirs[term])}, and not {in_words(ours[term])}"
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


def in_words(pixel: Offset) -> str:
    """A pixel for a sentence, or `zero`."""
    return "zero" if pixel == NOTHING else f"pixel {pixel}"
