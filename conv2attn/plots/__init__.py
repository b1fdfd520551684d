"""Pictures of heads, of what they do, and of certificates, as .png, .svg and .pdf files; they need matplotlib."""

from conv2attn.plots.certificates import draw_certificate
from conv2attn.plots.facts import draw_curves, draw_facts
from conv2attn.plots.files import check_drawable, write
from conv2attn.plots.heads import HeadsAround, draw, heads_around, radius

__all__ = [
    "HeadsAround",
    "check_drawable",
    "draw",
    "draw_certificate",
    "draw_curves",
    "draw_facts",
    "heads_around",
    "radius",
    "write",
]
