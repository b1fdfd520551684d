"""Compares two layers: as values of `Basis` for all inputs, and by measured errors with a bound."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import torch
from msgspec.structs import replace
from torch import Tensor

from conv2attn.equality.certificate.results import (
    Finding,
    Licences,
    Row,
    holds,
    refuted,
    undecided,
    unsupported_row,
)
from conv2attn.equality.distances import largest_difference, other_kind
from conv2attn.equality.failures import reason, without_memory
from conv2attn.equality.layers.bases import Pair, comparable_basis, engines_of, gradual_underflow, heads_out_of_bounds
from conv2attn.equality.layers.compared_layers import Layer, own, tap_weights
from conv2attn.equality.layers.leaks import check_leaks
from conv2attn.equality.layers.maps import compare_maps
from conv2attn.equality.layers.rounding import difference_bounds, has_blind_outputs, overflow, seeing
from conv2attn.errors import Conv2AttnError
from conv2attn.layers.attention import ENGINES, MultiHeadSelfAttention
from conv2attn.layers.attention.hardness import hard_offsets
from conv2attn.layers.attention.probes import SPIKE, indirect_convolution, spread_of_spike
from conv2attn.layers.theorem import STOCK, Convolution
from conv2attn.networks.conversion.computed_weights import describe
from conv2attn.theory.basis import Basis
from conv2attn.theory.bounds import WITHOUT_THEOREM, Claimed, Missing, claims_of
from conv2attn.verdicts import Strength, Verdict

HALF = (torch.float16, torch.bfloat16)


@final
@dataclass(eq=False)
class Measured:
    """The measurements of one pair of layers.

    Args:
        max_error: NaN if an output of the first is not finite; infinite if only that of the second is not, if shapes or
            dtypes differ, or if the second did not run, for the reason in `trouble`; `refused` says that this refusal
            is not a fault.
        sides, grid: the largest sides of the inputs and of the outputs; `shapes` are those of the inputs.
        like: an empty tensor with the dtype and device of the inputs.
        spread: above 0 if the first is not a direct sum.
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
        """Adds one call on images with this number of axes, with or without a batch."""
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
    """A layer of the first network and the corresponding layer of the second; `skipped` on request.

    For functions, `calls` are the values of both with the weights of the observed calls.
    """

    first: Layer
    second: Layer
    measured: Measured = field(default_factory=Measured)
    skipped: bool = False
    calls: list[Pair] = field(default_factory=list)

    def unmeasured(self) -> "LayerPair":
        """This pair with its findings on the maps, which do not depend on inputs, but without measurements."""
        fresh = LayerPair(self.first, self.second, skipped=self.skipped)
        fresh.bases, fresh.maps, fresh.leak = self.bases, self.maps, self.leak
        return fresh

    @cached_property
    def bases(self) -> Pair:
        """The two values of `Basis`."""
        return self.pair_of(self.first.basis, self.second.basis)

    def pair_of(self, first: Basis, second: Basis) -> Pair:
        """Two values with the facts about the layers that bounds need."""
        scattered = is_transposed(self.first), is_transposed(self.second)
        return Pair(first, second, scattered, (engines_of(self.first.module), engines_of(self.second.module)))

    def called_with(self, convolution: Convolution) -> None:
        """Records the weight of a call of a function."""
        weights = tap_weights(convolution)
        self.calls.append(self.pair_of(comparable_basis(convolution), comparable_basis(self.second.module, weights)))

    @cached_property
    def maps(self) -> list[Finding]:
        """The findings on geometry, weights and leak: one each, or a single one if the layers cannot be compared."""
        with gradual_underflow():
            geometry_and_weights = compare_maps(self.bases)
            leaking, self.leak = check_leaks(self.first.basis, self.second.basis)
        return [*geometry_and_weights, leaking]

    leak: Claimed | None = None

    @property
    def readable(self) -> bool:
        """Whether both layers can be compared as values."""
        return self.maps[0].part != "support"

    @property
    def same(self) -> bool:
        """Whether both are one map."""
        return all(finding.verdict is Verdict.HOLDS for finding in self.maps)

    def measure(self, output: Tensor, compute: Callable[[], Tensor], image: Tensor) -> Tensor | None:
        """The output of the second for an image; records its difference from the first's `output`."""
        theirs, error, trouble = None, math.inf, ""
        try:
            theirs = compute()
            kind = other_kind(output, theirs)
            error, trouble = largest_difference(output, theirs), kind and f"an output {kind}"
        except Exception as failure:  # a layer's own code may raise anything
            if without_memory(failure):
                raise
            trouble = reason(failure)
        if output.numel() or trouble:  # otherwise both outputs are empty
            self.measured.add(error, trouble, image, output, len(self.bases.original.form.stride))
        return theirs

    def refusal(self) -> str:
        """The reason why the engine that is set refuses inputs like those observed; empty if it accepts them."""
        layer, measured = self.second.module, self.measured
        if (
            not isinstance(layer, MultiHeadSelfAttention)
            or ENGINES[layer.engine].choose is not None
            or measured.like is None
        ):
            return ""
        if self.first.module is None:  # the attention has no weights of its own
            return ""
        why = layer.why_engine(measured.like.new_zeros(1, layer.d_in, *measured.sides))[layer.engine]
        return "" if why == "exact" else f"in the second network, the engine {layer.engine} refuses: {why}"

    @property
    def padded_sides(self) -> tuple[int, ...]:
        """The padded sides that were observed."""
        return tuple(self.bases.converted.padding.sides(self.measured.sides))

    @property
    def placed(self) -> bool:
        """Whether the geometry is known to be equal, as a bound requires."""
        return self.comparable and self.maps[0].verdict is Verdict.HOLDS

    @property
    def comparable(self) -> bool:
        """Whether the geometry is equal or undecided; otherwise no bound is computed."""
        return self.maps[0].part == "geometry" and self.maps[0].verdict is not Verdict.REFUTED

    def bound(self, reach: float) -> Claimed | None:
        """The bound on all outputs for inputs within +-reach, if both read the same pixels; None where there is none,
        or the first can overflow."""
        bounds = list[Claimed]()
        for bases in self.calls or [self.bases]:
            if not self.comparable or overflow(bases, 0, reach):
                return None
            each = difference_bounds(bases, reach, self.padded_sides)
            if each is None:
                return None
            bounds += each
        return Claimed(max(bounds, default=0.0), claims_of(*bounds))

    def find_spread(self) -> None:
        """Measures whether the first is a direct sum on the observed shapes.

        The padding of a small image may copy the tested pixel to the border: then nothing is measured.
        """
        module, measured = self.first.module, self.measured
        if not isinstance(module, STOCK) or measured.like is None:
            return
        basis, device = self.bases.original, measured.like.device.type
        # A Winograd or FFT kernel spreads a large pixel over outputs that do not depend on it; the bound is for direct
        # sums.
        for shape in (each for each in measured.shapes if has_blind_outputs(basis, each)):
            spread = spread_of_spike(
                lambda image: own(module, image),
                torch.Size(shape),
                measured.like.dtype,
                device,
                seeing(basis, shape[2:]),
            )
            measured.spread = spread if spread > measured.spread else measured.spread

    def row(self) -> Row:
        """The row of the report."""
        label, module = self.first.label, self.first.module
        signature = describe(module) if isinstance(module, STOCK) else self.signature
        try:
            row = self.judged(Row(label, signature, ()))
        except Conv2AttnError as error:
            return unsupported_row(label, signature, error)
        if self.skipped and row.verdict is Verdict.HOLDS:
            return Row(label, signature, (Finding("support", Verdict.HOLDS, sentence="on request"),), skipped=True)
        return row

    @property
    def signature(self) -> str:
        """A description of the first in one line."""
        weights = self.bases.original.weights
        kind = "attention" if self.first.module is not None else self.first.name.rpartition(":")[2]
        return f"{kind} {weights.d_in}->{weights.d_out}"

    def judged(self, row: Row) -> Row:
        """The row with its findings and numbers."""
        measured, findings = self.measured, list(self.maps)
        row = replace(row, grid=measured.grid or None, leak=self.leak, **self.numbers())
        licences = Licences(leak=named(self.leak), missing=missing(self.leak))
        if measured.shapes and self.readable:
            self.find_spread()
            measured.refused = self.refusal()
            beyond = self.overflow(0)
            # If the first may overflow, the second is not judged. If only the second may, finite outputs still hold.
            if not beyond and math.isfinite(measured.max_error):
                beyond = self.overflow(1)
            bound = None if beyond else self.bound(measured.input_range)
            findings.append(judge_measured(measured, bound, self.placed, beyond))
            stated = bound if self.placed and not measured.spread > 0 else None
            row = replace(row, input_range=measured.input_range, max_error=measured.max_error, bound=stated)
            licences = replace(licences, bound=named(stated), missing=missing(self.leak, stated))
        row = replace(row, licensed_by=licences)
        return replace(row, findings=tuple(findings))

    def overflow(self, side: int) -> str:
        """The reason why a layer can overflow on inputs as large as those observed; empty if it cannot."""
        reasons = (overflow(bases, side, self.measured.input_range) for bases in self.calls or [self.bases])
        return next(filter(None, reasons), "")

    def numbers(self) -> dict[str, Any]:
        """The heads of an attention layer and their least alpha, in its row; none of another layer."""
        layer = self.second.module
        if not isinstance(layer, MultiHeadSelfAttention):
            return {}
        alpha = getattr(layer.encoding, "alpha", None)
        return {"heads": layer.heads, "alpha": None if alpha is None else alpha.min().item()}

    @property
    def limits(self) -> tuple[str, str] | None:
        """The engine of the second, and its name, if the engine may refuse inputs of some sizes."""
        layer = self.second.module
        if not isinstance(layer, MultiHeadSelfAttention):
            return None
        basis = self.second.basis
        heads, outside = basis.operators, bool(heads_out_of_bounds(basis))
        engine, wraps = ENGINES[layer.engine], not heads.reads_nearest
        refuses = engine.refuses_sizes or (outside and (wraps or engine.refuses_strays))
        if refuses or (wraps and isinstance(hard_offsets(heads, basis.weights.stored.dtype), str)):
            return layer.engine, self.second.name or "the layer"
        return None


