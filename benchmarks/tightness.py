"""`python -m benchmarks.tightness [--quick]`: how far the bound on a layer's difference is above the worst found.

For each layer inputs are searched on which the convolution and its attention, evaluated as a true softmax and summed in
several orders, differ most: aligned with the signs of one output's weights, so that all partial sums are large; of
random signs; of wide dynamic range; and then changed a little at a time, keeping what differs more. A bound must never
be exceeded. Layers of one tap are left out: both sides sum them in one order, and no difference was ever found.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import click
import torch
from torch import Tensor, nn

from conv2attn import convert, set_engine
from conv2attn.equality.layers.bases import Pair, comparable_basis
from conv2attn.equality.layers.rounding import difference_bounds
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.report.markup import markdown_table
from conv2attn.theory.basis import Weights

SHORT = 500  # terms up to which the median ratio is held under 100
CASES = ((3, 3), (8, 3), (16, 3), (3, 7), (32, 3), (8, 7), (48, 3), (64, 3), (256, 3))  # channels, kernel size
ALPHAS = (128.0, 46.0, 3.0)


@final
@dataclass(frozen=True)
class Tightness:
    """One layer: products per output, its alpha, the bound, and the largest difference found."""

    terms: int
    alpha: float
    bound: float
    worst: float

    @property
    def ratio(self) -> float:
        """Bound over worst; infinite where no difference was found."""
        return self.bound / self.worst if self.worst else float("inf")


def aligned(layer: nn.Conv2d, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """An image whose middle window has the signs of one output's weights, and magnitudes near 1."""
    image = torch.rand(shape, generator=generator) * 0.5 + 0.5
    channel = int(torch.randint(0, layer.out_channels, (), generator=generator))
    size = layer.kernel_size[0]
    rows = (slice(None), slice(None), slice(1, 1 + size), slice(1, 1 + size))
    image[rows] *= layer.weight[channel].detach().sign()
    return image


def starts(layer: nn.Conv2d, shape: tuple[int, ...], generator: torch.Generator, count: int) -> Iterator[Tensor]:
    """Images within +-1 to begin with."""
    for _ in range(count):
        yield aligned(layer, shape, generator)
        yield torch.rand(shape, generator=generator) * 2 - 1
        yield torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
        scale = 2.0 ** -torch.randint(0, 40, shape, generator=generator)
        yield (torch.rand(shape, generator=generator) * 2 - 1) * scale


def shuffled(attention: MultiHeadSelfAttention, generator: torch.Generator) -> MultiHeadSelfAttention:
    """This layer with its heads in another order, so that its sums are formed in another order."""
    order = torch.randperm(attention.heads, generator=generator)
    for name, numbers in attention.encoding.frozen.items():
        attention.encoding.assign(**{name: numbers[order.numpy()]})
    weights = attention.weights
    value, output = (None if factor is None else factor[order] for factor in (weights.value, weights.output))
    return attention.hold(Weights(value, output, weights.bias, weights.groups))


@torch.no_grad()
def worst_difference(layer: nn.Conv2d, orders: list[MultiHeadSelfAttention], count: int, seed: int) -> float:
    """The largest |difference| found for images within +-1, over several orders of summation."""
    generator = torch.Generator().manual_seed(seed)
    side = layer.kernel_size[0] + 2
    shape = (1, layer.in_channels, side, side + 1)

    def difference(image: Tensor) -> float:
        expected = layer(image).double()
        return max((expected - order(image).double()).abs().max().item() for order in orders)

    worst, best = max(
        ((difference(image), image) for image in starts(layer, shape, generator, count)), key=lambda pair: pair[0]
    )
    for _ in range(4 * count):
        touched = torch.rand(shape, generator=generator) < 0.1
        moved = torch.where(touched, best * (1 - torch.rand(shape, generator=generator) / 4), best)
        if (found := difference(moved)) > worst:
            worst, best = found, moved
    return worst


def measure(channels: int, size: int, alpha: float, count: int, seed: int = 0) -> Tightness:
    """The tightness for one layer with random weights and a bias."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Conv2d(channels, 8, size, padding=size // 2)
    generator = torch.Generator().manual_seed(seed)
    orders = [set_engine(convert(layer, alpha=alpha), "separable")]
    orders += [set_engine(shuffled(convert(layer, alpha=alpha), generator), "dense") for _ in range(3)]
    sides = (2 * size + 2, 2 * size + 3)
    pair = Pair(comparable_basis(layer), comparable_basis(orders[0]), (False, False), (("auto",), ("auto",)))
    bounds = difference_bounds(pair, 1.0, sides)
    assert bounds is not None
    return Tightness(channels * size**2, alpha, max(bounds), worst_difference(layer, orders, count, seed))


def table(found: list[Tightness]) -> str:
    """The distribution, in Markdown."""
    header = ["terms", "alpha", "bound", "worst found", "bound / worst"]
    rows = [[each.terms, each.alpha, each.bound, each.worst, each.ratio] for each in found]
    lines = [markdown_table(header, rows), ""]
    for alpha in ALPHAS:
        chosen = [each for each in found if each.alpha == alpha]
        for what, ratios in (
            (f"up to {SHORT} terms", [each.ratio for each in chosen if each.terms <= SHORT]),
            ("beyond", [each.ratio for each in chosen if each.terms > SHORT]),
        ):
            if ratios:
                lines.append(f"- alpha {alpha:g}, {what}: median ratio {statistics.median(ratios):.3g}")
    return "\n".join(lines)


@click.command()
@click.option("--quick", is_flag=True, help="Little search, short sums.")
def main(quick: bool) -> None:
    """Measures and prints."""
    torch.set_num_threads(1)
    chosen = [case for case in CASES if not quick or case[0] * case[1] ** 2 <= SHORT]
    found = [measure(c, k, alpha, 5 if quick else 60) for alpha in ALPHAS for c, k in chosen]
    click.echo(table(found))
    if not all(each.worst <= each.bound for each in found):
        raise SystemExit("a bound was exceeded")


if __name__ == "__main__":
    main()
