"""The layers and engines that the laws of attention are crossed with."""

from torch import nn

from conv2attn.layers.attention import ENGINES, Encoding, MultiHeadSelfAttention, set_engine
from conv2attn.layers.theorem import attention_for, read_convolution

SOFT_ENGINES = tuple(name for name, engine in ENGINES.items() if engine.decide and name not in ("conv", "gather"))
"""All but those that need one-hot heads, and the rules that choose an engine."""
CONVOLUTIONS = {
    "plain": lambda: nn.Conv2d(3, 8, 3, padding=1),
    "strided": lambda: nn.Conv2d(3, 8, 3, padding=1, stride=2),
    "reflected": lambda: nn.Conv2d(4, 6, (3, 5), padding=(1, 2), padding_mode="reflect", groups=2),
    "dilated without padding": lambda: nn.Conv2d(3, 4, (2, 3), dilation=2),
    "transposed": lambda: nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1),
}
HARD = [
    *(("plain", "auto"), ("strided", "gather"), ("strided", "dense"), ("reflected", "conv"), ("reflected", "sdpa")),
    *(("dilated without padding", "separable"), ("transposed", "conv"), ("transposed", "separable")),
]
"""Each engine, each convolution, and the engine that `auto` chooses once."""


def hard_layer(name: str, engine: str) -> MultiHeadSelfAttention:
    """The conversion of a convolution, evaluated by `engine`."""
    return set_engine(attention_for(read_convolution(CONVOLUTIONS[name]())), engine).requires_grad_(False)


def soft_layer(engine: str, alpha: float = 1.0) -> MultiHeadSelfAttention:
    """Nine trained quadratic heads with centres between pixels."""
    centers = [[row + 0.3, column - 0.2] for row in (-1, 0, 1) for column in (-1, 0, 1)]
    return set_engine(MultiHeadSelfAttention(5, 4, Encoding.of("quadratic", centers, alpha)), engine)
