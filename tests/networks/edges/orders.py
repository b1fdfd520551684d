"""The order in which heads read tokens, from what each head reads."""

import pytest
import torch

from conv2attn.networks.reading import orders


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
