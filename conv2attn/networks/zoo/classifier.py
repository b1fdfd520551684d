"""The paper's image classifier: self-attention without any convolution (Cordonnier et al. 2020, Sec. 4.1)."""

from dataclasses import dataclass
from typing import Literal, assert_never, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.errors import UsageError
from conv2attn.layers.attention import Encoding, LearnedPlaces, MultiHeadSelfAttention, SinusoidalPlaces
from conv2attn.theory.score_terms import POSITION_ONLY, ScoreTerms


@final
@dataclass(frozen=True)
class ClassifierPlan:
    """The hyper-parameters of an attention classifier.

    Args:
        encoding: of relative positions: "quadratic" (a centre and a sharpness per head), "generalised" (a centre and a
            covariance), "learned" (a vector for each shift along an axis) or "sinusoidal" (such vectors, not learned).
        terms: terms of the scores, with `q = W_qry x + b_qry` and `k = W_key x + b_key` as wide as a token; the paper's
            "learned + content" is qk+qr.
        absolute: positions that are added to the tokens: "none", "learned" or "sinusoidal".
        side: pixels along the side of a square image, or of a line.
        axes: 2 for images, 1 for lines.
        patch: side of the squares, or of the parts of a line, that space-to-depth turns into tokens; 2 in the paper.
        channels, width, heads, layers, hidden, classes: sizes; the paper's by default. A tuple of heads is one number
            per layer.
        positions: width of a learned position vector along one axis; by default 400, or half the width of a token with
            the term q.r, since positions are then as wide as queries.
        dropout: dropout probability after attention and after the feed-forward layers.
        attention_dropout: dropout probability of attention weights. Table 2 does not say which of the two its 0.1 is;
            the authors' code has both.
    """

    encoding: Literal["quadratic", "generalised", "learned", "sinusoidal"] = "quadratic"
    terms: ScoreTerms = POSITION_ONLY
    absolute: Literal["none", "learned", "sinusoidal"] = "none"
    side: int = 32
    axes: int = 2
    patch: int = 2
    channels: int = 3
    width: int = 400
    heads: int | tuple[int, ...] = 9
    layers: int = 6
    hidden: int = 512
    positions: int | None = None
    classes: int = 10
    dropout: float = 0.1
    attention_dropout: float = 0.0

    @property
    def name(self) -> str:
        """The name of the architecture."""
        return "-".join(["attention", self.encoding, *(() if self.terms == POSITION_ONLY else self.terms.names)])

    @property
    def position_width(self) -> int:
        """`positions`, or its default."""
        return self.positions or (self.width // 2 if self.terms.qr else 400)

    @property
    def heads_of_layers(self) -> tuple[int, ...]:
        """The number of heads of each layer.

        Raises:
            UsageError: the numbers do not fit the layers (C2A007).
        """
        heads = (self.heads,) * self.layers if isinstance(self.heads, int) else self.heads
        if len(heads) != self.layers or min(heads, default=1) < 1:
            raise UsageError(
                "C2A007",
                f"heads={self.heads} is not a positive number for each of {self.layers} layers",
                "Pass one number for all layers, or a positive one for each.",
            )
        return heads

    @property
    def input_size(self) -> tuple[int, ...]:
        """(channels, side, side), or (channels, side) of a line."""
        return self.channels, *[self.side] * self.axes


class ClassifierBlock(nn.Module):
    """Attention, a linear layer, and two more with a GELU between; each part added to its input and normalised.

    Initial queries are smaller by the root of their width, by which the authors' code divides scores.
    """

    def __init__(self, plan: ClassifierPlan, heads: int):
        super().__init__()
        width = plan.width
        self.attention = MultiHeadSelfAttention(
            width,
            width,
            encoding_of(plan, heads),
            value=False,
            d_key=width if plan.terms.read_content else None,
            terms=plan.terms,
            affine=True,
            dropout=plan.attention_dropout,
        )
        if self.attention.query is not None:
            self.attention.query.data *= width**-0.5
        self.projection = nn.Linear(width, width)
        self.first_norm = nn.LayerNorm(width, eps=1e-12)
        self.expand = nn.Linear(width, plan.hidden)
        self.contract = nn.Linear(plan.hidden, width)
        self.second_norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(plan.dropout)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, width, *sides) to (batch, width, *sides)."""
        attended = self.attention(image).movedim(1, -1)
        tokens = self.first_norm(image.movedim(1, -1) + self.dropout(self.projection(attended)))
        return self.second_norm(tokens + self.dropout(self.contract(F.gelu(self.expand(tokens))))).movedim(-1, 1)


class AttentionClassifier(nn.Module):
    """Space-to-depth, a linear embedding, blocks of attention, the mean over tokens, and a linear classifier."""

    def __init__(self, plan: ClassifierPlan):
        super().__init__()
        self.plan = plan
        self.embed = nn.Linear(plan.channels * plan.patch**plan.axes, plan.width)
        self.places = places_of(plan)
        self.blocks = nn.Sequential(*(ClassifierBlock(plan, heads) for heads in plan.heads_of_layers))
        self.classify = nn.Linear(plan.width, plan.classes)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, channels, side, side), or (batch, channels, side) of lines, to (batch, classes)."""
        patch = self.plan.patch
        if self.plan.axes == 1:  # torch's space-to-depth is for squares only
            parts = image.unflatten(2, (-1, patch)).movedim(3, 2).flatten(1, 2)
        else:
            parts = F.pixel_unshuffle(image, patch)
        tokens = self.embed(parts.movedim(1, -1)).movedim(-1, 1)
        return self.classify(self.blocks(self.places(tokens)).flatten(2).mean(2))


def encoding_of(plan: ClassifierPlan, heads: int) -> Encoding:
    """The relative positions of one layer; frozen if no term reads them.

    Centres are drawn from a normal distribution of variance 2 (Sec. 4.2), with alpha = 1/2 (an inverse width of 1);
    Sigma^{-1/2} from one of deviation 0.1 around the identity (App. E).
    """
    reach, axes = plan.side // plan.patch - 1, plan.axes
    if not (plan.terms.qr or plan.terms.vr):
        return Encoding.of("quadratic", torch.zeros(heads, axes), 0.0)
    match plan.encoding:
        case "learned":
            return Encoding.of(plan.encoding, heads, (reach,) * axes, plan.position_width)
        case "sinusoidal":
            return Encoding.of(plan.encoding, heads, axes, plan.position_width)
        case "generalised":
            root = torch.eye(axes) + 0.1 * torch.randn(heads, axes, axes)
            return Encoding.of(plan.encoding, torch.randn(heads, axes) * 2**0.5, root)
        case "quadratic":
            return Encoding.of(plan.encoding, torch.randn(heads, axes) * 2**0.5, 0.5)
    assert_never(plan.encoding)


def places_of(plan: ClassifierPlan) -> nn.Module:
    """The absolute positions."""
    side = plan.side // plan.patch
    match plan.absolute:
        case "learned":
            return LearnedPlaces(plan.width, (side,) * plan.axes)
        case "sinusoidal":
            return SinusoidalPlaces(plan.width, plan.axes)
        case "none":
            return nn.Identity()
    assert_never(plan.absolute)
