"""`python -m benchmarks.certificates`: seconds of processor and memory of `certify`, its parts apart, and of formulas.

Each network in a fresh process and on one thread, the least of three runs in a warm process: networks with random
weights beside their conversions, one image. `python -m benchmarks.certificates NAME SIDE` prints one as JSON.
"""

import copy
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import conv2attn
from benchmarks.processes import MIB, apart, peak_bytes
from conv2attn.equality import differing_calls
from conv2attn.equality.fingerprint import identify
from conv2attn.networks.zoo.resnet import ResNet, ResNetPlan
from conv2attn.report.markup import markdown_table

PLANS = {
    "small": ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=5),
    "resnet18": ResNetPlan(),
    "resnet50": ResNetPlan("bottleneck", (3, 4, 6, 3)),
}
PARTS = {
    "layers": ("layers.rows", "compare_maps"),
    "walk": ("twins.lockstep", "Lockstep", "modules"),
    "runs": ("comparison", "run_both"),
}
WANTED = {"small": 0.03, "resnet18": 0.7, "resnet50": 1.5}
HEAD = """Seconds of the processor in a warm process, the least of three runs, random weights, one image. `layers`
compares the layers as values, `walk` compares the networks object by object, `runs` copies and runs both. Memory is
what the resident set grows by beside the two networks."""
MORE = 1536  # MiB that may be taken beside the two networks
FORMULAS = {"a copy": 100, "a copy with one weight changed": 25}
"""What a network is compared with as formulas, and how many plain calls that may cost."""
ABOUT_FORMULAS = """Two networks as formulas over secret primes: a copy is the same formula, a copy with one weight
changed is told apart. The cost is that of so many calls of the network, on one thread, in one process."""


class Written(nn.Module):
    """A ResNet with its last layer in other words; another network if `change` is not 0."""

    def __init__(self, network: ResNet, change: float = 0.0):
        super().__init__()
        self.network, self.change = copy.deepcopy(network), change

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """The classes."""
        *layers, last = self.network.children()
        for layer in layers:
            image = layer(image)
        assert isinstance(last, nn.Linear)
        return image.flatten(1) @ last.weight.T + last.bias + self.change


@contextmanager
def timed(seconds: dict[str, float]) -> Iterator[None]:
    """While active, the parts of `certify` add their seconds of processor to `seconds`."""

    def clocked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[part] += time.process_time() - began

        return run

    with ExitStack() as stack:
        for part, (room, *owner, function) in PARTS.items():
            home = reduce(getattr, owner, importlib.import_module(f"conv2attn.equality.{room}"))
            stack.enter_context(patch.object(home, function, clocked(part, getattr(home, function))))
        yield


