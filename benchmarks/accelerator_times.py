"""What attention costs on an accelerator beside the network's own convolutions: time, host, kernels, waits, graphs.

Each function yields one row at a time, and a cell that fails says why. Numbers are drawn on the CPU: a failed capture
of a CUDA graph leaves torch's generator on the device raising.
"""

import copy
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engines import OFF_PIXEL, attention_of, torchvision_models
from benchmarks.timing import interleave
from conv2attn.errors import first_line
from conv2attn.layers.attention import ENGINES, Encoding, MultiHeadSelfAttention
from conv2attn.networks.zoo.resnet import ResNet, ResNetPlan

FORMATS = {
    "float32": (torch.float32, "ieee"),
    "float32 by TF32": (torch.float32, "tf32"),
    "float16": (torch.float16, "ieee"),
    "bfloat16": (torch.bfloat16, "ieee"),
    "float64": (torch.float64, "ieee"),
}
"""The dtype of each format, and what the products of float32 round to."""
TIMED = ("float32", "float32 by TF32", "bfloat16")
SIDES = {64: 56, 128: 28, 256: 14}
ALPHA = 5.0
NOT_MEASURED = "-"
SECONDS = 1.0


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


def attempt(cell: Callable[..., Any], *arguments: Any) -> Any:
    """What a cell measures, or why it cannot be measured."""
    try:
        return cell(*arguments)
    except Exception as error:
        return f"failed: {first_line(error)[:60]}".replace("|", "/")


