"""Attention layers: arguments, images and engines that do not fit."""

import math

import torch
from layers.attention.edges.equations import layer_with
from torch import fx, nn

from conv2attn import convert, save, set_engine, to_mha
from conv2attn.errors import (
    AlphaError,
    CheckpointError,
    EngineError,
    GeometryError,
    HeadSizeError,
    UnsupportedError,
    UsageError,
)
from conv2attn.layers.attention import ENGINES, Encoding, LearnedPlaces, MultiHeadSelfAttention, SinusoidalPlaces
from conv2attn.theory.basis import as_affine_map, as_basis

LAYER, SOFT = convert(nn.Conv2d(2, 3, 3)), layer_with()
ONE, ONES = nn.Conv2d(1, 1, 3), torch.ones(1, 2, 4, 5)
ALPHAS = (0, -1, math.nan, math.inf, 1e39, 1e-46, 10**400, "46", None, -math.inf)
UPSCALED, PLACES = convert(nn.ConvTranspose2d(2, 3, 3, stride=2)), LearnedPlaces(4, (3, 5))
TRACED = convert(nn.Conv2d(3, 4, 3))


def with_engine(engine, channels=1, **options):
    """A converted layer with an engine."""
    return set_engine(convert(nn.Conv2d(channels, channels, 3)), engine, **options)


REFUSALS = {
    UsageError: {
        "C2A004 attention: pass an image, or sides where attention is position-only": [
            lambda: SOFT.attention(),
            lambda: layer_with(terms="qk").attention(sides=(4, 3)),
            lambda: SOFT.attention(torch.ones(1, 4, 4, 4), sides=(4, 4)),
        ],
        r"C2A120 attention: an image .* is not \(batch, 4, 2 sides\)": [
            lambda shape=shape: SOFT(torch.ones(shape).double())
            for shape in ((1, 3, 4, 4), (3, 4, 4), (4, 4), (1, 1, 4, 4, 4))
        ],
        "C2A120 attention: str is not a tensor": lambda: LAYER("image"),
        r"C2A002 terms=.* is not a sum of qk, qr, uk and vr": [
            lambda terms=terms: layer_with(terms=terms) for terms in ("", "qk+qk", "qk, qr", "vq")
        ],
        r"C2A001 dropout=.* is not from 0 to below 1": [
            lambda dropout=dropout: layer_with(dropout=dropout) for dropout in (-0.1, 1.0, math.nan)
        ],
        "C2A002 engine 'fast' is not one of auto, conv, gather, separable, sdpa, den": lambda: set_engine(
            LAYER, "fast"
        ),
        "C2A001 memory_limit=0 is not a positive number of bytes": lambda: set_engine(LAYER, "auto", memory_limit=0),
        "C2A008 Linear has no attention layer": lambda: set_engine(nn.Linear(1, 1), "auto"),
        r"C2A120 attention: the image is torch\.\w+ on \w+, and the weights are torch": [
            lambda kind=kind: LAYER(torch.ones(1, 2, 5, 5, **kind))
            for kind in ({"dtype": torch.int64}, {"dtype": torch.float64}, {"device": "meta"})
        ],
        "C2A007 attention: sides=": [
            lambda sides=sides: LAYER.attention(sides=sides) for sides in ((5,), (5, -1), (5, 0), (5, 6.5), "56")
        ],
        "C2A006 layer is of class Linear": lambda: to_mha(nn.Linear(2, 2)),
    },
    UnsupportedError: {
        "C2A110": lambda: as_affine_map(as_basis(layer_with(terms="qk+vr")), (4, 3)),
        "C2A101 attention: only quadratic heads without groups": lambda: to_mha(convert(nn.Conv2d(4, 4, 3, groups=2))),
    },
    HeadSizeError: {
        "C2A105 width=5": lambda: Encoding.of("sinusoidal", 2, 2, 5),
        "C2A105 width=6 is not a positive multiple of 4": lambda: SinusoidalPlaces(6, 2),
        r"C2A105 heads=1 of width 2 are not the taps of a kernel \(3, 1\)": lambda: MultiHeadSelfAttention(
            2, 2, Encoding.of("quadratic", [[0.0, 0.0]], 1.0), kernel_size=(3, 1)
        ),
        "C2A105 value and output are both the identity": lambda: MultiHeadSelfAttention(
            2, 2, Encoding.of("quadratic", [[0.0]], 1.0), value=False, output=False
        ),
        "C2A105 d_key=2 is less than d_position=3": lambda: layer_with(d_key=2, terms="qr"),
        "C2A105 d_head=3 is not a positive multiple of groups=2": lambda: layer_with(d_head=3, groups=2),
        "C2A105 d_head=0 is not a positive multiple of groups=1": lambda: layer_with(d_head=0),
        "C2A105 d_in=4 is not a positive multiple of groups=3": lambda: layer_with(groups=3),
        "C2A105 value is the identity, so d_head=3 must be d_in=4": lambda: layer_with(value=False, d_head=3),
        "C2A105 output is the identity, so d_head=3 must be d_out=2": lambda: layer_with(output=False, d_head=3),
    },
    GeometryError: {
        r"learned for \(3, 5\) tokens, not \(4, 5\)": lambda: PLACES(torch.ones(2, 4, 4, 5)),
        r"C2A121 the padded grid \(2, 5\) is smaller than the dilated kernel": [
            lambda engine=engine: with_engine(engine)(torch.ones(1, 1, 2, 5)) for engine in ENGINES
        ],
        r"C2A121 attention: output_size .* does not have 2 sides": [
            lambda size=size: UPSCALED(ONES, output_size=size) for size in ((9,), (9, 9, 9), (), (1, 1, 1, 9, 9))
        ],
    },
    AlphaError: {
        r"C2A130 alpha=.* is not a positive finite number in torch.float32": [
            lambda alpha=alpha: convert(ONE, alpha=alpha) for alpha in ALPHAS
        ],
    },
    EngineError: {
        "it drops attention weights independently in training": [
            lambda engine=engine: set_engine(layer_with(dropout=0.5).train(), engine)(torch.ones(2, 4, 4, 3).double())
            for engine in ENGINES
            if engine not in ("auto", "dense")
        ],
        r"C2A201 attention: positions in torch.float32 are wrong by up to": lambda: to_mha(convert(ONE), side=100_000),
        r"C2A201 attention: positions in torch.float16 are too coarse": lambda: to_mha(
            convert(nn.Conv2d(1, 1, 3).half())
        ),
        r"C2A202 attention: one query takes [0-9,]+ bytes of the memory li": lambda: with_engine(
            "dense", 2, memory_limit=1000
        )(torch.ones(1, 2, 9, 9)),
        r"C2A203 a layer traced by itself": lambda: fx.symbolic_trace(TRACED),
        r"C2A203 torch\.jit\.script does not follow": lambda: torch.jit.script(nn.Sequential(TRACED)),
    },
    CheckpointError: {
        "C2A306 Sequential has no attention layers, and is unknown to conv2attn": lambda: save(
            nn.Sequential(ONE), "new.pt"
        ),
    },
}
