"""`python -m benchmarks.folds`: seconds of processor and memory of `certify` for networks whose norms are folded.

Each network of torchvision in a fresh process and on one thread, with random weights and statistics, on two images.
`python -m benchmarks.folds NAME SIDE` prints one as JSON. Nothing is downloaded.
"""

import copy
import json
import statistics
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import conv2attn
from benchmarks.engines import torchvision_models
from benchmarks.processes import MIB, apart, peak_bytes
from conv2attn.equality.worlds import compare_sections
from conv2attn.report.markup import markdown_table
from conv2attn.verdicts import Strength

WANTED = {"resnet18": (45, 0.3), "resnet50": (45, 0.8), "vit_b_16": (40, 1.0)}
"""Forwards of the comparison of sections, and GiB above the networks."""
WHOLE = "resnet18"
"""The network of which all of `certify` is measured."""
HEAD = """Two networks of torchvision, of which the second has its norms folded into its convolutions (ResNet) or into
the products behind them (ViT): equal but for rounding. What is measured is their comparison section by section. A
forward is the median of ten plain calls of both images; GiB is what the resident set grows by."""


def drawn(name: str) -> nn.Module:
    """The network, whose norms have random weights and statistics: a fold of fresh ones would change nothing."""
    torch.manual_seed(0)
    network: nn.Module = getattr(torchvision_models(), name)(weights=None).eval()
    for norm in network.modules():
        if isinstance(norm, (nn.BatchNorm2d, nn.LayerNorm)):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0, 0.1)
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, 0, 0.1)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    return network


def folded(network: nn.Module) -> nn.Module:
    """A copy whose norms are folded into the layers beside them."""
    out = copy.deepcopy(network)
    for module in [*out.modules()]:
        convolutions = {name: child for name, child in module.named_children() if isinstance(child, nn.Conv2d)}
        norms = {name: child for name, child in module.named_children() if isinstance(child, nn.BatchNorm2d)}
        for (name, convolution), (other, norm) in zip(convolutions.items(), norms.items(), strict=False):
            setattr(module, name, fuse_conv_bn_eval(convolution, norm))
            setattr(module, other, nn.Identity())
        if type(module).__name__ == "EncoderBlock":
            fold_block(module)
    return out


def fold_block(block: Any) -> None:
    """Folds the two norms of a block of torchvision's ViT."""
    move_norm(block.ln_1, block.self_attention.in_proj_weight, block.self_attention.in_proj_bias)
    move_norm(block.ln_2, block.mlp[0].weight, block.mlp[0].bias)


@torch.no_grad()
def move_norm(norm: nn.LayerNorm, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Moves scale and shift of a norm into the product behind it."""
    bias += weight @ norm.bias
    weight *= norm.weight
    nn.init.ones_(norm.weight)
    nn.init.zeros_(norm.bias)


def seconds_of(function: Any, *args: Any) -> tuple[float, Any]:
    """The seconds of processor of a call, and what it returns."""
    began = time.process_time()
    result = function(*args)
    return time.process_time() - began, result


def measure(name: str, side: int) -> dict[str, Any]:
    """Measures here, after plain calls, so that what libraries do once is not counted."""
    torch.set_num_threads(1)
    first = drawn(name)
    second, images = folded(first), torch.randn(2, 3, side, side)
    calls = seconds_of_calls(first, images)
    before = peak_bytes()
    seconds, sections = seconds_of(compare_sections, first, second, (images,))
    assert sections.equal, sections
    # Before and after, so that what else the machine does weighs on both.
    call = statistics.median(calls + seconds_of_calls(first, images))
    row = {"network": name, "forwards": seconds / call, "gibibytes": gibibytes_above(before), "units": sections.units}
    if name != WHOLE:
        return row
    seconds, certificate = seconds_of(conv2attn.certify, first, second, images)
    assert certificate.strength is Strength.ROUNDED, certificate.to_text()
    return {**row, "whole": seconds / call, "more": gibibytes_above(before)}


def seconds_of_calls(network: nn.Module, images: torch.Tensor) -> list[float]:
    """The seconds of five plain calls."""
    return [seconds_of(torch.no_grad()(network), images)[0] for _ in range(5)]


def gibibytes_above(before: int) -> float:
    """What the resident set has grown by."""
    return (peak_bytes() - before) / MIB / 1024


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    cells = []
    for row in rows:
        forwards, gibibytes = WANTED[row["network"]]
        measured = f"{row['forwards']:.0f}", f"{forwards}", f"{row['gibibytes']:.2f}", f"{gibibytes:g}"
        cells.append([row["network"], *measured, f"{row['units']:.1f}"])
    return markdown_table(("network", "forwards", "wanted", "GiB", "wanted", "units (8 allowed)"), cells)


def page(rows: list[dict[str, Any]]) -> str:
    """The table, and the whole answer beside it."""
    whole = next(row for row in rows if row["network"] == WHOLE)
    sentence = f"All of `certify` takes {whole['whole']:.0f} forwards of {WHOLE} and {whole['more']:.2f} GiB:"
    parts = "sections, a formula in one small prime before them, and plain calls in stochastic arithmetic"
    return f"{HEAD}\n\n{table(rows)}\n\n{sentence} {parts}."


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        names, side = ([*WANTED][:1], 32) if "--quick" in sys.argv else ([*WANTED], 224)
        print(page([apart("folds", name, side) for name in names]))
