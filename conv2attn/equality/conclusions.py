"""The conclusions from two networks run beside each other: rows, findings, bounds, counterexamples, the claim."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from msgspec.structs import replace
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.equality.comparison import Comparison, larger
from conv2attn.equality.context.walk import blame, call, reason
from conv2attn.equality.difference import graphs_apart, seen_apart, shown_difference, walks_in
from conv2attn.equality.matching import first_difference
from conv2attn.equality.outputs import (
    compare_outputs,
    findings_returned,
    judge_outputs,
    most_different,
    other_kind,
    widest_gap,
)
from conv2attn.equality.results import (
    ROOT,
    SAME_MAP,
    WHOLE_NETWORK,
    Certificate,
    Context,
    Counterexample,
    Finding,
    Outputs,
    Row,
    holds,
    refuted,
    undecided,
    unsupported,
)
from conv2attn.equality.rounding import overflow
from conv2attn.equality.rows import LayerPair
from conv2attn.models.conversion.outcomes import SKIPPED, UNSUPPORTED, ConversionRow, describe, remembered
from conv2attn.models.conversion.redirection import CHILD, AttendingCalls
from conv2attn.report import counted
from conv2attn.theorem import STOCK
from conv2attn.verdicts import Strength, Verdict, weakest_strength

ASSUMPTIONS = (
    "finite inputs (dense and sdpa spread a NaN to every output, separable too where its bands are no narrower than "
    "the image, conv and gather only where the convolution does)",
    "sums formed directly (no Winograd or FFT: measured on the shapes met), no overflow, sides below 2^24",
    "torch's own functions, not compiled; code between the layers that does the same at each call, whose operators "
    "were read off one call for all sizes, and that does not look at how tensors lie in memory",
)
IMAGES_TRIED = 4  # images, those first whose outputs differ most
MOST_SHOWN = 4  # layers, of which a counterexample is constructed


@final
@dataclass(eq=False)
class Verdicts:
    """The parts of a certificate; see `certify` for the question."""

    comparison: Comparison
    described: str
    labels: Tensor | None
    input_range: float
    tolerance: float | None

    def certificate(self) -> Certificate:
        """The certificate, but for its circumstances."""
        rows, sampled = dict(self.rows), self.sampled
        between = [self.judge_samples() if sampled else self.structure, self.judged_outputs]
        if not self.comparison.failure:
            between += findings_returned(self.comparison.first, self.comparison.second)
        between += self.judge_bound()
        if self.tolerance is not None and not sampled:
            between.append(self.judge_tolerance(self.tolerance))
            for name, row in rows.items():
                strengths = (each for each in (Strength.BOUNDED, row.strength) if each is not None)
                rows[name] = replace(row, strength=weakest_strength(strengths))
        wrong = dict.fromkeys(each.part for each in between if each.verdict is Verdict.REFUTED)
        parts = [part for part in wrong if not (part == "tolerance" and self.constructed)]
        images = (self.shown,) if parts and self.shown is not None else ()
        return Certificate(
            tuple(rows.values()),
            tuple(between),
            self.outputs,
            () if sampled else ASSUMPTIONS,
            self.claim,
            counterexamples=(*self.constructed, *images),
            unshown=() if images else tuple(f"{part}: {self.unshown}" for part in parts),
            context=self.context,
        )

    @property
    def bare(self) -> bool:
        """Whether both networks are layers with nothing around them."""
        return self.comparison.matching.bare

    @cached_property
    def pairs(self) -> dict[str, LayerPair]:
        """The pairs of layers by the names of their rows."""
        skipped = {row.name for row in conversions(self.comparison.networks[1]).values() if row.outcome == SKIPPED}
        pairs: dict[str, LayerPair] = {}
        for pair in self.comparison.matching.pairs:
            pair.skipped = pair.second.name in skipped
            label = pair.first.label
            same = sum(each.first.label == label for each in pairs.values())
            pairs[label if not same else f"{label} ({pair.second.label})"] = pair
        return pairs

    @cached_property
    def layer_rows(self) -> dict[str, Row]:
        """The rows of all pairs, by name."""
        exactly = self.tolerance is None
        return {name: replace(pair.row(exactly=exactly), name=name) for name, pair in self.pairs.items()}

    @cached_property
    def alike(self) -> bool:
        """Whether there are layers to compare, and all are the same maps."""
        rows = self.layer_rows
        return bool(rows) and all(row.verdict is Verdict.HOLDS for row in rows.values())

    @property
    def same_maps(self) -> bool:
        """Whether each layer is the same map as the one that stands for it."""
        return all(pair.same for pair in self.pairs.values())

    @cached_property
    def converted(self) -> bool:
        """Whether one of the networks holds attention of this package."""
        kinds = MultiHeadSelfAttention | AttendingCalls
        return any(isinstance(module, kinds) for side in self.comparison.networks for module in side.modules())

    @cached_property
    def sampled(self) -> bool:
        """Whether images alone compare the networks: none was converted, and their graphs are not known to be equal."""
        return not self.converted and self.structure.verdict is Verdict.UNDECIDED

    @cached_property
    def rows(self) -> dict[str, Row]:
        """All rows, by name: of layers, then of what was not compared."""
        if self.sampled and not (self.alike and self.tolerance is None):
            return {}
        rows = dict(self.layer_rows)
        if self.unseen:
            rows = {name: unshown_row(row) for name, row in rows.items()}
        for name, error in self.comparison.matching.refused.items():
            module = self.comparison.networks[0].get_submodule(name)
            signature = describe(module) if isinstance(module, STOCK) else type(module).__name__
            rows.setdefault(name or ROOT, Row(name or ROOT, signature, (unsupported(error.code, error.found),)))
        original, network = self.comparison.networks
        compared = [*rows, *(pair.second.label for name, pair in self.pairs.items() if name in rows)]
        unseen = self.comparison.matching.unseen
        rows |= {row.name: row for row in rows_of_the_rest(network, compared, unseen=unseen)}
        return rows | {row.name: row for row in rows_of_the_unmet(original, network, [*rows, *compared])}

    @cached_property
    def unseen(self) -> bool:
        """Whether layers that are other maps make no difference to the outputs that is seen, and so refute nothing."""
        wrong = any(row.verdict is Verdict.REFUTED for row in self.layer_rows.values())
        if not wrong or self.bare or self.comparison.strange or self.tolerance is not None:
            return False
        return not seen_apart(self.comparison.matching, self.comparison.images)

    @cached_property
    def shown(self) -> Counterexample | None:
        """The image on which the networks differ in kind, beyond the tolerance, or by more than rounding explains."""
        run = self.comparison
        order = most_different(run.first, run.second, len(run.images))[:IMAGES_TRIED]
        candidates = [(index, run.images[index : index + 1]) for index in order]
        for index, image in [*candidates, *((None, larger(image)) for _, image in candidates[:1] if self.apart)]:
            try:
                first = call(run.networks[0], image)
            except Exception:  # a network may refuse a single image, or one of another size
                continue
            self.unshown = f"no output shows it on the {counted(len(candidates), 'image')} tried"
            if (counterexample := self.show(image, first)) is not None:
                return replace(counterexample, index=index)
        return None

    unshown: str = "the first takes no single image"

    @property
    def apart(self) -> bool:
        """Whether the graphs differ, so that an image on which rounding does not explain the difference refutes."""
        matching, run = self.comparison.matching, self.comparison
        comparable = not matching.same and matching.forms is not None and not run.failure and not run.strange
        return comparable and self.tolerance is None

    def show(self, image: Tensor, first: Any) -> Counterexample | None:
        """The difference of the networks on one image, whose outputs by the first are given; None if it shows none."""
        run = self.comparison
        try:
            second = call(run.networks[1], image)
        except Exception as error:  # its own code may raise anything
            sentence = f"the second does not run where the first does: {type(error).__name__}: {reason(error)}"
            other_size = image.shape[2:] != run.images.shape[2:]  # which it may refuse
            return (
                None
                if other_size or blame(error)
                else Counterexample(WHOLE_NETWORK, image[0], part="outputs", told=sentence)
            )
        judged = judge_outputs(first, second, self.overflow)
        if judged.verdict is Verdict.REFUTED:
            sentence, limit = judged.sentence, sys.float_info.max
            counterexample = Counterexample(WHOLE_NETWORK, image[0], part="outputs", told=sentence)
        elif self.tolerance is not None:
            limit = self.tolerance
            counterexample = Counterexample(WHOLE_NETWORK, image[0], part="tolerance", allowed=limit)
        elif self.apart:
            return shown_difference(run.matching, image, (first, second), alike=self.same_maps)
        else:
            return None
        gap = widest_gap(first, second, limit)
        counterexample = counterexample if gap is None else counterexample.at(gap)
        return counterexample if counterexample.shows else None

    @cached_property
    def structure(self) -> Finding:
        """Whether the same happens between the layers of both, for all inputs of the sizes that the graphs hold for."""
        matching, code = self.comparison.matching, "C2A405"
        if matching.trouble or self.comparison.strange:
            return undecided("structure", code, matching.trouble or self.comparison.strange)
        if matching.same:
            if matching.written_alike or not graphs_apart(matching, self.comparison.images):
                return holds("structure")
            sentence = "rules of the normal form make the graphs equal, but in float64 they compute other numbers"
            return undecided("structure", code, sentence)
        sentence, nodes = first_difference(matching)
        if self.apart and self.shown is not None:
            difference = self.shown.told or "no rounding explains what the outputs differ by"
            return refuted("structure", code, f"{sentence}; {difference}")
        return undecided("structure", code, sentence + self.numbers_at(nodes))

    def numbers_at(self, nodes: Any) -> str:
        """The numbers of both graphs in float64 at the first nodes that differ; empty where there is none."""
        if nodes is None:
            return ""
        walks = walks_in(self.comparison.matching, nodes)
        for walk in walks:
            walk.outputs(self.comparison.images[:2])
        first, second = (walk.kept.get(node) for walk, node in zip(walks, nodes, strict=True))
        if not isinstance(first, Tensor) or not isinstance(second, Tensor):
            return ""
        if kind := other_kind(first, second):
            return f" (its result {kind})"
        gap = widest_gap(first, second, 0.0)
        if gap is None or not gap.count:
            return " (both compute the same numbers here)"
        return f" (at {gap.place} it computes {gap.converted:.9g}, not {gap.original:.9g})"

    @cached_property
    def bound(self) -> tuple[float | None, str]:
        """The bound on the difference of the outputs, or None and where it stops."""
        if self.structure.verdict is not Verdict.HOLDS:
            return None, "graphs that are not known to be equal"
        if any(pair.measured.spread > 0 for pair in self.pairs.values()):
            return None, "a layer without a bound"
        if self.bare:
            (pair,) = self.pairs.values()
            bound = pair.bound(self.comparison.reach)
            return bound, "the layer" if bound is None else ""
        return self.comparison.bound

    @cached_property
    def outputs(self) -> Outputs | None:
        """The outputs of both, measured."""
        run = self.comparison
        return compare_outputs(run.first, run.second, self.described, self.labels, self.bound[0])

    @property
    def judged_outputs(self) -> Finding:
        """Whether the second returns what the first does in kind."""
        run = self.comparison
        if run.failure and run.fault:
            return undecided("outputs", "C2A407", f"the second does not run, by an error of {run.fault}: {run.failure}")
        if run.failure:
            return refuted("outputs", "C2A407", f"the second does not run where the first does: {run.failure}")
        return judge_outputs(run.first, run.second, self.overflow)

    @property
    def overflow(self) -> str:
        """The first layer in which the original overflows on the inputs met, and why; empty where it does not."""
        pairs = ((name, pair) for name, pair in self.pairs.items() if pair.measured.shapes and pair.readable)
        reasons = ((name, overflow(pair.bases, 0, pair.measured.input_range)) for name, pair in pairs)
        return next((f"{name}: {reason}" for name, reason in reasons if reason), "")

    def judge_samples(self) -> Finding:
        """The finding on networks that images alone compare; a difference decides only beside a tolerance."""
        reason, outputs = self.structure.sentence, self.outputs
        measured = f"compared on {self.described} alone, since {reason}" if outputs else reason
        if self.tolerance is None or outputs is None:
            return Finding("sampled", Verdict.UNDECIDED, Strength.SAMPLED, "C2A410", measured)
        if not outputs.max_difference <= self.tolerance:
            sentence = f"on {outputs.images} they differ by {outputs.max_difference:.3g}"
            return refuted("tolerance", "C2A409", sentence)
        return Finding("sampled", Verdict.HOLDS, Strength.SAMPLED, "C2A410", measured)

    def judge_bound(self) -> tuple[Finding, ...]:
        """The finding on networks with equal graphs whose outputs differ by more than the bound allows."""
        outputs = self.outputs
        if self.bare or outputs is None or outputs.bound is None or outputs.max_difference <= outputs.bound:
            return ()
        apart = f"on {outputs.images} they differ by {outputs.max_difference:.3g}"
        allowed = f"equal graphs allow {outputs.bound:.3g}: their code reads what no graph shows"
        return (undecided("outputs", "C2A404", f"{apart}, and {allowed}"),)

    def judge_tolerance(self, tolerance: float) -> Finding:
        """The finding on the tolerance: the bound decides, or an input that exceeds it."""
        outputs, (bound, stop) = self.outputs, self.bound
        if outputs is None:
            return undecided("tolerance", "C2A409", "the outputs cannot be compared")
        if not outputs.max_difference <= tolerance:
            sentence = f"on {outputs.images} they differ by {outputs.max_difference:.3g}"
            return refuted("tolerance", "C2A409", sentence)
        if bound is not None and bound <= tolerance:
            return holds("tolerance", Strength.BOUNDED)
        for refuting in self.constructed if self.bare else ():
            return refuted("tolerance", "C2A409", f"they differ by {refuting.difference:.3g}: {refuting.in_words()}")
        bounded = f"the propagated bound is {bound:.3g}" if bound is not None else f"no bound passes {stop}"
        return undecided("tolerance", "C2A409", f"{bounded}, and no difference above {tolerance:g} was found")

    @cached_property
    def constructed(self) -> tuple[Counterexample, ...]:
        """An input for each of the first layers that are refuted, or one beyond the tolerance of a single layer."""
        tolerance = self.tolerance if self.bare else None
        wrong = [name for name, row in self.rows.items() if row.verdict is Verdict.REFUTED or tolerance is not None]
        readable = [self.pairs[name] for name in wrong if name in self.pairs and self.pairs[name].readable]
        counterexamples = (pair.counterexample(self.input_range, tolerance) for pair in readable[:MOST_SHOWN])
        return tuple(each for each in counterexamples if each is not None and each.shows)

    @property
    def claim(self) -> str:
        """The statement that is certified if it holds."""
        size = "x".join(map(str, self.comparison.images.shape[1:]))
        inputs = (
            f"on {self.described}" if self.sampled else f"for all finite inputs {size} within +-{self.input_range:g}"
        )
        claim = SAME_MAP if self.tolerance is None else f"the outputs differ by at most {self.tolerance:g} {inputs}"
        return claim if self.sampled else claim + self.sizes + self.engines

    @property
    def sizes(self) -> str:
        """The sizes of input that the claim is made for, in words; empty if that is every size."""
        guards = self.comparison.matching.guards
        if len(guards) <= 2:
            return f", of sizes with {' and '.join(guards)}" if guards else ""
        return f", of sizes that fulfil {len(guards)} conditions of the graph, such as {guards[0]}"

    @property
    def engines(self) -> str:
        """The sizes that the claim leaves out, since the engine of a compared layer may refuse them; or nothing."""
        limited: dict[str, list[str]] = {}
        for engine, name in filter(None, (pair.limits for pair in self.pairs.values())):
            limited.setdefault(engine, []).append(name)
        where = {
            engine: f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}" for engine, names in limited.items()
        }
        return "".join(f", of sizes that the engine {engine} does not refuse in {at}" for engine, at in where.items())

    @property
    def context(self) -> Context:
        """The hashes of both graphs, and the sizes that they hold for."""
        forms = self.comparison.matching.forms
        digests = (forms[0].digest, forms[1].digest) if forms else ("", "")
        return Context(digests, self.comparison.matching.guards)


def unshown_row(row: Row) -> Row:
    """A row whose layers are other maps, which makes no difference to the outputs that is seen."""
    remark = "; but the outputs of the networks are the same in float64, so this refutes nothing"
    findings = (
        replace(each, verdict=Verdict.UNDECIDED, sentence=each.sentence + remark)
        if each.verdict is Verdict.REFUTED
        else each
        for each in row.findings
    )
    return replace(row, findings=tuple(findings))


def conversions(network: nn.Module) -> dict[str, ConversionRow]:
    """The outcomes of the conversion that made `network`, by name; none if it was made otherwise."""
    conversion = remembered(network)
    return {row.name: row for row in conversion.rows} if conversion else {}


def rows_of_the_rest(network: nn.Module, rows: Sequence[str], *, unseen: bool) -> Iterator[Row]:
    """A row for each convolution that the conversion left or that has none of these `rows`, with the reason.

    Args:
        unseen: whether the first network has no graph, so that its layers are known by their names alone.
    """
    for name, row in conversions(network).items():
        label = name or ROOT
        if any(is_of(label, other) for other in rows):
            continue
        if row.outcome == SKIPPED:
            yield Row(label, row.signature, (Finding("support", Verdict.HOLDS, sentence=row.reason),), skipped=True)
        elif row.outcome == UNSUPPORTED:
            code, _, reason = row.reason.partition(" ") if row.reason.startswith("C2A") else ("", "", row.reason)
            yield Row(label, row.signature, (unsupported(code, reason),))
        elif unseen:
            sentence = "the layer of the first network that it stands for cannot be seen"
            yield Row(label, row.signature, (undecided("geometry", "C2A406", sentence),))
        else:
            yield Row(label, row.signature, (unsupported("C2A406", "no input met it, so it was not compared"),))


def rows_of_the_unmet(original: nn.Module, network: nn.Module, rows: Sequence[str]) -> Iterator[Row]:
    """A row for each module of either network that attends to functional convolutions, if none has a row yet."""
    theirs = "attention to functional convolutions is read in the second network only"
    for side, sentence in ((network, "no input met it, so it was not compared"), (original, theirs)):
        for name, module in side.named_modules():
            label = name or ROOT
            if CHILD in module._modules and not any(is_of(label, other) for other in rows):
                yield Row(label, "functional convolutions", (unsupported("C2A406", sentence),))


def is_of(label: str, row: str) -> bool:
    """Whether a row is of the module with this label, or of a function that it calls, which may be numbered."""
    call = row.partition("#")[0]
    return label in (row, call, call.partition(":")[0])
