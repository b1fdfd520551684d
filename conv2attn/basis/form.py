"""Which pixels a layer copies, on inputs of every size: affine forms in the sides and in the place of the output."""

from dataclasses import dataclass
from typing import final

from conv2attn.basis.grid import Offset, Sites
from conv2attn.basis.padding import Padding


@final
@dataclass(frozen=True)
class Form:
    """Output o of a term copies pixel `start + o * stride` of the image, in units of 1 / spacing, at every size.

    There are `floor((spacing * (side - 1) + room) / stride) + 1` outputs along an axis. Equal forms, and equal sums of
    weights at equal starts, are equal maps at every size, except for what the padding puts beyond the pixels.
    """

    stride: Offset
    room: Offset
    spacing: Offset

    @staticmethod
    def of(padding: Padding, sites: Sites) -> "Form":
        """The form of queries at `sites` of an image under `padding`."""
        gained = [b + a for b, a in zip(padding.before, padding.after, strict=True)]
        spent = [b + a for b, a in zip(sites.before, sites.after, strict=True)]
        return Form(sites.stride, tuple(g - s for g, s in zip(gained, spent, strict=True)), padding.spacing)

    def reaches_out(self, start: Offset) -> bool:
        """Whether a term that starts here copies, at some size and for some output, what is beyond the pixels."""
        return any(s < 0 or s + room > 0 for s, room in zip(start, self.room, strict=True))
