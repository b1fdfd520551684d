"""`python -m benchmarks.gpu [--device cuda] [--quick]`: writes benchmarks/gpu.md, the figures of one accelerator.

`make gpu` runs the tests there first. On a CPU the program rehearses: it prints the page, and writes none.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn

from benchmarks.__main__ import code_hash, processor
from benchmarks.engines import OFF_PIXEL, attention_of
from benchmarks.timing import interleave
from conv2attn import certify, check_span, convert
from conv2attn.errors import Conv2AttnError, UsageError
from conv2attn.layers.attention import ENGINES, set_engine
from conv2attn.networks.zoo.resnet import ResNet, ResNetPlan
from conv2attn.report.markup import markdown_table

PAGE = Path(__file__).parent / "gpu.md"
FORMATS = {
    "float32": (torch.float32, "ieee"),
    "float32 by TF32": (torch.float32, "tf32"),
    "float16": (torch.float16, "ieee"),
    "bfloat16": (torch.bfloat16, "ieee"),
    "float64": (torch.float64, "ieee"),
}
"""The dtype of each format, and what the products of float32 round to."""
SIDES = {64: 56, 128: 28, 256: 14}
ALPHA = 5.0
NOT_MEASURED = "-"


@contextmanager
def rounding_to(precision: str) -> Iterator[None]:
    """Convolutions and products of float32 on CUDA round as `precision` says."""
    backends: tuple[Any, ...] = (torch.backends.cudnn.conv, torch.backends.cuda.matmul)
    before = [each.fp32_precision for each in backends]
    try:
        for each in backends:
            each.fp32_precision = precision
        yield
    finally:
        for each, old in zip(backends, before, strict=True):
            each.fp32_precision = old


def name_of(device: torch.device) -> str:
    """The name of the machine's part that computes."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor() if device.type == "cpu" else device.type


def whole_numbers(*shape: int, largest: int = 2) -> Tensor:
    """Whole numbers small enough that no sum of theirs is rounded."""
    return torch.randint(-largest, largest + 1, shape, generator=torch.Generator().manual_seed(0)).double()


def differences(device: torch.device, quick: bool) -> list[tuple[str, ...]]:
    """Each engine beside the convolution, on whole numbers and on others: `difference` of both."""
    side = 8 if quick else 28
    conv = nn.Conv2d(8, 8, 3, padding=1, dtype=torch.float64)
    noise = torch.randn(2, 8, side, side, generator=torch.Generator().manual_seed(1)).double()
    whole = copy.deepcopy(conv).requires_grad_(False)
    for parameter in whole.parameters():
        parameter.copy_(whole_numbers(*parameter.shape, largest=1))
    rows = []
    for name, (dtype, precision) in FORMATS.items():
        for engine in ENGINES:
            cells = []
            for layer, image in ((whole, whole_numbers(*noise.shape)), (conv, noise)):
                with rounding_to(precision):
                    cells.append(difference(layer, image, engine, device, dtype))
            rows.append((name, engine, *cells))
    return rows


def difference(layer: nn.Conv2d, image: Tensor, engine: str, device: torch.device, dtype: torch.dtype) -> str:
    """The largest difference over the largest output; why there is none where the layer is refused."""
    try:
        native, pixels = copy.deepcopy(layer).to(device, dtype), image.to(device, dtype)
        attention = set_engine(convert(native), engine)
        with torch.no_grad():
            expected, found = native(pixels).cpu().double(), attention(pixels).cpu().double()
    except (Conv2AttnError, TypeError) as refusal:
        return f"refused: {str(refusal).split('.')[0]}"
    return f"{((found - expected).abs().max() / expected.abs().max()).item():.2g}"


def reports(device: torch.device, quick: bool) -> list[tuple[str, ...]]:
    """Certificates and checks of the span on the device, and a planted error that certify must refute."""
    size = (3, 32, 32) if quick else (3, 224, 224)
    rows = []
    for name, (dtype, precision) in FORMATS.items():
        try:
            model = small_network().to(device, dtype).eval()
            network, planted = convert(model), convert(model)
            with torch.no_grad():
                next(planted.parameters())[0, 0, 0, 0] += 1e-3 + 2e-2 * (dtype.itemsize == 2)
            with rounding_to(precision):
                right, wrong = (certify(model, each, input_size=size) for each in (network, planted))
                span = check_span(network[0], kernel_size=3, grid=(8, 9))
        except (Conv2AttnError, TypeError) as refusal:
            rows.append((name, f"refused: {str(refusal).split('.')[0]}", NOT_MEASURED, NOT_MEASURED))
            continue
        kept = f"{right.verdict.value} ({right.strength.value})"
        rows.append((name, kept, wrong.verdict.value, f"{span.verdict.value} ({span.strength.value})"))
    return rows


