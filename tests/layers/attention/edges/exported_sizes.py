"""A converted layer exports with free batch and sides, and takes every size that the convolution's own export takes."""

import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from conv2attn import convert, set_engine
from conv2attn.errors import EngineError

IMAGE = torch.zeros(2, 2, 12, 13, dtype=torch.float64)
FREE = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)


@st.composite
def convolutions(draw):
    """Frozen 2-d convolutions in float64, transposed ones too, of any small geometry."""
    pair = lambda *numbers: (draw(st.sampled_from(numbers)), draw(st.sampled_from(numbers)))  # noqa: E731
    stride = pair(1, 2, 3)
    geometry = {"kernel_size": pair(1, 2, 3, 4), "stride": stride, "dilation": pair(1, 2), "padding": pair(0, 1, 2)}
    if draw(st.booleans()):
        mode = draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
        conv = nn.Conv2d(2, 3, **geometry, padding_mode=mode)
    else:
        conv = nn.ConvTranspose2d(2, 3, **geometry, output_padding=tuple(draw(st.integers(0, s - 1)) for s in stride))
    return frozen(conv)


def answers(program):
    """What a program gives for images of sides from 1 on, None where it refuses."""
    found = {}
    for batch, height, width in [(b, h, w) for b in (1, 3) for h in (1, 2, 5, 6, 7) for w in (1, 8)]:
        generator = torch.Generator().manual_seed(height)
        image = torch.randn(batch, 2, height, width, dtype=torch.float64, generator=generator)
        try:
            found[tuple(image.shape)] = program(image)
        except Exception:
            found[tuple(image.shape)] = None
    return found


def frozen(conv):
    return conv.double().requires_grad_(False)


@settings(max_examples=1, phases=(Phase.explicit, Phase.generate), deadline=None, derandomize=True, database=None)
@example(conv=frozen(nn.Conv2d(2, 3, 3, stride=2, padding=1, padding_mode="reflect")), engine="auto")
@example(conv=frozen(nn.ConvTranspose2d(2, 3, 3, stride=(3, 1), output_padding=(1, 0))), engine="separable")
@given(conv=convolutions(), engine=st.sampled_from(["auto", "gather", "separable", "dense"]))
def test_every_size_of_the_convolution_s_export_is_taken(conv, engine):
    try:
        theirs = answers(torch.export.export(conv, (IMAGE,), dynamic_shapes=FREE).module())
        layer = set_engine(convert(conv), engine)
        layer(IMAGE)
    except (RuntimeError, EngineError):
        return
    ours = answers(torch.export.export(layer, (IMAGE,), dynamic_shapes=FREE).module())
    for size, right in theirs.items():
        if right is not None:
            torch.testing.assert_close(ours[size], right, msg=f"{conv} at {size}")
