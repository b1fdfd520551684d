"""The certificate of two networks: the conjunction of their layers', and of all between them being untouched."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.certificates.calls import compare_calls
from conv2attn.certificates.certificate import Certificate, Row
from conv2attn.certificates.finding import Finding, holds, refuted, undecided
from conv2attn.certificates.measure import by_true_softmax, measure, run_second
from conv2attn.certificates.outputs import compare_outputs, judge_outputs
from conv2attn.certificates.rows import all_names, pair_layers, row_of, row_of_call, rows_of_the_rest
from conv2attn.certificates.structure import Comparison
from conv2attn.errors import UsageError
from conv2attn.models import Conversion
from conv2attn.models.conversion import SKIPPED

ASSUMPTIONS = ("finite inputs, sums formed directly (no Winograd or FFT), no overflow",)


def certify(
    original: nn.Module,
    network: nn.Module,
    *,
    input_size: Sequence[int] | None = None,
    input_range: float = 1.0,
    images: Tensor | None = None,
    labels: Tensor | None = None,
    described: str | None = None,
    seed: int = 0,
) -> Certificate:
    """Whether `network` computes `original`: layer by layer for every input, and measured on some.

    For each layer: geometry equal as affine forms in the input size, sums of `W_val W_out` at each offset and biases
    equal as real numbers, leaked mass at most the unit roundoff; *proved* where the leak is exactly 0 in the dtype,
    else *bounded*. Functional convolutions are compared where the images lead, so they are *sampled*. Beside it the
    largest difference measured by true softmax and the bound on it, for all inputs of the range met.

    Args:
        input_size: (channels, *sides) of seeded random images, if there are no `images`.
        input_range: those images lie within +-input_range.
        images, labels, described: (batch, channels, *sides), their classes, and what to call them in the report.
    Raises:
        UsageError: nothing says what to run the networks on, or the original does not run on it (C2A001).
    """
    if images is None:
        images, described = random_images(original, input_size, input_range, seed)
    described = described or f"{len(images)} given images"
    pairs, softmax = pair_layers(original, network), by_true_softmax(network)
    try:
        seen, first = measure(original, {name: softmax.get_submodule(name) for name in pairs}, images)
    except (RuntimeError, ValueError) as error:
        raise UsageError("C2A001", f"the original does not run on {described}: {error}") from error
    second, failure = run_second(softmax, images)
    told = {row.name: row for row in conversion_rows(network)}
    rows: dict[str, Row] = {}
    for name, (ours, theirs) in pairs.items():
        skipped = name in told and told[name].outcome == SKIPPED
        row, _ = row_of(name, ours, theirs, seen[name], skipped)
        rows[row.name] = row
    for call in compare_calls(original, softmax, images):
        name = distinct(call.name, rows)
        rows[name] = row_of_call(name, call)
    rows |= {row.name: row for row in rows_of_the_rest(told, rows)}
    between = (
        *compare_structure(original, network, all_names(original, network, pairs)),
        judge(first, second, failure),
    )
    return Certificate(tuple(rows.values()), between, compare_outputs(first, second, described, labels), ASSUMPTIONS)


def random_images(
    original: nn.Module, input_size: Sequence[int] | None, input_range: float, seed: int
) -> tuple[Tensor, str]:
    """One seeded random image of the size given, or of the architecture's own."""
    size = input_size or getattr(getattr(original, "plan", None), "input_size", None)
    if size is None:
        raise UsageError("C2A001", "nothing says how large an image the networks take", "Pass an input size.")
    like = next((p for p in original.parameters() if p.is_floating_point()), torch.empty(0))
    noise = torch.rand(1, *size, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    sides = "x".join(map(str, size))
    return (noise * input_range).to(like), f"1 random image {sides} within +-{input_range:g} (seed {seed})"


def conversion_rows(network: nn.Module) -> Sequence[Any]:
    """What the conversion says of each convolution, if `network` comes from one."""
    conversion = vars(network).get("_conv2attn_conversion")
    return conversion.rows if isinstance(conversion, Conversion) else ()


def distinct(name: str, rows: dict[str, Row]) -> str:
    """`name`, numbered where there is such a row already."""
    count = sum(other.partition("#")[0] == name for other in rows)
    return f"{name}#{count + 1}" if count else name


def compare_structure(original: nn.Module, network: nn.Module, apart: frozenset[str]) -> list[Finding]:
    """The findings on all that stands between the layers `apart`."""
    found = Comparison(original, network, apart).run()
    if found.different:
        return [refuted("structure", "C2A405", line) for line in found.different]
    return [undecided("structure", "C2A405", line) for line in found.unknown] or [holds("structure")]


def judge(first: Any, second: Any, failure: str) -> Finding:
    """The finding on the outputs of both."""
    if failure:
        return refuted("outputs", "C2A407", f"the second does not run where the first does: {failure}")
    return judge_outputs(first, second)
