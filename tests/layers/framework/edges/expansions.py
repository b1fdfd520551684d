"""Average pooling as a basis."""

import pytest
import torch
from torch import nn

from conv2attn.theory.basis import as_basis, evaluate


@pytest.mark.parametrize(
    "pool",
    [nn.AvgPool1d(2), nn.AvgPool2d(2), nn.AvgPool2d((3, 2), 2, (1, 1), divisor_override=5), nn.AvgPool3d(2, 1, 1)],
    ids=str,
)
def test_average_pooling_is_a_basis_of_shifts(pool):
    sides = (7, 6, 5)[: int(type(pool).__name__[-2])]
    image = torch.randn(2, 3, *sides)
    torch.testing.assert_close(evaluate(as_basis(pool, 3), image), pool(image))
