"""The order in which heads read tokens, from what each head reads."""

from pkgutil import resolve_name

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn.networks.reading import orders, score_order
from conv2attn.span import ask_attention


@pytest.mark.parametrize(
    ("heads", "common"),
    [
        ([[0, 1], [0, 1]], [0, 1]),
        ([[0, 1], [1, 0]], None),
        ([[0, orders.NONE], [orders.NONE, 1]], [0, 1]),
        ([[0, orders.SEVERAL], [0, orders.SEVERAL]], None),
        ([[orders.NONE, orders.NONE]], None),
    ],
    ids=["alike", "in other orders", "some read nothing", "several tokens", "nothing"],
)
def test_heads_have_an_order_in_common_only_where_they_agree(heads, common):
    found = orders.alike(torch.tensor(heads))
    assert common is None if found is None else found.tolist() == common


@pytest.mark.parametrize("sharpness", [0.3, 3.0])
def test_columns_of_nearly_even_attention_are_told_from_swapped_ones(sharpness):
    """The square of the noise was seen in such rows, and each bit of the keys was then asked of runs of its own."""
    scores = sharpness * torch.randn((6, 257, 257), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise, factors = score_order.noise(scores), score_order.numbers(257, 6)
    weights = [torch.softmax(scores + change, -1) for change in (0, noise, noise * factors)]
    swapped = torch.arange(257)
    swapped[[3, 4]] = torch.tensor([4, 3])
    for keys, in_order in ((torch.arange(257), True), (swapped, False)):
        own, moved, by_key = (each[..., keys] for each in weights)
        assert score_order.why_columns(own, moved, by_key) == ("" if in_order else score_order.OTHER_COLUMNS)


@pytest.mark.parametrize("width", [1, 3])
def test_the_part_that_changes_a_target_is_told_from_none_and_several(width):
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(2000, width, generator=generator).double()
    order = torch.randperm(2000, generator=generator)

    def changes(amounts):
        moved = (parts * amounts[:, None])[order]
        moved[5], moved[7] = 0, moved[7] + moved[8] + moved[9]
        return {"target": moved}

    expected = order.clone()
    expected[5], expected[7] = orders.NONE, orders.SEVERAL
    assert orders.changing_parts(2000, changes)["target"].equal(expected)


@pytest.mark.parametrize(("wide", "fitting"), [(None, None), (0.0, 8)], ids=["", "planted"])
def test_tokens_of_one_cell_fit_no_coarser_blocks_where_responses_are_not_linear(wide, fitting, monkeypatch):
    """MobileViT's windows of every other cell stood on blocks of 2x2, as heads of one window."""
    response = resolve_name("conv2attn.networks.reading.responses:Response")
    if wide is not None:
        monkeypatch.setattr("conv2attn.networks.reading.responses.WIDE", wide)
    change = torch.randn(1, 16, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    each, pair = (change * 1.004 * (torch.arange(16) // n + 0.5)[:, None] * n / 16 for n in (1, 2))
    read = response.of(change, change, {0: each}, (16,))
    read.fit(0, 2, change, pair, 16)
    assert (read.fitting(0) and read.fitting(0)[0]) == fitting


class Odd(nn.Module):
    """Attention of two heads, mixed by numbers of either sign in front of the softmax and behind it."""

    def __init__(self, between, behind):
        super().__init__()
        self.between, self.behind, self.stem, self.qkv = between, behind, nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24)
        self.mix, self.bias = torch.tensor([[1.0, -2.0], [-1.5, 0.5]]), torch.tensor([0.2, -0.1])

    def forward(self, image):
        query, key, value = self.qkv(self.stem(image).flatten(2).mT).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return self.behind(self.mixed(torch.softmax(self.between(self.mixed(query @ key.mT)), -1))) @ value

    def mixed(self, heads):
        return F.linear(heads.movedim(1, -1), self.mix.to(heads), self.bias.to(heads)).movedim(-1, 1)


def exchanged(heads, axis):
    """Two neighbours exchanged, in the second head alone."""
    order = torch.arange(16)
    order[[4, 5]] = torch.tensor([5, 4])
    return torch.stack([heads[:, 0], heads[:, 1].index_select(axis, order)], 1)


@pytest.mark.parametrize(
    ("axis", "reason"), [(None, ""), (-1, score_order.OTHER_COLUMNS), (-2, score_order.OTHER_ROWS)]
)
@pytest.mark.parametrize("where", ["between", "behind"])
def test_talking_heads_are_placed_and_tokens_exchanged_in_one_of_them_are_not(where, axis, reason):
    """Mixed by numbers of either sign, with a bias: no score that is lowered makes a weight vanish."""
    torch.manual_seed(0)
    changes = {"between": lambda heads: heads, "behind": lambda heads: heads}
    if axis is not None:
        changes[where] = lambda heads: exchanged(heads, axis)
    image = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    (read,) = ask_attention(Odd(**changes).eval(), image).reads()
    assert read.unplaced == reason


class Rounded(Odd):
    """Its softmax is rounded to float32, as in many networks of transformers, so that a small noise is lost in it."""

    def forward(self, image):
        query, key, value = self.qkv(self.stem(image).flatten(2).mT).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(query @ key.mT / 8, -1, dtype=torch.float32).to(value)
        return self.behind(weights) @ value


@pytest.mark.parametrize(
    ("axis", "reason"),
    [(None, ""), (-1, score_order.OTHER_COLUMNS), (-2, "its heads have their tokens in different orders")],
)
def test_a_softmax_rounded_to_float32_is_placed_and_tokens_exchanged_behind_it_are_not(axis, reason):
    """Planted by asking once: CLIP, SegFormer and SAM had no order of queries."""
    torch.manual_seed(0)
    image = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    behind = (lambda heads: heads) if axis is None else (lambda heads: exchanged(heads, axis))
    (read,) = ask_attention(Rounded(lambda heads: heads, behind).eval(), image).reads()
    assert read.unplaced.endswith(reason)
    assert bool(read.unplaced) == bool(reason)


class Beside(Odd):
    """Half of its weights are a softmax, half are shares made by hand of the same scores, in an order of their own."""

    def __init__(self, order):
        super().__init__(lambda heads: heads, lambda heads: heads)
        self.order = order

    def forward(self, image):
        query, key, value = self.qkv(self.stem(image).flatten(2).mT).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT
        shares = (scores / 2).exp()[..., self.order]
        return (torch.softmax(scores, -1) + shares / shares.sum(-1, keepdim=True)) / 2 @ value


@pytest.mark.parametrize("order", [[*range(16)], [1, 0, *range(2, 16)]], ids=["alike", "exchanged"])
def test_a_way_beside_the_softmax_is_not_overlooked(order):
    """Planted by asking the softmax alone: exchanged columns beside it were read as if they were in their order."""
    torch.manual_seed(0)
    image = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    (read,) = ask_attention(Beside(order).eval(), image).reads()
    assert read.unplaced == score_order.OTHER_WAY
