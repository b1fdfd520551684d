"""The rows of a certificate: one a pair of layers, one a functional call, one a convolution that was left."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.hardness import hard_offsets
from conv2attn.basis import Basis, EnumeratedSoftmax
from conv2attn.equivalence.arithmetic import spread_of
from conv2attn.equivalence.bases import Pair, comparable_basis
from conv2attn.equivalence.calls import MetCall
from conv2attn.equivalence.certificate import Row
from conv2attn.equivalence.differential import Measured
from conv2attn.equivalence.finding import Finding, refuted, unsupported
from conv2attn.equivalence.heads import heads_out_of_bounds
from conv2attn.equivalence.layer import HALF, certify_layer
from conv2attn.equivalence.layer_search import find_witness
from conv2attn.equivalence.stored import StoredForm
from conv2attn.errors import Conv2AttnError
from conv2attn.models.conversion.outcomes import SKIPPED, UNSUPPORTED, ConversionRow, describe
from conv2attn.models.conversion.redirection import CHILD
from conv2attn.models.conversion.replacement import weight_moves
from conv2attn.theorem import STOCK
from conv2attn.verdicts import Strength, Verdict


def pair_layers(original: nn.Module, network: nn.Module) -> dict[str, tuple[nn.Module, nn.Module]]:
    """The layers to compare, by their first name: attention or convolution, where both sides have either.

    A pair that comes under several names comes once. Convolutions that attend by themselves stay outside.
    """
    kinds = (*STOCK, MultiHeadSelfAttention)
    pairs: dict[str, tuple[nn.Module, nn.Module]] = {}
    theirs, seen = dict(network.named_modules(remove_duplicate=False)), set[tuple[int, int]]()
    for name, layer in original.named_modules(remove_duplicate=False):
        other = theirs.get(name)
        if other is None or CHILD in other._modules or CHILD in name.split("."):
            continue
        if isinstance(layer, kinds) and isinstance(other, kinds) and (id(layer), id(other)) not in seen:
            if readable(layer) or isinstance(other, MultiHeadSelfAttention):
                pairs[name] = (layer, other)
            seen.add((id(layer), id(other)))
    return pairs


def readable(layer: nn.Module) -> bool:
    """Whether `layer` can be read as a convolution or position-only attention."""
    try:
        return bool(comparable_basis(layer).starts)
    except Conv2AttnError:
        return False


def row_of(
    name: str, ours: nn.Module, theirs: nn.Module, seen: Measured, *, skipped: bool, exactly: bool
) -> tuple[Row, Pair | None]:
    """The row of a pair of layers, and their bases; skipped on request only where nothing is amiss."""
    attention = theirs if isinstance(theirs, MultiHeadSelfAttention) else None
    label, signature = name or "(root)", describe(ours) if isinstance(ours, STOCK) else signature_of(ours)
    if weight_moves(ours) or weight_moves(theirs):
        sentence = "in training mode each call of a spectral norm changes the weight: compare in evaluation mode"
        return Row(label, signature, (unsupported("C2A106", sentence),)), None
    try:
        pair = Pair.of(ours, theirs)
    except Conv2AttnError as error:
        return Row(label, signature, (unsupported(error.code, error.found),)), None
    if isinstance(ours, STOCK) and seen.calls:
        seen.spread = spread_of(ours, pair.original, seen)
    forms = evidence_of(pair.original, pair.scattered[0]), evidence_of(pair.converted, pair.scattered[1])
    row = replace(certify_layer(label, signature, pair, seen, attention, exactly=exactly), forms=forms)
    row = refuted_by_an_input(row, (ours, theirs), pair, seen) if exactly else row
    if skipped and row.verdict is Verdict.HOLDS:
        row = Row(label, signature, (Finding("support", Verdict.HOLDS, sentence="on request"),), skipped=True)
    return row, pair


def refuted_by_an_input(row: Row, layers: tuple[nn.Module, nn.Module], pair: Pair, seen: Measured) -> Row:
    """The row, refuted where it is undecided by its geometry and an input shows a difference."""
    doubt = next((each for each in row.findings if each.part == "geometry" and each.verdict is Verdict.UNDECIDED), None)
    if (
        doubt is None
        or row.verdict is not Verdict.UNDECIDED
        or seen.spread > 0
        or pair.original.weights.stored.dtype in HALF
    ):
        return row
    if (witness := find_witness(row.name, layers, pair, 1.0)) is None:
        return row
    shown = refuted("geometry", doubt.code, f"{doubt.sentence}; {witness.in_words()}")
    return replace(row, findings=tuple(shown if each is doubt else each for each in row.findings))


def evidence_of(basis: Basis, transposed: bool) -> StoredForm:
    """The geometry of a layer as a stored report has it."""
    form, padding = basis.form, basis.padding
    known: dict[str, Any] = {**vars(form), **{key: getattr(padding, key) for key in ("before", "after", "mode")}}
    return StoredForm(**known, starts=basis.starts, groups=basis.weights.groups, transposed=transposed)


def row_of_call(name: str, call: MetCall, *, exactly: bool) -> Row:
    """The row of a functional call: what is known of it is known of the geometries met."""
    try:
        pair = call.pair()
    except Conv2AttnError as error:
        return Row(name, call.signature, (unsupported(error.code, error.found),))
    row = certify_layer(name, call.signature, pair, call.seen, call.layer, exactly=exactly)
    return replace(row, strength=Strength.SAMPLED)


def signature_of(layer: nn.Module) -> str:
    """An attention layer in one line."""
    if not isinstance(layer, MultiHeadSelfAttention):
        return type(layer).__name__
    return f"attention {layer.d_in}->{layer.d_out}"


def engine_limits(network: nn.Module, bases: Mapping[str, Pair]) -> str:
    """The sizes of input that a claim leaves out, since the engine of a compared layer may refuse them; or nothing."""
    limited: dict[str, list[str]] = {}
    for name, pair in bases.items():
        layer = network.get_submodule(name)
        if not isinstance(layer, MultiHeadSelfAttention):
            continue
        heads = pair.converted.operators
        enumerated, outside = isinstance(heads, EnumeratedSoftmax), bool(heads_out_of_bounds(pair.converted))
        refuses = layer.engine in ("dense", "sdpa") or (outside and (enumerated or layer.engine == "conv"))
        if refuses or (enumerated and isinstance(hard_offsets(heads, pair.converted.weights.stored.dtype), str)):
            limited.setdefault(layer.engine, []).append(name or "the layer")
    refusals = {
        engine: f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}" for engine, names in limited.items()
    }
    return "".join(
        f", of sizes that the engine {engine} does not refuse in {where}" for engine, where in refusals.items()
    )


def rows_of_the_rest(conversions: Mapping[str, ConversionRow], rows: Mapping[str, Row]) -> Iterator[Row]:
    """A row for each convolution that the conversion left or that nothing was seen of, with the reason."""
    for name, row in conversions.items():
        label = name or "(root)"
        if label in rows or any(has_row(label, other) for other in rows):
            continue
        if row.outcome == SKIPPED:
            yield Row(label, row.signature, (Finding("support", Verdict.HOLDS, sentence=row.reason),), skipped=True)
        elif row.outcome == UNSUPPORTED:
            code, _, reason = row.reason.partition(" ") if row.reason.startswith("C2A") else ("", "", row.reason)
            yield Row(label, row.signature, (unsupported(code, reason),))
        else:
            yield Row(label, row.signature, (unsupported("C2A406", "no input met it, so it was not compared"),))


def rows_of_the_unmet(original: nn.Module, network: nn.Module, rows: Mapping[str, Row]) -> Iterator[Row]:
    """A row for each module of either network that attends to functional convolutions, if none has a row yet."""
    theirs = "attention to functional convolutions is read in the second network only"
    for side, sentence in ((network, "no input met it, so it was not compared"), (original, theirs)):
        for name, module in side.named_modules():
            label = name or "(root)"
            if CHILD in module._modules and not any(has_row(label, other) for other in rows):
                yield Row(label, "functional convolutions", (unsupported("C2A406", sentence),))


def has_row(label: str, row: str) -> bool:
    """Whether a row is of the module with this label, or of a functional call in it, which may be numbered."""
    call = row.partition("#")[0]
    return label in (call, call.partition(":")[0])
