"""The paper's figures, drawn from training runs."""

from conv2attn.lab.figures.drawing import accuracy_figure, centers_figure, draw_figures
from conv2attn.lab.figures.ellipses import attention_of_query, ellipse, mean_places, reading_order
from conv2attn.lab.figures.factors import factors_figure, factors_of_layer, nearest_convolution

__all__ = [
    "accuracy_figure",
    "attention_of_query",
    "centers_figure",
    "draw_figures",
    "ellipse",
    "factors_figure",
    "factors_of_layer",
    "mean_places",
    "nearest_convolution",
    "reading_order",
]
