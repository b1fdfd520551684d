"""Values and outputs whose weights no attribute names are read by what a module answers, or are not read at all."""

import pytest
import torch
from torch import nn

from conv2attn import heads
from conv2attn.networks.reading import replay_result


class Odd(nn.Module):
    """Two heads on 9 tokens, with weights of no usual name; `spoilt` is what it does to its values beside."""

    def __init__(self, spoilt="", fused=True):
        super().__init__()
        torch.manual_seed(0)
        self.spoilt, self.fused, self.num_heads = spoilt, fused, 2
        self.theta = nn.ParameterList([nn.Parameter(torch.randn(6, 6) / 2) for _ in range(4)])
        self.shift = nn.Parameter(torch.randn(6))

    def forward(self, tokens):
        query, key, value = ((tokens @ w).unflatten(-1, (2, 3)).transpose(1, 2) for w in self.theta[:3])
        if self.spoilt == "mixes tokens":
            value = value.cumsum(2)
        if self.spoilt == "are not linear":
            value = value.relu()
        if self.fused:
            seen = nn.functional.scaled_dot_product_attention(query, key, value)
        else:
            seen = torch.softmax(query @ key.mT, -1) @ value
        return seen.transpose(1, 2).flatten(2) @ self.theta[3] + self.shift


@pytest.mark.parametrize("fused", [True, False])
def test_the_nearest_convolution_is_that_of_the_weights(fused):
    odd = Odd(fused=fused)
    tokens = torch.randn(2, 9, 6)
    report = heads(odd.train(), tokens, grid=(3, 3))
    assert odd.training
    (layer,) = report.layers
    value, outer = odd.theta[2].unflatten(1, (2, 3)), odd.theta[3].unflatten(0, (2, 3))
    one = layer.convolution(1)
    place = tuple(side // 2 for side in layer.mass.shape[1:])
    weights = torch.from_numpy(layer.mass[(slice(None), *place)].copy()).float()
    expected = torch.einsum("h,ihc,hco->oi", weights, value, outer)
    torch.testing.assert_close(torch.from_numpy(one.taps[0]).float(), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(torch.from_numpy(layer.bias).float(), odd.shift.detach(), rtol=1e-3, atol=1e-4)
    assert layer.replay < 1e-9


SPOILT = {"mixes tokens": replay_result.MIXES_VALUES, "are not linear": replay_result.VALUES_NOT_LINEAR}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_is_not_linear_in_its_values_is_not_read(spoilt):
    (layer,) = heads(Odd(spoilt), torch.randn(2, 9, 6), grid=(3, 3)).layers
    assert not layer.convolutions
    assert SPOILT[spoilt] in layer.notes
