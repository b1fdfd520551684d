"""Hard heads whose target can be off the padded grid, as heads on a larger one: a softmax reads the nearest key."""

from dataclasses import replace

from conv2attn.basis import Basis, EnumeratedSoftmax, Padding, Sites, offsets
from conv2attn.equivalence.heads import heads_out_of_bounds


def on_a_larger_grid(basis: Basis) -> Basis | None:
    """The same map of hard heads with every target on the padded grid; None where no padding mode goes on like that.

    The nearest key copies the border of the image without padding and on replicate padding: more replicate padding. It
    is zero where zeros stand there already: more zeros. Source: E8 of docs/errata.md.
    """
    if not heads_out_of_bounds(basis):
        return basis
    if isinstance(basis.operators, EnumeratedSoftmax) and len(basis.form.stride) > 1:
        return None
    targets = list(zip(*offsets(basis.operators), strict=True))
    padding, sites = basis.padding, basis.sites
    before = tuple(max(0, -min(each) - first) for each, first in zip(targets, sites.before, strict=True))
    after = tuple(max(0, max(each) - last) for each, last in zip(targets, sites.after, strict=True))
    amounts = [
        here
        for more, there in ((before, padding.before), (after, padding.after))
        for extra, here in zip(more, there, strict=True)
        if extra
    ]
    if padding.is_identity or (padding.mode == "replicate" and min(amounts) >= 0):
        mode = "replicate"
    elif padding.mode == "zeros" and min(amounts) > 0:
        mode = "zeros"
    else:
        return None
    wider = Padding(added(padding.before, before), added(padding.after, after), mode, padding.spacing)
    return replace(
        basis, padding=wider, sites=Sites(sites.stride, added(sites.before, before), added(sites.after, after))
    )


def added(amounts: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    """Both, axis by axis."""
    return tuple(a + b for a, b in zip(amounts, more, strict=True))
