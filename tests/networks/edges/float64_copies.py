"""Copies of a network that compute in float64 with the weights of the network itself."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn import heads
from conv2attn.networks.reading import cast_once, double_copy
from conv2attn.networks.reading.double_precision import in_double
from conv2attn.torch_internals import DisableTorchFunctionSubclass

NETWORKS = {
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), (2, 5, 8)),
    "recurrent": (lambda: nn.LSTM(4, 5), (3, 2, 4)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU()), (2, 3, 8, 8)),
    "parametrized": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), (2, 4)),
    "bfloat16": (lambda: nn.Linear(4, 4).bfloat16(), (2, 4)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_copy_computes_as_one_whose_weights_were_cast(name):
    make, shape = NETWORKS[name]
    network, x = make().train(), torch.randn(shape, dtype=torch.float64)
    network.eval()
    copied = double_copy(network)
    with torch.no_grad(), cast_once(copied):
        kept = copied(x)
    with torch.no_grad():
        expected, found = deepcopy(network).double()(x), copied(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(kept, expected, rtol=1e-12, atol=1e-12)
    with DisableTorchFunctionSubclass():
        own = [each.data_ptr() for each in network.parameters()]
        assert [each.data_ptr() for each in copied.parameters()] == own


class Grouped(nn.Module):
    """Each group of rows is multiplied by a matrix of its own, which torch does not do in float64."""

    def __init__(self):
        super().__init__()
        self.matrices, self.ends = nn.Parameter(torch.randn(3, 8, 16)), torch.tensor([3, 3, 10], dtype=torch.int32)

    def forward(self, rows):
        return F.grouped_mm(rows, self.matrices, offs=self.ends)


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this torch has no product of groups")
def test_groups_of_rows_are_multiplied_in_float64():
    network, rows = Grouped().eval(), torch.randn(10, 8)
    copied = double_copy(network)
    with torch.no_grad(), in_double(copied):
        product = copied(rows.double())
    assert product.dtype == torch.float64
    torch.testing.assert_close(product.float(), network(rows).detach())


def clamp(weight):
    weight.clamp_(0, 1)


def clamp_data(weight):
    weight.data.clamp_(0, 1)


def set_data(weight):
    weight.data = weight.data.clamp(0, 1)


def set_items(weight):
    weight[:] = weight.clamp(0, 1)


class Writing(nn.Module):
    """A linear layer that changes its weights before it uses them."""

    def __init__(self, write):
        super().__init__()
        self.write, self.weight = write, nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        self.write(self.weight)
        return F.linear(x, self.weight)


@pytest.mark.parametrize("write", [clamp, clamp_data, set_data, set_items])
def test_weights_that_a_network_writes_are_used_and_its_own_are_left(write):
    network, x = Writing(write), torch.randn(2, 4, dtype=torch.float64)
    before = network.weight.detach().clone()
    with torch.no_grad():
        assert torch.equal(double_copy(network)(x), F.linear(x, before.double().clamp(0, 1)))
    assert torch.equal(network.weight, before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_weights_are_copied_for_code_that_is_none_of_torchs_functions():
    @torch.jit.script
    def scripted(x, weight):
        return x @ weight

    class Compiled(nn.Module):
        """One head of attention; torch does not see that its values are a product with a parameter."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Conv2d(1, 8, 2, 2)
            self.query, self.value = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 8))

        def forward(self, image):
            tokens = self.embed(image).flatten(2).mT
            weights = (self.query(tokens) @ tokens.mT).softmax(-1)
            return weights @ scripted(tokens, self.value)

    (layer,) = heads(Compiled().eval(), torch.randn(2, 1, 6, 6)).layers
    assert (layer.unread, layer.grid) == ("", (3, 3))
