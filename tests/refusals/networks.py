"""Networks and options that convert, soften, capture, start_at_convolution and positions alone do not take."""

import math

import torch
from networks.edges.selection import stages
from networks.starts.laws import PARTS, Own, TwoHeads, own, vit
from networks.test_positions import gated, layer_with_content
from torch import nn

from conv2attn import capture, check_span, conversion_of, convert, soften, softened, start_at_convolution
from conv2attn.errors import AlphaError, HeadSizeError, UnsupportedError, UsageError
from conv2attn.networks.positions import PositionAttention, position_attention
from conv2attn.networks.starts import Parts
from conv2attn.theory.basis import AttentionGrid, Sites

CONV = nn.Conv2d(2, 2, 3)
IMAGE = torch.ones(1, 1, 28, 28)
ALPHAS = (-1.0, math.nan, "5", True, None, torch.tensor(5.0), [5.0])


def soft(change=lambda layer: None, **options):
    """Softens a converted layer that was changed."""
    layer = convert(CONV, **options)
    change(layer)
    soften(layer, alpha=5.0)


def speaking(layer):
    layer.key.data[0, 0, 0] = 1


def diverged(part, number):
    def change(layer):
        layer.get_parameter(part).data.view(-1)[0] = number

    return lambda: soft(change, alpha=5.0, trainable=True)


def within(alpha, network=CONV):
    """Softens a network within a block."""
    with softened(convert(network) if network is CONV else network, alpha=alpha):
        pass


def start(network=None, **arguments):
    start_at_convolution(vit(layers=1) if network is None else network, **arguments)


def start_own(change=lambda network: None, **sizes):
    """Starts a transformer of one's own that was changed."""
    network, arguments = own(**sizes)
    change(network)
    start_at_convolution(network, **arguments)


def longer(network):
    network.where = nn.Parameter(torch.cat([network.where, network.where]))


def with_heads(**said):
    def change(network):
        for block in network.blocks:
            block.self_attn = TwoHeads(48, **said)

    return lambda: start_own(change)


class Behind(Own):
    """Its class token stands behind the patches."""

    def forward(self, patches):
        tokens = torch.cat([self.embedding(patches), self.class_token.expand(len(patches), 1, -1)], 1) + self.where
        for block in self.blocks:
            tokens = block(tokens.transpose(0, 1)).transpose(0, 1)
        return tokens[:, -1]


def twice():
    network = vit(layers=2)
    network.layers[1] = network.layers[0]
    start(network)


def bare():
    network = vit()
    del network.positions
    network.positions = 0.0
    start(network, example_input=IMAGE)


def repeated():
    network = vit(layers=1)
    network.positions = nn.Parameter(network.positions[:1].detach().expand(49, 64))
    start(network)


def inferring():
    with torch.inference_mode():
        network = vit(layers=1)
    start(network)


STARTS = [
    ({"kernel_size": 15}, "does not fit a grid of 7x7"),
    ({"parts": Parts(writers=("nothing*",))}, "fits no linear layer"),
    ({"parts": Parts(positions="nowhere")}, "is not a parameter or buffer"),
    ({"content": "loud"}, "content='loud' is not one of silent, drawn"),
    ({"values": "deaf"}, "values='deaf' is not"),
    ({"values": None}, "values=None is not"),
    ({"kernel_size": "picture"}, "kernel_size='picture' is not"),
    ({"kernel_size": True}, "kernel_size=True is not"),
    ({"kernel_size": 2.5}, "kernel_size=2.5 is not a whole number"),
    ({"kernel_size": (3, 3)}, "is not a whole number or 'image'"),
    ({"kernel_size": "3"}, "kernel_size='3' is not"),
    ({"seed": -1}, "seed=-1"),
    ({"seed": 1.5}, "seed=1.5"),
    ({"seed": True}, "seed=True"),
    ({"alpha": 1e3}, "at most 128"),
    ({"parts": "where"}, "parts is 'where', of class str"),
    ({"kernel_size": 0}, "at least 1 and at most 13"),
    ({"parts": Parts(sides=(7,))}, "49 positions, 49 tokens, and 7 tokens"),
    ({"example_input": (1, -28, 28)}, "has a side below 1"),
    ({"example_input": IMAGE[:0]}, "or there are none"),
    ({"alpha": "2"}, "alpha='2' is not"),
    ({"example_input": torch.randn(1, 3, 28, 28)}, "does not run on images of 1x3x28x28"),
    ({"example_input": IMAGE * math.nan}, "are not finite"),
]
SCORES = torch.zeros(2, 6, 6).double()


