"""`python -m benchmarks.engines [--quick]`: what attention costs beside the convolution that it is.

`python -m benchmarks.engines WAY SIDE` prints the memory of one layer as JSON.
"""

import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.processes import MIB, apart, peak_bytes
from benchmarks.timing import interleave
from conv2attn.layers.attention import MultiHeadSelfAttention, set_engine
from conv2attn.networks import convert
from conv2attn.networks.zoo.classifier import ClassifierBlock, ClassifierPlan
from conv2attn.networks.zoo.resnet import ResNet, ResNetPlan
from conv2attn.report.markup import markdown_table

ALPHAS = (1.0, 5.0, 46.0)
OFF_PIXEL = 0.3
SOFT = {(14, 256): 1.6, (28, 128): 1.8, (56, 64): 2.2, (112, 32): 3.0, (224, 16): 4.0}
STEPS = {(14, 256): 1.6, (28, 128): 1.9, (56, 64): 2.1, (112, 32): 3.0, (224, 16): 4.4}
QUICKEST, DEPLOYED = "the convolution", "`to_torch`, then the convolution"
DECLARED = torch.library.Library("torchvision", "FRAGMENT")
Way = tuple[str, str, nn.Module, float | None]
"""What it is, what a user would take instead, the network or layer, and the ratio wanted."""


def attention_of(module: nn.Module, engine: str, alpha: float | None = None, apart: float = 0.0, **options: Any) -> Any:
    """The module as attention by one engine, its centres moved by up to `apart` pixels."""
    network = set_engine(convert(module, **({} if alpha is None else {"alpha": alpha}), **options), engine)
    generator = torch.Generator().manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, MultiHeadSelfAttention) and apart:
            center = layer.positions.center.detach()
            drawn = torch.rand(center.shape, generator=generator)
            layer.encoding.assign(center=center + apart * (2 * drawn - 1).to(center))
    return network


def networks(quick: bool) -> Iterator[tuple[str, Tensor, nn.Module, list[Way]]]:
    """Whole networks: ResNet-18 by each engine, MobileNetV2 and ConvNeXt-Tiny."""
    side = 32 if quick else 224
    image = torch.randn(1, 3, side, side)
    torch.manual_seed(0)
    model = ResNet(ResNetPlan(depths=(1,), width=8) if quick else ResNetPlan()).eval()
    ways: list[Way] = [
        ("conv", "itself", attention_of(model, "conv"), 1.03),
        ("gather", QUICKEST, attention_of(model, "gather"), 1.4),
        ("separable, one-hot", QUICKEST, attention_of(model, "separable"), 1.65),
        *((f"separable, alpha {alpha:g}", DEPLOYED, attention_of(model, "separable", alpha), 1.8) for alpha in ALPHAS),
        ("separable, centres off the grid", DEPLOYED, attention_of(model, "separable", 5.0, OFF_PIXEL), 2.6),
    ]
    yield "ResNet-18", image, model, ways
    models = torchvision_models()
    tiny = models.ConvNeXt([models.convnext.CNBlockConfig(8, None, 2)]) if quick else models.convnext_tiny()
    mobile = models.mobilenet_v2(width_mult=0.1 if quick else 1.0)
    for name, model in (("MobileNetV2", mobile.eval()), ("ConvNeXt-Tiny", tiny.eval())):
        soft = attention_of(model, "separable", 5.0)
        yield (
            name,
            image,
            model,
            [
                ("auto, one-hot", "itself", attention_of(model, "auto"), 1.05),
                ("separable, alpha 5", DEPLOYED, soft, 4.0),
            ],
        )


def torchvision_models() -> Any:
    """The models of torchvision, for which two operators are declared where it was built for another torch."""
    try:
        return import_module("torchvision.models")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            DECLARED.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return import_module("torchvision.models")


