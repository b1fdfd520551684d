"""Answers of two images that run together: the image, head and window of each attention row, and its tokens'
positions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.errors import first_line
from conv2attn.networks.reading.layouts import (
    SEVERAL_IMAGES,
    Layout,
    Located,
    arranged,
    images_of_rows,
    joined,
    located,
)
from conv2attn.networks.reading.orders import Heads
from conv2attn.networks.reading.perturbed import Perturbed, on_the_cpu
from conv2attn.networks.reading.places import PLACES_DIFFER, Places
from conv2attn.networks.reading.replay_result import OTHER_HEADS, Replayed
from conv2attn.networks.reading.responses import ROLES, SEVERAL, Call, Shape
from conv2attn.networks.reading.rounds import places
from conv2attn.networks.reading.score_order import Order, order_of
from conv2attn.networks.reading.token_grids import Placed, images_as_windows, placed


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of `count` images: for each call the image of each row, the attention's shape, and its tokens'
    places.

    `order` has the reasons why rows or columns are not in the order of the queries and keys, for calls on one image.
    """

    count: int
    places: Mapping[Call, Mapping[str, Places]] | str
    images: Mapping[Call, Tensor]
    shapes: Mapping[Call, Shape]
    order: Mapping[Call, str] = field(default_factory=dict)

    @cached_property
    def groups(self) -> list[tuple[Call, ...]]:
        """The calls of each attention, in the order of the run."""
        return joined(list(self.shapes), self.images, self.count)

    def calls_of(self, name: str) -> list[Call]:
        """The calls of an attention of this name."""
        return [call for call in self.shapes if call[0] == name]

    def why_unordered(self, calls: Sequence[Call]) -> str:
        """The reason why rows or columns of these calls are not in the order of their queries or keys."""
        # A loop over images makes one call per image, so calls have other numbers here than in a run of one image.
        alone = [call for call in self.order if call[0] == calls[0][0]]
        same = [call for call in calls if call in alone] if len(self.calls_of(calls[0][0])) != self.count else []
        return next((self.order[call] for call in same or alone if self.order[call]), "")

    def image_of(self, calls: Sequence[Call]) -> Tensor | None:
        """The image of each row of these calls; None if it is unknown."""
        if any(call not in self.images for call in calls):
            return None
        image = torch.cat([self.images[call].flatten() for call in calls])
        return torch.zeros_like(image) if self.count == 1 else image

    def placed(self, calls: Sequence[Call]) -> tuple[Layout | None, Placed | str]:
        """The layout of the rows of these calls and the places of their tokens in all images, or the reason why these
        are unknown.
        """
        if isinstance(self.places, str):
            return None, self.places
        query, key, value = (located(calls, role, self.places, self.shapes) for role in ROLES)
        (*_, queries, keys), image = self.shapes[calls[0]], self.image_of(calls)
        if image is not None and bool((image == SEVERAL).any()):
            return None, SEVERAL_IMAGES
        shape = queries, keys
        key = value if key is None else key
        query = key if query is None and shape[0] == shape[1] else query
        if not isinstance(query, Located) or not isinstance(key, Located) or image is None:
            return None, str(placed(query, key, value, shape, torch.zeros(1, 1, dtype=torch.long, device="cpu")))
        lead = self.shapes[calls[0]][:-2] if len(calls) == 1 else ()
        at = arranged(image, self.count, query.cells, key.cells, lead)
        if isinstance(at, str):
            return None, at
        placements = [placed(query, key, value, shape, each) for each in at]
        why = next((each for each in placements if isinstance(each, str)), "")
        alike = all(bool((each.cells[at] == each.cells[at[:1]]).all()) for each in (query, key))
        # Tokens without a place, such as mask tokens, must be the same ones in all images.
        exact = query.exact and key.exact
        lost = any(bool(((cells := each.cells[at]) < 0).ne(cells[:1] < 0).any()) for each in (query, key))
        if not why and not alike and (lost or not exact):
            why = PLACES_DIFFER
        where = why or placements[0]
        if not isinstance(where, str) and not alike:
            where = images_as_windows(query, key, at)
        return Layout(tuple(calls), at), where

    def with_layout(
        self, calls: Sequence[Call], layout: Layout | None, replay: Replayed, shape: Shape
    ) -> tuple[Replayed, Layout | None]:
        """The replay and the layout, which must agree on the heads. If the tokens determine no layout, it follows from
        the replay, or from the convention of four axes.

        Args:
            shape: shape of the attention of one image.
        """
        lead, count = shape[:-2], 0 if replay.matrices is None else len(replay.matrices)
        axis = replay.heads if count else 1
        if len(lead) == 1 and count:
            heads = Heads((lead[0] // count, count) if axis == 1 else (count, lead[0] // count), axis)
        elif len(lead) == 2 or (len(lead) > 1 and count):
            heads = Heads(lead, axis)
        else:
            return replay, layout
        rows = heads.split(torch.arange(prod(lead), device="cpu").reshape(lead), 0)
        if layout is None:
            image = self.image_of(calls)
            own = [] if image is None else [(image == at).nonzero().flatten() for at in range(self.count)]
            whole = bool(own) and all(len(each) == rows.numel() for each in own)
            return replay, Layout(tuple(calls), torch.stack([each[rows] for each in own])) if whole else None
        # A layer that runs alone may replay with windows in place of heads. The places of its tokens show this.
        ranks = layout.at[0].flatten().argsort().argsort().reshape(layout.at[0].shape)
        if not count or (ranks.shape == rows.shape and torch.equal(ranks.sort().values, rows.sort().values)):
            return replay, layout
        return Replayed(replay.residual, why=OTHER_HEADS), layout


@on_the_cpu
def answers_of(alone: Perturbed, inputs: Any, count: int, ordered: bool = True) -> Answers | str:
    """The answers of `count` images of these inputs that run together, or of the only image; or the reason why there
    are none.

    Args:
        ordered: whether the order of rows and columns is tested too.
    """
    pair = alone.others_of(inputs, 0, count) or alone
    try:
        images, shapes = images_of_rows(pair)
        order = order_of(alone) if ordered else Order()
        if order.rows or order.turned:  # per image the order of rows may differ, and so do call numbers
            order = order_of(pair)
    except Exception as error:  # a network may raise its own
        return f"two images do not run together in float64 ({first_line(error)})"
    try:
        by_call: Mapping[Call, Mapping[str, Places]] | str = places(pair, order)
    except Exception as error:  # a network may raise its own
        by_call = f"it does not run with noise on its input ({first_line(error)})"
    return Answers(pair.images, by_call, images, shapes, order.reasons)


def runs_of(
    batches: Sequence[Any], layouts: Sequence[Layout], alone: Perturbed | None
) -> Iterator[tuple[Any, int, int]]:
    """Parts of the batches to run, each with its number of images and how many of them the part before already had.

    Two images run together if a layout is known only for two images.
    """
    for batch in batches:
        count = 0 if alone is None else alone.images_in(batch)
        if alone is None or count < 3 or all(each.of_images(count) is not None for each in layouts):
            yield batch, count, 0
            continue
        for start in range(0, count, 2):
            first = min(start, count - 2)
            yield alone.part(batch, first, first + 2), 2, start - first
