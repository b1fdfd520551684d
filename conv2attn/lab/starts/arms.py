"""The starts that are compared: each sets the weights of a fresh network."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.errors import UsageError
from conv2attn.networks.starts import Start, kernel, start_at_convolution
from conv2attn.networks.zoo.transformer import VisionTransformer


def begin(network: Any, arm: str, seed: int, images: Tensor) -> Start | None:
    """Sets the weights of a network as an arm says; returns the `Start` of arms whose heads are shifts of a kernel.

    Args:
        network: a vision transformer; arms that are no `start_at_convolution` need one of this package.
        images: of the training set, whose tokens' norms fix the scale of the scores.
    Raises:
        UsageError: there is no such arm (C2A002).
    """
    match arm.split("-"):
        case ["default"] | ["faster", _]:
            return None
        case ["strong", factor]:
            strengthen(network, float(factor))
            return None
        case ["mimetic"]:
            mimetic(network, seed)
            return None
        case ["image", alpha]:
            free = {"kernel_size": "image", "content": "drawn", "values": "blind"}
            start_at_convolution(network, alpha=float(alpha), seed=seed, example_input=images, **free)  # type: ignore[arg-type]
            return None
        case ["far", alpha]:
            turn_far(network, start_at(network, 3, alpha, seed, images), float(alpha), seed)
            return None
        case ["random", alpha]:
            read_at_random(network, start_at(network, 3, alpha, seed, images).channels, seed)
            return None
        case ["shift", size, alpha]:
            return start_at(network, int(size), alpha, seed, images)
        case ["written"]:
            return start_with_drawn(network, lambda name: "in_proj" not in name and name != "positions", seed, images)
        case ["positions"]:
            start_with_drawn(network, lambda name: "in_proj" in name, seed, images)
            return None
    raise UsageError("C2A002", f"arm {arm!r} is not one of the experiment's", "Pass an arm of the experiment.")


def start_at(network: nn.Module, size: int, alpha: str, seed: int, images: Tensor) -> Start:
    """Heads that begin as the shifts of a kernel."""
    return start_at_convolution(network, kernel_size=size, alpha=float(alpha), seed=seed, example_input=images)


def queries_and_keys(network: VisionTransformer) -> list[Tensor]:
    """The weights of queries and keys of each layer, (2 width, width): views."""
    attentions: list[nn.MultiheadAttention] = [layer.self_attn for layer in network.layers]  # type: ignore[misc]
    width = network.plan.width
    return [each.in_proj_weight.detach()[: 2 * width] for each in attentions if each.in_proj_weight is not None]


def strengthen(network: VisionTransformer, factor: float) -> None:
    """Queries and keys as drawn, times a factor: strong attention that reads content and positions alike."""
    for weight in queries_and_keys(network):
        weight.mul_(factor)


def turn_far(network: VisionTransformer, start: Start, alpha: float, seed: int) -> None:
    """Turns each head to an offset of 2 tokens or more along each axis, so that none is in a 3x3 kernel."""
    plan, generator = network.plan, torch.Generator().manual_seed(seed)
    side, width, channels = plan.side // plan.patch, plan.width // plan.heads, start.channels
    for weight in queries_and_keys(network):
        query, key = weight.chunk(2)
        for head in range(plan.heads):
            lengths = torch.randint(2, side, (2,), generator=generator)
            offset = (lengths * (2 * torch.randint(0, 2, (2,), generator=generator) - 1)).tolist()
            turned, plain = kernel.readers((side, side), start.frequencies, offset, alpha)
            rows = slice(head * width, head * width + channels)
            gain = key[rows, :channels].norm() / plain.norm()
            query[rows, :channels] = (gain * turned).to(query)


def read_at_random(network: VisionTransformer, channels: int, seed: int) -> None:
    """Lets queries and keys read the waves by random matrices, for each head of the norm that its own have."""
    generator = torch.Generator().manual_seed(seed)
    for weight in queries_and_keys(network):
        for rows in weight.split(network.plan.width // network.plan.heads):
            drawn = torch.randn(len(rows), channels, generator=generator)
            rows[:, :channels] = drawn * (rows[:, :channels].norm() / drawn.norm())


@final
@dataclass(frozen=True)
class Faster:
    """Moves queries and keys by `factor` times what each step of the optimiser moves them."""

    factor: float

    @staticmethod
    def of(arm: str) -> "Faster":
        """As the arm faster-FACTOR says; as the optimiser does in all others."""
        name, _, factor = arm.partition("-")
        return Faster(float(factor) if name == "faster" else 1.0)

    @contextmanager
    def step(self, network: Any) -> Iterator[None]:
        """Around a step."""
        if self.factor == 1:
            yield
            return
        weights = queries_and_keys(network)
        before = [weight.clone() for weight in weights]
        yield
        for weight, old in zip(weights, before, strict=True):
            weight.add_(weight - old, alpha=self.factor - 1)


def start_with_drawn(network: VisionTransformer, drawn: object, seed: int, images: Tensor) -> Start:
    """The start with shifts, except for the parameters whose names `drawn` selects, which keep their drawn values."""
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    start = start_at_convolution(network, kernel_size=3, alpha=2.0, seed=seed, example_input=images)
    with torch.no_grad():
        for name, value in network.named_parameters():
            if drawn(name):  # type: ignore[operator]
                value.copy_(before[name])
    return start


@torch.no_grad()
def mimetic(network: VisionTransformer, seed: int) -> None:
    """`W_qry^T W_key ~ 0.7 (Z + I)` and `W_out W_val ~ 0.4 (Z - I)`, Z normal of variance 1/d, for each head and layer.

    Source: Trockman and Kolter 2023 (arXiv 2305.09828), Sec. 4; the constants are theirs. Positions are sinusoidal.
    """
    generator = torch.Generator().manual_seed(seed)
    for layer in network.layers:
        attention: nn.MultiheadAttention = layer.self_attn  # type: ignore[assignment]
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
