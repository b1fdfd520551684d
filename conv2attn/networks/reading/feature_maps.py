"""Places of blurred tokens, found on the feature maps before them: the latest outputs of convolutions or pools.

After padded convolutions a token depends on much of the image, but on a single cell or block of the last map. Noise on
that map identifies the cell up to rounding. The centres of tokens in the image show where the map's cells lie: each
centre must come after that of its neighbour, and in line with its row.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from tempfile import SpooledTemporaryFile

import torch
from torch import Tensor

from conv2attn.networks.reading.attended import Silence
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.places import BLURRED, IN_MEMORY, Places, places_by
from conv2attn.networks.reading.replay_result import CHANNELS
from conv2attn.networks.reading.responses import EPSILON, Call, Key, Response, Runs, Shape

MOST_MAPS = 16
"""How many feature maps before an attention are tried; a side branch, as for global queries, has a dozen."""
MOST_BLURRING = 4
"""How many of these maps may blur a token."""
LIKE = 0.7
"""Least correlation, along one axis, between the places of cells in the image and their numbers on a map."""
NEAR = 0.3
"""Largest distance of a token's centre from its place in a part of the image, in sides of the part."""
CUTS, GOLDEN = 12, (math.sqrt(5) - 1) / 2
"""The number of cuts of an image that test the order of cells, and the ratio that spreads the cuts."""
SURE = 5.0
"""A centre may be off by this many standard errors by chance."""


def by_maps(
    perturbed: Perturbed, by_call: dict[Call, dict[str, Places]], rule: Silence
) -> dict[Call, dict[str, Places]]:
    """The places of tokens; those of blurred tokens come from the feature maps before them, if these determine them."""
    left = [(call, role) for call, roles in by_call.items() for role, each in roles.items() if each.why == BLURRED]
    blurring = Counter[Key]()
    for back in range(MOST_MAPS):
        # Maps before one that blurs a token blur it more, unless a branch joins there.
        left = [key for key in left if blurring[key] < MOST_BLURRING]
        groups = defaultdict[Shape, set[int]](set)
        for call, role in left:
            maps = by_call[call][role].maps
            wide = [
                at
                for at, (count, _, *sides) in enumerate(maps)
                if count % perturbed.images == 0 and max(sides, default=1) > 1
            ]
            if back < len(wide):
                groups[maps[wide[-1 - back]]].add(wide[-1 - back])
        for shape, numbers in groups.items():
            # All maps of one shape are tested at once. A token that depends on several of them is on the same cell of
            # each, or counts as on none.
            answers, parts = places_by(perturbed.at_maps(numbers, shape), rule), shape[0] // perturbed.images
            placed = dict[Key, Places]()
            for call, role in list(left):
                exact = answers.get(call, {}).get(role)
                blurred, place = by_call[call][role], None
                if exact is not None and exact.why == CHANNELS:  # after convolutions the image cannot show this
                    by_call[call][role] = exact
                    left.remove((call, role))
                elif exact is not None and not exact.why:
                    whole = in_whole(exact, blurred, parts)
                    place = None if whole is None else in_image(whole, blurred)
                elif exact is not None and exact.why == BLURRED:
                    blurring[call, role] += 1
                if place is not None:
                    placed[call, role] = place
            for call, role in set(placed) if parts == 1 else in_order(perturbed, placed, rule):
                by_call[call][role] = placed[call, role]
                left.remove((call, role))
    return by_call


def in_whole(exact: Places, blurred: Places, parts: int) -> Places | None:
    """Places on the map of the whole image, if it was split into several maps: parts cut along its axes, or heads."""
    count, sides = len(exact.sides), torch.tensor(exact.sides)
    if parts == 1 or blurred.centre is None or exact.centre is None:
        return exact
    for factors in product(range(1, parts + 1), repeat=count):
        # The centre in the image selects the part; the cell gives the place within it.
        of_part = blurred.centre[..., -count:] * torch.tensor(factors) - exact.centre
        part, live = of_part.nan_to_num().round().long(), ~of_part.isnan()
        fits = ((of_part - part).abs() < NEAR) & (part >= 0) & (part < torch.tensor(factors))
        if math.prod(factors) in (1, parts) and bool(fits[live].all()):
            at = torch.where(live, part * sides + exact.at, -1)
            return replace(exact, at=at, sides=tuple((sides * torch.tensor(factors)).tolist()))
    return None


