"""The image, head and window of each attention row, measured on two images that run together.

Noise in one image alone changes the rows of that image only. Rows of one image whose tokens lie in the same cells are
heads; others are windows, whatever axes they are on. A module may be called several times: calls that have rows of only
some images form one attention together; every other call is an attention of its own.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from tempfile import SpooledTemporaryFile
from typing import final

import torch
from torch import Tensor

from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import IN_MEMORY, Places
from conv2attn.networks.reading.responses import EPSILON, NONE, SEVERAL, SILENT, Call, Runs, Shape

NO_IMAGE = "the order of images in the rows of its attention is not known: pass one image at a time"
OTHER_AXES = "its tokens and its attention have different axes"
SEVERAL_IMAGES = "a row of its attention depends on several images"
SAME_PLACES = "rows of one image have the same tokens on two axes, either of which may be its heads"


@final
@dataclass(frozen=True, eq=False)
class Layout:
    """The layout of attention rows: `at` (images, heads, windows) are the row numbers within its `calls`."""

    calls: tuple[Call, ...]
    at: Tensor

    @property
    def in_order(self) -> bool:
        """Whether images come first, then heads, then windows."""
        return bool((self.at.flatten() == torch.arange(self.at.numel(), device="cpu")).all())

    def of_images(self, count: int) -> Tensor | None:
        """The same layout for `count` images; None if only a run of that many images determines it."""
        images, inner = len(self.at), int((self.at[1:] - self.at[:1]).flatten()[0]) if len(self.at) > 1 else 0
        if images == count:
            return self.at
        # The rows on one axis are (outer, images, inner); if images come first, all rows of one image are together.
        # A single image does not show the axis of images.
        own = self.at[0]
        fits = inner > 0 and bool((self.at[1] - own == inner).all()) and bool((own // inner % images == 0).all())
        if len(self.calls) > 1 or not fits:
            return None
        block, inside = own // (images * inner), own % inner
        return torch.stack([(block * count + image) * inner + inside for image in range(count)])

    def rows(self, attention: Tensor, count: int) -> Tensor | None:
        """Rows (rows, queries, keys) of `count` images as (images and windows, heads, queries, keys)."""
        at = self.of_images(count)
        if at is None or at.numel() != len(attention):
            return None
        order = at.transpose(1, 2).flatten()
        ordered = (
            attention
            if torch.equal(order, torch.arange(len(order), device="cpu"))
            else attention[order.to(attention.device)]
        )
        return ordered.unflatten(0, (-1, at.shape[1]))


@final
@dataclass(frozen=True, eq=False)
class Located:
    """The `cells` (rows, tokens) of the queries, keys or values of an attention, on a grid of `sides`; -1 for none.

    `centre` (rows, tokens, axes) is in the sides of the input, if it is known; `exact` says that tokens are blocks.
    """

    cells: Tensor
    sides: Shape
    centre: Tensor | None
    exact: bool


def images_of_rows(pair: Perturbed) -> tuple[dict[Call, Tensor], dict[Call, Shape]]:
    """The image of each row of each call, by its leading axes, NONE or SEVERAL; and the attention's shape."""
    images_by_call, shapes = dict[Call, Tensor](), dict[Call, Shape]()
    for each in (pair, *pair.others()):
        if not each.has_images:
            continue
        images, shapes = answering(each)
        for call, image in images.items():
            if call not in images_by_call or not bool((images_by_call[call] >= 0).any()):
                images_by_call[call] = image
        if all(bool((image >= 0).any()) for image in images_by_call.values()):
            break
    return images_by_call, shapes


