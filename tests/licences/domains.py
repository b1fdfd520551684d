"""Cases from the domain that a licence names: drawn by exponent and by bit length, and its edges always."""

import math
from functools import cache, singledispatch
from itertools import combinations, islice, product
from typing import NamedTuple

import torch
from hypothesis import strategies as st

from proofs import CLAIMS
from proofs.deciding import load
from proofs.domain import Array, Each, Integers, Many

CLAIMED = [load(name, CLAIMS) for name in CLAIMS]
DOMAINS = {(claim.name, name): domain for claim in CLAIMED for name, domain in claim.licenses.items()}


class Entries(NamedTuple):
    """Whole numbers of at most `size`, one of which is so large; the rest follow from the seed."""

    size: int
    seed: int

    def fill(self, *shape, which=0):
        """These numbers in this shape, in float64; others for another tensor of the same case."""
        numbers = torch.Generator().manual_seed(self.seed + which)
        filled = torch.randint(-self.size, self.size + 1, shape, generator=numbers).double()
        filled.view(-1)[self.seed % filled.numel()] = self.size
        return filled


@singledispatch
def values(part, counts):
    """A strategy of one part, `counts` the length of its tuples: its edges as often as all that lies between them."""
    return st.one_of(inner(part), inner(part), st.sampled_from(part.edges))


@values.register
def _(part: Each, counts):
    return st.sampled_from(part.values)


@values.register
def _(part: Many, counts):
    return st.tuples(*[values(part.item, counts)] * counts[part.of])


@values.register
def _(part: Array, counts):
    return st.builds(Entries, values(part.size, counts), st.integers(0, 2**31))


def inner(part):
    if isinstance(part, Integers):
        longest = max(abs(part.low), abs(part.high)).bit_length()
        drawn = st.integers(0, longest).flatmap(lambda b: st.integers(1 << b >> 1, max(0, (1 << b) - 1)))
        sign = st.sampled_from([1, -1]) if part.low < 0 else st.just(1)
        sized = st.builds(lambda n, sign: min(max(n * sign, part.low), part.high), drawn, sign)
        return sized if part.over == 1 else sized.map(lambda n: n / part.over)
    low, high = math.frexp(part.low)[1], math.frexp(part.high)[1]
    drawn = st.builds(math.ldexp, st.floats(0.5, 1, exclude_max=True), st.integers(low, high))
    sized = drawn.map(lambda x: min(max(x, part.low), part.high))
    return st.builds(math.copysign, sized, st.sampled_from([1.0, -1.0])) if part.signed else sized


def lengths(parts):
    """From the kinds of tuples among these parts to the least and the greatest length of each."""
    many = [part for part in parts if isinstance(part, Many)]
    inside = lengths([part.item for part in many]) if many else {}
    return inside | {part.of: (part.least, part.most) for part in many}


@st.composite
def drawn(draw, parts):
    counts = tuple((of, draw(st.integers(*ends))) for of, ends in lengths(parts).items())
    return tuple(draw(built(part, counts)) for part in parts)


@cache
def built(part, counts):
    """`values`, built once: building and validating a strategy takes longer than a draw from it."""
    return values(part, dict(counts))


def cases(domain):
    """A strategy of all parts of a domain."""
    return drawn(list(domain.all.values())).filter(lambda case: domain.where[1](*case))


@singledispatch
def middle(part, counts):
    """A value well inside a part."""
    return math.sqrt(part.low * part.high)


@middle.register
def _(part: Integers, counts):
    n = math.isqrt(part.low * part.high) if part.low > 0 else max(part.low, part.high // 3)
    return n if part.over == 1 else n / part.over


middle.register(Each, lambda part, counts: part.values[0])
middle.register(Many, lambda part, counts: (middle(part.item, counts),) * counts[part.of])
middle.register(Array, lambda part, counts: Entries(middle(part.size, counts), 1))


@singledispatch
def ends(part, counts):
    """The edges of a part: those of what it is made of."""
    return part.edges


ends.register(Many, lambda part, counts: [(end,) * counts[part.of] for end in ends(part.item, counts)])
ends.register(Array, lambda part, counts: [Entries(size, 0) for size in part.size.edges])


def edges(domain):
    """Each edge of each part beside the middle of the others, or of all others but two, and corners of edges."""
    parts, found, inside = list(domain.all.values()), [], domain.where[1]
    counted = lengths(parts)
    for which in (0, 1) if any(least < most for least, most in counted.values()) else (0,):
        counts = {of: both[which] for of, both in counted.items()}
        at, central = [ends(part, counts) for part in parts], [middle(part, counts) for part in parts]
        for n, of_part in enumerate(at):
            for edge in of_part:
                cases = beside([*central[:n], edge, *central[n + 1 :]], at, n)
                found += islice((case for case in cases if inside(*case)), 1)
        found += product(*[(end[0], end[min(1, len(end) - 1)]) for end in at[:6]], *[(x,) for x in central[6:]])
    return [case for case in dict.fromkeys(found) if inside(*case)]


def beside(case, at, n):
    """The case itself, then others with part n alike and two other parts at their edges."""
    yield tuple(case)
    for first, second in combinations([each for each in range(len(at)) if each != n], 2):
        for one, other in product(at[first], at[second]):
            yield tuple({first: one, second: other}.get(place, value) for place, value in enumerate(case))
