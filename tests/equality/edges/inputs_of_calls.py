"""Networks are compared as they are called: several tensors, masks, ids, named arguments."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

WIDTH = 16
CAUSAL = torch.zeros(5, 7).masked_fill(torch.ones(5, 7).triu(3) > 0, -1e9)
INFINITE = CAUSAL.masked_fill(CAUSAL < 0, -torch.inf)


class Cross(nn.Module):
    """Cross-attention, by torch's function unless it is `written` out; the memory may be `rolled` over the batch."""

    def __init__(self, written: bool, rolled: bool = False, factor: float = 1.0):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.written, self.rolled, self.factor = written, rolled, factor

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        q, k, v = self.factor * self.q(x), self.k(memory.roll(1, 0) if self.rolled else memory), self.v(memory)
        if not self.written:
            return F.scaled_dot_product_attention(q, k, v, mask) * scale
        scores = q @ k.mT / 4
        return (scores if mask is None else scores + mask).softmax(-1) @ v * scale


class Products(nn.Module):
    """x * y; beyond 100, which the inputs of these tests do not reach, something else if it `bends`."""

    def __init__(self, bends: bool):
        super().__init__()
        self.bends = bends

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y + ((y - 100).relu() if self.bends else 0 * y)


def drawn(*size: int) -> Tensor:
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
    certificate = certify(Cross(False), Cross(True), *inputs, forward=forward)
    assert (certificate.verdict, certificate.strength) == (Verdict.HOLDS, Strength.IDENTIFIED), certificate.to_text()
    assert "2x5x16" in certificate.claim
    other = certify(Cross(False), Cross(True, factor=1.01), *inputs, forward=forward)
    assert other.verdict is Verdict.REFUTED, other.to_text()


def test_a_memory_of_the_next_sequence_in_a_batch_does_not_hold_where_one_sequence_is_given():
    certificate = certify(Cross(False), Cross(True, rolled=True), drawn(1, 5, WIDTH), drawn(1, 7, WIDTH), CAUSAL)
    assert certificate.verdict is Verdict.UNDECIDED, certificate.to_text()


def test_each_tensor_of_numbers_is_a_variable():
    certificate = certify(Products(False), Products(True), drawn(2, 3), drawn(2, 3))
    assert certificate.verdict is Verdict.UNDECIDED, certificate.to_text()


def test_a_claim_names_what_else_the_networks_were_called_with():
    inputs, forward = CALLS["names"]
    assert "called with memory and mask" in certify(Cross(False), Cross(True), *inputs, forward=forward).claim
    inputs, forward = CALLS["an infinite mask and a number"]
    assert "argument 3 and argument 4=2.0" in certify(Cross(False), Cross(True), *inputs, forward=forward).claim
