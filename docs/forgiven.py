"""The table of docs/certificates.md of mistakes that sections let through: each is planted, smaller and smaller."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from conv2attn.equality.worlds import compare_sections

SIZES = tuple(10.0**-power for power in range(8))
SEEDS = (2, 3, 4)
Change = Callable[[nn.Sequential, float], None]


def scaled(tensor: Tensor, size: float, *place: int) -> None:
    """Numbers of a tensor times 1 + size."""
    with torch.no_grad():
        tensor[place] = tensor[place] * (1 + size)


def larger_epsilon(network: nn.Sequential, size: float) -> None:
    """The norm's epsilon."""
    norm = network[1]
    assert isinstance(norm, nn.BatchNorm2d)
    norm.eps *= 1 + size


def moved_bias(network: nn.Sequential, size: float) -> None:
    """One bias, by a share of the mean of all."""
    bias = network.get_parameter("0.bias").data
    bias[1] += size * float(bias.abs().mean())


MISTAKES: dict[str, Change] = {
    "all weights of a convolution times 1 + s": lambda net, s: scaled(net.get_parameter("0.weight"), s),
    "one weight of 216 times 1 + s": lambda net, s: scaled(net.get_parameter("0.weight"), s, 2, 1, 0, 1),
    "one bias off by s of the mean of all": moved_bias,
    "an epsilon of 1e-5 times 1 + s": larger_epsilon,
    "one weight of the head times 1 + s": lambda net, s: scaled(net.get_parameter("5.weight"), s, 1, 3),
}


def network(seed: int) -> nn.Sequential:
    """A convolution, a norm, an activation, and a head."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        )
        nn.init.normal_(net.get_buffer("1.running_mean"))
        nn.init.uniform_(net.get_buffer("1.running_var"), 0.5, 2)
    return net.eval()


def is_seen(change: Change, size: float, seed: int) -> bool:
    """Whether the sections part at a mistake of this size."""
    right = network(seed)
    wrong = copy.deepcopy(right)
    change(wrong, size)
    images = torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(seed))
    return compare_sections(right, wrong, (images,), seed=seed).equal is False


def row(name: str) -> str:
    """Of one mistake, the sizes from which on it is seen with every seed, and the largest that a seed forgives."""
    seen = {size: [is_seen(MISTAKES[name], size, seed) for seed in SEEDS] for size in SIZES}
    parted = min(size for size in SIZES if all(all(seen[each]) for each in SIZES if each >= size))
    forgiven = max(size for size in SIZES if not all(seen[size]))
    return f"| {name} | {parted:.0e} | {forgiven:.0e} |"


def table() -> str:
    """All rows, below their heading."""
    heading = "| mistake, in float32 | s from which all of three networks part | largest s that is forgiven |"
    return "\n".join([heading, "| --- | --- | --- |", *map(row, MISTAKES)])
