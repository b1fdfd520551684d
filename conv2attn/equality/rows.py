"""Two layers compared: for all inputs as values of `Basis`, and measured beside a bound on what a walk meets."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_field
from functools import cached_property
from typing import Any, final

import torch
from msgspec.structs import replace
from torch import Tensor

from conv2attn.attention import ENGINES, MultiHeadSelfAttention
from conv2attn.attention.hardness import hard_offsets
from conv2attn.attention.probes import SPIKE, indirect_convolution, spread_of_spike
from conv2attn.basis import AttentionGrid
from conv2attn.equality.bases import Pair, engine_of, gradual_underflow, heads_out_of_bounds
from conv2attn.equality.context.bound import Carried, LayerRule
from conv2attn.equality.context.opaque import Layer
from conv2attn.equality.context.walk import own, reason, without_memory
from conv2attn.equality.counterexamples import find_counterexample
from conv2attn.equality.maps import check_leaks, compare_maps, is_plain, summed
from conv2attn.equality.outputs import largest_difference, other_kind
from conv2attn.equality.results import Counterexample, Finding, Row, holds, refuted, undecided, unsupported
from conv2attn.equality.rounding import SLACK, difference_bounds, has_blind_outputs, overflow, seeing
from conv2attn.errors import Conv2AttnError
from conv2attn.models.conversion.outcomes import describe
from conv2attn.theorem import STOCK
from conv2attn.verdicts import Strength, Verdict

HALF = (torch.float16, torch.bfloat16)


@final
@dataclass(eq=False)
class Measured:
    """The measurements of one pair of layers.

    Args:
        max_error: NaN if an output of the first is not finite; infinite if only that of the second is not, if shapes or
            dtypes differ, or if the second did not run, for the reason in `trouble`; `refused` if that is no fault.
        sides, grid: the largest of the inputs and of the outputs; `shapes` are those of the inputs.
        like: an empty tensor like the inputs.
        spread: above 0 where the first is no direct sum.
    """

    max_error: float = 0.0
    input_range: float = 0.0
    sides: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    trouble: str = ""
    refused: str = ""
    like: Tensor | None = None
    spread: float = 0.0

    def add(self, error: float, trouble: str, image: Tensor, output: Tensor, axes: int) -> None:
        """Counts one more call on images of so many axes, in a batch or not."""
        self.trouble = trouble or self.trouble
        self.max_error = error if not error <= self.max_error else self.max_error
        largest = image.abs().max().item() if image.numel() else 0.0
        self.input_range = self.input_range if largest <= self.input_range else largest
        sides, grid = tuple(image.shape[-axes:]), tuple(output.shape[-axes:])
        self.sides = tuple(map(max, self.sides or sides, sides))
        self.grid = tuple(map(max, self.grid or grid, grid))
        self.like = image.new_empty(0)
        if tuple(image.shape) not in self.shapes:
            self.shapes.append(tuple(image.shape))


@final
@dataclass(eq=False)
class LayerPair:
    """A layer of the first network, and the one of the second that stands for it; `skipped` on request."""

    first: Layer
    second: Layer
    measured: Measured = field(default_factory=Measured)
    skipped: bool = False
    tensors: tuple[Tensor, Tensor | None] | None = None

    @property
    def apart(self) -> bool:
        """Whether the first is the function as the second calls it, and no layer of the first network."""
        return self.first.function is not None and self.first.options is self.second.options

    @cached_property
    def bases(self) -> Pair:
        """Both as values: of a function whose weight is computed, with that of the call that was met, or any.

        Raises:
            UnsupportedError: one cannot be read.
        """
        scattered = is_transposed(self.first), is_transposed(self.second) and self.second.module is None
        engines = engine_of(self.first.module), engine_of(self.second.module)
        if self.first.basis is not None and self.second.basis is not None:
            return Pair(self.first.basis, self.second.basis, (scattered[0], is_transposed(self.second)), engines)
        tensors = self.tensors or self.any_weight
        return Pair(self.first.basis_with(*tensors), self.second.basis_with(*tensors), scattered, engines)

    @property
    def any_weight(self) -> tuple[Tensor, None]:
        """A weight in which every tap is another number, for what holds whatever the weight is."""
        like = self.second.like if self.first.like is None else self.first.like
        assert like is not None
        taps = torch.arange(1, 1 + like.shape[2:].numel(), dtype=torch.float64).reshape(like.shape[2:])
        return torch.ones(like.shape, dtype=torch.float64).mul(taps).to(like.dtype), None

    @cached_property
    def maps(self) -> list[Finding]:
        """The findings on geometry, weights and leak: one each, or one that says why none is asked."""
        with gradual_underflow():
            original, converted = self.first.basis, self.second.basis
            if original is None or converted is None:
                original, converted = (each.basis_with(*self.any_weight) for each in (self.first, self.second))
            geometry_and_weights = compare_maps(original, converted)
            leaking, self.leak = check_leaks(original, converted)
        return [*geometry_and_weights, leaking]

    leak: float | None = None
    failure: Exception | None = None

    @property
    def readable(self) -> bool:
        """Whether both are values that can be compared."""
        return self.maps[0].part != "support"

    @property
    def same(self) -> bool:
        """Whether both are one map."""
        return all(finding.verdict is Verdict.HOLDS for finding in self.maps)

    def measure(self, output: Tensor, compute: Callable[[], Tensor], image: Tensor) -> Tensor | None:
        """The output of the second for an image; its difference from the first's `output` is counted."""
        theirs, error, trouble = None, math.inf, ""
        try:
            theirs = compute()
            kind = other_kind(output, theirs)
            error, trouble = largest_difference(output, theirs), kind and f"an output {kind}"
        except Exception as failure:  # a layer's own code may raise anything
            if without_memory(failure):
                raise
            self.failure, trouble = failure, reason(failure)
        if output.numel() or trouble:  # otherwise both return nothing, which shows nothing
            self.measured.add(error, trouble, image, output, len(self.bases.original.form.stride))
        return theirs

    def refusal(self) -> str:
        """The reason why the engine that is set refuses inputs like those met; empty where it takes them."""
        layer, measured = self.second.module, self.measured
        if (
            not isinstance(layer, MultiHeadSelfAttention)
            or ENGINES[layer.engine].choose is not None
            or measured.like is None
        ):
            return ""
        if self.second.function is not None:  # the attention has no weights of its own to ask with
            return ""
        why = layer.why_engine(measured.like.new_zeros(1, layer.d_in, *measured.sides))[layer.engine]
        return "" if why == "exact" else f"the second refuses by its engine {layer.engine}: {why}"

    @property
    def padded_sides(self) -> tuple[int, ...]:
        """The padded sides that were met."""
        return tuple(self.bases.converted.padding.sides(self.measured.sides))

    @property
    def placed(self) -> bool:
        """Whether the geometry is known to be the same, so that there can be a bound."""
        return (self.maps[0].part, self.maps[0].verdict) == ("geometry", Verdict.HOLDS)

    def bound(self, reach: float) -> float | None:
        """The bound on all outputs for inputs within +-reach; None where there is none, or the first can overflow."""
        if not self.placed or overflow(self.bases, 0, reach):
            return None
        bounds = difference_bounds(self.bases, reach, self.padded_sides)
        return None if bounds is None else max(bounds, default=0.0)

    def find_spread(self) -> None:
        """Measures whether the first is a direct sum on the shapes that were met.

        The padding of a small image may copy the pixel that is looked at to the border: then nothing is measured.
        """
        module, measured = self.first.module, self.measured
        if not isinstance(module, STOCK) or measured.like is None:
            return
        basis, device = self.bases.original, measured.like.device.type
        for shape in (each for each in measured.shapes if has_blind_outputs(basis, each)):
            spread = spread_of_spike(
                lambda image: own(self.first, image),
                torch.Size(shape),
                measured.like.dtype,
                device,
                seeing(basis, shape[2:]),
            )
            measured.spread = spread if spread > measured.spread else measured.spread

    def rule(self) -> LayerRule:
        """The rule by which this pair carries a bound on."""
        original, sides = self.bases.original, self.padded_sides
        places = tuple(dict.fromkeys(original.starts))
        rows = self.bases.magnitudes[0] if is_plain(original) else summed(original, places).abs().sum((0, 2))
        rows, bias = rows * SLACK, original.weights.bias
        summand = torch.zeros(1) if bias is None else bias.detach().cpu().double().abs()

        def rule(read: Carried) -> Carried:
            added = difference_bounds(self.bases, read.reach, sides)
            each_own = torch.tensor(math.inf if added is None else added, dtype=torch.float64)
            size = (rows * read.size + summand + each_own).max().item()
            error = (rows * read.error + each_own).max().item()
            return Carried(size * SLACK, error * SLACK)

        return rule

    def row(self, *, exactly: bool = True) -> Row:
        """The row of the report. Unless `exactly`, weights and leak do not decide: another geometry has no bound."""
        label, module = self.first.label, self.first.module
        signature = describe(module) if isinstance(module, STOCK) else self.signature
        try:
            row = self.judged(Row(label, signature, ()), exactly=exactly)
        except Conv2AttnError as error:
            return Row(label, signature, (unsupported(error.code, error.found),))
        if self.skipped and row.verdict is Verdict.HOLDS:
            return Row(label, signature, (Finding("support", Verdict.HOLDS, sentence="on request"),), skipped=True)
        return row

    @property
    def signature(self) -> str:
        """A description of the first in one line."""
        if self.first.function is None:
            return f"attention {self.bases.original.weights.d_in}->{self.bases.original.weights.d_out}"
        tensors = self.tensors or self.first.tensors or self.any_weight
        return self.first.convolution(*tensors).describe(self.first.name.rpartition(":")[2])

    def judged(self, row: Row, *, exactly: bool) -> Row:
        """The row with its findings and numbers."""
        measured, maps = self.measured, self.maps
        findings = list(maps) if exactly else within_a_tolerance(maps)
        row = replace(row, grid=measured.grid or None, leak=self.leak, **self.numbers())
        if measured.shapes and self.readable:
            self.find_spread()
            measured.refused = self.refusal()
            beyond = overflow(self.bases, 0, measured.input_range)
            if not beyond and math.isfinite(measured.max_error):
                beyond = overflow(self.bases, 1, measured.input_range)
            bound = None if beyond else self.bound(measured.input_range)
            findings.append(judge_measured(measured, bound, self.placed, beyond))
            stated = None if measured.spread > 0 else bound
            row = replace(row, input_range=measured.input_range, max_error=measured.max_error, bound=stated)
        row = replace(row, findings=tuple(findings), strength=overall_strength(findings))
        return self.refuted_by_an_input(row) if exactly else row

    def refuted_by_an_input(self, row: Row) -> Row:
        """The row, refuted where it is undecided by its geometry alone and an input shows a difference."""
        doubt = next((each for each in row.findings if (each.part, each.verdict) == UNDECIDED_GEOMETRY), None)
        if (
            doubt is None
            or row.verdict is not Verdict.UNDECIDED
            or self.measured.spread > 0
            or self.first.basis is None
        ):
            return row
        if self.first.basis.weights.stored.dtype in HALF or (counterexample := self.counterexample(1.0)) is None:
            return row
        geometry = refuted("geometry", doubt.code, f"{doubt.sentence}; {counterexample.in_words()}")
        return replace(row, findings=tuple(geometry if each is doubt else each for each in row.findings))

    def counterexample(self, reach: float, tolerance: float | None = None) -> Counterexample | None:
        """The worst input constructed: with a tolerance, of the sides that were met, as the claim is."""
        sides, layers = self.measured.sides if tolerance is not None else None, (self.first, self.second)
        if self.tensors is not None:
            layers = replace_field(self.first, tensors=self.tensors), replace_field(self.second, tensors=self.tensors)
        return find_counterexample(layers, self.bases, reach, tolerance, sides)

    def numbers(self) -> dict[str, Any]:
        """The numbers of an attention layer in its row; none of another layer."""
        layer = self.second.module
        if not isinstance(layer, MultiHeadSelfAttention):
            return {}
        alpha = getattr(layer.encoding, "alpha", None)
        return {
            "heads": layer.heads,
            "d_head": layer.d_head,
            "alpha": alpha.min().item() if isinstance(alpha, Tensor) else None,
            "parameters": sum(parameter.numel() for parameter in layer.parameters()),
            "memory_saved": dense_memory(layer, self.padded_sides) if self.measured.shapes else None,
        }

    @property
    def limits(self) -> tuple[str, str] | None:
        """The engine of the second, and its name, if the engine may refuse inputs of some sizes."""
        layer = self.second.module
        if not isinstance(layer, MultiHeadSelfAttention) or self.second.basis is None:
            return None
        basis = self.second.basis
        heads, outside = basis.operators, bool(heads_out_of_bounds(basis))
        engine, wraps = ENGINES[layer.engine], not heads.reads_nearest
        refuses = engine.refuses_sizes or (outside and (wraps or engine.refuses_strays))
        if refuses or (wraps and isinstance(hard_offsets(heads, basis.weights.stored.dtype), str)):
            return layer.engine, self.second.name or "the layer"
        return None


