"""Are two networks one map but for rounding, section by section; and where do they part?

The flow of a comparison, with the files that it goes through:

    compare_sections (one_map)     the question: two networks and a call
    common_plan (plans)            two plain calls of each on other numbers: the same operators and constants?
    Calls.both (followed_calls)    a quick run of two worlds; unless it says "equal" a full run of four or six
      Watch (watch)                runs a network on the caller's inputs and writes down the same plan; each operator is
                                   done beside it in all copies of a shadow (shadows, all_copies)
        constants, stored_numbers  what no input changes: the true number and shaken ones (shaking)
        general_rules              the operator's rule: computed, or code that it is made of (functions), or an oracle
      Oracles.ask (oracles)        what is not linear: results that both networks share
        questions                  the tensor whole, in its order or in another: all that a quick run knows
        number_table               of a full run number by number, so that equal numbers get equal results
    outputs_apart (output_shadows) the last section, in units of rounding (units)
    find_place (places)            where two runs part, by records of their tensors (records)

A quick run and a full run differ in `Oracles.quick` alone. They cannot be one run: a whole tensor of the first network
gets results without a look at its numbers, so equal numbers in it get different ones. Where the second network asks
some of these numbers apart (a tensor cut in two, two tensors in one, each number once where there it is twice), there
is no right answer any more, and the first network must be asked again, number by number. To do so at once would sort
each tensor of the first network: 25 million numbers of a ViT-B/16, which takes as long as four of its forwards.
"""

from conv2attn.equality.worlds.one_map import Sections, compare_sections
from conv2attn.equality.worlds.places import PartingPlace
from conv2attn.equality.worlds.units import LIMIT

__all__ = ["LIMIT", "PartingPlace", "Sections", "compare_sections"]
