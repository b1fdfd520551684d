"""The user's own network is never changed, whatever its modules say of being copied."""

import torch
from networks.networks import Mixed
from torch import nn
from whole import assert_equal, image_of, whole

from conv2attn import convert
from conv2attn.networks import attention_layers, copy_network

IMAGE = image_of(2, 3, 6, 7)


class Single(Mixed):
    """Cannot be copied: its copy is itself. Calls a convolution as a layer and one as a function."""

    def __deepcopy__(self, memo):
        return self


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


class Cut(nn.Module):
    """Queries, keys and values as views of one weight: as parameters, plain tensors and computed ones."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(18.0).reshape(6, 3))
        self.query = nn.Parameter(self.weight.data[:2])
        self.register_buffer("key", self.weight.data[2:4])
        self.values = [self.weight.data[4:]]
        self.turned = self.weight.mT
        self.wide = nn.Parameter(self.weight.data[:1].expand(4, 3), requires_grad=False)

    def views(self):
        return {"query": self.query, "key": self.key, "value": self.values[0], "turned": self.turned, "wide": self.wide}


def test_tensors_that_share_memory_share_it_in_a_copy():
    original = Cut()
    copied = copy_network(original)
    for name, view in copied.views().items():
        theirs = original.views()[name]
        assert torch.equal(view, theirs), name
        assert (view.stride(), view.storage_offset()) == (theirs.stride(), theirs.storage_offset()), name
        assert view.untyped_storage().data_ptr() == copied.weight.untyped_storage().data_ptr(), name
    with torch.no_grad():
        copied.weight.fill_(-1)
    assert all((each == -1).all() for each in copied.views().values())
    assert torch.equal(original.weight, torch.arange(18.0).reshape(6, 3))
    assert [each.requires_grad for each in copied.parameters()] == [True, True, False]