def layers(quick: bool) -> Iterator[tuple[str, Tensor, nn.Module, list[Way]]]:
    """Single soft layers, plain and depthwise."""
    for (side, channels), wanted in list(SOFT.items())[: 1 if quick else None]:
        conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        ways: list[Way] = [
            (f"alpha {alpha:g}", DEPLOYED, attention_of(conv, "separable", alpha), wanted) for alpha in ALPHAS
        ]
        if side <= 56:
            ways.append(("alpha 5, every pair (dense)", DEPLOYED, attention_of(conv, "dense", 5.0), None))
        ways.append(("the convolution as unfold and a product", "the convolution", Unfolded(conv), None))
        yield f"{channels} channels, k3 at {side}", torch.randn(1, channels, side, side), conv, ways
    for channels, kernel, wanted in ((144, 3, 3.0), (96, 7, 5.0)):
        side = 8 if quick else 56
        conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
        depthwise: list[Way] = [
            (f"alpha {alpha:g}", DEPLOYED, attention_of(conv, "separable", alpha), wanted) for alpha in ALPHAS
        ]
        depthwise.append(("one-hot, gather", QUICKEST, attention_of(conv, "gather"), None))
        image = torch.randn(1, channels, side, side)
        yield f"depthwise, {channels} channels, k{kernel} at {side}", image, conv, depthwise
    conv = nn.Conv2d(8, 8, 3, padding=1)
    small: list[Way] = [
        ("one-hot, auto", "itself", attention_of(conv, "auto"), None),
        ("alpha 5", DEPLOYED, attention_of(conv, "separable", 5.0), None),
    ]
    yield "a call: 8 channels, k3 at 8", torch.randn(1, 8, 8, 8), conv, small


class Unfolded(nn.Module):
    """A 3x3 convolution with a padding of 1 as unfold and one product."""

    def __init__(self, conv: nn.Conv2d):
        super().__init__()
        self.weight = conv.weight

    def forward(self, image: Tensor) -> Tensor:
        """(batch, channels, *sides) to the same."""
        columns = nn.functional.unfold(image, 3, padding=1)
        return (self.weight.flatten(1) @ columns).unflatten(2, image.shape[2:])


def steps(quick: bool) -> Iterator[tuple[str, Tensor, nn.Module, list[Way]]]:
    """Training steps of soft layers: forward and backward, of the image too."""
    for (side, channels), wanted in list(STEPS.items())[: 1 if quick else None]:
        conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        image = torch.randn(1, channels, side, side, requires_grad=True)
        trained = attention_of(conv, "separable", 5.0, OFF_PIXEL, trainable=True)
        ways: list[Way] = [
            ("frozen heads, alpha 5", QUICKEST, attention_of(conv, "separable", 5.0), wanted),
            ("trained centres", "nothing: only attention has centres", trained, 6.0 if side == 56 else None),
        ]
        yield f"a step: {channels} channels, k3 at {side}", image, conv, ways
    plan = ClassifierPlan(side=32)
    blocks = [ClassifierBlock(plan, 9), ClassifierBlock(plan, 9)]
    blocks[1].attention = nn.Conv2d(plan.width, plan.width, 3, padding=1)  # type: ignore[assignment]
    image = torch.randn(1 if quick else 8, plan.width, 16, 16, requires_grad=True)
    ours: list[Way] = [("nine trained heads, auto", "nothing: only attention has centres", blocks[0], 1.45)]
    yield "a step: the paper's block at 16, with a 3x3 convolution", image, blocks[1], ours


def forward(module: nn.Module, image: Tensor) -> Callable[[], Any]:
    """`module` called on `image`."""

    def run() -> None:
        with torch.inference_mode():
            module(image)

    return run


def step(module: nn.Module, image: Tensor) -> Callable[[], Any]:
    """A training step without the optimiser."""

    def run() -> None:
        module.zero_grad()
        module(image).square().mean().backward()

    return run


def compiled(quick: bool, seconds: float) -> list[tuple[Any, ...]]:
    """The converted ResNet-18 compiled, against the native one compiled; with the seconds that compiling took."""
    torch.manual_seed(0)
    plan = ResNetPlan(depths=(1,), width=8) if quick else ResNetPlan()
    model, image = ResNet(plan).eval(), torch.randn(1, 3, *[32 if quick else 224] * 2)
    ways = {"native": (model, None), "conv": (attention_of(model, "conv"), 1.03)}
    ways["separable, alpha 5"] = (attention_of(model, "separable", 5.0), 1.8)
    functions, wanted = {}, {}
    for name, (way, most) in ways.items():
        start = time.process_time()
        run = forward(torch.compile(way, backend="eager" if quick else "inductor"), image)
        run()
        label = f"{name}, compiled in {time.process_time() - start:.0f} s"
        functions[label], wanted[label] = run, "" if most is None else str(most)
    functions["separable, alpha 5, eager"] = forward(ways["separable, alpha 5"][0], image)
    found = interleave(functions, seconds, 3, time.process_time)
    return [
        ("ResNet-18", n, f"{t.median:.3g}", f"{t.ratio:.2f}", PREVIOUS.get(("ResNet-18", n), ""), wanted.get(n, ""), "")
        for n, t in found.items()
    ]


