"""The certificate of two networks: the conjunction of their layers', and of all between them being untouched."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import AttentionGrid
from conv2attn.certificates.certificate import Certificate, Outputs, Row
from conv2attn.certificates.layer import HOLDS, Finding, check_leak, compare_geometry, compare_weights, rounding_bound
from conv2attn.certificates.measure import Measured, by_true_softmax, compare_outputs, measure
from conv2attn.certificates.reading import reading_of, same_bits
from conv2attn.errors import Conv2AttnError, UsageError
from conv2attn.models import conversion_of
from conv2attn.models.conversion import CONVERTED, SKIPPED, describe
from conv2attn.models.redirection import CHILD
from conv2attn.tables import bytes_for_people
from conv2attn.theorem import STOCK
from conv2attn.verdicts import Verdict, worst_verdict


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

    For each attention layer: geometry equal as affine forms in the input size, taps and biases equal exactly, leaked
    mass at most the unit roundoff; *proved* where the leak is exactly 0 in the dtype, else *bounded*. Beside it the
    largest difference measured by true softmax and the bound on it, for all inputs of the range met.

    Args:
        input_size: (channels, *sides) of seeded random images, if there are no `images`.
        input_range: those images lie within +-input_range.
        images, labels, described: (batch, channels, *sides), their classes, and what to call them in the report.
    Raises:
        UsageError: nothing says what to run the networks on (C2A001).
    """
    if images is None:
        images, described = random_images(original, input_size, input_range, seed)
    pairs, rows = pair_layers(original, network), []
    softmax = by_true_softmax(network)
    watched = {name: softmax.get_submodule(name) for name in pairs}
    seen, first, second = measure(original, softmax, watched, images)
    for name, layer in pairs.items():
        rows.append(row_of(name, original.get_submodule(name), layer, seen[name]))
    rows += rows_of_the_rest(original, network, set(pairs))
    outputs = compare_outputs(first, second, described or f"{len(images)} given images", labels)
    assumptions = ("finite inputs, sums formed directly (no Winograd or FFT), no overflow",)
    return Certificate(tuple(rows), tuple(differences(original, network, set(pairs), outputs)), outputs, assumptions)


