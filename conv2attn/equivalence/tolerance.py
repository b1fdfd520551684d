"""The other question: is the difference at most E for all inputs with |x| <= r?"""

from torch import Tensor

from conv2attn.basis import Basis
from conv2attn.equivalence.bases import Pair, taps_of
from conv2attn.equivalence.counterexample import Witness
from conv2attn.equivalence.domain import SLACK, Carried, LayerRule, affine
from conv2attn.equivalence.error_analysis import difference_bounds
from conv2attn.equivalence.finding import Finding, holds, refuted, undecided
from conv2attn.equivalence.outputs import Outputs
from conv2attn.equivalence.tap_sums import is_plain, summed
from conv2attn.verdicts import Strength, Verdict


def layer_rule(pair: Pair, sides: tuple[int, ...]) -> LayerRule:
    """How a pair of layers carries a bound on, for images with these padded sides."""
    original = pair.original
    blocks = absolute_blocks(original) * SLACK

    def rule(given: Carried) -> Carried:
        grid = range(given.size.ndim - len(sides), given.size.ndim)
        channels = given.largest_over(grid).expanded(
            [*given.size.shape[: -len(sides) - 1], original.weights.d_in, *[1 for _ in grid]]
        )
        passed = affine(blocks, original.weights.bias, channels.along(Tensor.flatten), 0.0, 0.0)
        added = difference_bounds(pair, given.reach, sides)
        own = passed.error.new_tensor(added if added is not None else [float("inf")])
        shape = [-1 if axis == grid[0] - 1 else 1 for axis in range(given.size.ndim)]
        both = Carried((passed.size + own) * SLACK, (passed.error + own) * SLACK)
        return both.along(lambda each: each.reshape(shape))

    return rule


def absolute_blocks(basis: Basis) -> Tensor:
    """The sum over all starts of |the sum of taps|, in diagonal blocks: (groups, outputs, inputs) of a group."""
    taps = taps_of(basis)
    if taps is not None and is_plain(basis):
        return taps.cpu().double().abs().sum(0).unflatten(0, (basis.weights.groups, -1))
    return summed(basis, tuple(dict.fromkeys(basis.starts))).abs().sum(0)[None]


def judge_layer(bound: float | None, tolerance: float, witness: Witness | None) -> Finding:
    """The finding on a single layer: the bound decides, or an input that exceeds the tolerance."""
    if bound is not None and bound <= tolerance:
        return holds("tolerance", Strength.BOUNDED)
    if witness is not None and not witness.difference <= tolerance:
        return refuted("tolerance", "C2A409", f"the difference is {witness.difference:.3g}: {witness.in_words()}")
    shown = "nothing is" if bound is None else f"{bound:.3g} is"
    return undecided("tolerance", "C2A409", f"{shown} proved; no input found shows more than {tolerance:g}")


def judge_network(outputs: Outputs | None, tolerance: float, stop: str) -> Finding:
    """The finding on a network: the propagated bound decides, or images that exceed the tolerance."""
    if outputs is None:
        return undecided("tolerance", "C2A409", "the outputs cannot be compared")
    if not outputs.max_difference <= tolerance:
        return refuted("tolerance", "C2A409", f"on {outputs.images} they differ by {outputs.max_difference:.3g}")
    if outputs.bound is not None and outputs.bound <= tolerance:
        return holds("tolerance", Strength.BOUNDED)
    shown = f"the propagated bound is {outputs.bound:.3g}" if outputs.bound is not None else f"no bound passes {stop}"
    return undecided("tolerance", "C2A409", f"{shown}, and no difference above {tolerance:g} was measured")


def judge_bound(outputs: Outputs | None) -> tuple[Finding, ...]:
    """The finding on networks with equal graphs whose outputs differ by more than the bound: code that no graph has."""
    if outputs is None or outputs.bound is None or outputs.max_difference <= outputs.bound:
        return ()
    sentence = f"they differ by {outputs.max_difference:.3g}, and equal graphs allow {outputs.bound:.3g}"
    return (undecided("outputs", "C2A404", f"on {outputs.images} {sentence}: their code reads what no graph shows"),)


def judge_samples(outputs: Outputs | None, tolerance: float | None, reason: str) -> Finding:
    """The finding on two networks that only their outputs on some images compare; a difference decides nothing alone.

    Args:
        tolerance: what the outputs may differ by; None if the same map was asked for, which no images can show.
        reason: why nothing else compares them.
    """
    measured = f"compared on {outputs.images} alone, since {reason}" if outputs else reason
    if tolerance is None or outputs is None:
        return Finding("sampled", Verdict.UNDECIDED, Strength.SAMPLED, "C2A410", measured)
    if not outputs.max_difference <= tolerance:
        return refuted("tolerance", "C2A409", f"on {outputs.images} they differ by {outputs.max_difference:.3g}")
    return Finding("sampled", Verdict.HOLDS, Strength.SAMPLED, "C2A410", measured)
