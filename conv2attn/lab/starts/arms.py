"""The starts that are compared: a table from the name of each to what it sets in a fresh network.

`ARMS["far-2"]`, say, calls `start_at_convolution(network, alpha=2.0)`, and then `turn_far`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.errors import UsageError
from conv2attn.networks.capture import capture
from conv2attn.networks.starts import Start, kernel, start_at_convolution
from conv2attn.networks.starts.parts import attending_layers

Change = Callable[[nn.Module, Any, int, int, Tensor], None]


@final
@dataclass(frozen=True)
class Arm:
    """A start, and how its queries and keys are trained.

    Args:
        options: of `start_at_convolution`; without them weights stay as drawn.
        then: what is done next, by the network, its `Start`, the seed, the tokens along a side, and images.
        drawn: whether the parameter of a name keeps its drawn values.
        planted: whether heads are the shifts of a kernel, which are followed in training.
        factor: by which each step moves queries and keys, over what the optimiser moves them.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    then: Change | None = None
    drawn: Callable[[str], bool] = lambda name: False
    planted: bool = False
    factor: float = 1.0


def begin(network: nn.Module, name: str, seed: int, images: Tensor, side: int) -> Start | None:
    """Sets the weights of a network as an arm says; returns the `Start` of arms whose heads are shifts of a kernel.

    Args:
        images: of the training set, whose tokens' norms fix the scale of the scores.
        side: tokens along an axis of an image.
    Raises:
        UsageError: there is no such arm (C2A002).
    """
    if name not in ARMS:
        raise UsageError("C2A002", f"arm {name!r} is not one of the experiment's", "Pass an arm of the experiment.")
    arm, start = ARMS[name], None
    drawn = {key: value.detach().clone() for key, value in network.named_parameters() if arm.drawn(key)}
    if arm.options:
        start = start_at_convolution(network, seed=seed, example_input=images, **arm.options)
    if arm.then is not None:
        arm.then(network, start, seed, side, images)
    for key, value in drawn.items():
        network.get_parameter(key).detach().copy_(value)
    return start if arm.planted else None


@contextmanager
def faster(network: nn.Module, factor: float) -> Iterator[None]:
    """Around a step of an optimiser: queries and keys move by `factor` times what it moves them."""
    layers = attending_layers(network).values() if factor != 1 else ()
    weights = [weight for layer in layers for weight in (layer.query, layer.key)]
    before = [weight.clone() for weight in weights]
    yield
    for weight, old in zip(weights, before, strict=True):
        weight.add_(weight - old, alpha=factor - 1)


def strengthen(network: nn.Module, start: None, seed: int, side: int, images: Tensor, *, factor: float) -> None:
    """Queries and keys as drawn, times a factor: strong attention that reads content and positions alike."""
    for layer in attending_layers(network).values():
        layer.query.mul_(factor)
        layer.key.mul_(factor)


@torch.no_grad()
def even_out(network: nn.Module, start: None, seed: int, side: int, images: Tensor, *, like: str) -> None:
    """Queries and keys as drawn, scaled head by head until each head has the mean entropy that it has in another arm.

    So heads are as strong as those of the other arm, and read content and positions as they were drawn to.
    """
    other = deepcopy(network)
    begin(other, like, seed, images, side)
    layers = attending_layers(network)
    wanted = [entropies(log_attention(other, images, at)) for at in range(len(layers))]
    for at, layer in enumerate(layers.values()):
        logs = log_attention(network, images, at)  # behind the layers that are scaled already
        # A softmax of the logarithm of attention, times a factor, is the attention of scores times the factor; entropy
        # falls as the factor rises.
        low, high = torch.full((layer.heads,), -10.0).double(), torch.full((layer.heads,), 20.0).double()
        for _ in range(40):
            middle = (low + high) / 2
            flat = entropies((middle.exp()[:, None, None] * logs).log_softmax(-1)) > wanted[at]
            low, high = torch.where(flat, middle, low), torch.where(flat, high, middle)
        factor = (low / 2).exp().repeat_interleave(layer.width)
        for weight in (layer.query, layer.key, *layer.biases):
            weight.mul_(factor.to(weight).view(-1, *[1] * (weight.ndim - 1)))


def log_attention(network: nn.Module, images: Tensor, at: int) -> Tensor:
    """The logarithm of the attention of one layer (images, heads, queries, keys), in evaluation mode."""
    mode = network.training
    maps = [each for each in capture(network.eval(), images).values() if isinstance(each, Tensor)][at]
    network.train(mode)
    return maps.double().log()


