"""Decides whether two networks are one map up to rounding of their weights, section by section, in random worlds.

Between nonlinear functions (oracles) are sections, linear in the numbers. In parallel with each network runs a shadow:
the same operators on random numbers. An oracle answers both networks from one table. Behind a nonlinear
function both therefore go on from the same numbers, and each section is judged alone: no difference grows with depth.
"""

import math
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, final

import torch

from conv2attn.equality.worlds.call_state import without_onednn
from conv2attn.equality.worlds.followed_calls import Calls
from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.output_shadows import outputs_apart, unchanged
from conv2attn.equality.worlds.places import PartingPlace, find_place
from conv2attn.equality.worlds.plans import common_plan
from conv2attn.equality.worlds.shadows import Unfollowed, is_number
from conv2attn.equality.worlds.shaking import UNITS
from conv2attn.equality.worlds.stored_numbers import moving_numbers, stored_tensors
from conv2attn.equality.worlds.units import LIMIT
from conv2attn.torch_internals import tree_leaves


@final
@dataclass(frozen=True)
class Sections:
    """Whether all sections of two networks agree (`equal`); None if that is unknown, with the reason.

    `units` is the largest deviation: over the sections that agree, or at the one that differs. `unit` is the unit of
    rounding of the coarsest numbers, such as 2^-24 of float32.
    """

    equal: bool | None
    units: float = 0.0
    unit: float = 0.0
    reason: str = ""
    place: PartingPlace | None = None
    arguments: int = 0


def compare_sections(
    first: Any,
    second: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    *,
    differ: bool = False,
) -> Sections:
    """Whether the outputs of two networks come from the same functions, and each section between them agrees.

    If the networks are known to `differ`, only the place is to be found, and the quick run, which finds none, is
    skipped.

    The inputs give shapes, integers, booleans, Python numbers and masks; other numbers are drawn. A sample, not a
    proof. Not covered: stored numbers that vanish when added to larger ones, numbers that are never the maximum,
    effects of rounding itself, inputs at which code divides by zero, state that lasts from one call to the next. One
    image shows no coupling of images: pass two.

    Examples:
        >>> import torch
        >>> norm = torch.nn.LayerNorm(8, eps=1e-12)
        >>> answer = compare_sections(norm, torch.nn.LayerNorm(8, eps=1e-6), (torch.randn(2, 8),))
        >>> answer.equal, answer.place.what
        (False, 'its eps is 1e-06, not 1e-12')
    """
    kwargs = dict(kwargs or {})
    stored = [t for network in (first, second) for t in stored_tensors(network)]
    dtypes = {t.dtype.to_real() for t in [*stored, *tree_leaves((args, kwargs))] if is_number(t)}
    try:
        with ExitStack() as stack:
            plans = {id(network): common_plan(network, args, kwargs, seed) for network in (first, second)}
            if any("mkldnn_rnn" in operator for plan in plans.values() for operator, *_ in plan):
                # oneDNN has one operator for a whole LSTM, for which there is no rule; without oneDNN torch computes
                # cells.
                stack.enter_context(without_onednn())
                plans = {id(network): common_plan(network, args, kwargs, seed) for network in (first, second)}

            def calls(*networks: Any) -> Calls:
                return Calls(networks, [plans[id(network)] for network in networks], args, kwargs, seed)

            if not differ:
                # The quick run has two worlds. Only its answer "equal" is used; otherwise the full run answers.
                with suppress(Exception):
                    quick = Oracles(seed, torch.float32 if dtypes <= {torch.float32} else torch.float64, 2)
                    # The quick run shakes only its first network: the one with more rounded numbers.
                    shaken, still = sorted((first, second), key=moving_numbers, reverse=True)
                    answer = decided(calls(shaken, still), quick)
                    if answer.equal:
                        return answer
            worlds = 4 if dtypes <= {torch.float32, torch.float64} else 6
            return decided(calls(first, second), Oracles(seed, worlds=worlds))
    except Unfollowed as refusal:
        return Sections(None, reason=str(refusal))
    except Exception as error:  # raised by the network's code, or by an operator on random numbers
        return Sections(None, reason=f"the call failed while its shadows ran: {str(error).strip().splitlines()[-1:]}")


def decided(pair: Calls, oracles: Oracles) -> Sections:
    """The decision from one table of oracles."""
    calls = pair.both(oracles)
    shadows = [shadow for call in calls for shadow in call.shadows]
    shapes = [[t.shape for t in call.tensors.values()] for call in calls]
    if not shadows or shapes[0] != shapes[1]:
        return Sections(None, reason="outputs of different kinds or shapes")
    if all(shadow.constant for shadow in shadows):
        return Sections(None, reason="the outputs do not depend on the inputs' numbers")
    pairs = zip(calls[0].shadows, calls[1].shadows, strict=True)
    worst = max(outputs_apart(p, q, oracles) for p, q in pairs)
    # Results that only one network uses matter only if the outputs agree. To find them takes as long as all look-ups.
    one_sided = oracles.one_sided() if worst <= LIMIT else torch.empty(0)
    if len(one_sided) and not oracles.quick:
        # Results that only one network evaluates do not matter if no bit of the outputs depends on them.
        loud = Oracles(pair.seed, oracles.dtype, oracles.worlds, one_sided)
        others = [shadow for call in pair.both(loud) for shadow in call.shadows]
        if unchanged(shadows, others, oracles):
            oracles.parting, one_sided = None, one_sided[:0]
    if calls[0].values != calls[1].values:
        return Sections(False, math.inf, reason="the outputs other than tensors differ")
    if oracles.parting or not worst <= LIMIT:
        units = oracles.parting.units if oracles.parting else worst
        place = None if oracles.quick else find_place(*calls, oracles.parting, units)
        return Sections(False, units, place=place, reason=parting_in_words(oracles, worst))
    if len(one_sided):
        return Sections(False, math.inf, reason=f"{len(one_sided)} arguments of functions occur in one network only")
    unit = max(call.watch.numbers.coarsest for call in calls) or UNITS[torch.float32]
    return Sections(True, max(oracles.worst, worst), unit, arguments=sum(oracles.arguments))


def parting_in_words(oracles: Oracles, worst: float) -> str:
    """The difference of two networks according to the table, in words."""
    if (parting := oracles.parting) is None:
        return f"after the last function the outputs are {worst:.3g} units of rounding apart"
    return f"{parting.new} of {parting.total} arguments of {parting.operator} are {parting.units:.3g} units apart"
