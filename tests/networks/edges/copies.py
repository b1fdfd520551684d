"""The user's own network is never changed, whatever its modules say of being copied."""

import torch
from torch import nn
from torch.nn import functional as F
from whole import assert_equal, image_of, whole

from conv2attn import convert
from conv2attn.networks import attention_layers

IMAGE = image_of(2, 3, 6, 7)


class Single(nn.Module):
    """Cannot be copied: its copy is itself. Calls a convolution as a layer and one as a function."""

    def __init__(self):
        super().__init__()
        self.conv, self.weight = nn.Conv2d(3, 3, 3, padding=1), nn.Parameter(torch.ones(3, 3, 1, 1))

    def __deepcopy__(self, memo):
        return self

    def forward(self, image):
        return F.conv2d(self.conv(image) % 3, self.weight)


def test_a_module_that_is_its_own_copy_is_not_changed():
    for example in (None, IMAGE):
        for model in (whole(nn.Sequential(Single(), nn.Conv2d(3, 3, 1))), whole(Single())):
            before = {module: set(vars(module)) for module in model.modules()}
            state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
            network = convert(model, example_input=example)
            assert {module: set(vars(module)) for module in model.modules()} == before
            assert not attention_layers(model)
            assert attention_layers(network)
            assert not {*model.modules()} & {*network.modules()}
            assert_equal(model, network, IMAGE)
            for key, tensor in model.state_dict().items():
                assert torch.equal(tensor, state[key])
