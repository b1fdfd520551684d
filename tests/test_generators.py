"""No public name moves a generator of the caller's, on any device, and neither does a network that it runs."""

import random

import numpy as np
import pytest
import torch
from imitated_device import DEVICE, Module, imitated
from torch import nn

import conv2attn
from conv2attn.generators import devices_of, generators_kept
from conv2attn.models.zoo import TransformerPlan, VisionTransformer

DRAWING_LAYERS = {"AttentionConvolution", "BasisConvolution", "MultiHeadSelfAttention"}
"""Layers, which draw their parameters as those of torch do."""
IMAGE = torch.ones(1, 2, 4, 5)


class Noisy(nn.Module):
    """A network that draws wherever it is run."""

    def __init__(self):
        super().__init__()
        self.conv, self.drop = nn.Conv2d(2, 3, 3, padding=1), nn.Dropout(0.5)

    def forward(self, image):
        return self.drop(self.conv(image)) + torch.rand((), device=image.device)


def states():
    return [
        torch.get_rng_state(),
        Module.generator.get_state(),
        torch.tensor([hash(random.getstate())]),
        torch.from_numpy(np.random.get_state()[1].astype(np.int64)),
        torch.tensor(np.random.get_state()[2]),
    ]


def unmoved(before):
    return all(map(torch.equal, before, states()))


@pytest.fixture(params=["cpu", "imitated"])
def place(request):
    with imitated():
        yield torch.device("cpu") if request.param == "cpu" else DEVICE


def conv():
    return nn.Conv2d(2, 3, 3, padding=1)


def mha():
    return nn.MultiheadAttention(8, 2, batch_first=True)


def layer():
    return conv2attn.convert(conv())


def encoder():
    return nn.TransformerEncoderLayer(8, 2, batch_first=True)


CALLS = {
    "as_basis": (conv, lambda it, at, file: conv2attn.as_basis(it)),
    "assert_equivalent": (
        conv,
        lambda it, at, file: conv2attn.assert_equivalent(it, it, torch.ones(1, 2, 4, 5).to(at)),
    ),
    "capture": (encoder, lambda it, at, file: conv2attn.capture(it, torch.ones(1, 5, 8).to(at))),
    "certify": (Noisy, lambda it, at, file: conv2attn.certify(it, it, input_size=(2, 4, 5))),
    "check_span": (layer, lambda it, at, file: conv2attn.check_span(it, grid=(4, 5))),
    "compare": (conv, lambda it, at, file: conv2attn.compare(it, it, sides=(4, 5))),
    "conversion_of": (lambda: conv2attn.convert(Noisy()), lambda it, at, file: conv2attn.conversion_of(it)),
    "convert": (Noisy, lambda it, at, file: conv2attn.convert(it, example_input=IMAGE.to(at))),
    "express": (layer, lambda it, at, file: conv2attn.express(conv2attn.recover(it).module, it)),
    "from_mha": (lambda: conv2attn.to_mha(layer(), side=8), lambda it, at, file: conv2attn.from_mha(it)),
    "from_torch": (mha, lambda it, at, file: conv2attn.from_torch(it)),
    "heads": (encoder, lambda it, at, file: conv2attn.heads(it, torch.ones(1, 4, 8).to(at), grid=(2, 2))),
    "load": (
        lambda: nn.Sequential(layer()),
        lambda it, at, file: (conv2attn.save(it, file), conv2attn.load(file)),
    ),
    "recover": (layer, lambda it, at, file: conv2attn.recover(it)),
    "save": (lambda: nn.Sequential(layer()), lambda it, at, file: conv2attn.save(it, file)),
    "set_engine": (layer, lambda it, at, file: conv2attn.set_engine(it, "dense")),
    "soften": (
        lambda: conv2attn.convert(Noisy()),
        lambda it, at, file: conv2attn.soften(it, IMAGE.to(at), alpha=5),
    ),
    "softened": (layer, lambda it, at, file: conv2attn.softened(it, alpha=5).__enter__()),
    "start_at_convolution": (
        lambda: VisionTransformer(TransformerPlan(side=28, patch=4, width=64, heads=8, layers=4)),
        lambda it, at, file: conv2attn.start_at_convolution(it, kernel_size=3),
    ),
    "to_mha": (layer, lambda it, at, file: conv2attn.to_mha(it, side=8)),
    "to_torch": (mha, lambda it, at, file: conv2attn.to_torch(conv2attn.from_torch(it))),
}
"""What makes an argument, which may draw, and the call."""
OF_TIMM = {"to_gpsa", "from_gpsa"}
"""tests/real runs these on the package's own layers."""


def test_each_public_name_is_called():
    assert set(conv2attn.__all__) - CALLS.keys() == DRAWING_LAYERS | OF_TIMM


@pytest.mark.parametrize("name", CALLS)
def test_a_public_name_moves_no_generator(name, place, tmp_path):
    build, call = CALLS[name]
    made = build().to(place)
    before = states()
    call(made, place, tmp_path / "network.pt")
    assert unmoved(before)


def test_a_generator_that_moves_is_seen():
    """Planted: a draw from each, and a seed."""
    with imitated():
        for call in (
            lambda: torch.rand(1),
            lambda: torch.rand(1, device=DEVICE),
            lambda: torch.manual_seed(5),
            random.random,
            np.random.rand,
        ):
            before = states()
            call()
            assert not unmoved(before)


def test_draws_begin_at_the_seed_on_each_device_and_errors_move_nothing():
    with imitated():
        network = Noisy().to(DEVICE)
        assert devices_of(network, torch.ones(1), "text") == {DEVICE, torch.device("cpu")}
        drawn = []

        @generators_kept([DEVICE], seed=3)
        def fail():
            drawn.append([torch.rand(2), torch.rand(2, device=DEVICE).cpu()])
            raise ValueError("planted")

        before = states()
        for _ in range(2):
            with pytest.raises(ValueError, match="planted"):
                fail()
        assert unmoved(before)
        assert all(map(torch.equal, *drawn))
        assert not torch.equal(torch.rand(2, device=DEVICE).cpu(), drawn[0][1])
