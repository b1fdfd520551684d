"""The widths of a layer, and whether they fit together."""

from dataclasses import dataclass
from typing import final

from conv2attn.errors import HeadSizeError


@final
@dataclass(frozen=True)
class Widths:
    """Channels of a layer, of its heads and of its keys; `groups` divides the first three."""

    d_in: int
    d_out: int
    d_head: int
    d_key: int
    groups: int

    def check(self, d_position: int, value: bool, output: bool) -> None:
        """Raises HeadSizeError (C2A105) where the widths do not fit together, or the identities do not fit them."""
        for what, width in (("d_in", self.d_in), ("d_out", self.d_out), ("d_head", self.d_head)):
            if width < 1 or width % self.groups:
                raise HeadSizeError("C2A105", f"{what}={width} is not a positive multiple of groups={self.groups}")
        if self.d_key < d_position:
            raise HeadSizeError("C2A105", f"d_key={self.d_key} is less than d_position={d_position}", "Raise d_key.")
        if not value and self.d_head != self.d_in:
            raise HeadSizeError("C2A105", f"value is the identity, so d_head={self.d_head} must be d_in={self.d_in}")
        if not output and self.d_head != self.d_out:
            raise HeadSizeError("C2A105", f"output is the identity, so d_head={self.d_head} must be d_out={self.d_out}")
        if not value and not output:
            raise HeadSizeError("C2A105", "value and output are both the identity: nothing would tell the heads apart")