UNDECIDED_GEOMETRY = ("geometry", Verdict.UNDECIDED)


def is_transposed(layer: Layer) -> bool:
    """Whether torch adds up the taps of an output in the format in which it is stored."""
    kind = type(layer.module) if layer.function is None else layer.function
    return "transpose" in getattr(kind, "__name__", "").lower()


def within_a_tolerance(maps: Sequence[Finding]) -> list[Finding]:
    """The findings that count beside a tolerance: other pixels are no bound, and refute nothing by themselves."""
    counting = (each for each in maps if each.part == "support" or each.part == "geometry")
    return [
        replace(each, verdict=Verdict.UNDECIDED) if (each.part, each.verdict) == ("geometry", Verdict.REFUTED) else each
        for each in counting
    ]


def dense_memory(layer: MultiHeadSelfAttention, padded_sides: tuple[int, ...]) -> int:
    """The bytes of the dense attention of one image: heads x queries x keys."""
    queries, keys = AttentionGrid(padded_sides, layer.sites).shape
    itemsize = 8 if layer.encoding.operators().values[0].dtype.itemsize == 8 else 4
    return layer.heads * queries * keys * itemsize


def judge_measured(measured: Measured, bound: float | None, same: bool, beyond: str = "") -> Finding:
    """The finding on measurements beside the bound; without a bound only numbers that are not finite decide.

    `beyond` says why the original can overflow here, so that neither holds nor fails what is said of finite numbers.
    """
    if measured.refused or (beyond and not measured.trouble):
        return undecided("measured", "C2A404", measured.refused or beyond)
    if math.isnan(measured.max_error):
        return undecided("measured", "C2A404", "the original's output is not finite on the inputs met")
    if measured.max_error == math.inf:
        what = measured.trouble or "an output is not finite"
        return refuted("measured", "C2A404", f"on an input on which the original runs, {what}")
    if measured.spread > 0:
        trace = f"a pixel of {SPIKE:g} changes outputs that do not see it by {measured.spread:.2g}"
        sentence = f"the original is no direct sum on this device, so no bound is given: {trace}"
        if bound is None or not measured.max_error <= bound:
            return undecided("measured", "C2A404", f"{sentence}, and |error| {measured.max_error:.3g} was measured")
        return Finding("measured", Verdict.HOLDS, Strength.SAMPLED, "C2A404", sentence)
    if bound is None:
        sentence = "no bound is known to hold the measured difference against"
        return undecided("measured", "C2A404", sentence) if same else holds("measured", Strength.SAMPLED)
    if measured.max_error <= bound:
        return holds("measured", Strength.SAMPLED)
    sentence = f"|error| {measured.max_error:.3g} was measured above the bound {bound:.3g}"
    indirect = indirect_convolution(measured.like) if measured.like is not None else None
    if indirect:
        return undecided("measured", "C2A404", f"{sentence}, which does not hold here: {indirect}")
    if measured.like is not None and measured.like.device.type == "cpu" and measured.like.dtype in HALF:
        fault = f"of which kernels for {measured.like.dtype} on a CPU, the original's too, are not always within"
        return undecided("measured", "C2A404", f"{sentence}, {fault}")
    return refuted("measured", "C2A404", sentence)


def overall_strength(findings: Sequence[Finding]) -> Strength:
    """The strength of the claim for all inputs: that of the weakest part, what was measured apart."""
    order = list(Strength)
    deciding = [finding.strength for finding in findings if finding.part != "measured"]
    return max(deciding, key=order.index, default=Strength.SAMPLED)
