"""Heads whose target can lie off the padded grid, where a softmax moves on to the nearest key.

Whether they read what they should is decided for every input size. The axes do not depend on each other, so that what
the queries of a grid read is any combination of what they read along its axes, and of those there are finitely many.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from conv2attn.basis import Offset, Sides
from conv2attn.equivalence.readings.border import NOTHING, farthest, nearest, patterns, pixels
from conv2attn.equivalence.readings.finding import Finding, holds, refuted, undecided
from conv2attn.equivalence.readings.places import different_sums, places_used
from conv2attn.equivalence.readings.reading import Reading
from conv2attn.errors import GeometryError

FARTHEST = 256  # pixels by which starts, paddings and rooms may reach out; the sizes looked at are eight times as many
FARTHEST_ENUMERATED = 8  # the same for an enumeration, of which every query of one grid is looked at


def judge_strays(original: Reading, converted: Reading) -> Finding:
    """Whether the pixels that heads read instead of targets off the grid are those that `original` reads.

    Exact for hard heads; how hard they are is asked apart. Both have equal forms, and equal sums of weights at equal
    starts but where the finding on the weights says otherwise: so the weights of `original` stand for both.
    """
    side = converted if converted.strays else original
    head = side.strays[0]
    sentence = f"head {head} attends to {side.offsets[head]}, which can lie off the padded grid"
    starts = sorted(places_used(original) & set(converted.starts))
    enumerated = any(each.strays and each.positions and each.positions.by_enumeration for each in (original, converted))
    if farthest(original, converted, starts) > (FARTHEST_ENUMERATED if enumerated else FARTHEST):
        return undecided("geometry", "C2A401", f"{sentence}, by more than is looked at")
    if enumerated:
        return judge_enumerated(original, converted, starts, sentence)
    try:
        axes = [
            patterns(original, converted, axis, [start[axis] for start in starts])
            for axis in range(len(original.geometry.stride))
        ]
    except GeometryError as error:
        return undecided("geometry", "C2A401", f"{sentence}; its padding does not fit all inputs: {error.found}")
    if all(each.ours == each.theirs for axis in axes for each in axis):
        return holds("geometry")
    for combination in itertools.product(*axes):
        ours, theirs = (pixels(combination, which) for which in ("ours", "theirs"))
        if ours != theirs and reads_otherwise(original, starts, ours, theirs):
            sides, query = (tuple(getattr(each, which) for each in combination) for which in ("side", "query"))
            return elsewhere(converted, starts, ours, theirs, f"for query {query} of an input {shape(sides)}")
    return holds("geometry")


def judge_enumerated(original: Reading, converted: Reading, starts: Sequence[Offset], sentence: str) -> Finding:
    """The same where t of Lemma 1's enumeration decides which key is nearest: a small grid can refute, none proves."""
    sides = tuple(farthest(original, converted, starts) + 3 + axis for axis in range(len(original.geometry.stride)))
    form = original.geometry
    counts = [
        (spacing * (side - 1) + room) // stride + 1
        for side, room, stride, spacing in zip(sides, form.room, form.stride, form.spacing, strict=True)
    ]
    for query in itertools.product(*map(range, counts)):
        at = tuple(o * stride for o, stride in zip(query, form.stride, strict=True))
        ours, theirs = ([nearest(each, sides, at, start) for start in starts] for each in (original, converted))
        if ours != theirs and reads_otherwise(original, starts, ours, theirs):
            return elsewhere(converted, starts, ours, theirs, f"for query {query} of an input {shape(sides)}")
    return undecided("geometry", "C2A401", f"{sentence}: on an input {shape(sides)} it is right")


def elsewhere(
    converted: Reading, starts: Sequence[Offset], ours: Sequence[Offset], theirs: Sequence[Offset], where: str
) -> Finding:
    """The finding that a head reads another pixel than it should."""
    term = next(term for term, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    head = converted.starts.index(starts[term])
    read_there = f"it reads {in_words(theirs[term])}, and not {in_words(ours[term])}"
    sentence = f"head {head} attends to {converted.offsets[head]}, off the padded grid {where}: {read_there}"
    return refuted("geometry", "C2A401", sentence)


def shape(sides: Sides) -> str:
    """Sides in words."""
    return "x".join(map(str, sides))


def reads_otherwise(
    original: Reading, starts: Sequence[Offset], ours: Sequence[Offset], theirs: Sequence[Offset]
) -> bool:
    """Whether the weights that come to stand at some pixel add up to different numbers."""
    sides = []
    for each in (ours, theirs):
        place = dict(zip(starts, each, strict=True))
        sides.append(replace(original, starts=tuple(place.get(start, NOTHING) for start in original.starts)))
    places = tuple(dict.fromkeys([NOTHING, *ours, *theirs]))
    return bool(different_sums(sides[0], sides[1], places)[1:].any())


def in_words(pixel: Offset) -> str:
    """A pixel, or zero."""
    return "zero" if pixel == NOTHING else f"pixel {pixel}"
