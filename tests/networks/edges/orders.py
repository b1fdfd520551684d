"""The order in which heads read tokens, from what each head reads."""

from pkgutil import resolve_name

import pytest
import torch

from conv2attn.networks.reading import orders, score_order


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
