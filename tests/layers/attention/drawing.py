"""Strategies of attention layers and their images, in float64: families, terms, geometries of up to three axes."""

from itertools import combinations

import torch
from hypothesis import strategies as st

from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.theory.basis import MODES, Padding, Sites

NAMES = ("qk", "qr", "uk", "vr")
SUMS = ["+".join(names) for count in range(1, 5) for names in combinations(NAMES, count) if names != ("vr",)]
"""All sums of terms that read content."""
FAMILIES = ("quadratic", "generalised", "learned", "sinusoidal", "enumerated")


def encoding_for(family, heads, sides, generator, alpha=0.3):
    """Heads of a family on keys with these sides, drawn in float64."""
    axes = len(sides)

    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    match family:
        case "quadratic":
            return Encoding.of(family, drawn(heads, axes), alpha)
        case "enumerated":
            return Encoding.of(family, drawn(heads, axes).round(), alpha / 10)
        case "generalised":
            return Encoding.of(family, drawn(heads, axes), alpha * (torch.eye(axes) + 0.3 * drawn(heads, axes, axes)))
        case "learned":
            return Encoding.of(family, heads, tuple(side + 2 for side in sides), 2).double()
        case "sinusoidal":
            return Encoding.of(family, heads, axes, 2).double()
    raise AssertionError(f"say here how heads of the family {family} are drawn")


@st.composite
def geometries(draw, longest=4):
    """Sides of an image, its padding in every mode, and the queries on the padded grid."""
    sides = tuple(draw(st.lists(st.integers(1, longest), min_size=1, max_size=3)))
    mode = draw(st.sampled_from([name for name in MODES if name != "reflect" or min(sides) > 1]))
    before, after = (tuple(draw(st.integers(0, 1)) for _ in sides) for _ in range(2))
    padding = Padding(before, after, mode)
    keys = padding.sides(sides)
    first = tuple(draw(st.integers(0, side - 1)) for side in keys)
    return sides, padding, Sites(tuple(draw(st.integers(1, 2)) for _ in sides), first, (0,) * len(sides))


@st.composite
def layers(draw, families=FAMILIES, terms=("vr", *SUMS), longest=4, sharpness=(0.01, 2.0)):
    """A layer of up to two heads, and an image of a batch of up to two."""
    sides, padding, sites = draw(geometries(longest))
    heads, wider, groups = draw(st.integers(1, 2)), draw(st.integers(0, 2)), draw(st.integers(1, 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    torch.manual_seed(generator.initial_seed())
    alpha = draw(st.floats(*sharpness))
    identity = draw(st.sampled_from([None, None, "value", "output"])) if groups == 2 else None
    encoding = encoding_for(draw(st.sampled_from(families)), heads, padding.sides(sides), generator, alpha)
    layer = MultiHeadSelfAttention(
        2 * groups,
        4,
        encoding,
        d_key=encoding.d_position + wider,
        terms=draw(st.sampled_from(terms)),
        affine=draw(st.booleans()),
        value=identity != "value",
        output=identity != "output",
        groups=groups,
        padding=padding,
        sites=sites,
        dtype=torch.float64,
    )
    image = torch.randn(draw(st.integers(1, 2)), 2 * groups, *sides, dtype=torch.float64, generator=generator)
    return layer, image
