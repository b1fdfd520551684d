"""Pictures of heads, of their measures, and of certificates, as .png, .svg and .pdf files; they need matplotlib."""

from conv2attn.plots.certificates import draw_certificate
from conv2attn.plots.fact_pictures import draw_curves, draw_facts, write

__all__ = [
    "draw_certificate",
    "draw_curves",
    "draw_facts",
    "write",
]