def entropies(logs: Tensor) -> Tensor:
    """The mean entropy of each head, from the logarithm of its attention (images, heads, queries, keys)."""
    return -(logs.exp() * logs.clamp_min(-1e3)).sum(-1).mean((0, 2))


def turn_far(network: nn.Module, start: Start, seed: int, side: int, images: Tensor) -> None:
    """Turns each head to an offset of 2 tokens or more along each axis, so that none is in a 3x3 kernel."""
    generator, channels = torch.Generator().manual_seed(seed), start.channels
    for layer in attending_layers(network).values():
        for head in range(layer.heads):
            lengths = torch.randint(2, side, (2,), generator=generator)
            offset = (lengths * (2 * torch.randint(0, 2, (2,), generator=generator) - 1)).tolist()
            turned, plain = kernel.readers((side, side), start.frequencies, offset, start.heads[0].alpha)
            rows = slice(head * layer.width, head * layer.width + channels)
            gain = layer.key[rows, :channels].norm() / plain.norm()
            layer.query[rows, :channels] = (gain * turned).to(layer.query)


def read_at_random(network: nn.Module, start: Start, seed: int, side: int, images: Tensor) -> None:
    """Lets queries and keys read the waves by random matrices, for each head of the norm that its own have."""
    generator, channels = torch.Generator().manual_seed(seed), start.channels
    for layer in attending_layers(network).values():
        for weight in (layer.query, layer.key):
            for rows in weight.split(layer.width):
                drawn = torch.randn(len(rows), channels, generator=generator)
                rows[:, :channels] = drawn * (rows[:, :channels].norm() / drawn.norm())


@torch.no_grad()
def mimetic(network: Any, start: None, seed: int, side: int, images: Tensor) -> None:
    """`W_qry^T W_key ~ 0.7 (Z + I)` and `W_out W_val ~ 0.4 (Z - I)`, Z normal of variance 1/d, for each head and layer.

    Source: Trockman and Kolter 2023 (arXiv 2305.09828), Sec. 4; the constants are theirs. Positions are sinusoidal.
    """
    generator = torch.Generator().manual_seed(seed)
    for layer in network.layers:
        attention: nn.MultiheadAttention = layer.self_attn
        width, heads = attention.embed_dim, attention.num_heads
        identity = torch.eye(width)

        def random_matrix(size: int = width) -> Tensor:
            return torch.randn(size, size, generator=generator) / size**0.5

        assert attention.in_proj_weight is not None
        query, key, value = attention.in_proj_weight.chunk(3)
        for rows in torch.arange(width).chunk(heads):
            left, sizes, right = torch.linalg.svd(0.7 * (random_matrix() + identity))
            root = sizes[: len(rows)].sqrt()
            query[rows], key[rows] = (left[:, : len(rows)] * root).T, root[:, None] * right[: len(rows)]
        left, sizes, right = torch.linalg.svd(0.4 * (random_matrix() - identity))
        value.copy_(sizes.sqrt()[:, None] * right)
        attention.out_proj.weight.copy_(left * sizes.sqrt())


KERNEL = {"kernel_size": 3, "alpha": 2.0}
IMAGE = {"kernel_size": "image", "alpha": 2.0, "content": "drawn", "values": "blind"}
SHIFTS = {
    f"shift-{size}-{alpha}": {"kernel_size": size, "alpha": float(alpha)} for size in (3, 5) for alpha in (1, 2, 4)
}
ARMS: Mapping[str, Arm] = {
    "default": Arm(),
    **{name: Arm(options, planted=True) for name, options in SHIFTS.items()},
    "written": Arm(KERNEL, drawn=lambda name: "in_proj" not in name and name != "positions", planted=True),
    "positions": Arm(KERNEL, drawn=lambda name: "in_proj" in name),
    "far-2": Arm(KERNEL, turn_far),
    "random-1": Arm(SHIFTS["shift-3-1"], read_at_random),
    "random-2": Arm(SHIFTS["shift-3-2"], read_at_random),
    "random-4": Arm(SHIFTS["shift-3-4"], read_at_random),
    "image-2": Arm(IMAGE),
    "mimetic": Arm(then=mimetic),
    "strong-3": Arm(then=partial(strengthen, factor=3.0)),
    "even-2": Arm(then=partial(even_out, like="random-2")),
    "faster-5": Arm(factor=5.0),
}
"""By the names in the column `arm`, without the `/torch` that says how the network is drawn. `written` leaves the
zeroed rows of what writes to tokens as drawn; `positions` has them and the waves, and drawn heads."""
