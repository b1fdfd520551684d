"""What callers ask of two networks that are one: other masks, fused kernels, layers that pickle themselves."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.equality import certify
from conv2attn.networks.copies import copy_network
from conv2attn.verdicts import Verdict


class Causal(nn.Module):
    """Causal attention by a mask that `fill` marks, or by torch's own where there is none."""

    def __init__(self, fill: float | None, width: int = 8):
        super().__init__()
        torch.manual_seed(0)
        self.projection, self.fill = nn.Linear(width, 3 * width), fill

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projection(x).chunk(3, -1)
        if self.fill is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mask = torch.full((x.shape[1], x.shape[1]), self.fill).triu(1)
        return (q @ k.mT / q.shape[-1] ** 0.5 + mask).softmax(-1) @ v


@pytest.mark.parametrize(("fill", "same"), [(torch.finfo(torch.float32).min, True), (-1e31, True), (-1e4, False)])
def test_the_least_float_masks_as_infinity_does_and_a_small_number_does_not(fill, same):
    certificate = certify(Causal(None, 16).eval(), Causal(fill, 16).eval(), input_size=(5, 16))
    assert (certificate.verdict is Verdict.HOLDS) is same
    assert ("within +-1e29" in certificate.claim) is same


def test_the_least_float_is_no_infinity_outside_a_softmax():
    class Least(nn.Module):
        def forward(self, x):
            return x + torch.finfo(torch.float32).min

    class Infinite(nn.Module):
        def forward(self, x):
            return x - torch.inf

    assert certify(Least(), Infinite(), input_size=(3, 4, 4)).verdict is not Verdict.HOLDS


def test_the_fused_kernel_of_attention_is_off_while_networks_are_compared_and_on_again_afterwards():
    states = []

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x):
            states.append(torch.backends.mha.get_fastpath_enabled())
            return self.attention(x, x, x, need_weights=False)[0]

    attention = Attention().eval()
    assert certify(attention, copy_network(attention), input_size=(3, 16))
    assert not any(states)
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_layer_that_is_unpickled_by_its_constructor_keeps_its_mode():
    class Rearranged(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def __getstate__(self):
            return {"factor": self.factor}

        def __setstate__(self, state):
            self.__init__(**state)

        def forward(self, x):
            return F.pixel_shuffle(x, self.factor)

    conv = nn.Conv2d(3, 8, 3)
    first, second = nn.Sequential(conv, nn.PixelShuffle(2)).eval(), nn.Sequential(conv, Rearranged(2)).eval()
    assert not copy_network(second)[1].training
    assert certify(first, second, input_size=(3, 6, 7))
