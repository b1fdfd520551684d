"""Gates and activations as people write them."""

import math

import torch
import torch.nn.functional as F
from equality.written.pair import Pair
from torch import nn

TOKENS = (2, 5, 8)


def gated():
    return {"inner": nn.Linear(8, 24), "outer": nn.Linear(12, 8)}


def two_products(m, x):
    gate, up = zip(m.inner.weight.chunk(2), m.inner.bias.chunk(2), strict=True)
    return F.linear(x, *gate), F.linear(x, *up)


def swiglu(m, x):
    gate, up = m.inner(x).chunk(2, dim=-1)
    return m.outer(F.silu(gate) * up)


def swiglu_by_two_products(m, x):
    gate, up = two_products(m, x)
    return m.outer(gate * torch.sigmoid(gate) * up)


def geglu(m, x):
    gate, up = m.inner(x).chunk(2, dim=-1)
    return m.outer(F.gelu(gate) * up)


def geglu_by_two_products(m, x):
    gate, up = two_products(m, x)
    return m.outer(up * (gate * 0.5 * (1.0 + torch.erf(gate / math.sqrt(2.0)))))


def gelu_new(m, x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def squeeze():
    return {"down": nn.Conv2d(4, 2, 1), "up": nn.Conv2d(2, 4, 1)}


def squeezed(m, x):
    return x * m.up(F.relu(m.down(F.adaptive_avg_pool2d(x, 1)))).sigmoid()


def squeezed_by_products(m, x):
    hidden = F.linear(x.mean((2, 3)), m.down.weight.flatten(1), m.down.bias).clamp(min=0)
    return torch.sigmoid(F.linear(hidden, m.up.weight.flatten(1), m.up.bias))[:, :, None, None] * x


def recurrent(m, x):
    state = x.new_zeros(len(x), 6), x.new_zeros(len(x), 6)
    for token in x.unbind(1):
        state = m.cell(token, state)
    return state[0]


def recurrent_by_hand(m, x):
    cell = m.cell
    hidden = memory = torch.zeros(len(x), 6)
    for t in range(5):
        sums = x[:, t] @ cell.weight_ih.T + cell.bias_ih + hidden @ cell.weight_hh.T + cell.bias_hh
        take, forget, new, give = sums.split(6, 1)
        memory = forget.sigmoid() * memory + take.sigmoid() * new.tanh()
        hidden = give.sigmoid() * memory.tanh()
    return hidden


GATES = {
    "SwiGLU by one product, by two": Pair(TOKENS, swiglu, swiglu_by_two_products, gated),
    "GEGLU by one product, by two": Pair(TOKENS, geglu, geglu_by_two_products, gated),
    "GLU": Pair(TOKENS, lambda m, x: F.glu(x, -1), lambda m, x: x[..., :4] * x[..., 4:].sigmoid()),
    "GELU by erf": Pair(
        TOKENS, lambda m, x: F.gelu(x), lambda m, x: x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865475))
    ),
    "GELU by tanh": Pair(TOKENS, lambda m, x: F.gelu(x, approximate="tanh"), gelu_new),
    "hard swish": Pair(TOKENS, lambda m, x: F.hardswish(x), lambda m, x: x * F.relu6(x + 3) / 6),
    "mish": Pair(TOKENS, lambda m, x: F.mish(x), lambda m, x: x * torch.tanh(F.softplus(x))),
    "squeeze and excite": Pair((2, 4, 6, 6), squeezed, squeezed_by_products, squeeze),
    "nn.LSTMCell, by hand": Pair(TOKENS, recurrent, recurrent_by_hand, lambda: {"cell": nn.LSTMCell(8, 6)}),
}