def await_device(device: torch.device) -> None:
    """Waits until the device has done what was sent to it."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def times(device: torch.device, quick: bool) -> Iterator[tuple[str, ...]]:
    """Each way beside the native network: its milliseconds and its ratio, forward, and forward and backward."""
    for name, model, size in subjects(quick):
        for form in TIMED:
            for way, change in ways(name).items():
                yield name, form, way, *timed_way(model, size, form, change, device, quick)


def timed_way(
    model: Callable[[], nn.Module],
    size: tuple[int, ...],
    form: str,
    change: Callable[[nn.Module], nn.Module],
    device: torch.device,
    quick: bool,
) -> tuple[str, str, str]:
    """Milliseconds forward, and the ratios to the native network forward, and forward and backward."""
    dtype, precision = FORMATS[form]
    layout = torch.channels_last if form == "bfloat16" else torch.contiguous_format

    def pair() -> tuple[dict[str, nn.Module], Tensor]:
        native = model().to(device, dtype).to(memory_format=layout)
        image = torch.randn(size).to(device, dtype).contiguous(memory_format=layout)
        return {"native": native, "way": change(native)}, image

    made = attempt(pair)
    if isinstance(made, str):
        return made, NOT_MEASURED, NOT_MEASURED

    def timings(backward: bool) -> Any:
        def call(network: nn.Module) -> None:
            with torch.set_grad_enabled(backward):
                output = network(made[1])
                if backward:
                    output.sum().backward()
            await_device(device)

        calls = {name: lambda network=network: call(network) for name, network in made[0].items()}
        with rounding_to(precision):
            return interleave(calls, 0.0 if quick else SECONDS)["way"]

    forward, step = (attempt(timings, backward) for backward in (False, True))
    cells = (forward, forward) if isinstance(forward, str) else (f"{forward.median:.3g}", f"{forward.ratio:.2f}")
    return *cells, step if isinstance(step, str) else f"{step.ratio:.2f}"


def ways(name: str) -> dict[str, Callable[[nn.Module], Any]]:
    """What is timed of a network, and of a layer by itself also its rivals, which make every pair of tokens."""
    soft = {"alpha 5": lambda native: attention_of(native, "auto", ALPHA)}
    hard = {
        f"one-hot, {engine}": lambda native, engine=engine: attention_of(native, engine)
        for engine in ("auto", "gather")
    }
    if "channels" not in name:
        return {"native again": copy.deepcopy, **hard, **soft}
    return {
        "native again": copy.deepcopy,
        **hard,
        **soft,
        "trained centres": lambda native: attention_of(native, "auto", ALPHA, OFF_PIXEL, trainable=True),
        "alpha 5, sdpa": lambda native: attention_of(native, "sdpa", ALPHA),
        "alpha 5, dense": lambda native: attention_of(native, "dense", ALPHA),
        "alpha 5, FlexAttention": FlexAttention,
        "content, nine heads": content_of,
    }


def subjects(quick: bool) -> Iterator[tuple[str, Callable[[], nn.Module], tuple[int, ...]]]:
    """Networks and layers to time, and the shape of their images; a network is built where it is timed."""
    batch, side = (2, 32) if quick else (32, 224)
    small = {"depths": (1,), "width": 8} if quick else {}
    image = (batch, 3, side, side)
    yield "ResNet-18", cache(lambda: ResNet(ResNetPlan(**small)).eval()), image
    for channels, width in list(SIDES.items())[: 1 if quick else None]:
        width = 8 if quick else width
        layer = cache(lambda channels=channels: nn.Conv2d(channels, channels, 3, padding=1, bias=False))
        yield f"{channels} channels, k3 at {width}", layer, (batch, channels, width, width)
    if not quick:
        yield "ResNet-50", cache(lambda: ResNet(ResNetPlan("bottleneck", (3, 4, 6, 3))).eval()), image
        yield "MobileNetV2", cache(lambda: torchvision_models().mobilenet_v2().eval()), image
        yield "ConvNeXt-Tiny", cache(lambda: torchvision_models().convnext_tiny().eval()), image


class FlexAttention(nn.Module):
    """A 3x3 convolution as nine heads of torch's FlexAttention, with the scores of `ALPHA` and values of the layer."""

    def __init__(self, conv: nn.Conv2d):
        super().__init__()
        from torch.nn.attention.flex_attention import flex_attention

        self.weight = conv.weight
        self.attention = torch.compile(flex_attention) if conv.weight.is_cuda else flex_attention

    def forward(self, image: Tensor) -> Tensor:
        """(batch, channels, *sides) to the same; unpadded."""
        columns = image.shape[3]

        def score(value: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            down = key // columns - query // columns - (head // 3 - 1)
            right = key % columns - query % columns - (head % 3 - 1)
            return value - ALPHA * (down * down + right * right)

        values = torch.einsum("bcn,ocij->bijno", image.flatten(2), self.weight).flatten(1, 2)
        zeros = torch.zeros_like(values[..., :16])
        mixed = self.attention(zeros, zeros, values, score_mod=score)
        return mixed.sum(1).transpose(1, 2).unflatten(2, image.shape[2:])


def content_of(conv: nn.Conv2d) -> nn.Module:
    """Attention of as many channels in and out that reads content and a quadratic encoding."""
    channels = conv.out_channels
    encoding = Encoding.of("quadratic", torch.randn(9, 2), ALPHA / 100)
    layer = MultiHeadSelfAttention(channels, channels, encoding, value=False, d_key=channels, terms="qk+vr")
    return layer.to(conv.weight.device, conv.weight.dtype)


def calls(device: torch.device, quick: bool) -> Iterator[tuple[str, ...]]:
    """Of a small layer: microseconds of the host above the convolution's, kernels, waits, and CUDA graphs."""
    torch.manual_seed(0)
    image = torch.randn(2, 8, *([8, 9] if quick else [28, 30])).to(device)
    conv = nn.Conv2d(8, 8, 3, padding=1).to(device)
    layers: dict[str, Callable[[], nn.Module]] = {"the convolution": lambda: conv}
    layers |= {f"one-hot, {name}": lambda name=name: attention_of(conv, name) for name in ENGINES}
    for engine in ("separable", "dense"):
        layers[f"alpha 5, {engine}"] = lambda engine=engine: attention_of(conv, engine, ALPHA)
    layers["trained centres, auto"] = lambda: attention_of(conv, "auto", ALPHA, OFF_PIXEL, trainable=True)
    for name, make in layers.items():
        layer = attempt(make)
        if isinstance(layer, str):
            yield name, layer, *[NOT_MEASURED] * 4
            continue
        forward, step = partial(layer, image), partial(stepped, layer, image)
        attempt(step)  # decides the recipe, which waits once
        host = attempt(host_of, forward, device)
        yield (
            name,
            host if isinstance(host, str) else f"{host:.0f}",
            attempt(kernels_of, forward, device),
            attempt(waits, forward, device),
            attempt(waits, step, device),
            # Last, since a capture that fails can leave the device unusable.
            attempt(captured, layer, image),
        )


def stepped(layer: nn.Module, image: Tensor) -> None:
    """A call, and the gradients of its sum."""
    layer(image).sum().backward()


@torch.no_grad()
def host_of(call: Callable[[], Any], device: torch.device, rounds: int = 30) -> float:
    """Microseconds until a call returns, whether or not the device has done it: the median."""
    took = []
    for _ in range(rounds):
        await_device(device)
        start = time.perf_counter()
        call()
        took.append(1e6 * (time.perf_counter() - start))
    return sorted(took)[rounds // 2]


@torch.no_grad()
def kernels_of(call: Callable[[], Any], device: torch.device) -> str:
    """How many kernels a call starts on CUDA."""
    if device.type != "cuda":
        return NOT_MEASURED
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        await_device(device)
    return str(sum(each.device_type == torch.autograd.DeviceType.CUDA for each in profile.events()))


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
    other, pixels, graph = torch.randn(image.shape).to(image), image.clone(), torch.cuda.CUDAGraph()
    expected = layer(other)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        output = layer(pixels)
    pixels.copy_(other)
    graph.replay()
    return "yes" if torch.equal(output, expected) else "replays other numbers"