def measure(name: str, side: int, repeats: int = 3) -> dict[str, Any]:
    """Measures here, after a small certificate, so that what libraries do once is not counted."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    conv = nn.Conv2d(1, 1, 1)
    conv2attn.certify(conv, conv2attn.convert(conv), input_size=(1, 3, 3))
    original = ResNet(PLANS[name]).eval()
    network = conv2attn.convert(original)
    before, runs = peak_bytes(), list[dict[str, float]]()
    for _ in range(repeats):
        seconds = dict.fromkeys((*PARTS, "whole"), 0.0)
        began = time.process_time()
        with timed(seconds):
            certificate = conv2attn.certify(original, network, input_size=(3, side, side))
        runs.append({**seconds, "whole": time.process_time() - began})
        assert certificate, certificate.to_text()
    more = (peak_bytes() - before) / MIB
    return {"network": name, "side": side, **min(runs, key=lambda run: run["whole"]), "mebibytes": more}


def measure_formulas(name: str, side: int, repeats: int = 3) -> str:
    """Measures the comparison as formulas here, as Markdown."""
    torch.set_num_threads(1)
    (original, image, call), cells = posed(name, side), list[list[str]]()
    for other, wanted in FORMULAS.items():
        second = copy.deepcopy(original)
        if other != "a copy":
            next(second.parameters()).data.flatten()[0].mul_(2)
        seconds, found = fastest(repeats, identify, original, second, image)
        assert found.equal is (other == "a copy"), found
        cells.append([f"{name} and {other}", str(side), f"{seconds:.2f}", f"{seconds / call:.0f}", str(wanted)])
    return markdown_table(("networks", "side", "whole, s", "plain calls", "wanted"), cells)


ANSWERS: dict[str, tuple[str, bool, Callable[[ResNet], nn.Module], int]] = {
    "a conversion": ("resnet18", False, conv2attn.convert, 12),
    "a small conversion": ("small", True, conv2attn.convert, 60),
    "a small network in other words": ("small", True, Written, 300),
    "the same with another bias": ("small", True, partial(Written, change=0.1), 60),
}
ABOUT_ANSWERS = """Whole questions, and what it takes to tell rounding from a difference where two plain calls are not
equal bit for bit. The unit is one call of the first network on the same input; small networks at side 32."""


def measure_answers(side: int, repeats: int = 3) -> str:
    """Measures whole questions here, in calls of the first network on the same input, as Markdown."""
    cells = list[list[str]]()
    for question, (name, small, make, wanted) in ANSWERS.items():
        original, image, call = posed(name, 32 if small else side)
        seconds, found = fastest(repeats, conv2attn.certify, original, make(original).eval(), image)
        answer = f"{found.verdict.value}, {found.strength.value}"
        cells.append([question, str(image.shape[-1]), answer, f"{seconds:.2f}", f"{seconds / call:.0f}", str(wanted)])
    for name, small, limit in (("resnet18", False, "40"), ("small", True, "0.5 s")):
        original, image, call = posed(name, 32 if small else side)
        networks = original, Written(original, 0.1).eval()
        with torch.no_grad():
            outputs = tuple(network(image) for network in networks)
        seconds, _ = fastest(repeats, differing_calls, networks, image, outputs)
        cost = f"{seconds:.2f}", f"{seconds / call:.0f}", limit
        cells.append([f"plain calls alone, {name}, its classes moved", str(image.shape[-1]), "", *cost])
    return markdown_table(("question", "side", "answer", "whole, s", "calls", "wanted"), cells)


def posed(name: str, side: int) -> tuple[ResNet, torch.Tensor, float]:
    """A network with random weights, an image of this side, and the seconds of a plain call."""
    torch.manual_seed(0)
    original, image = ResNet(PLANS[name]).eval(), torch.rand(1, 3, side, side)
    return original, image, fastest(10, torch.no_grad()(original), image)[0]


def fastest(repeats: int, function: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """The least seconds of processor of some calls, and what that call returns."""
    return min((seconds_of(function, *args) for _ in range(repeats)), key=lambda run: run[0])


def seconds_of(function: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """The seconds of processor of a call, and what it returns."""
    began = time.process_time()
    result = function(*args)
    return time.process_time() - began, result


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    head = ("network", "side", *(f"{part}, s" for part in PARTS), "whole, s", "wanted, s", "MiB more", "wanted, MiB")
    cells = [
        [
            row["network"],
            str(row["side"]),
            *(f"{row[part]:.2f}" for part in (*PARTS, "whole")),
            f"{WANTED.get(row['network'], math.inf):g}",
            f"{row['mebibytes']:.0f}",
            str(MORE),
        ]
        for row in rows
    ]
    return markdown_table(head, cells)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        names, side = ([*PLANS][:1], 32) if "--quick" in sys.argv else ([*WANTED], 224)
        print(f"{HEAD}\n\n{table([apart('certificates', name, side) for name in names])}\n")
        print(f"{ABOUT_FORMULAS}\n\n{measure_formulas(names[-2:][0], side)}\n")
        print(f"{ABOUT_ANSWERS}\n\n{measure_answers(side)}")
