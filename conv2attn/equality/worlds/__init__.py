"""Decides whether two networks are one map up to rounding, section by section, and where they differ.

The steps of a comparison, with their files:

    compare_sections (one_map)     the question: two networks and a call
    common_plan (plans)            two plain calls of each on other numbers: equal operators and constants?
    Calls.both (followed_calls)    a quick run in two worlds; unless it says "equal", a full run in four or six
      Watch (watch)                runs a network on the caller's inputs and records the same plan; each operator also
                                   runs in all copies of a shadow (shadows, all_copies)
        constants, stored_numbers  numbers independent of inputs: the true number and shaken ones (shaking)
        general_rules              the operator's rule: direct, by its decomposition (functions), or an oracle
      Oracles.ask (oracles)        nonlinear functions: random results that both networks share
        questions                  whole tensors, in this order or another: the only lookup of a quick run
        number_table               in a full run number by number, so that equal numbers get equal results
    outputs_apart (output_shadows) the last section, in units of rounding (units)
    find_place (places)            where two runs differ, by records of their tensors (records)

A quick run and a full run differ only in `Oracles.quick`. They cannot be one run: a quick run gives results to a whole
tensor of the first network without comparing its numbers, so equal numbers in it get different results. If the second
network evaluates some of these numbers separately (a tensor cut in two, two tensors in one, each number once instead of
twice), no consistent result exists any more, and the first network must run again, number by number. Doing so at once
would sort each tensor of the first network: 25 million numbers of a ViT-B/16, which takes as long as four of its
forwards.
"""

from conv2attn.equality.worlds.one_map import Sections, compare_sections
from conv2attn.equality.worlds.places import PartingPlace
from conv2attn.equality.worlds.units import LIMIT

__all__ = ["LIMIT", "PartingPlace", "Sections", "compare_sections"]
