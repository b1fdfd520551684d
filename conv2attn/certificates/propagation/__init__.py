"""A bound on the difference of two networks' outputs, carried through their layers; on deep networks it is vacuous.

Every number that a network computes is described by how large it can be (`size`) and by how much the second network's
can differ from the first's (`error`), both for all finite inputs in the range. Between the compared layers both
networks call the same functions, so there an error only passes through, by a rule for each function, and each side
rounds.
"""

from conv2attn.certificates.propagation.carried import SLACK, Carried, LayerRule, affine
from conv2attn.certificates.propagation.run import propagate

__all__ = ["SLACK", "Carried", "LayerRule", "affine", "propagate"]