def in_order(perturbed: Perturbed, placed: Mapping[Key, Places], rule: Silence) -> set[Key]:
    """The tensors whose cells are in the order of the image: the pixels before a cut reach the first cells only.

    Centres alone do not distinguish two overlapping crops from two halves, or from heads.
    """
    shape = perturbed.shape
    assert shape is not None
    cut_axes, right = list[int](), set(placed)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * EPSILON
    with SpooledTemporaryFile(IN_MEMORY) as file:
        runs = Runs(file, perturbed, rule)
        runs.add(noise)
        for axis in sorted({axis for each in placed.values() for axis in each.axes}):
            for number in range(1, CUTS + 1):
                # Multiples of the golden ratio never fall on a multiple of a cell, whatever the cell size.
                cut = 1 + int((shape[axis] - 1) * (number * GOLDEN % 1))
                before = torch.arange(shape[axis]) < cut
                runs.add(noise * before.reshape([-1 if each == axis else 1 for each in range(len(shape))]))
                cut_axes.append(axis)
        for key, (own, change, *cuts) in runs.tokens(*range(runs.count)):
            if key not in placed:
                continue
            live = Response.of(own, change, {}, shape).live
            reached = [Response.of(own, each, {}, shape).live for each in cuts]
            for at, axis in enumerate(placed[key].axes):
                cells = placed[key].at[..., at]
                of_axis = [each for cut_axis, each in zip(cut_axes, reached, strict=True) if cut_axis == axis]
                if not first_cells_alone(cells, live, of_axis):
                    right.discard(key)
    return right


def first_cells_alone(cells: Tensor, live: Tensor, reached: Sequence[Tensor]) -> bool:
    """Whether each cut reaches the first cells along an axis and no others, and at least one cut reaches some but not
    all.
    """
    parted = [each & live for each in reached if (each & live).any() and (live & ~each).any()]
    return bool(parted) and all(bool(cells[each].max() < cells[live & ~each].min()) for each in parted)


def in_image(exact: Places, blurred: Places) -> Places | None:
    """Places on a feature map, its axes in the order of the image's; None if its cells are ordered differently."""
    live = exact.at[..., 0] >= 0
    if blurred.centre is None or blurred.centre.shape[:-1] != live.shape or blurred.error is None:
        return None
    # Every token that depends on the image must depend on the map.
    if bool((live == blurred.centre[..., 0].isnan()).any()):
        return None
    axes, cells = range(len(exact.sides)), torch.zeros_like(exact.at[..., 0])[live]
    for axis, side in enumerate(exact.sides):
        cells = cells * side + exact.at[live][:, axis]
    size = torch.Size(exact.sides).numel()

    def of_cells(tensor: Tensor) -> Tensor:
        """Means over the tokens of each cell, (*sides, axes of the image)."""
        sums = torch.zeros(size, tensor.shape[-1], dtype=torch.float64).index_add_(0, cells, tensor[live])
        return (sums / cells.bincount(minlength=size)[:, None]).reshape(*exact.sides, -1)

    centre, error = of_cells(blurred.centre), of_cells(blurred.error)
    chosen = list[int]()
    for axis in axes:
        lines = centre.movedim(axis, 0).reshape(exact.sides[axis], -1, centre.shape[-1]).nanmean(1)
        lines = lines[~lines.isnan().any(-1)]
        along = [a for a in range(lines.shape[-1]) if bool((lines[:, a].diff() > 0).all())]
        own = exact.at[live][:, axis].double()
        along = [a for a in along if correlation(own, blurred.centre[live][:, a]) > LIKE]
        if len(along) != 1 or not in_line(centre[..., along[0]], error[..., along[0]], axis):
            return None
        chosen += along
    if len(set(chosen)) < len(chosen):
        return None
    order = sorted(axes, key=lambda axis: chosen[axis])
    picked = [chosen[axis] for axis in order]
    return replace(
        exact,
        at=exact.at[..., order],
        sides=tuple(exact.sides[axis] for axis in order),
        centre=blurred.centre[..., picked],
        axes=tuple(blurred.axes[each] for each in picked),
        exact=False,
    )


def in_line(centre: Tensor, error: Tensor, axis: int) -> bool:
    """Whether each cell is after its neighbour along an axis and in line with its row, up to sampling error."""
    at = centre.movedim(axis, 0).reshape(centre.shape[axis], -1)
    behind, level = at.diff(dim=0), at.nanmean(1, keepdim=True)
    step, doubt = float(behind.nanmedian()), SURE * float(error.nanmedian())
    # The error of the difference of two centres is sqrt(2) times that of one.
    return not bool(
        (behind <= min(0.0, step - 1.4 * doubt)).any() or ((at - level).abs() > max(0.5 * step, doubt)).any()
    )


def correlation(one: Tensor, other: Tensor) -> float:
    """The correlation of two vectors."""
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])
