"""The real networks by name, each with a real input of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from mtcnn import load_detector
from packaged import photograph, resized
from torch import Tensor, nn
from xfeat import load_xfeat

from conv2attn.networks.zoo import ResNet, ResNetPlan


@dataclass(frozen=True)
class Real:
    """A network in eval mode and what it is to look at; both are shared by the tests, which must not change them."""

    network: nn.Module
    image: Tensor


def photographs(side: int) -> Tensor:
    """Four square pictures in one batch, -1 to 1."""
    pictures = [resized(photograph(name), side, side) for name in ("astronaut", "chelsea", "coffee", "rocket")]
    return torch.cat(pictures) / 127.5 - 1


def seeded_resnet18() -> nn.Module:
    """A ResNet-18 of full width whose batch norms know the mean and variance of the four pictures."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(18)
        network = ResNet(ResNetPlan())
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        network.train()(photographs(224))
    return network.eval()


def _face(side: int) -> Tensor:
    """The astronaut's face on a grid of `side` x `side`, scaled as MTCNN wants it."""
    return (resized(photograph("astronaut")[:, :, 67:163, 181:277], side, side) - 127.5) / 128


NETWORKS: dict[str, Callable[[], Real]] = {
    "pnet": lambda: Real(load_detector().pnet, (resized(photograph("coffee"), 100, 150) - 127.5) / 128),
    "rnet": lambda: Real(load_detector().rnet, _face(24)),
    "onet": lambda: Real(load_detector().onet, _face(48)),
    "xfeat": lambda: Real(load_xfeat(), resized(photograph("coffee"), 192, 288)),
    "resnet18": lambda: Real(seeded_resnet18(), photographs(224)[1:3]),
}


@cache
def real(name: str) -> Real:
    """The entry of `NETWORKS`, built once."""
    return NETWORKS[name]()


@torch.no_grad()
def convolutions_at_work(network: nn.Module, image: Tensor) -> Iterator[tuple[str, nn.Module, Tensor]]:
    """(name, layer, what it is given) for each convolution that runs when `network` looks at `image`."""
    seen: list[tuple[str, nn.Module, Tensor]] = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, given, name=name: seen.append((name, layer, given[0].clone())))
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d)
    ]
    network(image)
    for hook in hooks:
        hook.remove()
    return iter(seen)
