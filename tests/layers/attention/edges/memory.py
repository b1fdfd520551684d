"""Engines stay under their memory limit, and within the float limits of their features."""

import pytest
import torch
from oracles import convolve
from torch.utils._python_dispatch import TorchDispatchMode

from conv2attn.errors import EngineError
from conv2attn.layers.attention import set_engine
from conv2attn.layers.attention.engines.channels import rows_per_slab
from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_same_output


class Largest(TorchDispatchMode):
    """The bytes of the largest result of a torch function, and how many products of channels there were."""

    def __init__(self):
        super().__init__()
        self.size = self.products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.products += func is torch.ops.aten.convolution.default
        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize(("engine", "limit"), [("dense", 60_000), ("gather", 6_000)])
def test_the_memory_limit_cuts_the_queries_into_chunks_that_change_nothing(engine, limit):
    conv = torch.nn.Conv2d(3, 2, 3, padding=1)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    layer = set_engine(attention_for(read_convolution(conv)), engine, memory_limit=limit)
    image = torch.randint(-4, 5, (2, 3, 19, 12)).float()
    with torch.no_grad(), Largest() as limited:
        result = layer(image)
    with torch.no_grad(), Largest() as unlimited:
        set_engine(layer, engine, memory_limit=2**33)(image)
    assert_same_output(result, convolve(conv, image, torch.float32))
    assert unlimited.size > limit
    assert limited.products > 1
    assert limited.size <= max(limit, 4 * 2 * 3 * 21 * 14)  # the padded image itself


def test_slabs_are_at_least_one_row():
    layer = set_engine(attention_for(read_convolution(torch.nn.Conv2d(2, 2, 3))), "gather", memory_limit=1)
    assert rows_per_slab(layer.basis(), (1, 2, 9, 9), 4, 10, 1) == 1
    assert layer(torch.ones(1, 2, 9, 9)).shape == (1, 2, 7, 7)


def test_sdpa_never_materialises_all_pairs():
    """Only the fused kernel is allowed, which never holds all scores at once."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for channels in (1, 2, 9):
        layer = set_engine(attention_for(read_convolution(torch.nn.Conv1d(channels, 2, 3, padding=1))), "sdpa")
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
            assert layer(torch.randn(2, channels, 1000)).shape == (2, 2, 1000)


def test_sdpa_refuses_grids_beyond_its_float_limits():
    layer = attention_for(read_convolution(torch.nn.Conv1d(1, 1, 3, padding=1)))
    assert layer.why_engine(torch.empty(1, 1, 1000))["sdpa"] == "exact"
    assert "float32 features would err by up to" in layer.why_engine(torch.empty(1, 1, 100_000))["sdpa"]
    with pytest.raises(EngineError, match="C2A201 attention: engine 'sdpa' is not exact here: float32 features"):
        set_engine(layer, "sdpa")(torch.empty(1, 1, 100_000))


@pytest.mark.parametrize("sides", [(4700,), (67, 71), (17, 19, 16)])
def test_sdpa_is_exact_on_the_largest_grids_that_it_takes(sides):
    """Close to where 3 n L^2 leaves the significand of float32 the target is still hit exactly."""
    axes = len(sides)
    conv = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[axes - 1](1, 1, (2, 1, 1)[:axes])
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([3.0, -2.0]).reshape(conv.weight.shape))
        conv.bias.fill_(5.0)
        image = torch.randint(-9, 10, (1, 1, *sides)).float()
        layer = set_engine(attention_for(read_convolution(conv)), "sdpa")
        assert_same_output(layer(image), convolve(conv, image, torch.float32))
