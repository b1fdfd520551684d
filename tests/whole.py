"""Networks and images of whole numbers: sums stay exact, so that what is equal is equal bit for bit."""

import torch
from torch import nn

from conv2attn.layers.attention import set_engine

ENGINES = ("auto", "conv", "gather", "separable", "dense")


def whole(network: nn.Module, seed: int = 0) -> nn.Module:
    """`network` with parameters drawn from -2 .. 2."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
    return network


def image_of(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Pixels from -3 .. 3."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@torch.no_grad()
def assert_equal(original, network, *args, engines=ENGINES, **kwargs) -> None:
    """Every engine gives the original's output, bit for bit."""
    expected = original(*args, **kwargs)
    assert expected.abs().max() > 0
    for engine in engines:
        set_engine(network, engine)
        result = network(*args, **kwargs)
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected), engine
    set_engine(network, "auto")
