"""The padding of a transposed convolution's attention for a wanted size of its output."""

from collections.abc import Sequence

from conv2attn.basis import Padding, Sides, Sites
from conv2attn.errors import GeometryError


def padding_for(padding: Padding, sites: Sites, sides: Sides, output_size: Sequence[int], name: str) -> Padding:
    """The padding with which a transposed convolution's attention gives `output_size`; one stride leaves the choice."""
    if len(output_size) not in (len(sides), len(sides) + 2):
        raise GeometryError(
            "C2A121",
            f"{name}: output_size {tuple(output_size)} does not have {len(sides)} sides",
            "Pass one number for each side.",
        )
    offered = [b - a for b, a in zip(padding.before, padding.after, strict=True)]
    smallest = sites.count(padding.extended(offered).sides(sides))
    extra = [want - least for want, least in zip(output_size[-len(sides) :], smallest, strict=True)]
    if not all(0 <= e < s for e, s in zip(extra, padding.spacing, strict=True)):
        largest = tuple(n + s - 1 for n, s in zip(smallest, padding.spacing, strict=True))
        raise GeometryError(
            "C2A121",
            f"{name}: output_size {tuple(output_size)} is not between {smallest} and {largest}",
            "Pass an output_size within these sizes.",
        )
    return padding.extended([o + e for o, e in zip(offered, extra, strict=True)])
