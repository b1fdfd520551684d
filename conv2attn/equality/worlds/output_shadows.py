"""Compares the outputs of two followed calls."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.shadows import COPIES, Shadow
from conv2attn.equality.worlds.units import deviations, mean_squares


def unchanged(ours: Sequence[Shadow], theirs: Sequence[Shadow], oracles: Oracles) -> bool:
    """Whether no bit of the outputs changed in any world."""
    worlds = range(0, oracles.worlds * COPIES, COPIES)
    pairs = [(p.of(i).nan_to_num(), q.of(i).nan_to_num()) for p, q in zip(ours, theirs, strict=True) for i in worlds]
    return all(torch.equal(*pair) for pair in pairs)


def is_blind(plain: Tensor, shadow: Shadow) -> bool:
    """Whether a finite number of the network is infinite or NaN in every world."""
    visible = torch.stack([t.isfinite().expand(plain.shape) for t in shadow.copies[::COPIES]]).any(0)
    return bool((plain.isfinite() & ~visible).any())


def outputs_apart(p: Shadow, q: Shadow, oracles: Oracles) -> float:
    """The difference of two outputs, in units; equal infinities and NaNs count as equal."""
    count = max(oracles.worlds * COPIES, len(p.copies), len(q.copies))
    sides, squares = [], []
    for shadow in (p, q):
        copies = [shadow.of(i) for i in range(count)]
        copies = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in copies]
        sides.append(torch.stack([t.reshape(-1) for t in copies[::COPIES]]))
        # A non-finite number of a shaken copy is replaced by the true copy's: it shows nothing about rounding.
        true = [t.nan_to_num(0.0, 0.0, 0.0) for t in copies[::COPIES] for _ in range(COPIES)]
        finite = [
            torch.where(t.isfinite(), t, u.to(t.dtype)) if n % COPIES else u
            for n, (t, u) in enumerate(zip(copies, true, strict=True))
        ]
        squares.append(mean_squares(finite, oracles.dtype))
    same = (sides[0] == sides[1]) | (sides[0].isnan() & sides[1].isnan())
    one, two = (side.masked_fill(same, 0.0) for side in sides)
    units = deviations(one, squares[0], two, squares[1]).nan_to_num(math.inf)
    return float(units.max()) if len(units) else 0.0
