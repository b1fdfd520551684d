"""One report of each kind whose numbers are exact, so that its text is the same everywhere."""

from collections import OrderedDict
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from conv2attn import check_span, heads
from conv2attn.equality import Recheck
from conv2attn.files import Inspection
from conv2attn.networks import convert, soften
from conv2attn.report import Report

NAMES = [f"layer{stage}.{block}.attention" for stage in (1, 2) for block in (0, 1, 2)]


def shifts(sides: tuple[int, int]) -> np.ndarray:
    """Nine heads that each read one offset of a 3x3 kernel; a shift that leaves the grid reads the border."""
    rows, columns = sides
    found = np.zeros((9, rows * columns, rows * columns))
    for head, (down, right) in enumerate((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)):
        for row in range(rows):
            for column in range(columns):
                key = min(max(row + down, 0), rows - 1) * columns + min(max(column + right, 0), columns - 1)
                found[head, row * columns + column, key] = 1
    return found


@cache
def attention() -> dict[str, np.ndarray]:
    """Six layers of one-hot heads."""
    return {name: shifts((5, 6)) for name in NAMES}


def softened() -> Report:
    """A converted convolution with known weights, at alpha 5."""
    network = torch.nn.Sequential(OrderedDict(conv1=torch.nn.Conv2d(1, 2, 3, bias=False)))
    with torch.no_grad():
        network.conv1.weight.copy_(torch.arange(18.0).reshape(2, 1, 3, 3) / 64)
    return soften(convert(network), alpha=5.0)


REPORTS: dict[str, Callable[[], Report]] = {
    "span": lambda: check_span(attention(), grid=(5, 6), exact=True),
    "span-refuted": lambda: check_span({"eight heads": shifts((5, 6))[:8]}, grid=(5, 6), exact=True),
    "heads": lambda: heads(attention(), grid=(5, 6)),
    "recheck": lambda: Recheck("certificate.json", "holds", ("net.pt changed since the certificate was written",)),
    "inspection": lambda: Inspection(
        *("net.pt", "torch.save file", 2 * 2**20, "0" * 64, ("resnet18",), ("ReLU, from keys and shapes alone",), ()),
        tensors=(("conv1.weight", (16, 3, 7, 7), "float32"), ("fc.bias", (10,), "float32")),
    ),
    "softening": softened,
}


@cache
def report_of(name: str) -> Report:
    """The report of that name, made when a test first asks."""
    return REPORTS[name]()
