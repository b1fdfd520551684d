"""Attention by position alone of layers that no rule names, asked of a run.

Products that change with the image (queries with keys, queries with a table) are held at zero. What is left of the
scores, such as biases, masks and products of parameters, passes through the softmax of the layer itself, whatever its
class is. The run needs an image: its size is that of the library, or follows from the grid and the strides in front.
"""

from collections.abc import Collection, Iterator
from math import prod

import torch
from torch import Tensor, nn

from conv2attn.arguments import FAILURES, Selection, call_network
from conv2attn.errors import Conv2AttnError
from conv2attn.networks.positions.position_rules import Unread
from conv2attn.networks.provenance import input_size_of
from conv2attn.networks.reading.perturbed import double_copy, on_the_cpu
from conv2attn.networks.reading.phase import literally, read_network
from conv2attn.networks.reading.records import Read, Tokens
from conv2attn.networks.reading.watch import Watch
from conv2attn.theory.basis import Sides

BY_RUN = "by position, as it runs with every product that changes with the image held at zero"
NO_TERM = "its scores have no term of position alone: with products of content held at zero all its weights are equal"
DEPENDS = "its weights depend on the image beside the products of queries and keys"
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MOST_LEADING = 16
"""Class tokens and registers that a layer may have beside its grid."""
SAME = 1e-9
"""Weights of two images that differ less are equal in float64."""


@on_the_cpu
def attention_by_run(network: nn.Module, names: Collection[str], sides: Sides) -> dict[str, Read]:
    """What runs say of the layers of these names on a grid of tokens; none where no image is found that gives it."""
    try:
        double = double_copy(network, share=False)
    except FAILURES:
        return {}
    for size in sizes_of_image(network, sides):
        generator = torch.Generator().manual_seed(3)
        pairs = torch.randn((4, *size), generator=generator, dtype=torch.float64).split(2)
        try:
            reads = held_reads(double, pairs[0], pairs[1], names)
        except (Conv2AttnError, *FAILURES):  # it does not run on this size
            continue
        if any(fits(read, sides) for read in reads):
            return {read.name: concluded(read, sides) for read in reads}
    return {}


def sizes_of_image(network: nn.Module, sides: Sides) -> Iterator[tuple[int, ...]]:
    """Sizes of images that may give a grid of tokens: of its library, behind strides, or tokens themselves."""
    if size := input_size_of(network):
        yield size
    first, step = None, tuple(1 for _ in sides)
    for module in network.modules():
        if isinstance(module, CONVOLUTIONS) and len(module.kernel_size) == len(sides):
            first = first or module
            step = tuple(each * stride for each, stride in zip(step, module.stride, strict=True))
            yield first.in_channels, *(side * each for side, each in zip(sides, step, strict=True))
    width = next((each.in_features for each in network.modules() if isinstance(each, nn.Linear)), None)
    if width is not None:
        yield prod(sides), width
        yield *sides, width
        yield width, *sides


def held_reads(network: nn.Module, images: Tensor, others: Tensor, names: Collection[str]) -> list[Read]:
    """The records of these layers on images, with the products that others change held at zero."""
    first, second = products_of(network, images), products_of(network, others)
    changing = {
        number for number, each in first.items() if number not in second or not torch.equal(each, second[number])
    }

    def held(number: int, product: Tensor) -> Tensor:
        return torch.zeros_like(product) if number in changing else product

    selection = Selection(tuple(map(literally, names)))
    return list(read_network(network, images, selection, held))


def products_of(network: nn.Module, images: Tensor) -> dict[int, Tensor]:
    """A sum of each product of matrices in a run, by its number, which an image changes if it changes the product."""
    sums = dict[int, Tensor]()

    def note(number: int, product: Tensor) -> Tensor:
        sums[number] = product.sum((-1, -2))
        return product

    Watch(network, marked=note).run(lambda: call_network(network, images))
    return sums


def fits(read: Read, sides: Sides) -> bool:
    """Whether a layer attends to the tokens of a grid, and to some without a place."""
    shape = getattr(read.attention, "shape", (0,))
    return 0 <= shape[-1] - prod(sides) <= MOST_LEADING


def concluded(read: Read, sides: Sides) -> Read:
    """The record of one layer by position alone, or the reason why it has none."""
    attention, tokens = read.attention, read.tokens
    if isinstance(attention, Unread) or tokens is None:
        return Read(read.name, Unread(read.unread or read.unplaced))
    if tokens.sides == (prod(sides),) and tokens.windows is None:  # tokens that came in one line
        tokens = Tokens(sides, tokens.leading, sites=tokens.sites)
    images = attention.unflatten(0, (2, -1))
    if not torch.allclose(images[0], images[1], rtol=0, atol=SAME):
        return Read(read.name, Unread(DEPENDS))
    allowed = (images[0] > 0).double()
    even = allowed / allowed.sum(-1, keepdim=True)
    if torch.allclose(images[0], even, rtol=0, atol=SAME):
        return Read(read.name, Unread(NO_TERM))
    return Read(read.name, images[0], tokens, notes=(BY_RUN,))
