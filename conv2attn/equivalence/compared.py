"""The layers of two networks, compared: their rows, their bases, and the outputs of both networks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.equivalence.bases import Pair
from conv2attn.equivalence.calls import MetCall, watch_calls
from conv2attn.equivalence.certificate import Row
from conv2attn.equivalence.counterexample import Witness
from conv2attn.equivalence.differential import Measured, by_true_softmax, measure, reason, refusal, run_second
from conv2attn.equivalence.domain import Carried, LayerRule
from conv2attn.equivalence.error_analysis import difference_bounds, overflow
from conv2attn.equivalence.finding import Finding
from conv2attn.equivalence.layer_search import find_witness
from conv2attn.equivalence.rows import pair_layers, row_of, row_of_call, rows_of_the_rest, rows_of_the_unmet
from conv2attn.equivalence.tolerance import judge_layer, layer_rule
from conv2attn.errors import UsageError
from conv2attn.models.conversion.discovery import copy_network
from conv2attn.models.conversion.outcomes import SKIPPED, remembered
from conv2attn.verdicts import Verdict

MOST_WITNESSES = 4


@final
@dataclass(frozen=True, eq=False)
class Compared:
    """The results for each pair of layers, and the outputs of both networks; the second may have failed to run."""

    pairs: Mapping[str, tuple[nn.Module, nn.Module]]
    bases: Mapping[str, Pair]
    seen: Mapping[str, Measured]
    rows: dict[str, Row]
    first: Any
    second: Any
    failure: str
    calls: Mapping[str, MetCall] = field(default_factory=dict)

    @property
    def alike(self) -> bool:
        """Whether there are layers of one name in both, and all are the same maps."""
        return bool(self.rows) and all(row.verdict is Verdict.HOLDS for row in self.rows.values())

    def sides(self, name: str) -> tuple[int, ...]:
        """The padded sides that a pair met."""
        return tuple(self.bases[name].converted.padding.sides(self.seen[name].sides))

    def bounded(self, name: str) -> bool:
        """Whether the bound of a pair holds: the geometry is the same, and the first is a direct sum."""
        return self.rows[name or "(root)"].placed and not self.seen[name].spread > 0

    def overflow(self) -> str:
        """Where the original overflows first on the inputs met, and why; empty where it does not."""
        met = ((name, self.bases[name], self.seen[name]) for name in self.bases if self.seen[name].calls)
        found = ((name or "(root)", overflow(pair, 0, seen.input_range)) for name, pair, seen in met)
        return next((f"{name}: {reason}" for name, reason in found if reason), "")

    def rules(self, numbers: Mapping[str, int]) -> dict[int, LayerRule]:
        """By the number of each pair whose geometry is the same: how it carries a bound on, the worst of several."""
        usable = [name for name in self.bases if self.seen[name].calls and self.bounded(name)]
        known = {number: [name for name in self.bases if numbers.get(name) == number] for number in numbers.values()}
        return {
            number: worst_of([layer_rule(self.bases[name], self.sides(name)) for name in names])
            for number, names in known.items()
            if names and all(name in usable for name in names)
        }

    def judge_layer(self, tolerance: float, input_range: float) -> tuple[Finding, tuple[Witness, ...]]:
        """The finding on the tolerance of a single layer, and the input that exceeds it, if one was found."""
        bounds = None
        if "" in self.bases and self.bounded("") and not overflow(self.bases[""], 0, input_range):
            bounds = difference_bounds(self.bases[""], input_range, self.sides(""))
        worst = max(bounds, default=0.0) if bounds is not None else None
        witness = self.witness("", input_range, tolerance) if "" in self.bases else None
        return judge_layer(worst, tolerance, witness), () if witness is None else (witness,)

    def witnesses(self, input_range: float) -> tuple[Witness, ...]:
        """An input that shows it, for the first layers that are refuted."""
        refuted = [name for name in self.bases if self.rows[name or "(root)"].verdict is Verdict.REFUTED]
        found = (self.witness(name, input_range) for name in refuted[:MOST_WITNESSES])
        return tuple(witness for witness in found if witness is not None)

    def witness(self, name: str, input_range: float, tolerance: float | None = None) -> Witness | None:
        """The worst input constructed for a pair: with a tolerance, of the sides that were met, as the claim is."""
        sides = self.seen[name].sides if tolerance is not None else None
        return find_witness(name or "(root)", self.pairs[name], self.bases[name], input_range, tolerance, sides)


def worst_of(rules: Sequence[LayerRule]) -> LayerRule:
    """The larger of all bounds, of layers of which one stands where several stood."""

    def rule(given: Carried) -> Carried:
        passed = [each(given) for each in rules]
        return Carried(*(torch.stack([getattr(each, part) for each in passed]).amax(0) for part in ("size", "error")))

    return rule


def compare_layers(
    original: nn.Module, network: nn.Module, images: Tensor, described: str, *, exactly: bool
) -> Compared:
    """Compares all pairs of layers, the network's heads evaluated as softmaxes."""
    softmax = by_true_softmax(network)
    pairs = pair_layers(original, softmax)
    try:
        seen, first = measure(original, {name: theirs for name, (_, theirs) in pairs.items()}, images)
    except Exception as error:  # a network's own code may raise anything
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise UsageError("C2A009", f"the original does not run on {described}: {reason(error)}") from error
    trial = copy_network(softmax)
    met = watch_calls(trial)
    second, failure = run_second(trial, images)
    for name, layer in seen.items():
        if refused := refusal(network.get_submodule(name), layer):
            layer.max_error, layer.trouble = math.inf, refused
    conversions = {row.name: row for row in conversion_rows(network)}
    rows: dict[str, Row] = {}
    bases: dict[str, Pair] = {}
    for name, (ours, theirs) in pairs.items():
        skipped = name in conversions and conversions[name].outcome == SKIPPED
        row, both = row_of(name, ours, theirs, seen[name], skipped=skipped, exactly=exactly)
        rows[row.name] = row
        bases |= {name: both} if both else {}
    calls: dict[str, MetCall] = {}
    for call in met.values():
        name = distinct(call.name, rows)
        rows[name], calls[name] = row_of_call(name, call, exactly=exactly), call
    rows |= {row.name: row for row in rows_of_the_rest(conversions, rows)}
    rows |= {row.name: row for row in rows_of_the_unmet(original, softmax, rows)}
    return Compared(pairs, bases, seen, rows, first, second, failure, calls)


def conversion_rows(network: nn.Module) -> Sequence[Any]:
    """The rows of the conversion that made `network`; none if it was made otherwise."""
    conversion = remembered(network)
    return conversion.rows if conversion else ()


def distinct(name: str, rows: dict[str, Row]) -> str:
    """`name`, numbered where there is such a row already."""
    count = sum(other.partition("#")[0] == name for other in rows)
    return f"{name}#{count + 1}" if count else name
