"""A parameter that is held in more than one place stays one."""

import pytest
from torch import nn
from whole import assert_equal, image_of, whole

from conv2attn import conversion_of, convert
from conv2attn.models import attention_layers


@pytest.mark.parametrize("d_head", [None, 5])
@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.filterwarnings("ignore:C2A132")
def test_parameters_that_convolutions_share_stay_one(trainable, d_head):
    first, second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=2, dilation=2)
    second.weight, second.bias = first.weight, first.bias
    model = whole(nn.ModuleList([first, second]))
    network = convert(model, trainable=trainable, d_head=d_head)
    image = image_of(2, 3, 6, 7)
    assert network[0].bias is network[1].bias
    holders = [[p for p in (layer.value, layer.output) if p is not None and p.abs().sum() > 27] for layer in network]
    assert holders[0][-1] is holders[1][-1]
    for i in range(2):
        assert_equal(model[i], network[i], image)


def test_a_tie_with_a_skipped_convolution_is_kept():
    first, second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
    second.weight = first.weight
    network = convert(whole(nn.Sequential(first, second)), skip="1")
    assert network[0].weight is network[1].weight
    assert [row.outcome for row in conversion_of(network).rows] == ["converted", "skipped"]
    assert list(attention_layers(network)) == ["0.attending_calls.layers.0"]