def answering(pair: Perturbed) -> tuple[dict[Call, Tensor], dict[Call, Shape]]:
    """For each call, the image on which each row depends within a run of its own; and the attention's shape."""
    generator = torch.Generator().manual_seed(2)
    assert pair.shape is not None
    noise = torch.randn(pair.shape, generator=generator, device="cpu", dtype=torch.float64) * EPSILON
    image_of = dict[Call, Tensor]()
    with SpooledTemporaryFile(IN_MEMORY) as file:
        runs = Runs(file, pair, None)
        for image in range(pair.images):
            # Changes in one image leave the numbers of other images equal to the last bit, so any difference counts.
            alone = torch.zeros_like(noise)
            alone.narrow(pair.batch, image, 1).copy_(noise.narrow(pair.batch, image, 1))
            runs.add(noise if pair.images == 1 else alone)
        numbers = range(1, 1 + pair.images)
        squares = {key: torch.stack([t.pow(2).sum((-1, -2)) for t in runs.of(key, *numbers)]) for key in runs.keys}
    # A call without some of the leading axes is ambiguous: the missing ones could be images or heads. If the other
    # roles have all axes, it is skipped.
    by_axes = sorted(squares.items(), key=lambda item: item[1][0].ndim != len(runs.shapes[item[0][0]]) - 2)
    for (call, _), each in by_axes:
        lead = runs.shapes[call][:-2]
        if each[0].ndim != len(lead) and call in image_of and bool(image_of[call].any()):
            continue
        of_images = as_rows(each, lead)
        if of_images is not None:
            live = of_images > SILENT * float(of_images.max())
            image_of[call] = image_of[call] | live if call in image_of else live
    # A row that responds to noise in several images mixes them: batch statistics, or keys of another image.
    several = {call: live.sum(0) > 1 for call, live in image_of.items()}
    images = {
        call: torch.where(several[call], SEVERAL, torch.where(live.any(0), live.long().argmax(0), NONE))
        for call, live in image_of.items()
    }
    return images, runs.shapes


def as_rows(tensor: Tensor, lead: Shape) -> Tensor | None:
    """A tensor (..., *lead of a query, key or value) with the attention's leading axes; None if they do not fit."""
    # If the attention is a mean over heads while each head has its queries, the response with the largest change
    # represents all heads.
    for axis in mixed_axes(tensor.shape[1:], lead):
        tensor = tensor.amax(1 + axis, keepdim=True)
    front, own = tensor.shape[:1], tuple(tensor.shape[1:])
    if prod(own) == prod(lead):
        return tensor.reshape(*front, *lead)
    ones = [1] * (len(lead) - len(own))
    for shape in ((*ones, *own), (*own, *ones)):  # broadcast as products are, or one head with images first
        try:
            return tensor.reshape(*front, *shape).expand(*front, *lead)
        except RuntimeError:
            continue
    return None


def mixed_axes(own: Sequence[int], lead: Sequence[int]) -> list[int]:
    """The axes of queries, keys or values over which the attention has a single row."""
    pairs = zip(own, lead, strict=True) if len(own) == len(lead) else ()
    return [axis for axis, (tokens, rows) in enumerate(pairs) if rows == 1 < tokens]


def joined(calls: Sequence[Call], images: Mapping[Call, Tensor], count: int) -> list[tuple[Call, ...]]:
    """Groups calls into attentions.

    A call with rows of only some images joins the first attention of its module that has fewer rows of these images
    than of others.
    """
    groups, totals, waiting = list[list[Call]](), list[Tensor](), defaultdict[str, list[int]](list)
    for call in calls:
        image = images.get(call)
        is_placed = image is not None and not bool((image < 0).any())
        own = (
            image.flatten().bincount(minlength=count)
            if is_placed and image is not None
            else torch.zeros(count, device="cpu")
        )
        partial = bool(own.min() < own.max())
        for place in waiting[module_of(call)] if partial else ():
            total = totals[place]
            if total.min() < total.max() and bool((total[own > 0] < total.max()).all()):
                groups[place].append(call)
                totals[place] = total + own
                break
        else:
            if partial:
                waiting[module_of(call)].append(len(groups))
            groups.append([call])
            totals.append(own)
    return [tuple(each) for each in groups]


def module_of(call: Call) -> str:
    """The name of the module that attends in a call."""
    return call[0].split("#")[0]


