"""Arrays for the page: little-endian bytes in base64, up to a total size."""

import base64

import numpy as np
import torch
from torch import Tensor

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
        """`{code: base64}`, or None if the array does not fit on the page any more.

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
        """Attention (heads, ...) as 8 or 4 bits a weight, or None if it does not fit on the page any more.

        A weight of a head is `largest[head] (code / 255)^2`, or `(code / 15)^2`, two codes a byte, the first one low.
        So it is right within 0.4 %, or 7 %, of the head's largest, and closer near 0.
        """
        levels, attention = 2**bits - 1, attention.cpu().double()
        largest = attention.flatten(1).amax(1).clamp_min(1e-30)
        codes = ((attention.flatten(1) / largest[:, None]).sqrt() * levels).round().flatten()
        if bits == 4:
            codes = torch.cat([codes, codes.new_zeros(len(codes) % 2)]).reshape(-1, 2) @ codes.new_tensor([1.0, 16.0])
        packed = self.pack(codes, "u8")
        return None if packed is None else {"attention": packed, "bits": bits, "largest": largest.tolist()}
