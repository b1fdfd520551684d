"""Whether attention answers right on an accelerator: engines beside the convolution, certificates, check-span."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.accelerator_times import FORMATS, NOT_MEASURED, attempt, rounding_to
from conv2attn import certify, check_span, convert
from conv2attn.layers.attention import ENGINES, set_engine


def whole_numbers(*shape: int, largest: int = 2) -> Tensor:
    """Whole numbers small enough that no sum of theirs is rounded."""
    return torch.randint(-largest, largest + 1, shape, generator=torch.Generator().manual_seed(0)).double()


def differences(device: torch.device, quick: bool) -> Iterator[tuple[str, ...]]:
    """Each engine beside the convolution, on whole numbers and on others: `difference` of both."""
    side = 8 if quick else 28
    conv = nn.Conv2d(8, 8, 3, padding=1, dtype=torch.float64)
    noise = torch.randn(2, 8, side, side, generator=torch.Generator().manual_seed(1)).double()
    whole = copy.deepcopy(conv).requires_grad_(False)
    for parameter in whole.parameters():
        parameter.copy_(whole_numbers(*parameter.shape, largest=1))
    for form in FORMATS:
        for engine in ENGINES:
            subjects = ((whole, whole_numbers(*noise.shape)), (conv, noise))
            cells = (attempt(difference, *subject, engine, device, form) for subject in subjects)
            yield form, engine, *cells


def difference(layer: nn.Conv2d, image: Tensor, engine: str, device: torch.device, form: str) -> str:
    """The largest difference over the largest output."""
    dtype, precision = FORMATS[form]
    with rounding_to(precision), torch.no_grad():
        native, pixels = copy.deepcopy(layer).to(device, dtype), image.to(device, dtype)
        attention = set_engine(convert(native), engine)
        expected, output = native(pixels).cpu().double(), attention(pixels).cpu().double()
    return f"{((output - expected).abs().max() / expected.abs().max()).item():.2g}"


def reports(device: torch.device, quick: bool) -> Iterator[tuple[str, ...]]:
    """Certificates and checks of the span on the device, and a planted error that certify must refute."""
    size = (3, 32, 32) if quick else (3, 224, 224)
    for form in FORMATS:
        cells = attempt(report, form, size, device)
        yield (form, cells, NOT_MEASURED, NOT_MEASURED) if isinstance(cells, str) else (form, *cells)


def report(form: str, size: tuple[int, int, int], device: torch.device) -> tuple[str, str, str]:
    """The verdicts on a conversion, on one with a planted error, and on the span of its first layer."""
    dtype, precision = FORMATS[form]
    torch.manual_seed(0)
    model = (
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2)).to(device, dtype).eval()
    )
    network, planted = convert(model), convert(model)
    with torch.no_grad():
        next(planted.parameters())[0, 0, 0, 0] += 1e-3 + 2e-2 * (dtype.itemsize == 2)
    with rounding_to(precision):
        right, wrong = (certify(model, each, input_size=size) for each in (network, planted))
        span = check_span(network[0], kernel_size=3, grid=(8, 9))
    kept = f"{right.verdict.value} ({right.strength.value})"
    return kept, wrong.verdict.value, f"{span.verdict.value} ({span.strength.value})"
