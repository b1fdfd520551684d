"""A drawn network that knows its own attention: it is read as it is, or refused, and never read wrong."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks.edges.own_attention import CELLS, HEADS, ROWS, WHOLE, WINDOWS, Layer, note, verdict_of
from torch.nn import functional as F

from conv2attn.networks.reading import score_order

FORMS = {
    "images, heads": (lambda each: each, lambda each, images: each),
    "heads, images": (lambda each: each.transpose(0, 1), lambda each, images: each.transpose(0, 1)),
    "images and heads on one axis": (
        lambda each: each.flatten(0, 1),
        lambda each, images: each.unflatten(0, (images, HEADS)),
    ),
    "heads and images on one axis": (
        lambda each: each.transpose(0, 1).flatten(0, 1),
        lambda each, images: each.unflatten(0, (HEADS, images)).transpose(0, 1),
    ),
}
"""How queries, keys and values (images, heads, tokens, width) are laid out, and how what is made of them goes back."""
PRODUCTS = {
    "matmul": (lambda query, key: query @ key.mT, torch.matmul),
    "keys first": (lambda query, key: torch.einsum("...kd,...qd->...qk", key, query), torch.matmul),
    "einsum": (partial(torch.einsum, "...qd,...kd->...qk"), partial(torch.einsum, "...qk,...kd->...qd")),
    "behind another axis": (lambda query, key: torch.stack([*(key @ query.mT).unbind(-2)], -1), torch.matmul),
    "transposed": (lambda query, key: (key @ query.mT).mT, lambda weights, value: (value.mT @ weights.mT).mT),
}
CHANGES = {
    "none": lambda weights: weights,
    "dropout": partial(F.dropout, p=0.5, training=False),
    "squares": lambda weights: weights.square() / weights.square().sum(-1, keepdim=True),
    "the largest": lambda weights: weights * (weights >= weights.topk(2).values[..., -1:]),
    "halves": lambda weights: 0.5 * weights + 0.5 * torch.eye(weights.shape[-1], dtype=weights.dtype),
}
"""What happens to weights between the softmax and the values."""
SHUFFLED = torch.randperm(CELLS, generator=torch.Generator().manual_seed(3))
PLACES = {"whole": WHOLE, "rows": ROWS, "windows": WINDOWS, "columns": ROWS.T, "shuffled": SHUFFLED[None]}


class Drawn(Layer):
    """A layer that lays out, multiplies and changes as it is told."""

    def __init__(self, form, product, change):
        super().__init__()
        self.form, self.product, self.change = FORMS[form], PRODUCTS[product], CHANGES[change]

    def forward(self, tokens, places, outer):
        """Tokens (images * windows, tokens, width), with windows outside of images where `outer`."""
        (lay, back), (multiply, apply) = self.form, self.product
        query, key, value = map(lay, self.parts(tokens))
        weights = self.change(torch.softmax(2 * multiply(query, key), -1))
        own = back(weights, len(tokens))
        windows = len(places)
        note(own.unflatten(0, (windows, -1)).transpose(0, 1) if outer else own.unflatten(0, (-1, windows)), places)
        return self.proj(back(apply(weights, value), len(tokens)).transpose(1, 2).flatten(2))


def attend(layer, tokens, places, outer, apart):
    """The layer on tokens in windows, of all images together or of each `apart`."""
    for images in tokens.split(1) if apart else [tokens]:
        cut = images[:, places].transpose(0, 1) if outer else images[:, places]
        layer(cut.flatten(0, 1), places, outer)
    return tokens


@pytest.mark.rotated
@settings(max_examples=12)
@given(*map(st.sampled_from, ([*FORMS], [*PRODUCTS], [*CHANGES], [*PLACES])), st.booleans(), st.booleans())
def test_a_drawn_network_is_read_as_it_attends(form, product, change, places, outer, apart):
    """Planted: a product that is turned in front of its softmax was taken for turned weights, and refused."""
    assert (
        verdict_of(
            lambda layer, tokens: attend(layer, tokens, PLACES[places], outer, apart),
            partial(Drawn, form, product, change),
        )
        == "right"
    )


def test_the_law_sees_a_wrong_reading(monkeypatch):
    """Planted: noise never takes the second factor of scores for the queries."""
    choices = partial(Drawn, "images, heads", "transposed", "none")
    straight = partial(lambda own, weights, _, *rest: own(weights, False, *rest), score_order.moved)
    monkeypatch.setattr(score_order, "moved", straight)
    assert verdict_of(lambda layer, tokens: attend(layer, tokens, WHOLE, False, False), choices) != "right"
