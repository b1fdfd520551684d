"""Arrays as the page reads them: little-endian bytes in base64, up to a total size."""

import base64
from typing import Any

import numpy as np
from torch import Tensor

CODES = {"f64": "<f8", "f32": "<f4", "u8": "u1"}
BUDGET = 3_000_000
"""Bytes of arrays on a page. In base64 they are 4 MB; the rest of a page stays below 1 MB."""


class Budget:
    """The bytes that are still free on the page."""

    def __init__(self, size: int = BUDGET):
        self.left = size

    def pack(self, array: Tensor, code: str) -> dict[str, str] | None:
        """`{code: base64}`, or None if the array does not fit on the page any more.

        Args:
            array: any shape; stored row-major.
            code: a key of `CODES`.
        """
        exact = array.detach().cpu().double()
        values = (exact.round() if code == "u8" else exact).numpy().astype(CODES[code])
        if values.nbytes > self.left:
            return None
        self.left -= values.nbytes
        return {code: base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")}

    def pack_attention(self, attention: Tensor) -> dict[str, Any] | None:
        """Attention as one byte a weight, `largest (code / 255)^2`, or None if it does not fit on the page any more.

        Each weight is right within 0.4 % of the largest, and closer near 0.
        """
        largest = max(attention.max().item(), 1e-30)
        packed = self.pack((attention / largest).sqrt() * 255, "u8")
        return packed and {"attention": packed, "largest": largest}


def unpack(packed: dict[str, str]) -> Any:
    """The numbers in `{code: base64}` as a flat array."""
    ((code, text),) = packed.items()
    return np.frombuffer(base64.b64decode(text), CODES[code])