def positions(sides):
    """Attention by position of six tokens."""
    return PositionAttention(SCORES, AttentionGrid(sides, Sites.everywhere(2)), torch.float64, "")


def gates_that_are_not_numbers():
    network = gated(3)
    network.blocks[0].pos_proj.weight.data[0, 0] = torch.nan
    check_span(network, position_only=True)


REFUSALS = {
    UnsupportedError: {
        "no sharpness": lambda: soft(encoding="enumerated"),
        "heads that read content": lambda: soft(speaking, content="silent"),
        "C2A408": [
            diverged(part, number)
            for number in (torch.nan, torch.inf)
            for part in ("weight", "encoding.center", "encoding.alpha")
        ],
        r"blocks\.1\.self_attn: \d+% of its position channels is not positions": lambda: start_own(written=(0,)),
        "narrower than 4": lambda: start(vit(width=24, heads=8, layers=1)),
        "leave none of 4": lambda: start_own(width=4, heads=1),
        r"layers\.0\.self_attn runs twice": twice,
        r"of 55 tokens: those named so are where 110x48.*as its table has rows": lambda: start_own(longer),
        "no table of absolute positions": bare,
        r"not one of 4 heads of 54 queries \(2 of 55\)": with_heads(num_heads=4),
        "1 of its last 54 tokens do not depend on the images": lambda: start(
            Behind(), example_input=torch.randn(3, 54, 12), parts=PARTS
        ),
    },
    AlphaError: {
        "C2A130": [
            lambda: start(alpha=0.0),
            *(lambda alpha=alpha: soften(convert(CONV), alpha=alpha) for alpha in ALPHAS),
            *(lambda alpha=alpha: within(alpha) for alpha in ALPHAS),
        ],
        "C2A130 stem: alpha='sharp'": lambda: convert(stages(), alpha="sharp"),
    },
    HeadSizeError: {r"C2A105 stem: d_head=2 is less than min\(d_in, d_out\)=3": lambda: convert(stages(), d_head=2)},
    UsageError: {
        "no attention layer": [lambda: soften(CONV, alpha=5.0), lambda: within(1.0, nn.Linear(2, 2))],
        "C2A008 this Linear was not made by": lambda: conversion_of(nn.Linear(1, 1)),
        "C2A006 model is of class Tensor": lambda: convert(torch.ones(3)),
        "C2A001 stem: d_head='2' is not a whole number": lambda: convert(stages(), d_head="2"),
        "C2A006 3 is not a list of patterns": lambda: convert(stages(), only=3),
        "C2A002 stem: encoding": lambda: convert(stages(), encoding="none"),
        "C2A002 stem: stride_by": lambda: convert(stages(), stride_by="skipping"),
        **{words: lambda arguments=arguments: start(**arguments) for arguments, words in STARTS},
        "no layer with queries and keys": lambda: start(nn.Linear(3, 3)),
        "network is the name 'vit', not a torch.nn.Module": lambda: start("vit"),
        "are bfloat16": lambda: start(vit(layers=1).bfloat16()),
        "on meta": lambda: start(vit(layers=1).to("meta")),
        "of inference mode": inferring,
        "more than one element": repeated,
        r"C2A502 .*the number of heads of its 48 queries is unknown\. Give the layer": with_heads(),
        "are not names, patterns and positive": [
            lambda wrong=wrong: Parts(**wrong)
            for wrong in ({"positions": 3}, {"writers": "embed"}, {"sides": 7}, {"sides": (2.0,)}, {"sides": ()})
        ],
        r"C2A503 scores of \(6, 6\)": lambda: positions((2, 4)),
        r"C2A503 .*those of a grid 2x3": lambda: check_span(positions((2, 3)), grid=(3, 2)),
        r"C2A004 .*pixels alone": lambda: check_span(positions((2, 3)), extra_tokens=1),
        "C2A004 an object of class Tensor has no parameters": lambda: check_span(
            torch.eye(4)[None], position_only=True
        ),
        r"C2A502 attention of the Sequential depends on its inputs.*position_only": lambda: check_span(
            nn.Sequential(layer_with_content())
        ),
        "C2A501 ReLU has no layer": lambda: check_span(nn.ReLU(), position_only=True),
        "C2A503": lambda: position_attention(layer_with_content()),
        r"C2A503 .*it attends on every square grid": lambda: position_attention(gated(4).blocks[0]),
        r"C2A503 .*a square, not of 3x5": lambda: position_attention(gated(4), (3, 5)),
        "C2A502 blocks": gates_that_are_not_numbers,
        "C2A501 Linear did not attend": lambda: capture(nn.Linear(16, 16), torch.ones(2, 9, 16)),
    },
}
