"""Engines for one-hot heads refuse what is not one-hot, whatever made it so, and say why."""

import math

import pytest
import torch
from changes import changed
from hypothesis import given
from hypothesis import strategies as st
from imitated_device import has_float64
from oracles import soft_allowed
from suite import integer_tensors

from conv2attn.errors import EngineError
from conv2attn.layers.attention import (
    ENGINES,
    Encoding,
    MultiHeadSelfAttention,
    set_engine,
)
from conv2attn.layers.attention.engines import cheapest
from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_same_output

HARD_ENGINES = ("conv", "gather")


def step(layer):
    layer.encoding.learn()
    optimiser = torch.optim.SGD(layer.encoding.parameters(), lr=1.0)
    for parameter in layer.encoding.parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    optimiser.step()


def load(layer):
    layer.encoding.learn()
    state = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    state["encoding.alpha"].fill_(3.0)
    layer.load_state_dict(state)


CHANGES = {
    "soften": lambda layer: layer.encoding.assign(alpha=1),
    "move": lambda layer: changed(layer, "center", lambda numbers: numbers[1, 0].add_(0.5)),
    "step": step,
    "widen": lambda layer: layer.double(),
    "load": load,
    "spoil": lambda layer: changed(layer, "alpha", lambda numbers: numbers[0].fill_(math.nan)),
    "overflow": lambda layer: changed(layer, "alpha", lambda numbers: numbers[0].fill_(math.inf)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("used_before", [False, True], ids=["first call", "later call"])
def test_hard_engines_refuse_and_auto_falls_back_after_a_change(change, used_before, device):
    """Hardness is decided from the present parameters at each call, never from a flag."""
    conv = torch.nn.Conv2d(2, 3, 3, padding=1)
    layer = attention_for(read_convolution(conv)).to(device)
    image = torch.randn(1, 2, 4, 5, device=device)
    if used_before:
        assert layer.which_engine(image) == "conv"
        layer(image)
    if change == "widen" and not has_float64(device):
        with pytest.raises(TypeError, match="does not support float64"):
            CHANGES[change](layer)
        return
    CHANGES[change](layer)
    image = image.to(layer.bias.dtype)
    for engine in HARD_ENGINES:
        with pytest.raises(EngineError, match=f"C2A201 attention: engine '{engine}' is not exact here: "):
            set_engine(layer, engine)(image)
    assert set_engine(layer, "auto").which_engine(image) not in HARD_ENGINES
    if change not in ("spoil", "overflow"):
        layer, image = layer.cpu().double(), image.cpu()
        expected = set_engine(layer, "dense")(image.double()).detach()
        assert_same_output(
            set_engine(layer, "auto")(image.double()).detach(), expected, soft_allowed(layer, image.double())
        )


def test_lowering_the_dtype_keeps_heads_hard():
    layer = attention_for(read_convolution(torch.nn.Conv1d(2, 3, 3)))
    for cast in (layer.half, layer.bfloat16):
        cast()
        assert layer.positions.center.dtype == layer.positions.alpha.dtype == torch.float32
        assert layer.which_engine(torch.ones(1, 2, 9, dtype=layer.bias.dtype)) == "conv"


def test_heads_that_share_an_offset_or_leave_the_grid_are_not_a_convolution():
    twice = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", [[0.0], [0.0]], 128.0))
    holes = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", [[0.0], [1.0], [3.0]], 128.0))
    away = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", [[0.0], [1.0]], 128.0))
    image = torch.tensor([[[1.0, 2.0, 4.0]]])
    for layer in (twice, holes):
        assert layer.why_engine(image)["conv"] == "its offsets do not form a lattice, each point once"
    assert away.why_engine(image)["conv"] == "head 1 leaves the grid at offset (1,)"
    for layer in (twice, holes, away):
        layer.requires_grad_(False)
        expected = set_engine(layer, "dense")(image)
        for engine in ("auto", "gather", "separable", "sdpa"):
            assert_same_output(set_engine(layer, engine)(image), expected, rounding_of(layer, image))


def rounding_of(layer, image):
    """Float32 rounding of the channel product of a layer whose heads are one-hot."""
    taps = layer.weights.taps().abs().sum().item() * image.abs().max().item()
    return 2 * (layer.heads + 1) * 2.0**-24 / (1 - 2.0**-20) * (taps + layer.bias.abs().max().item())


@given(st.data(), integer_tensors((2, 3), torch.float64, 3), st.sampled_from([1.0, 2000.0]))
def test_the_engine_that_is_chosen_is_exact_and_a_hard_one_where_one_is(data, centers, alpha):
    """`conv` before `gather`; on few pixels and many."""
    sides = data.draw(st.tuples(*[st.integers(2, 12)] * 3))
    layer = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", centers / 2, alpha)).requires_grad_(False)
    image = torch.ones(1, 1, *sides, dtype=torch.float64)
    question = layer.question(layer.basis(), image)
    reasons, chosen = layer.why_engine(image), layer.which_engine(image)
    assert list(reasons) == [name for name in ENGINES if name != "auto"]
    hard = [name for name in HARD_ENGINES if reasons[name] == "exact"]
    assert chosen == hard[0] if hard else chosen == cheapest(question)
    assert reasons[chosen] == reasons["dense"] == reasons["separable"] == "exact"
