"""The starts that are compared: each sets the weights of a freshly drawn vision transformer."""

import torch
from torch import Tensor, nn

from conv2attn.errors import UsageError
from conv2attn.models.starts import Start, start_at_convolution
from conv2attn.models.zoo.transformer import VisionTransformer


def begin(network: VisionTransformer, arm: str, seed: int, images: Tensor) -> Start | None:
    """Sets the weights of a fresh network as an arm says; returns the `Start` of arms that plant heads.

    Args:
        images: of the training set, whose tokens' norms fix the scale of the scores.
    Raises:
        UsageError: there is no such arm (C2A002).
    """
    match arm.split("-"):
        case ["default"]:
            return None
        case ["mimetic"]:
            mimetic(network, seed)
            return None
        case ["shift", size, alpha]:
            sizes = {"kernel_size": int(size), "alpha": float(alpha)}
            return start_at_convolution(network, seed=seed, example_input=images, **sizes)  # type: ignore[arg-type]
        case ["written"]:
            return start_with_drawn(network, lambda name: "in_proj" not in name and name != "positions", seed, images)
        case ["positions"]:
            start_with_drawn(network, lambda name: "in_proj" in name, seed, images)
            return None
    raise UsageError("C2A002", f"arm {arm!r} is not one of the experiment's", "Pass an arm of the experiment.")


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
