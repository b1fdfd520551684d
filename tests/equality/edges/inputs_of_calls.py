"""Networks are compared as they are called: several tensors, masks, ids, named arguments."""

import pytest
import torch
from equality.pairs import Net
from torch import nn
from torch.nn import functional as F

from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

WIDTH = 16
CAUSAL = torch.zeros(5, 7).masked_fill(torch.ones(5, 7).triu(3) > 0, -1e9)
INFINITE = CAUSAL.masked_fill(CAUSAL < 0, -torch.inf)


def cross(written, rolled=False, factor=1.0):
    """Cross-attention, by torch's function unless it is `written` out; the memory may be `rolled` over the batch."""

    def code(net, x, memory, mask=None, scale=1.0):
        q, k, v = factor * net.q(x), net.k(memory.roll(1, 0) if rolled else memory), net.v(memory)
        if not written:
            return F.scaled_dot_product_attention(q, k, v, mask) * scale
        scores = q @ k.mT / 4
        return (scores if mask is None else scores + mask).softmax(-1) @ v * scale

    torch.manual_seed(0)
    return Called(code, **{name: nn.Linear(WIDTH, WIDTH) for name in "qkv"})


class Called(Net):
    def forward(self, x, memory, mask=None, scale=1.0):
        return self.code(self, x, memory, mask, scale)


def products(bends):
    """x * y; beyond 100, which the inputs of these tests do not reach, something else if it `bends`."""
    return Net(lambda net, x, y: x * y + ((y - 100).relu() if bends else 0 * y))


def drawn(*size):
    """Numbers drawn with a seed."""
    return torch.randn(size, generator=torch.Generator().manual_seed(0))


CALLS = {
    "two tensors": ((drawn(1, 5, WIDTH), drawn(1, 7, WIDTH)), {}),
    "a mask": ((drawn(2, 5, WIDTH), drawn(2, 7, WIDTH), CAUSAL), {}),
    "an infinite mask and a number": ((drawn(1, 5, WIDTH), drawn(1, 7, WIDTH), INFINITE, 2.0), {}),
    "names": ((drawn(1, 5, WIDTH),), {"memory": drawn(1, 7, WIDTH), "mask": CAUSAL}),
    "names alone": ((), {"x": drawn(1, 5, WIDTH), "memory": drawn(1, 7, WIDTH)}),
    "one tensor twice": ((drawn(1, 5, WIDTH),) * 2, {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_several_inputs_are_one_formula_unless_a_factor_differs(name):
    inputs, forward = CALLS[name]
    certificate = certify(cross(False), cross(True), *inputs, forward=forward)
    assert (certificate.verdict, certificate.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), certificate.to_text()
    assert "2x5x16" in certificate.claim
    other = certify(cross(False), cross(True, factor=1.01), *inputs, forward=forward)
    assert other.verdict is Verdict.REFUTED, other.to_text()


def test_a_memory_of_the_next_sequence_in_a_batch_does_not_hold_where_one_sequence_is_given():
    certificate = certify(cross(False), cross(True, rolled=True), drawn(1, 5, WIDTH), drawn(1, 7, WIDTH), CAUSAL)
    assert certificate.verdict is Verdict.UNDECIDED, certificate.to_text()


def test_each_tensor_of_numbers_is_a_variable():
    certificate = certify(products(False), products(True), drawn(2, 3), drawn(2, 3))
    assert certificate.verdict is Verdict.UNDECIDED, certificate.to_text()


def test_a_claim_names_what_else_the_networks_were_called_with():
    inputs, forward = CALLS["names"]
    assert "called with memory and mask" in certify(cross(False), cross(True), *inputs, forward=forward).claim
    inputs, forward = CALLS["an infinite mask and a number"]
    assert "argument 3 and argument 4=2.0" in certify(cross(False), cross(True), *inputs, forward=forward).claim