def random_images(
    original: nn.Module, input_size: Sequence[int] | None, input_range: float, seed: int
) -> tuple[Tensor, str]:
    """One seeded random image of the size given, or of the architecture's own."""
    size = input_size or getattr(getattr(original, "plan", None), "input_size", None)
    if size is None:
        raise UsageError("C2A001", "nothing says how large an image the networks take", "Pass an input size.")
    like = next(original.parameters())
    noise = torch.rand(1, *size, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    sides = "x".join(map(str, size))
    return (noise * input_range).to(like), f"1 random image {sides} within +-{input_range:g} (seed {seed})"


def pair_layers(original: nn.Module, network: nn.Module) -> dict[str, nn.Module]:
    """The layers of `network` to compare, by name: attention or convolution where `original` has either."""
    named = dict(original.named_modules())
    kinds = (*STOCK, MultiHeadSelfAttention)
    return {
        name: layer
        for name, layer in network.named_modules()
        if isinstance(named.get(name), kinds) and isinstance(layer, kinds)
        if isinstance(layer, MultiHeadSelfAttention) or isinstance(named[name], MultiHeadSelfAttention)
    }


def row_of(name: str, original: nn.Module, layer: nn.Module, seen: Measured) -> Row:
    """The certificate of one layer."""
    signature = describe(original)
    try:
        ours, theirs = reading_of(original), reading_of(layer)
    except Conv2AttnError as error:
        return Row(name, signature, Verdict.UNSUPPORTED, code=error.code, finding=error.found)
    kind = ours.dtype
    leaking, strength, leak = check_leak(theirs, kind)
    geometry = compare_geometry(ours, theirs)
    parts = [geometry, compare_weights(ours, theirs) if geometry is HOLDS else HOLDS, leaking]
    bound = rounding_bound(ours, theirs, seen.input_range) if seen.calls and parts[:2] == [HOLDS, HOLDS] else None
    largest = max(bound) if bound else None
    if seen.calls and largest is not None and not seen.max_error <= largest:
        sentence = f"|error| {seen.max_error:.3g} was measured above the bound {largest:.3g}"
        parts.append(Finding(Verdict.REFUTED, "C2A404", sentence))
    verdict = worst_verdict(part.verdict for part in parts)
    found = next((part for part in parts if part.verdict is verdict and part is not HOLDS), HOLDS)
    attention = layer if isinstance(layer, MultiHeadSelfAttention) else None
    return Row(
        name or "(root)",
        signature,
        verdict,
        strength,
        seen.grid or None,
        attention.heads if attention else None,
        attention.d_head if attention else None,
        min(theirs.alphas, default=None),
        sum(parameter.numel() for parameter in layer.parameters()),
        avoided(attention, seen.sides) if attention and seen.calls else None,
        leak,
        seen.input_range if seen.calls else None,
        seen.max_error if seen.calls else None,
        largest,
        found.code,
        found.sentence,
    )


def avoided(layer: MultiHeadSelfAttention, sides: tuple[int, ...]) -> str:
    """What the attention of one image would take, were it materialised: heads x queries x keys."""
    queries, keys = AttentionGrid(layer.padding.sides(sides), layer.sites).shape
    itemsize = 8 if layer.encoding.center.dtype == torch.float64 else 4
    return bytes_for_people(layer.heads * queries * keys * itemsize)


def rows_of_the_rest(original: nn.Module, network: nn.Module, paired: set[str]) -> list[Row]:
    """A row for each convolution that has no attention: skipped on request, or unsupported with the reason."""
    rows = []
    known = conversion_of(network).rows if "_conv2attn_conversion" in vars(network) else ()
    told = {row.name: row for row in known}
    for row in known:
        if row.outcome != CONVERTED:
            verdict = Verdict.HOLDS if row.outcome == SKIPPED else Verdict.UNSUPPORTED
            code, _, reason = row.reason.partition(" ") if row.reason.startswith("C2A") else ("", "", row.reason)
            rows.append(
                Row(row.name, row.signature, verdict, code=code, finding=reason, skipped=row.outcome == SKIPPED)
            )
        elif row.name not in paired and row.name not in ("attention", ""):
            rows.append(Row(row.name, row.signature, Verdict.UNSUPPORTED, finding="a functional call: only measured"))
    for name, module in original.named_modules():
        if isinstance(module, STOCK) and name not in paired and name not in told:
            rows.append(Row(name, describe(module), Verdict.UNSUPPORTED, finding="it is a convolution in both"))
    return rows


def differences(original: nn.Module, network: nn.Module, paired: set[str], outputs: Outputs) -> list[str]:
    """What is not the same between the convolutions: names, classes, arguments, modes, and every stored bit."""
    inside = tuple(f"{name}." if name else "" for name in paired)
    ours, theirs = (
        {
            name: module
            for name, module in side.named_modules(remove_duplicate=False)
            if name not in paired and not (name + ".").startswith(inside) and CHILD not in name.split(".")
        }
        for side in (original, network)
    )
    found = [f"{name} is only in the first" for name in ours.keys() - theirs.keys()]
    found += [f"{name} is only in the second" for name in theirs.keys() - ours.keys()]
    for name in ours.keys() & theirs.keys():
        found += [f"{name or 'the network'}: {line}" for line in module_differences(ours[name], theirs[name])]
    if list(ours) != list(theirs) and not found:
        found.append("the modules come in another order")
    if not outputs.max_difference < math.inf:
        found.append(f"the outputs cannot be compared: their difference is {outputs.max_difference}")
    return sorted(found)


def module_differences(ours: nn.Module, theirs: nn.Module) -> list[str]:
    """How two modules differ in themselves, not in what they contain."""
    found = []
    if type(ours) is not type(theirs):
        found.append(f"{type(theirs).__name__} instead of {type(ours).__name__}")
    elif ours.extra_repr() != theirs.extra_repr():
        found.append(f"({theirs.extra_repr()}) instead of ({ours.extra_repr()})")
    if ours.training != theirs.training:
        found.append("one is in training mode")
    for kind in ("_parameters", "_buffers"):
        mine, other = getattr(ours, kind), getattr(theirs, kind)
        found += [f"{key} is only on one side" for key in mine.keys() ^ other.keys()]
        for key in mine.keys() & other.keys():
            if mine[key] is None or other[key] is None:
                same = mine[key] is other[key]
            else:
                same = same_bits(mine[key], other[key])
            found += [] if same else [f"{key} differs"]
    return found
