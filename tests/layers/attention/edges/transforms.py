"""Layers under torch.func, torch.fx and torch.jit: they work as a convolution does, or say in a sentence why not."""

from copy import deepcopy

import pytest
import torch
from torch import fx, nn
from whole import image_of, whole

from conv2attn import convert
from conv2attn.errors import EngineError


class Sized(nn.Module):
    """A transposed convolution that is asked for a size."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 2, 3, stride=2)

    def forward(self, image):
        return self.up(image, output_size=[14, 16])


def ensemble(model, *, on="cpu", **options):
    """The outputs of three networks of one kind, run as one by vmap over their stacked parameters; and one by one."""
    torch.manual_seed(0)
    networks = [convert(whole(deepcopy(model)), **options) for _ in range(3)]
    stacked, image = torch.func.stack_module_state(networks), image_of(2, 3, 6, 7)
    base = deepcopy(networks[0]).to(on)
    run = torch.vmap(lambda *state: torch.func.functional_call(base, state, (image,)))
    return run(*stacked), torch.stack([network(image) for network in networks])


@pytest.mark.parametrize("on", ["cpu", "meta"])
@pytest.mark.parametrize("model", [nn.Conv2d(3, 4, 3, padding=1), nn.ConvTranspose2d(3, 4, 3, stride=2)])
def test_an_ensemble_runs_as_one_network(model, on):
    assert torch.equal(*ensemble(nn.Sequential(model), on=on))


def test_an_ensemble_of_two_layers_runs_as_one_network():
    """The second is given what vmap left in another order of axes."""
    assert torch.equal(*ensemble(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2))))


def test_vmap_takes_images_with_channels_innermost():
    model = whole(nn.Conv2d(3, 4, 3))
    images = image_of(2, 2, 6, 7, 3).movedim(-1, 2)
    results = torch.vmap(convert(model))(images)
    assert torch.equal(results, torch.stack([model(image) for image in images]))


def test_an_ensemble_whose_positions_train_is_refused():
    with pytest.raises(EngineError, match=r"C2A203 0: vmap stacks networks whose centres or sharpness train or differ"):
        ensemble(nn.Sequential(nn.Conv2d(3, 4, 3)), trainable=True, alpha=3)


def test_a_size_that_is_asked_for_is_seen_by_vmap_and_by_a_symbolic_trace():
    model, image = whole(Sized()), image_of(2, 3, 6, 7)
    network = convert(model)
    assert torch.equal(fx.symbolic_trace(network)(image), model(image))
    assert torch.equal(torch.vmap(network)(image[None]), model(image)[None])
