"""Which rows of attention are of which image, and whether its tokens lie alike in all images and calls.

No order of axes is assumed. Two images run together: noise in one of them alone moves its own rows. With attention
silenced, a noise and its ramps then tell the centre of each token of both images, as in `places`. Where these differ
by more than half a step, the second image is asked alone, as the first was.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from tempfile import SpooledTemporaryFile
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import EPSILON, IN_MEMORY, SILENT, Places
from conv2attn.networks.reading.responses import Answer, Runs, Shape
from conv2attn.networks.reading.rounds import places as places_of
from conv2attn.networks.reading.token_centres import (
    Centres,
    as_rows,
    centres_known,
    centres_of,
    is_exact,
    ramps_of,
)

HeadAxis = tuple[int, int]
"""The axis of heads among those in front of the queries and keys of one image, and the number of heads."""
Numbers = tuple[Shape, list[Tensor]]
"""What is in front of the queries and keys of a call; which tokens respond, and their centres along each axis."""
SEVERAL_IMAGES = "a row of its attention takes in several images"
NO_IMAGE = "the order of images in the rows of its attention is not known: pass one image at a time"
PLACES_DIFFER = "its tokens lie elsewhere in another image: pass one image at a time"
CALLS_DIFFER = "its module is called several times in a run, on tokens that lie elsewhere: use one module for each call"


@final
@dataclass(frozen=True)
class ImageRows:
    """Where images stand in what is in front of queries and keys: (outer, images, inner) along one `axis` of it.

    `lead` is its shape for one image.
    """

    lead: Shape
    axis: int = 0
    inner: int = 1

    def split(self, tensor: Tensor) -> Tensor:
        """A tensor (*lead of all images, ...) as (images, *lead, ...)."""
        inside = self.lead[self.axis]
        apart = tensor.unflatten(self.axis, (inside // self.inner, -1, self.inner))
        return apart.movedim(self.axis + 1, 0).flatten(self.axis + 1, self.axis + 2)

    def in_front(self, tensor: Tensor) -> Tensor:
        """The same with one axis of images, and of what shares it with them, in front of the other axes."""
        return self.split(tensor).movedim(self.axis + 1, 1).flatten(0, 1)

    @property
    def plain(self) -> bool:
        """Whether images are in front already."""
        return self.axis == 0 and self.inner == self.lead[0]


def rows_of_images(
    alone: Perturbed, inputs: Any, places: Mapping[str, Mapping[str, Places]], leads_of_calls: Mapping[str, list[Shape]]
) -> tuple[dict[str, ImageRows], dict[str, str]]:
    """The rows of each attention, and the reasons why places of one image are not those of all images and calls.

    Args:
        alone, inputs: one image, perturbed for `places`; and inputs with others.
        leads_of_calls: what is in front of the queries and keys of each call in a run of one image.
    """
    pair = alone.others_of(inputs, 0, 2)
    leads = {name: calls[0] for name, calls in leads_of_calls.items()}
    rows = {name: ImageRows(lead, 0, lead[0]) for name, lead in leads.items() if lead}
    rows, reasons = (rows, dict[str, str]()) if pair is None else asked(pair, leads)
    if pair is None and max(map(len, leads_of_calls.values()), default=1) == 1:
        return rows, reasons
    ramps = {each for roles in places.values() for place in roles.values() for each in ramps_of(place)}
    placed = {(name, role): place for name, roles in places.items() for role, place in roles.items() if place.axes}
    two = {} if pair is None else centres_of(pair, ramps)
    # Centres of blurred tokens are compared under the same noise. Those of blocks are known but for rounding, if
    # anything reaches the tokens through the silence.
    reached = {(name, role) for (name, _, role), each in two.items() if bool(each.squares.any())}
    called_once = max(map(len, leads_of_calls.values()), default=1) == 1
    known = called_once and placed.keys() <= reached and all(map(is_exact, placed.values()))
    one = {} if known else centres_of(alone, ramps)
    of_second, twice = dict[str, Mapping[str, Places]](), dict[Answer, Centres]()
    unsure, own = list[tuple[str, str, Places]](), dict[tuple[str, str], Numbers]()
    for name, role, place in ((name, role, place) for name, each in places.items() for role, place in each.items()):
        first, more = calls_in(one, name, role), calls_in(two, name, role)
        if name not in rows or name in reasons or not place.axes or not (known or first):
            continue
        own[name, role] = (leads[name], centres_known(place)) if known else (first[0].lead, first[0].numbers(place))
        if differing(first, own[name, role], place, rows[name]):
            reasons[name] = CALLS_DIFFER
        elif differing(more, own[name, role], place, rows[name]):
            unsure.append((name, role, place))
    if pair is not None and unsure:
        # Centres of blurred tokens depend on the image a little: those of another image are asked as of the first.
        other = alone.others_of(inputs, 1, 2)
        of_second, twice = {} if other is None else dict(places_of(other)), centres_of(pair.first_twice(), ramps)
    for name, role, place in unsure:
        alone_call, theirs = own[name, role], of_second.get(name, {}).get(role)
        # Alone the second image stands where the first did: by its place in the batch tokens may lie elsewhere.
        alike = not differing(calls_in(twice, name, role), alone_call, place, rows[name])
        if theirs is not None and theirs.sides:
            alike = alike and same_cells(place, theirs)
        else:  # Blur hides its cells. A few tokens that change places by what an image shows are then not seen.
            alike = alike and not differing(calls_in(two, name, role), alone_call, place, rows[name], mean=True)
        if not alike:
            reasons[name] = PLACES_DIFFER
    return rows, reasons


def calls_in(centres: Mapping[Answer, Centres], name: str, role: str) -> list[Centres]:
    """The calls of an attention, in their order."""
    return [each for (key, _, part), each in centres.items() if (key, part) == (name, role)]


def same_cells(one: Places, other: Places) -> bool:
    """Whether tokens lie in the same cells."""
    if one.sides != other.sides or one.kind.shape != other.kind.shape:
        return False
    return bool((one.kind == other.kind).all() and (one.at == other.at).all())


def asked(pair: Perturbed, leads: Mapping[str, Shape]) -> tuple[dict[str, ImageRows], dict[str, str]]:
    """The rows of each attention, or why they are not known, from noise in each of two images alone."""
    rows, reasons = dict[str, ImageRows](), dict[str, str]()
    missing = {name for name, lead in leads.items() if lead}
    inputs = [pair, *pair.others()]
    moved: dict[str, dict[int, Tensor]] = {}
    for each in inputs:
        if each.shape is None or each.shape[each.batch] != 2:
            continue
        moved = {name: calls for name, calls in answering(each).items() if name in missing}
        for name, calls in moved.items():
            if not any(bool(call.any()) for call in calls.values()) and each is not inputs[-1]:
                continue
            missing.discard(name)
            found = of_calls(list(calls.values()), leads[name])
            if isinstance(found, str):
                reasons[name] = found
            else:
                rows[name] = found
        if not missing:
            break
    return rows, reasons | dict.fromkeys(missing, NO_IMAGE)


def of_calls(calls: list[Tensor], lead: Shape) -> ImageRows | str:
    """The rows of all calls, each (2, *lead of two images): which rows answer noise in each image."""
    # A row that answers noise in both images mixes them: statistics of the batch, or keys of another image.
    if any(bool(call.all(0).any()) for call in calls):
        return SEVERAL_IMAGES
    # A network may run its images one by one, image after image, or call after call.
    if all(call.shape[1:] == lead for call in calls):  # one image a call: calls are joined in their order
        images = [tuple(call.flatten(1).any(1).tolist()) for call in calls]
        one, two, half = (True, False), (False, True), len(calls) // 2
        in_order = images in ([one] * half + [two] * half, [one, two] * half)
        return ImageRows(lead, 0, lead[0]) if in_order else NO_IMAGE
    found = [of_one(call, lead) for call in calls]
    return found[0] if found[0] is not None and all(each == found[0] for each in found) else NO_IMAGE


def of_one(answers: Tensor, lead: Shape) -> ImageRows | None:
    """The axis, and the rows of an image inside of it, that fit the rows which answer noise in each image."""
    shape = tuple(answers.shape[1:])
    doubled = [axis for axis, (two, one) in enumerate(zip(shape, lead, strict=False)) if two == 2 * one]
    if len(shape) != len(lead) or prod(shape) != 2 * prod(lead) or len(doubled) != 1:
        return None
    (axis,) = doubled
    # (outer, images, inner) on one axis: images in front have inner = all of it, windows in front of images have 1. The
    # largest that fits is taken, which is images in front where several do.
    for inner in range(lead[axis], 0, -1):
        if lead[axis] % inner:
            continue
        second = torch.arange(shape[axis]) // inner % 2
        wrong = answers.movedim(axis + 1, 1).reshape(2, shape[axis], -1).any(2)
        if not bool((wrong[0] & (second == 1)).any() or (wrong[1] & (second == 0)).any()):
            return ImageRows(lead, axis, inner)
    return None


def answering(pair: Perturbed) -> dict[str, dict[int, Tensor]]:
    """For each attention and call, which rows of its own run answer noise in each of two images: (2, *lead)."""
    generator = torch.Generator().manual_seed(2)
    assert pair.shape is not None
    noise = torch.randn(pair.shape, generator=generator, device="cpu", dtype=torch.float64) * EPSILON
    found = defaultdict[str, dict[int, Tensor]](dict)
    with SpooledTemporaryFile(IN_MEMORY) as file:
        runs = Runs(file, pair, lambda _, own: own)
        for image in (0, 1):
            alone = torch.zeros_like(noise)
            alone.narrow(pair.batch, image, 1).copy_(noise.narrow(pair.batch, image, 1))
            runs.add(alone)
        squares = {each: torch.stack([t.pow(2).sum((-1, -2)) for t in runs.of(each, 1, 2)]) for each in runs.leads}
    # Axes that an answer lacks could be those of images or of heads: where others have all, it is not asked.
    by_axes = sorted(squares.items(), key=lambda item: item[1][0].ndim != len(runs.leads[item[0]]))
    for (name, call, role), each in by_axes:
        lead = runs.leads[name, call, role]
        if each[0].ndim != len(lead) and call in found[name] and bool(found[name][call].any()):
            continue
        of_rows = as_rows(each, lead)
        if of_rows is not None:
            live = of_rows > SILENT * float(of_rows.max())
            found[name][call] = found[name].get(call, torch.zeros_like(live)) | live
    return found


def differing(parts: Sequence[Centres], first: Numbers, place: Places, rows: ImageRows, mean: bool = False) -> bool:
    """Whether the tokens of some images or calls do not lie where those of the first do; each, or their mean.

    The noise of all is the same. Tokens of two cells are at least a step apart, so that half a step tells them.
    """
    steps = [1.0, *(1 / side for side in place.sides)]
    wanted = [of_images(each, first[0], rows) for each in first[1]]
    for centres in parts:
        for each, one, step in zip(centres.numbers(place), wanted, steps, strict=True):
            here = of_images(each, centres.lead, rows)
            if here is None or one is None or here.shape[1:] != one.shape[1:]:
                return True
            apart = (here - one).abs()
            if bool(((apart.mean(-1) if mean else apart) >= step / 2).any()):
                return True
    return False


def of_images(tensor: Tensor, lead: Shape, rows: ImageRows) -> Tensor | None:
    """Numbers (..., tokens) of a call as (images, *lead, tokens); None where the axes do not fit."""
    front = as_rows(tensor.movedim(-1, 0), lead)
    if front is None:
        return None
    each = front.movedim(0, -1)
    return each[None] if lead == rows.lead else rows.split(each)


def by_head(attention: Tensor, axis: int, heads: int) -> Tensor:
    """Attention (images, *lead, queries, keys) as (images and windows, heads, queries, keys)."""
    tokens = attention.shape[-2:]
    if attention.ndim == 4:  # heads share the axis with windows
        attention = attention.unflatten(1, (-1, heads) if axis == 1 else (heads, -1))
    while attention.shape[1 + axis] < heads:  # groups of heads have an axis of their own
        attention = attention.flatten(1 + axis, 2 + axis)
    return attention.movedim(1 + axis, -3).reshape(-1, heads, *tokens)


def axis_of_heads(places: Mapping[str, Places], lead: Shape) -> HeadAxis | None:
    """The axis of the rows of one image that lie at the same tokens, which are heads; None where the places tell none.

    Rows that lie at tokens of their own are windows.
    """
    place = places.get("key") or places.get("value")
    if place is None or place.centre is None or not lead:
        return None
    at = as_rows(place.at.flatten(-2).movedim(-1, 0), lead)
    if at is None:
        return None
    if len(lead) == 1:
        for heads in (each for each in range(lead[0], 0, -1) if lead[0] % each == 0):
            for axis, shape in ((1, (-1, heads)), (0, (heads, -1))):
                if constant(at.unflatten(1, shape), 1 + axis):
                    return axis, heads
    several = [axis for axis, count in enumerate(lead) if count > 1]
    wide = [axis for axis in several if constant(at, 1 + axis)]
    # Groups of heads and heads of a group: all that is behind the axis of one image.
    grouped = lead[0] == 1 and wide == several == list(range(wide[0], len(lead))) if len(wide) > 1 else False
    return (wide[0], prod(lead[wide[0] :]) if grouped else lead[wide[0]]) if len(wide) == 1 or grouped else None


def on_two_sides(rows: ImageRows, heads: HeadAxis) -> bool:
    """Whether rows of one image that lie at the same tokens stand around those of other images, on the axis of these.

    Two views of an image on the batch axis do, beside the heads of each.
    """
    axis, count = heads
    length = rows.lead[rows.axis]
    if len(rows.lead) == 1:
        return count == length and 1 < rows.inner < length
    return rows.axis == axis and count > 1 and rows.inner < length


def constant(tensor: Tensor, axis: int) -> bool:
    """Whether numbers do not change along an axis."""
    return bool((tensor == tensor.narrow(axis, 0, 1)).all())
