"""Positional encodings: the trainable numbers behind families of softmax operators, and absolute positions."""

from conv2attn.attention.encodings.absolute import LearnedPlaces, SinusoidalPlaces
from conv2attn.attention.encodings.centered import (
    CenteredPositions,
    EnumeratedEncoding,
    GeneralisedEncoding,
    HeadPositions,
    QuadraticEncoding,
)
from conv2attn.attention.encodings.learned import LearnedEncoding
from conv2attn.attention.encodings.sinusoidal import SinusoidalEncoding

Encoding = QuadraticEncoding | GeneralisedEncoding | EnumeratedEncoding | LearnedEncoding | SinusoidalEncoding
HARD_ENCODINGS: dict[str, type[QuadraticEncoding] | type[EnumeratedEncoding]] = {
    "quadratic": QuadraticEncoding,
    "enumerated": EnumeratedEncoding,
}
ENCODINGS = {
    **HARD_ENCODINGS,
    "generalised": GeneralisedEncoding,
    "learned": LearnedEncoding,
    "sinusoidal": SinusoidalEncoding,
}

__all__ = [
    "ENCODINGS",
    "HARD_ENCODINGS",
    "CenteredPositions",
    "Encoding",
    "EnumeratedEncoding",
    "GeneralisedEncoding",
    "HeadPositions",
    "LearnedEncoding",
    "LearnedPlaces",
    "QuadraticEncoding",
    "SinusoidalEncoding",
    "SinusoidalPlaces",
]