def named(number: Claimed | None) -> tuple[str, ...]:
    """The claims behind a number, in order; `WITHOUT_THEOREM` comes last."""
    claims = {each for each in claims_of(number) if not isinstance(each, Missing)}
    return (*sorted(claims - {WITHOUT_THEOREM}), *claims & {WITHOUT_THEOREM})


def missing(*numbers: Claimed | None) -> tuple[str, ...]:
    """The failing premises of the theorems that would cover the numbers, in order."""
    return tuple(sorted(str(each) for each in claims_of(*numbers) if isinstance(each, Missing)))


def is_transposed(layer: Layer) -> bool:
    """Whether torch adds up the taps of an output in the storage format."""
    if layer.module is None:
        return max(layer.basis.padding.spacing) > 1
    return "transpose" in type(layer.module).__name__.lower()


def judge_measured(measured: Measured, bound: float | None, same: bool, beyond: str = "") -> Finding:
    """The finding on measurements against the bound; without a bound, only non-finite numbers decide.

    `beyond` is the reason why the original can overflow here: statements about finite numbers then neither hold nor
    fail.
    """
    if measured.refused or (beyond and not measured.trouble):
        return undecided("measured", "C2A404", measured.refused or beyond)
    if math.isnan(measured.max_error):
        return undecided(
            "measured", "C2A404", "the output of the first network is not finite on the inputs that were run"
        )
    if measured.max_error == math.inf:
        what = measured.trouble or "an output is not finite"
        return refuted("measured", "C2A404", f"on an input on which the first network runs, {what}")
    if measured.spread > 0:
        trace = f"a pixel of {SPIKE:g} changes outputs that do not depend on it by {measured.spread:.2g}"
        sentence = f"the first network's layer is not a direct sum on this device, so no bound is given: {trace}"
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
        fault = f"and kernels for {measured.like.dtype} on a CPU, convolutions too, are not always within it"
        return undecided("measured", "C2A404", f"{sentence}, {fault}")
    return refuted("measured", "C2A404", sentence)
