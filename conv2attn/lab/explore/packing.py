"""The data of the page: arrays as base64 bytes, up to a total size, and the facts of heads."""

import base64
from functools import reduce

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conv2attn.span.graded_facts import sums_of
from conv2attn.span.graded_facts.fact_table import facts_explored
from conv2attn.span.graded_facts.measures import spanned
from conv2attn.span.graded_facts.measuring import facts_of
from conv2attn.span.graded_facts.sums import Sums, kernel
from conv2attn.span.reading import rows_of

PageObject = dict[str, object]
"""A JSON object of the page."""
CODES = {"f64": "<f8", "f32": "<f4", "u8": "u1"}
BUDGET = 3_000_000
"""Bytes of arrays on a page. In base64 they are 4 MB; the rest of a page stays below 1 MB."""


class Budget:
    """The bytes that are still free on the page."""

    def __init__(self, size: int = BUDGET):
        self.free = size

    def pack(self, array: Tensor, code: str) -> dict[str, str] | None:
        """`{code: base64}`, or None if the array no longer fits on the page.

        Args:
            array: any shape; stored row-major.
            code: a key of `CODES`.
        """
        exact = array.detach().cpu().double()
        values = (exact.round() if code == "u8" else exact).numpy().astype(CODES[code])
        if values.nbytes > self.free:
            return None
        self.free -= values.nbytes
        return {code: base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")}

    def pack_attention(self, attention: Tensor, bits: int = 8) -> PageObject | None:
        """Attention (heads, ...) with 8 or 4 bits per weight, or None if it no longer fits on the page.

        A weight of a head is `largest[head] (code / 255)^2`, or `(code / 15)^2`, two codes per byte, the first in the
        low bits. The error is within 0.4 %, or 7 %, of the head's largest weight, and smaller near 0.
        """
        levels, attention = 2**bits - 1, attention.cpu().double()
        largest = attention.flatten(1).amax(1).clamp_min(1e-30)
        # Codes of the root have more levels for small weights, which are most of them.
        codes = ((attention.flatten(1) / largest[:, None]).sqrt() * levels).round().flatten()
        if bits == 4:
            codes = torch.cat([codes, codes.new_zeros(len(codes) % 2)]).reshape(-1, 2) @ codes.new_tensor([1.0, 16.0])
        packed = self.pack(codes, "u8")
        return None if packed is None else {"attention": packed, "bits": bits, "largest": largest.tolist()}


FACTS_SIDE = 14
"""Most rows and columns of the grid on which facts of position-only layers are measured: time grows as their square."""


def facts_of_heads(name: str, layer: object, sides: tuple[int, ...], extra: int = 0) -> PageObject:
    """The graded facts of each head, and R^2 of the span for each shift of a 3x3 kernel, on a grid of these sides.

    Args:
        layer: a layer that reads no content, or its attention (images, heads, queries, keys).
        extra: number of leading tokens that are not pixels.
    """
    rows = rows_of(name, layer, sides, extra_tokens=extra)
    facts, explored, span = facts_of(rows, None, None), facts_explored(), None
    assert facts.mass is not None
    if len(sides) == 2 and min(rows.grid.keys) >= 3:
        span = spanned(reduce(Sums.__add__, sums_of(rows)), [kernel(3, 1, 2)])(None).tolist()
    return {
        "grid": [*sides],
        "columns": [{"name": fact.name, "title": fact.words, "unit": fact.unit} for fact in explored],
        "heads": [{fact.name: msgspec.to_builtins(fact.of_head(head)) for fact in explored} for head in facts.heads],
        "thumbnails": [thumbnail(each) for each in facts.mass],
        "span": span,
    }


REACH = 6
"""Displacements to each side of 0 that a thumbnail shows."""


def thumbnail(mass: NDArray[np.float64]) -> PageObject:
    """The mean attention of a head by displacement around 0, scaled to integers from 0 to 99, row-major."""
    middle = [side // 2 for side in mass.shape]
    part = mass[tuple(slice(max(0, at - REACH), at + REACH + 1) for at in middle)]
    # The root makes weak displacements visible beside the strongest.
    scaled = np.sqrt(part / max(float(part.max()), 1e-30)) * 99
    return {"sides": [*part.shape], "values": [int(x) for x in np.rint(scaled).ravel()]}