def memory(way: str, side: int) -> dict[str, float]:
    """MiB by which this process grows while a 3x3 layer of 64 channels, with alpha 5, runs by an engine or trains."""
    torch.set_num_threads(1)
    conv = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    engine = "separable" if way == "step" else way
    hard = way == "conv"
    layer = attention_of(conv, engine, None if hard else 5.0, 0.0 if hard else OFF_PIXEL, trainable=way == "step")
    run = step if way == "step" else forward
    run(layer, torch.randn(1, 64, 8, 8))()  # what libraries allocate once is not counted
    image = torch.randn(1, 64, side, side)
    before = peak_bytes()
    run(layer, image)()
    return {"mebibytes": (peak_bytes() - before) / MIB}


def table_of_memory(sides: tuple[int, ...]) -> str:
    """How the memory of each way grows with the side of the image, each in a process of its own."""
    ways = {"conv": "conv, one-hot", "separable": "separable, centres off the grid", "step": "the same, a step"}
    found = [
        [text, *(f"{apart('engines', way, side)['mebibytes']:.0f}" for side in sides)] for way, text in ways.items()
    ]
    formula = [f"{9 * 4 * side**4 / MIB:,.0f}" for side in sides]
    return markdown_table(("way", *(f"side {side}" for side in sides)), [*found, ["the matrix of attention", *formula]])


def rows_of(name: str, image: Tensor, native: nn.Module, ways: list[Way], run: Any, seconds: float) -> Iterator[Any]:
    """One row per way, each with its ratio to the native module."""
    functions = {"native": run(copy.deepcopy(native), image)} | {way: run(module, image) for way, _, module, _ in ways}
    timings = interleave(functions, seconds, 5, time.process_time)
    yield name, "native", f"{timings['native'].median:.3g}", "1", "", "", ""
    for way, instead, _, wanted in ways:
        timing = timings[way]
        most = "" if wanted is None else str(wanted)
        yield name, way, f"{timing.median:.3g}", f"{timing.ratio:.2f}", PREVIOUS.get((name, way), ""), most, instead


TEXT = """Float32, batch 1, milliseconds of the processor, the functions of a row in turn; a ratio is the median of
those of the rounds. "before" is the ratio on the page that this one replaces. A step is forward and backward. Heads of
one alpha on a lattice, as a conversion makes them, cost two products and a convolution. The rows "a call" show what a
call takes beside one of nn.Conv2d, for comparing centres with those that the recipe was decided for; MobileNetV2 makes
52 calls. A depthwise layer is little work beside two products over its image."""
HEAD = ("work", "way", "median, ms", "ratio to native", "before", "wanted at most", "what a user would take instead")


def ratios_of(page: str) -> dict[tuple[str, str], str]:
    """The ratio of each work and way on a page."""
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| ")]
    return {(row[1], row[2]): row[4] for row in rows if len(row) > 6}


PAGE = Path(__file__).with_suffix(".md")
PREVIOUS = ratios_of(PAGE.read_text()) if PAGE.exists() else {}
"""What the page that is replaced says."""


def table(cases: Any, run: Any, seconds: float) -> str:
    """A Markdown table of all cases."""
    return markdown_table(HEAD, [row for case in cases for row in rows_of(*case, run, seconds)])


def main(quick: bool) -> None:
    """Prints the page."""
    torch.set_num_threads(1)
    seconds = 0.0 if quick else 6.0
    sections = {
        "Whole networks": table(networks(quick), forward, 2 * seconds),
        "Single layers": table(layers(quick), forward, seconds / 2),
        "Training steps": table(steps(quick), step, seconds),
        "Compiled": markdown_table(HEAD, compiled(quick, seconds)),
        "Memory, MiB": table_of_memory((14,) if quick else (56, 112, 224)),
    }
    print(TEXT)
    for title, text in sections.items():
        print(f"\n## {title}\n\n{text.strip()}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(memory(sys.argv[1], int(sys.argv[2]))))
    else:
        main("--quick" in sys.argv)
