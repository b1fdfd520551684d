"""Cases from the domain that a licence names: drawn by exponent and by bit length, and its edges always."""

import math
from itertools import product

from hypothesis import strategies as st

from proofs import CLAIMS
from proofs.deciding import load
from proofs.domain import Each, Floats, Integers, Many

CLAIM = {name: load(name, CLAIMS) for name in CLAIMS}
INSIDE = {Floats: lambda part: math.sqrt(part.low * part.high), Integers: lambda part: math.isqrt(part.low * part.high)}


def domain_of(claim, name):
    """The domain of a licence, as data."""
    return CLAIM[claim].licenses[f"conv2attn.{name}"]


def values(part):
    """A strategy of one part: its edges as often as all that lies between them."""
    if isinstance(part, Each):
        return st.sampled_from(part.values)
    if isinstance(part, Many):
        return st.integers(part.least, part.most).flatmap(lambda n: st.tuples(*[values(part.item)] * n))
    return st.one_of(inner(part), inner(part), st.sampled_from(part.edges))


def inner(part):
    if isinstance(part, Integers):
        bits = st.integers(part.low.bit_length(), part.high.bit_length())
        drawn = bits.flatmap(lambda b: st.integers(1 << b >> 1, max(0, (1 << b) - 1)))
        return drawn.map(lambda n: min(max(n, part.low), part.high))
    low, high = math.frexp(part.low)[1], math.frexp(part.high)[1]
    drawn = st.builds(math.ldexp, st.floats(0.5, 1, exclude_max=True), st.integers(low, high))
    sized = drawn.map(lambda x: min(max(x, part.low), part.high))
    return st.builds(math.copysign, sized, st.sampled_from([1.0, -1.0])) if part.signed else sized


def equally_long(case):
    """The tuples of a case cut to the length of the shortest."""
    shortest = min((len(value) for value in case if isinstance(value, tuple)), default=0)
    return tuple(value[:shortest] if isinstance(value, tuple) else value for value in case)


def cases(domain):
    """A strategy of the arguments of a function within its domain."""
    drawn = st.tuples(*map(values, domain.parts.values())).map(equally_long)
    return drawn.filter(lambda case: domain.where[1](*case))


def middle(part):
    if isinstance(part, Many):
        return (INSIDE[type(part.item)](part.item),) * part.least
    return part.values[0] if isinstance(part, Each) else INSIDE[type(part)](part)


def edges(domain):
    """All edges of each part beside the middle of the others, and all corners of the first and last edges."""
    parts = list(domain.parts.values())
    inside = [middle(part) for part in parts]
    found = [(*inside[:at], edge, *inside[at + 1 :]) for at, part in enumerate(parts) for edge in part.edges]
    found += product(*[(part.edges[0], part.edges[min(1, len(part.edges) - 1)]) for part in parts[:6]])
    full = [case if len(case) == len(parts) else (*case, *inside[len(case) :]) for case in found]
    return [case for case in dict.fromkeys(map(equally_long, full)) if domain.where[1](*case)]
