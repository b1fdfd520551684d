"""Networks whose attention a page shows, on grids with sides that differ."""

import torch
from torch import Tensor, nn

from conv2attn import MultiHeadSelfAttention, convert
from conv2attn.layers.attention import Encoding

IMAGE = (2, 7, 9)


def image() -> Tensor:
    """One image of the size that `converted` and `trained` take."""
    return torch.randn(1, *IMAGE, generator=torch.Generator().manual_seed(0))


def originals() -> nn.Sequential:
    """Three convolutions: padded, strided with an even kernel, and in groups with a dilation."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.Conv2d(4, 6, (2, 3), stride=(2, 1), bias=False),
        nn.Conv2d(6, 4, (3, 1), padding=(2, 0), dilation=(2, 1), groups=2, padding_mode="circular"),
    )


def converted() -> nn.Sequential:
    """The attention that `originals` convert to."""
    return convert(originals())


def trained() -> nn.Sequential:
    """Attention of every kind that does not tend to a convolution."""
    torch.manual_seed(2)
    encodings = [
        Encoding.of("quadratic", torch.randn(3, 2), torch.rand(3) + 0.2),
        Encoding.of("generalised", torch.randn(3, 2), torch.randn(3, 2, 2)),
        Encoding.of("learned", 3, (6, 8), 4),
        Encoding.of("enumerated", [[0, 1], [1, 0]], 0.01),
    ]
    layers = [MultiHeadSelfAttention(2, 2, each) for each in encodings]
    layers.append(MultiHeadSelfAttention(2, 2, Encoding.of("learned", 2, (6, 8), 4), terms="qk+vr", d_key=8))
    return nn.Sequential(*layers)


class Transformer(nn.Module):
    """One attention of torch over the pixels of an image, behind `extra` tokens that are no pixels."""

    def __init__(self, extra: int):
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Conv2d(2, 8, 1)
        self.extra = nn.Parameter(torch.randn(1, extra, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.windows = 1

    def tokens(self, given: Tensor) -> Tensor:
        """(batch, tokens, 8)."""
        return torch.cat([self.extra, 3 * self.embed(given).flatten(2).mT], 1)

    def forward(self, given: Tensor) -> Tensor:
        """The tokens after the attention; in several windows each has the extra tokens."""
        tokens = self.tokens(given)
        if self.windows > 1:
            extra, pixels = tokens[0].tensor_split([self.extra.shape[1]])
            tokens = torch.cat([extra.expand(self.windows, -1, -1), pixels.unflatten(0, (self.windows, -1))], 1)
        return self.attention(tokens, tokens, tokens)[0]

    def attention_of(self, given: Tensor) -> Tensor:
        """(1, heads, tokens, tokens), by torch."""
        tokens = self.tokens(given)
        return self.attention(tokens, tokens, tokens, average_attn_weights=False)[1]
