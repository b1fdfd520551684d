"""Public names refuse arguments of another kind in one sentence, and take an example input as a tensor or a size."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.errors import UsageError
from conv2attn.lab.explore import explore

NETWORK = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3))
ENCODER = nn.TransformerEncoderLayer(8, 2, batch_first=True)
TAKING = {
    "convert": lambda given: conv2attn.convert(given),
    "certify": lambda given: conv2attn.certify(given, NETWORK, input_size=(3, 9, 9)),
    "capture": lambda given: conv2attn.capture(given, torch.ones(1, 4, 8)),
    "soften": lambda given: conv2attn.soften(given, alpha=5),
    "softened": lambda given: conv2attn.softened(given, 5).__enter__(),
    "set_engine": lambda given: conv2attn.set_engine(given, "conv"),
    "conversion_of": lambda given: conv2attn.conversion_of(given),
    "start_at_convolution": lambda given: conv2attn.start_at_convolution(given),
    "assert_equivalent": lambda given: conv2attn.assert_equivalent(given, NETWORK, torch.ones(1, 3, 9, 9)),
    "assert_same": lambda given: conv2attn.assert_same(given, NETWORK, input_size=(3, 9, 9)),
    "to_mha": lambda given: conv2attn.to_mha(given),
}


CONVOLUTIONS = nn.Sequential(OrderedDict(layer1=nn.Sequential(nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1))))
ENCODERS = nn.Sequential(OrderedDict(layer1=nn.Sequential(ENCODER, ENCODER)))
TOKENS = torch.ones(1, 4, 8)
CHOOSING = {
    "convert": lambda **given: conv2attn.convert(CONVOLUTIONS, **given),
    "soften": lambda **given: conv2attn.soften(conv2attn.convert(CONVOLUTIONS), alpha=5, **given),
    "explore": lambda **given: explore(CONVOLUTIONS, (3, 9, 9), **given),
    "capture": lambda **given: conv2attn.capture(ENCODERS, TOKENS, **given),
    "heads": lambda **given: conv2attn.heads(ENCODERS, TOKENS, grid=(2, 2), **given),
    "check_span": lambda **given: conv2attn.check_span(ENCODERS, example_input=TOKENS, grid=(2, 2), **given),
    "heads of arrays": lambda **given: conv2attn.heads({"layer1.0": np.full((9, 25, 25), 0.04)}, grid=(5, 5), **given),
}


@pytest.mark.parametrize("name", CHOOSING)
def test_a_pattern_that_fits_nothing_is_refused_with_the_nearest_one_that_does(name):
    with pytest.raises(UsageError, match=r"C2A008 the pattern 'layer1' fits no .*\. Did you mean 'layer1\.\*'\?"):
        CHOOSING[name](only=["layer1"])
    with pytest.raises(UsageError, match=r"C2A008 the pattern 'layer1' fits no .*"):
        CHOOSING[name](skip=["layer1"])
    with pytest.raises(UsageError, match=r"C2A008 the pattern 'planted' fits no .*\. There are: layer1\.0"):
        CHOOSING[name](only=["layer1.*", "planted"])


def test_softened_layers_are_chosen():
    network = conv2attn.convert(CONVOLUTIONS)
    assert [row.name for row in conv2attn.soften(network, alpha=5, only="layer1.0").layers] == ["layer1.0"]
    assert [row.name for row in conv2attn.soften(network, alpha=5, skip="layer1.0").layers] == ["layer1.1"]


RUNNING = {
    "certify": (
        NETWORK,
        lambda given: conv2attn.certify(NETWORK, conv2attn.convert(NETWORK), example_input=given),
        (1, 3, 9, 9),
    ),
    "convert": (NETWORK, lambda given: conv2attn.convert(NETWORK, given), (1, 3, 9, 9)),
    "capture": (ENCODER, lambda given: conv2attn.capture(ENCODER, given), (1, 4, 8)),
    "soften": (
        NETWORK,
        lambda given: conv2attn.soften(conv2attn.convert(NETWORK), example_input=given, alpha=5),
        (1, 3, 9, 9),
    ),
    "heads": (ENCODER, lambda given: conv2attn.heads(ENCODER, given, grid=(2, 2)), (1, 4, 8)),
    "check_span": (
        ENCODER,
        lambda given: conv2attn.check_span(ENCODER, example_input=given, grid=(2, 2), offsets=[(0, 0)]),
        (1, 4, 8),
    ),
}


@pytest.mark.parametrize("name", sorted(RUNNING.keys() - {"certify"}))
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_inputs_of_another_dtype_are_refused_with_the_right_one(name, dtype):
    _, run, shape = RUNNING[name]
    with pytest.raises(
        UsageError, match=r"C2A009 .* Pass images of torch\.float32|C2A120 .* weights are torch\.float32"
    ):
        run(torch.ones(shape, dtype=dtype))


@pytest.mark.parametrize("name", RUNNING)
def test_an_example_input_is_a_tensor_or_a_size(name):
    _, run, shape = RUNNING[name]
    run(torch.ones(shape))
    run(shape[1:])
    for wrong in ("images.npz", 3):
        with pytest.raises(UsageError, match=r"C2A006 example_input is .* Pass a tensor, or the size of an image"):
            run(wrong)
    with pytest.raises(UsageError, match="C2A001"):
        run((0, *shape[2:]))


def test_attention_comes_as_a_list_a_loader_or_of_a_whole_network():
    even = np.full((9, 25, 25), 1 / 25)
    assert len(conv2attn.check_span([even, even], grid=(5, 5)).rows) == 2
    loader = [[torch.randn(2, 4, 8), torch.zeros(2)] for _ in range(2)]
    assert conv2attn.heads(ENCODER, loader, grid=(2, 2)).layers[0].images == 4
    assert conv2attn.recover(conv2attn.convert(NETWORK)).keys() == {"0", "2"}
