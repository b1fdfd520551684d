"""What a call asks of a device, counted on the imitated one: operators sent, and bytes read and written."""

import math
from pathlib import Path

import pytest
import torch
from imitated_device import DEVICE, counting, imitated
from torch import nn

from conv2attn import convert, set_engine
from conv2attn.layers.attention.engines import mixing
from conv2attn.report import markdown_table

PAGE = Path(__file__).parents[4] / "docs" / "engines.md"
SHORT, LONG = (24, 40), (200, 300)
BATCHES = (1, 3)
KINDS = {
    "the convolution itself": (SHORT + LONG, None),
    "one-hot, `auto`": (SHORT + LONG, ("auto", {})),
    "one-hot, `gather`": (SHORT + LONG, ("gather", {})),
    "frozen, alpha 5, short axes": (SHORT, ("separable", {"alpha": 5.0})),
    "frozen, alpha 5, in tiles": (LONG, ("separable", {"alpha": 5.0})),
    "nine trained heads": (SHORT + LONG, ("separable", {"alpha": 5.0, "trainable": True})),
}
MOST = {"one-hot, `auto`": 2, "frozen, alpha 5, in tiles": 5, "nine trained heads": 8 * 9 + 30}
"""Operators sent forward, at most."""


def layer_of(kind):
    conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
    _, way = KINDS[kind]
    return conv.to(DEVICE) if way is None else set_engine(convert(conv, **way[1]), way[0]).to(DEVICE)


def costs_of(layer, side, batch):
    """Operators, and bytes in multiples of image, output and weight: forward, then backward."""
    image = torch.randn(batch, 4, side, side).to(DEVICE).requires_grad_()
    layer.zero_grad()
    layer(image)
    with counting() as forward:
        output = layer(image)
    total = output.sum()
    with counting() as backward:
        total.backward()
    assert not (forward.reads | forward.copies | backward.reads | backward.copies)
    unit = 4 * (image.numel() + output.numel() + 4 * 4 * 9)
    return [(each.operators, (each.bytes_read + each.bytes_written) / unit) for each in (forward, backward)]


def row_of(kind):
    """The operators, which are the same for every side and batch, and the most bytes."""
    with imitated():
        layer = layer_of(kind)
        every = [costs_of(layer, side, batch) for side in KINDS[kind][0] for batch in BATCHES]
    row = []
    for operators, bytes_moved in (zip(*each, strict=True) for each in zip(*every, strict=True)):
        assert len(set(operators)) == 1, f"{kind}: {operators}"
        row += [operators[0], math.ceil(max(bytes_moved))]
    return row


@pytest.mark.parametrize("kind", KINDS)
def test_the_operators_sent_are_the_same_for_every_side_and_batch_of_a_form(kind):
    """Nothing is read, nothing is copied from the host, and the page on engines says what was counted."""
    operators, *_ = row = row_of(kind)
    assert operators <= MOST.get(kind, math.inf)
    assert markdown_table(HEAD, [(kind, *row)]).strip().splitlines()[-1] in PAGE.read_text()


HEAD = ("heads", "operators, forward", "bytes, forward", "operators, backward", "bytes, backward")


def test_a_loop_over_images_is_found(monkeypatch):
    """Planted: one product for each image of the batch."""
    right = mixing.product

    def wrong(weights, lines):
        return torch.cat([right(weights, part) for part in lines.split(4 * 40)])

    monkeypatch.setattr(mixing, "product", wrong)
    with pytest.raises(AssertionError, match="frozen, alpha 5, short axes"):
        row_of("frozen, alpha 5, short axes")