def small_network() -> nn.Sequential:
    """Two convolutions with an activation."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2))


def calls(device: torch.device, quick: bool) -> list[tuple[str, ...]]:
    """Waits for the device in a call and in a step, and whether a CUDA graph of the call is captured and replayed."""
    image = torch.randn(2, 8, *([8, 9] if quick else [28, 30])).to(device)
    conv = nn.Conv2d(8, 8, 3, padding=1).to(device)
    ways = {f"one-hot, {engine}": attention_of(conv, engine) for engine in ENGINES if engine != "measured"}
    ways |= {f"alpha {ALPHA:g}, {engine}": attention_of(conv, engine, ALPHA) for engine in ("separable", "dense")}
    ways["trained centres, auto"] = attention_of(conv, "auto", ALPHA, OFF_PIXEL, trainable=True)
    rows = []
    for name, layer in ways.items():
        layer(image).sum().backward()  # decides the recipe, which waits once
        forward = waits(lambda layer=layer: layer(image), device)
        step = waits(lambda layer=layer: layer(image).sum().backward(), device)
        rows.append((name, forward, step, captured(layer, image)))
    return rows


def waits(call: Callable[[], Any], device: torch.device) -> str:
    """How often the host waits for CUDA in a call."""
    if device.type != "cuda":
        return NOT_MEASURED
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return str(sum("synchronizing" in str(each.message) for each in caught))


@torch.no_grad()
def captured(layer: nn.Module, image: Tensor) -> str:
    """Whether a CUDA graph of the call, replayed on other pixels, gives what the call gives."""
    if image.device.type != "cuda":
        return NOT_MEASURED
    other, pixels, graph = torch.randn_like(image), image.clone(), torch.cuda.CUDAGraph()
    expected = layer(other)
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(graph):
            output = layer(pixels)
    except RuntimeError as error:
        return f"no: {str(error).splitlines()[0][:60]}"
    pixels.copy_(other)
    graph.replay()
    return "yes" if torch.equal(output, expected) else "replays other numbers"


def ratios(device: torch.device, quick: bool) -> list[tuple[str, ...]]:
    """Milliseconds of the native network, and what attention takes as multiples: forward, and forward and backward."""
    rows = []
    for name, model, size in subjects(quick):
        for form in ("float32", "float32 by TF32", "bfloat16"):
            dtype, precision = FORMATS[form]
            last = torch.channels_last if form == "bfloat16" else torch.contiguous_format
            native = copy.deepcopy(model).to(device, dtype).to(memory_format=last)
            image = torch.randn(size).to(device, dtype).contiguous(memory_format=last)
            ways = {
                "native": native,
                "one-hot, auto": attention_of(native, "auto"),
                "one-hot, gather": attention_of(native, "gather"),
                f"alpha {ALPHA:g}": attention_of(native, "auto", ALPHA),
            }
            if not name.startswith("ResNet"):
                ways["trained centres"] = attention_of(native, "auto", ALPHA, OFF_PIXEL, trainable=True)
            with rounding_to(precision):
                forward, step = (timed(ways, image, backward, 0.0 if quick else 5.0) for backward in (False, True))
            for way in ways:
                times = (f"{forward[way].median:.3g}", f"{forward[way].ratio:.2f}", f"{step[way].ratio:.2f}")
                rows.append((name, form, way, *times))
    return rows


def subjects(quick: bool) -> Iterator[tuple[str, nn.Module, tuple[int, ...]]]:
    """Networks and layers to time, with the shape of their images."""
    batch, side = (2, 32) if quick else (32, 224)
    torch.manual_seed(0)
    yield "ResNet-18", ResNet(ResNetPlan()).eval(), (batch, 3, side, side)
    for channels, width in list(SIDES.items())[: 1 if quick else None]:
        width = 8 if quick else width
        layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        yield f"{channels} channels, k3 at {width}", layer, (batch, channels, width, width)


def timed(ways: dict[str, nn.Module], image: Tensor, backward: bool, seconds: float) -> dict[str, Any]:
    """Timings of each way in turn, with the device awaited after each call."""

    def call(network: nn.Module) -> None:
        with torch.set_grad_enabled(backward):
            output = network(image)
            if backward:
                output.sum().backward()
        if image.device.type != "cpu":
            torch.accelerator.synchronize(image.device)

    return interleave({name: lambda network=network: call(network) for name, network in ways.items()}, seconds)


SECTIONS: dict[str, tuple[Callable[[torch.device, bool], list[tuple[str, ...]]], tuple[str, ...]]] = {
    "Hard heads beside the convolution: the largest difference over the largest output": (
        differences,
        ("format", "engine", "whole numbers", "other numbers"),
    ),
    "Certificates": (reports, ("format", "conversion", "with a planted error", "check-span of a layer")),
    "What a call asks of the host": (calls, ("layer", "waits, forward", "waits, step", "captured in a CUDA graph")),
    "Time, as multiples of the native network": (
        ratios,
        ("network", "format", "way", "forward ms", "forward", "forward and backward"),
    ),
}


def page(device: torch.device, quick: bool) -> str:
    """The page on one device."""
    machine = f"{name_of(device)}, torch {torch.__version__}, CUDA {torch.version.cuda or 'absent'}"
    said = "Measured on" if device.type != "cpu" else "Rehearsed on a CPU, so that no figure is one of a GPU:"
    note = f"{said} {machine}{', small sizes' if quick else ''}. Code measured: `{code_hash('gpu')}`."
    parts = [
        f"## {title}\n\n{markdown_table(columns, run(device, quick))}" for title, (run, columns) in SECTIONS.items()
    ]
    return "\n\n".join(["# conv2attn on an accelerator", note, *parts]).rstrip() + "\n"


@click.command()
@click.option("--device", default="cuda", help="Where to compute; one that is missing is an error.")
@click.option("--quick", is_flag=True, help="Small sizes: whether it runs, not how fast; writes nothing.")
def main(device: str, quick: bool) -> None:
    """Equality, certificates, waits, graphs and times on an accelerator."""
    try:
        place = torch.empty(1, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise UsageError("C2A002", f"device {device!r} is not here", "Run it where there is one.") from error
    text = page(place, quick)
    if quick or place.type == "cpu":
        click.echo(text)
    else:
        PAGE.write_text(text)
        click.echo(f"written: {PAGE.name}", err=True)


if __name__ == "__main__":
    main()
