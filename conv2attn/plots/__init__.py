"""Pictures of heads, of their measures, and of certificates, as .png, .svg and .pdf files; they need matplotlib."""

from conv2attn.plots.certificates import draw_certificate
from conv2attn.plots.fact_pictures import draw_curves, draw_facts
from conv2attn.plots.heads import HeadsAround, draw_heads, heads_around, radius, write

__all__ = [
    "HeadsAround",
    "draw_certificate",
    "draw_curves",
    "draw_facts",
    "draw_heads",
    "heads_around",
    "radius",
    "write",
]
