"""The certificate of two networks: the conjunction of the verdicts on their layers and on their context."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.equivalence.arguments import check_arguments
from conv2attn.equivalence.certificate import SAME_MAP, Certificate, Row
from conv2attn.equivalence.circumstances import machine
from conv2attn.equivalence.compared import Compared, compare_layers
from conv2attn.equivalence.conditions import NOT_EMPTY
from conv2attn.equivalence.context import Context, compare_context, compiled
from conv2attn.equivalence.interpreter import propagate, repeats
from conv2attn.equivalence.layer import strength_of
from conv2attn.equivalence.network_search import search
from conv2attn.equivalence.outputs import compare_outputs, findings_returned, judge
from conv2attn.equivalence.rows import engine_limits
from conv2attn.equivalence.tolerance import judge_bound, judge_network, judge_samples
from conv2attn.errors import UsageError
from conv2attn.models.conversion.patches import on_tokens_of
from conv2attn.models.conversion.redirection import AttendingCalls
from conv2attn.models.conversion.replacement import hooked
from conv2attn.models.provenance import assumed_of, input_size_of
from conv2attn.verdicts import Strength, Verdict, weakest_strength

ASSUMPTIONS = (
    "finite inputs (dense and sdpa spread a NaN to every output, separable too where its bands are no narrower than "
    "the image, conv and gather only where the convolution does)",
    "sums formed directly (no Winograd or FFT: measured on the shapes met), no overflow, sides below 2^24",
    "torch's own functions, not compiled; code between the layers that does the same at each call, whose operators "
    "were read off one call for all sizes, and that does not look at how tensors lie in memory",
)

LARGEST_IMAGE = 1 << 26  # numbers: 256 MiB in float32, and the layers' outputs are larger yet


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
    tolerance: float | None = None,
    circumstances: Sequence[tuple[str, str]] = (),
) -> Certificate:
    """Whether `network` computes `original`: layer by layer for every input, and measured on some.

    For each layer: geometry equal as affine forms in the input size, sums of `W_val W_out` at each offset and biases
    equal as real numbers, leaked mass at most the unit roundoff; *proved* where the leak is exactly 0 in the dtype,
    else *bounded*. Functional convolutions are compared where the images lead, so they are *sampled*. Beside it the
    largest difference measured by true softmax and the bound on it, for all inputs of the range met.

    Args:
        input_size: (channels, *sides) of seeded random images, if there are no `images`.
        input_range: those images lie within +-input_range, and so do the inputs that a tolerance speaks of.
        images, labels, described: (batch, channels, *sides), their classes, and what to call them in the report.
        tolerance: ask instead whether the outputs differ by at most this for all inputs in the range. Weights and
            leak then need not be the same; the bounds decide, and where they do not reach, nothing does. Two networks
            of which none was converted and whose graphs differ have no bound: the images decide, and the claim is of
            these alone (strength: sampled).
        circumstances: what else to tell of the two, such as the files that they come from.
    Raises:
        UsageError: an argument is of the wrong kind (C2A006); nothing says what to run the networks on (C2A005), it has
            more than 2^26 numbers or some beyond the dtype (C2A001); the original does not run on it (C2A009); autocast
            is on (C2A004).
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        >>> certificate = conv2attn.certify(conv, conv2attn.convert(conv), input_size=(3, 6, 7))
        >>> certificate.verdict, certificate.strength
        (<Verdict.HOLDS: 'holds'>, <Strength.PROVED: 'proved'>)
    """
    numbers = {"tolerance": tolerance, "input_range": input_range, "input_size": input_size, "seed": seed}
    check_arguments(original, network, images=images, labels=labels, **numbers)
    if images is None:
        images, described = random_images(original, input_size, input_range, seed)
    described = described or f"{len(images)} given images"
    if torch.is_autocast_enabled(images.device.type):
        raise UsageError("C2A004", "autocast is on, under which layers compute in another dtype", "Cast the networks.")
    read = read_as(original, network)
    recorded = (*machine(original, images), *circumstances, *([("read as", read)] if read else []))
    if unread := compiled(original, network):
        return Certificate((), tuple(unread), None, ASSUMPTIONS, circumstances=recorded)
    on_tokens = on_tokens_of(original, network)
    if on_tokens is not original:
        original, recorded = on_tokens, (*recorded, ("the first is read on patch tokens", "see claim PATCH of proofs/"))
    compared = compare_layers(original, network, images, described, exactly=tolerance is None)
    largest = images.abs().max().item()
    reach = input_range if largest <= input_range else largest
    foreign, alike = not attends(original) and not attends(network), tolerance is None and compared.alike
    refutes = alike or (tolerance is None and not foreign)
    context = compare_context(original, network, compared.pairs, compared.bases, images, refutes=refutes)
    sampled = foreign and context.finding.verdict is Verdict.UNDECIDED
    bound, stop = None, "graphs that are not known to be equal"
    if context.graphs and context.finding.verdict is Verdict.HOLDS:
        if not compared.rows and repeats(*context.graphs):
            bound = 0.0
        else:
            bound, stop = propagate(context.graphs[0], compared.rules(context.numbers), images, reach)
    outputs = compare_outputs(compared.first, compared.second, described, labels, bound)
    rows = {} if sampled and not alike else strengthened(compared, context)
    witnesses = compared.witnesses(input_range) if rows else ()
    between = [
        judge_samples(outputs, tolerance, context.finding.sentence) if sampled else context.finding,
        judge(compared.first, compared.second, compared.failure, compared.overflow()),
        *findings_returned(compared.first, compared.second, compared.failure),
        *judge_bound(outputs),
    ]
    if tolerance is not None and list(rows) == ["(root)"] and not hooked(original):
        found, witnesses = compared.judge_layer(tolerance, input_range)
        rows = {"(root)": replace(rows["(root)"], findings=(*rows["(root)"].findings, found), strength=found.strength)}
    elif tolerance is not None and not sampled:
        between.append(judge_network(outputs, tolerance, stop))
        rows = {name: replace(row, strength=at_most_bounded(row.strength)) for name, row in rows.items()}
    refuted = [each.part for each in between if each.verdict is Verdict.REFUTED]
    refuted += [name for name in compared.calls if name in rows and rows[name].verdict is Verdict.REFUTED]
    shown, unshown = search(original, network, images, compared, refuted, tolerance)
    inputs = f"on {described}" if sampled else all_inputs(input_range, images.shape[1:])
    asked = SAME_MAP if tolerance is None else f"the outputs differ by at most {tolerance:g} {inputs}"
    claimed = asked if sampled else asked + sizes(context.conditions) + engine_limits(network, compared.bases)
    return Certificate(
        tuple(rows.values()),
        tuple(between),
        outputs,
        () if sampled else ASSUMPTIONS,
        claimed + (f"; of networks {read}" if read else ""),
        circumstances=recorded,
        witnesses=(*witnesses, *shown),
        unshown=unshown,
        context=context.evidence,
    )


def attends(network: nn.Module) -> bool:
    """Whether a network holds attention of this package, so that it was converted."""
    return any(isinstance(module, MultiHeadSelfAttention | AttendingCalls) for module in network.modules())


def all_inputs(input_range: float, size: Sequence[int]) -> str:
    """The inputs of a claim with a tolerance: a bound carried through a network is one for images of one size."""
    return f"for all finite inputs {'x'.join(map(str, size))} within +-{input_range:g}"


def strengthened(compared: Compared, context: Context) -> dict[str, Row]:
    """The rows, those of functional convolutions with the strength that the graphs prove for any weights."""
    rows = dict(compared.rows)
    for name in compared.calls:
        row = rows[name]
        if row.strength is not None and row.verdict is Verdict.HOLDS:
            rows[name] = replace(row, strength=weakest_strength([context.calls, strength_of(row.findings)]))
    return rows


def sizes(conditions: Sequence[str]) -> str:
    """For which sizes of input a claim is made, in words; empty where that is every size."""
    asked = [each for each in conditions if each != NOT_EMPTY] or list(conditions)
    if not asked:
        return ""
    if len(asked) <= 2:
        return f", of sizes with {' and '.join(asked)}"
    return f", of sizes that fulfil {len(asked)} conditions of the graph, such as {asked[0]}"


def read_as(original: nn.Module, network: nn.Module) -> str:
    """The assumptions under which files were read as these networks; empty if there are none."""
    return "; ".join(dict.fromkeys(filter(None, map(assumed_of, (original, network)))))


def at_most_bounded(strength: Strength | None) -> Strength:
    """The strength, but not above bounded."""
    return Strength.BOUNDED if strength is None else weakest_strength([Strength.BOUNDED, strength])


def random_images(
    original: nn.Module, input_size: Sequence[int] | None, input_range: float, seed: int
) -> tuple[Tensor, str]:
    """One seeded random image of the size given, or of the architecture's own."""
    size = input_size or input_size_of(original)
    if size is None:
        raise UsageError("C2A005", "nothing says how large an image the networks take", "Pass an input size.")
    like = next((p for p in original.parameters() if p.is_floating_point()), torch.empty(0))
    sides = "x".join(map(str, size))
    if not all(isinstance(side, int) and side > 0 for side in size):
        raise UsageError("C2A001", f"an input size of {sides} is not positive whole numbers")
    if math.prod(size) > LARGEST_IMAGE:
        raise UsageError("C2A001", f"an image {sides} has more than 2^26 numbers", "Pass a smaller input size.")
    noise = torch.rand(1, *size, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    images = (noise * input_range).to(like)
    if not images.isfinite().all():
        raise UsageError("C2A001", f"an input range of {input_range:g} is beyond {images.dtype}")
    return images, f"1 random image {sides} within +-{input_range:g} (seed {seed})"