def located(
    calls: Sequence[Call], role: str, places: Mapping[Call, Mapping[str, Places]], shapes: Mapping[Call, Shape]
) -> Located | str | None:
    """The cells of a role's tokens, row by row; the reason why they are unknown; or None if it was not observed."""
    parts = list[tuple[Tensor, Tensor | None, Places]]()
    for call in calls:
        place = places.get(call, {}).get(role)
        if place is None or place.why:
            return None if place is None else place.why
        code = torch.zeros(place.at.shape[:-1], dtype=torch.long, device="cpu")
        for along, side in enumerate(place.sides):
            code = code * side + place.at[..., along]
        code = torch.where(place.at[..., 0] < 0, -1, code)
        own = place.at.shape[:-2]
        if any(bool(code.diff(dim=axis).any()) for axis in mixed_axes(own, shapes[call][:-2])):
            return OTHER_AXES
        index, tokens = (
            as_rows(torch.arange(prod(own), device="cpu").reshape(1, *own), shapes[call][:-2]),
            shapes[call][-2:],
        )
        if index is None or code.shape[-1] != tokens[role != "query"]:
            return OTHER_AXES
        rows = index.flatten()
        centre = None if place.centre is None else place.centre.reshape(-1, *place.centre.shape[-2:])[rows]
        parts.append((code.reshape(-1, code.shape[-1])[rows], centre, place))
    sides = {each.sides for *_, each in parts if each.sides}
    if len(sides) > 1:
        return OTHER_AXES
    centres = [each for _, each, _ in parts if each is not None]
    whole = torch.cat(centres) if len(centres) == len(parts) else None
    exact = all(each.exact for *_, each in parts if each.sides)
    return Located(torch.cat([code for code, *_ in parts]), max(sides, default=()), whole, exact)


def arranged(image: Tensor, images: int, queries: Tensor, keys: Tensor, lead: Shape = ()) -> Tensor | str:
    """The rows of each image, head and window, from the cells of their queries and keys (rows, tokens).

    Args:
        lead: leading axes of queries and keys, if all rows belong to one call.
    """
    if bool((image < 0).any()):
        return NO_IMAGE
    cells = torch.cat([queries.sort(-1).values, keys.sort(-1).values], -1).tolist()
    groups = [dict[tuple[int, ...], list[int]]() for _ in range(images)]
    for row, (number, each) in enumerate(zip(image.tolist(), cells, strict=True)):
        groups[number].setdefault(tuple(each), []).append(row)
    counts = {len(rows) for each in groups for rows in each.values()}
    if len(counts) > 1 or len({len(each) for each in groups}) > 1:
        return SAME_PLACES
    at = torch.tensor([list(each.values()) for each in groups], device="cpu").transpose(1, 2)
    # Heads of an image are equally spaced, with the same spacing in each image and window. Two views of an image on the
    # batch axis, or two networks, break this spacing between their heads.
    steps = at.diff(dim=1)
    if steps.numel() and bool((steps != steps[0, 0, 0]).any()):
        return SAME_PLACES
    # Groups of heads and heads of a group may be on two axes, but not on one axis together with the images.
    several = [axes_along(rows, lead) for rows in (at[0, :, 0], at[:, 0, 0])]
    if len(several[0]) > 1 and several[0] & several[1]:
        return SAME_PLACES
    # If half of the heads use windows of their own, each query is in several windows.
    standing = queries[at[:, 0].flatten()]
    places_in_image = (image[at[:, 0].flatten()][:, None] * (int(queries.max()) + 1) + standing)[standing >= 0]
    return at if len(places_in_image.unique()) == len(places_in_image) else SAME_PLACES


def axes_along(rows: Tensor, lead: Shape) -> set[int]:
    """The axes along which rows with these numbers differ."""
    places = torch.unravel_index(rows, lead) if lead else ()
    return {axis for axis, each in enumerate(places) if len(each.unique()) > 1}
