"""The paper's figures, drawn from training runs."""

from conv2attn.lab.figures.drawing import draw_figures

__all__ = ["draw_figures"]
