"""Layers and images that are not recovered, expressed, replaced or distilled."""

import torch
from attentions import OFFSETS, hard
from refusals.span import EYE, LAYER, NAN, grouped
from span.edges.distilled import WIDTH, network_of
from span.edges.graded_facts.replaced_heads import Reordered, Transformer
from span.edges.recovered import depending_on_the_image, hard_layer, softened
from torch import nn

from conv2attn import (
    MultiHeadSelfAttention,
    certify,
    check_span,
    convert,
    express,
    heads,
    recover,
    save,
    soften,
    to_mha,
)
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.layers.attention import Encoding
from conv2attn.span import distil
from conv2attn.theory.basis import Padding, Sites
from proofs import fewest_heads

TWICE, EVERYWHERE = Padding((1, 1), (1, 1), spacing=(2, 1)), Sites.everywhere(2)
META, INFINITE = convert(nn.Conv2d(3, 4, 3)).to("meta"), nn.Conv2d(1, 1, 3)
nn.init.constant_(INFINITE.weight, float("inf"))
PHOTOS, IMAGES = (
    torch.randn(*shape, generator=torch.Generator().manual_seed(1)) for shape in ((9, 3, 8, 10), (7, 3, 12, 16))
)
WINDOWS = [torch.full((count, 2, 9, 9), 1 / 9) for count in (16, 4)]
FAR = MultiHeadSelfAttention(1, 1, Encoding.of("quadratic", torch.tensor([[1e30, 0]]), 128.0))


def called(tokens, *mask):
    """A distilled layer on tokens."""
    distil(network_of(), PHOTOS, max_loss=1e-4, kernel_size=3).network.layers[0](tokens, *mask)


def replaced(images=IMAGES, network=Transformer, replace="mean", **options):
    heads(network().eval(), images, replace=replace, **options)


REFUSALS = {
    UsageError: {
        "C2A408": [
            lambda call=call, conv=conv: call(conv)
            for call in (fewest_heads, lambda conv: express(conv, LAYER))
            for conv in (NAN, INFINITE)
        ],
        "C2A502 (ndarray|Conv2d) is not a MultiHeadSelfAttention": [
            lambda: express(nn.Conv2d(2, 3, 3), EYE),
            lambda: recover(nn.Conv2d(2, 3, 3)),
        ],
        "C2A502 attention is of class int": lambda: check_span(5),
        "C2A502 layers have attention of 4 and 16 images, or of windows": [
            lambda windows=windows: heads(windows)
            for windows in (WINDOWS, tuple(WINDOWS), dict(zip(("first", "second"), WINDOWS, strict=True)))
        ],
        "C2A503": lambda: check_span({"first": hard((6, 8), OFFSETS), "second": hard((3, 4), OFFSETS)}, grid=(5, 5)),
        "second: a grid 6x8": lambda: check_span(
            {"first": hard((6, 8), OFFSETS), "second": hard((7, 1), OFFSETS[1:2])}, grid=(6, 8)
        ),
        "C2A006 .* is on the meta device, without numbers": [
            lambda: check_span(META, grid=(5, 6)),
            lambda: heads(META, torch.zeros(1, 3, 5, 6)),
            lambda: recover(META),
            lambda: express(nn.Conv2d(3, 4, 3), META),
            lambda: soften(META, alpha=3),
            lambda: save(META, "new.pt"),
            lambda: to_mha(META),
            lambda: certify(META, META, input_size=(3, 5, 6)),
        ],
        "no query": lambda: recover(softened(1.0), grid=(1, 2), kernel_size=9),
        "C2A504": [
            lambda: recover(softened(1.0), kernel_size=(3,)),
            lambda: express(nn.Conv1d(2, 3, 3), softened(1.0)),
        ],
        "positive": lambda: recover(softened(1.0), dilation=0),
        "C2A505": lambda: recover(depending_on_the_image()),
        "farther than any grid": lambda: recover(FAR),
        **grouped(
            lambda max_loss, **options: distil(network_of(), PHOTOS, max_loss=max_loss, **options),
            [
                (0, {}, "C2A001 max_loss=0 is not a positive finite number"),
                (float("nan"), {}, "C2A001 max_loss=nan"),
                (1, {"kernel_size": 4}, "C2A001 kernel_size=4 is not an odd number"),
                (1, {"heads": {"layers.7": [0]}}, "C2A008 no layer that attends is called 'layers.7'"),
                (1, {"heads": {"layers.0": [9]}}, "C2A006 layers.0: heads cannot be replaced: there is no head 9"),
                (1, {"labels": [0, 1]}, "C2A006 labels are 2 numbers"),
            ],
        ),
        "distilling needs 6 images, a third of them held out; there are 5": lambda: distil(
            network_of(), PHOTOS[:5], max_loss=1
        ),
        "C2A120 a distilled layer of 21x12 tokens is called with": [
            lambda: called(torch.ones(1, 22, WIDTH)),
            lambda: called(torch.ones(1, 21, WIDTH), torch.ones(21)),
        ],
        **grouped(
            replaced,
            [
                (IMAGES, {"replaced_heads": {"blocks.7": [0]}}, "C2A008 no layer that attends is called 'blocks.7'"),
                (
                    IMAGES,
                    {"replaced_heads": {"blocks.0": [2]}},
                    "C2A006 blocks.0: heads cannot be replaced: there is no head 2: heads are numbered",
                ),
                (IMAGES, {"labels": [0, 1]}, "C2A006 labels are 2 numbers of torch.int64, and there are 7 images"),
                (IMAGES, {"labels": [0.5] * 7}, "C2A006 labels are 7 numbers of torch.float32"),
                (IMAGES, {"labels": [5] * 7}, "C2A006 labels from 5 to 5 are not classes of 5 outputs"),
                (
                    IMAGES,
                    {"labels": [0] * 7, "replace": None},
                    "C2A004 replaced_heads or labels came without replace",
                ),
                (IMAGES[:3], {}, "needs 4 images"),
                (IMAGES[:4], {"replace": "median"}, "replace='median' is unknown"),
                (
                    IMAGES,
                    {"network": Reordered, "replace": "position", "replaced_heads": {"blocks.1": [0]}},
                    r"blocks\.1: heads cannot be replaced: its tokens are not in the order",
                ),
            ],
        ),
    },
    UnsupportedError: {
        "strided": lambda: recover(hard_layer(TWICE, sites=Sites((2, 1), (1, 0), (1, 1)))),
        "further than .* by 3": lambda: recover(hard_layer(Padding((5, 1), (5, 1), spacing=(2, 1)))),
        "enumerated": lambda: recover(hard_layer(Padding.none(2), "enumerated", EVERYWHERE)),
        "zeros padding": lambda: recover(hard_layer(Padding((1, 1), (1, 1)), sites=EVERYWHERE)),
    },
}
