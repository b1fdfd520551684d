"""Small whole networks as people have them twice: ports, switches, exports, folds, and near misses.

One formula holds, a fold holds as *rounded*, and a mistake is refuted or its place is named.
"""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from equality.pairs import Net
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

WIDTH, HEADS, TOKENS, WORDS = 16, 2, 6, 20
IDS = torch.tensor([[3, 17, 5, 11, 2, 8]])
LATER = torch.ones(TOKENS, TOKENS).triu(1).bool()


def seeded(make, *args, **options):
    """A network in evaluation mode with seeded numbers, those of norms too, which are 0 and 1 at first."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = make(*args, **options).eval()
        for name, tensor in network.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2)
            elif tensor.is_floating_point() and tensor.ndim < 2:
                tensor.add_(torch.randn(tensor.shape) * 0.2)
    return network


def by_heads(x, heads=HEADS):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Block(nn.Module):
    """A block of a transformer, as torch's functions have it, or written out as ports do."""

    def __init__(self, written=False, norm_first=True, causal=False, act=None, eps=1e-5, scale=1.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps), nn.LayerNorm(WIDTH, eps)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.written, self.norm_first, self.causal, self.scale = written, norm_first, causal, scale
        self.act = act or F.gelu

    def attend(self, x):
        if not self.written:
            query, key, value = (by_heads(each) for each in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(query * self.scale, key, value, is_causal=self.causal)
            return self.out(y.transpose(1, 2).flatten(2))
        weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        query, key, value = (by_heads(x @ w.T + b) for w, b in zip(weights, biases, strict=True))
        scores = self.scale * (query @ key.mT) / math.sqrt(WIDTH / HEADS)
        if self.causal:
            scores = scores.masked_fill(LATER, torch.finfo(scores.dtype).min)
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        if self.norm_first:
            x = x + self.attend(self.norm1(x))
            return x + self.down(self.act(self.up(self.norm2(x))))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.down(self.act(self.up(x))))


class Text(nn.Module):
    """A causal language model whose last layer shares the table of words."""

    def __init__(self, packed=False, **options):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*(Block(**options) for _ in range(2)))
        self.norm, self.packed = nn.LayerNorm(WIDTH), packed

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        y = F.linear(self.norm(self.blocks(x)), self.words.weight)
        return {"logits": y} if self.packed else y


class Picture(nn.Module):
    """A vision transformer with a class token; its patches by a convolution, or as rows of pixels if it is written."""

    def __init__(self, written=False, turned=False, **options):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 7, WIDTH))
        self.blocks = nn.Sequential(*(Block(written, **options) for _ in range(2)))
        self.head, self.written, self.turned = nn.Linear(WIDTH, 5), written, turned

    def forward(self, x):
        if self.written:
            rows = F.unfold(x, 4, stride=4).mT
            x = F.linear(rows, self.patches.weight.flatten(1), self.patches.bias)
        else:
            x = self.patches(x).flatten(2).mT
        places = self.places
        if self.turned:
            grid = places[:, 1:].unflatten(1, (2, 3)).transpose(1, 2).flatten(1, 2)
            places = torch.cat([places[:, :1], grid], 1)
        return self.head(self.blocks(torch.cat([self.token.expand(len(x), -1, -1), x], 1) + places)[:, 0])


class Residual(nn.Module):
    """Two convolutions with norms and a shortcut, as of a ResNet."""

    def __init__(self, eps=1e-5, same=False):
        super().__init__()
        self.stem, self.norm1 = nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6, eps)
        self.conv, self.norm2 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6, eps)
        self.relu, self.head, self.same = nn.ReLU(), nn.Linear(6, 5), same

    def forward(self, x):
        if self.same:  # as TensorFlow pads: less in front, more behind
            y = F.conv2d(F.pad(x, (0, 1, 0, 1)), self.stem.weight, stride=2)
        else:
            y = self.stem(x)
        y = self.relu(self.norm1(y))
        return self.head(self.relu(y + self.norm2(self.conv(y))).mean((2, 3)))


def branches():
    """A block of RepVGG: a convolution 3x3, one 1x1 and nothing, each with a norm."""

    def code(net, x):
        return F.relu(sum(norm(each(x)) for each, norm in zip(net.layers, net.norms, strict=True)))

    layers = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 1, bias=False), nn.Identity()
    return Net(code, layers=nn.ModuleList(layers), norms=nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3)))


def summed(network):
    """The sum of its branches as one convolution."""
    identity = nn.Conv2d(4, 4, 1, bias=False).eval()
    identity.weight.data = torch.eye(4)[:, :, None, None]
    layers = zip((*network.layers[:2], identity), network.norms, strict=True)
    wide, *narrow = (fuse_conv_bn_eval(conv, norm) for conv, norm in layers)
    for each in narrow:
        wide.weight.data[:, :, 1:2, 1:2] += each.weight.data
        wide.bias.data += each.bias.data
    return nn.Sequential(wide, nn.ReLU()).eval()


def adapted(size):
    """A block of which one layer has a low-rank adapter beside it."""
    network, down, up = seeded(Block), nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, 2 * WIDTH, bias=False)
    down.weight.data.fill_(0.3)
    up.weight.data = size * torch.linspace(-1, 1, 4 * WIDTH).view(2 * WIDTH, 2)
    network.up = Net(lambda net, x: net.base(x) + 1.5 * net.up(net.down(x)), base=network.up, down=down, up=up)
    return network


def merged(network):
    out = copy.deepcopy(network)
    adapter, out.up = out.up, out.up.base
    out.up.weight.data += 1.5 * adapter.up.weight.data @ adapter.down.weight.data
    return out


def of_torch(norm_first, eps=1e-5):
    """torch's own layer with the numbers of a block."""
    block = seeded(Block, norm_first=norm_first)
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 2 * WIDTH, activation="gelu", batch_first=True, norm_first=norm_first, layer_norm_eps=eps
    )
    layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias = block.qkv.weight, block.qkv.bias
    layer.self_attn.out_proj, layer.linear1, layer.linear2 = block.out, block.up, block.down
    for name in ("norm1", "norm2"):
        getattr(layer, name).load_state_dict(getattr(block, name).state_dict())
    return layer.eval()


def recurrent(looped, kind=nn.LSTM, cells=nn.LSTMCell, forgets=False):
    layer = seeded(kind, 4, 5, batch_first=True)
    if not looped:
        return Net(lambda net, x: net.layer(x)[0], layer=layer).eval()
    cell = cells(4, 5)
    cell.load_state_dict({name.removesuffix("_l0"): each for name, each in layer.state_dict().items()})

    def loop(net, x):
        state, outputs = None, []
        for step in x.unbind(1):
            state = net.cell(step, None if forgets else state)
            outputs.append(state if isinstance(state, torch.Tensor) else state[0])
        return torch.stack(outputs, 1)

    return Net(loop, cell=cell).eval()


GRU, RNN = (nn.GRU, nn.GRUCell), (nn.RNN, nn.RNNCell)


def normalised(folded):
    conv = seeded(nn.Conv2d, 3, 4, 3)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    if not folded:
        code = lambda net, x: F.relu(net.conv((x - mean[:, None, None]) / std[:, None, None]))  # noqa: E731
        return Net(code, conv=conv).eval()
    conv.bias.data -= (conv.weight.data * (mean / std)[:, None, None]).sum((1, 2, 3))
    conv.weight.data /= std[:, None, None]
    return nn.Sequential(conv, nn.ReLU()).eval()


def affine(folded):
    norm, linear = seeded(nn.LayerNorm, WIDTH), seeded(nn.Linear, WIDTH, 5)
    if folded:
        linear.bias.data += linear.weight.data @ norm.bias.data
        linear.weight.data *= norm.weight.data
        norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
    return nn.Sequential(norm, linear, nn.Tanh()).eval()


def upsampled(written):
    conv, kernel = seeded(nn.Conv2d, 3, 4, 3, padding=1), torch.tensor([0.25, 0.75, 0.75, 0.25])

    def transposed(net, x):
        y = F.pad(net.conv(x), (1, 1, 1, 1), mode="replicate")
        taps = (kernel[:, None] * kernel).repeat(4, 1, 1, 1)
        return F.conv_transpose2d(y, taps, stride=2, padding=1, groups=4)[..., 2:-2, 2:-2]

    def resized(net, x):
        return F.interpolate(net.conv(x), scale_factor=2, mode="bilinear", align_corners=written is None)

    return Net(transposed if written else resized, conv=conv).eval()


def fused(eps=1e-5):
    """The residual network with its norms folded into its convolutions, by this epsilon."""
    network = seeded(Residual)
    for conv, norm in (("stem", "norm1"), ("conv", "norm2")):
        layer, statistics = network.get_submodule(conv), network.get_submodule(norm)
        statistics.eps = eps
        setattr(network, conv, fuse_conv_bn_eval(layer, statistics))
        setattr(network, norm, nn.Identity().eval())
    return network


def decomposed():
    """The exported program of the vision transformer, in operators of aten alone."""
    return torch.export.export(seeded(Picture), (torch.ones(1, *IMAGE),)).run_decompositions().module()


def edited(network, change):
    with torch.no_grad():
        change(network)
    return network


def pooled(ceil_mode):
    return seeded(
        nn.Sequential, seeded(nn.Conv2d, 3, 4, 3), nn.MaxPool2d(3, 2, ceil_mode=ceil_mode), nn.AdaptiveAvgPool2d(1)
    )


def tanh_gelu(x):
    return F.gelu(x, approximate="tanh")


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


IMAGE, ROWS = (3, 8, 12), (TOKENS, WIDTH)
EQUAL = {
    "a language model, fused and written out, on ids": (
        lambda: (seeded(Text, causal=True), seeded(Text, written=True, causal=True, packed=True)),
        IDS,
    ),
    "GELU by tanh, and as a formula": (
        lambda: (seeded(Text, act=tanh_gelu, causal=True), seeded(Text, act=new_gelu, causal=True)),
        IDS,
    ),
    "a vision transformer, patches by a convolution and as rows": (
        lambda: (seeded(Picture), seeded(Picture, written=True)),
        IMAGE,
    ),
    "torch's layer, norm first": (lambda: (seeded(Block), of_torch(True)), ROWS),
    "torch's layer, norm last": (lambda: (seeded(Block, written=True, norm_first=False), of_torch(False)), ROWS),
    "an exported program, decomposed": (lambda: (seeded(Picture), decomposed()), IMAGE),
    "LSTM, a loop of cells": (lambda: (recurrent(False), recurrent(True)), (3, 4)),
    "GRU, a loop of cells": (lambda: (recurrent(False, *GRU), recurrent(True, *GRU)), (3, 4)),
    "RNN, a loop of cells": (lambda: (recurrent(False, *RNN), recurrent(True, *RNN)), (3, 4)),
    "an adapter of zeros": (lambda: (seeded(Block), adapted(0.0)), ROWS),
    "doubled by interpolation, by a transposed convolution": (lambda: (upsampled(False), upsampled(True)), (3, 5, 5)),
    "a copy": (lambda: (seeded(Residual), copy.deepcopy(seeded(Residual))), IMAGE),
}
ROUNDED = {
    "norms folded": (lambda: (seeded(Residual), fused()), IMAGE),
    "branches summed": (lambda: (seeded(branches), summed(seeded(branches))), (4, 6, 5)),
    "an adapter merged": (lambda: (adapted(0.2), merged(adapted(0.2))), ROWS),
    "a norm's factors in the next layer": (lambda: (affine(False), affine(True)), ROWS),
    "mean and deviation in the first layer": (lambda: (normalised(False), normalised(True)), IMAGE),
}
DIFFERENT = {
    "epsilon 1e-12 for 1e-5": (
        lambda: (seeded(Text, eps=1e-12, causal=True), seeded(Text, written=True, causal=True)),
        IDS,
    ),
    "epsilon of torch's layer": (lambda: (seeded(Block), of_torch(True, eps=1e-6)), ROWS),
    "epsilon of a batch norm": (lambda: (seeded(Residual, eps=1e-3), seeded(Residual)), IMAGE),
    "folded without epsilon": (lambda: (seeded(Residual), fused(0.0)), IMAGE),
    "norm last": (lambda: (seeded(Block), of_torch(False)), ROWS),
    "cells that forget": (lambda: (recurrent(False, *GRU), recurrent(True, *GRU, forgets=True)), (3, 4)),
    "GELU by erf for tanh": (lambda: (seeded(Text, act=tanh_gelu, causal=True), seeded(Text, causal=True)), IDS),
    "GELU by a logistic function": (
        lambda: (seeded(Block), seeded(Block, act=lambda x: x * torch.sigmoid(1.702 * x))),
        ROWS,
    ),
    "no mask": (lambda: (seeded(Text, causal=True), seeded(Text)), IDS),
    "scores not divided": (lambda: (seeded(Block), seeded(Block, written=True, scale=8**0.5)), ROWS),
    "places turned": (lambda: (seeded(Picture), seeded(Picture, turned=True)), IMAGE),
    "padding of TensorFlow": (lambda: (seeded(Residual), seeded(Residual, same=True)), IMAGE),
    "sides rounded up": (lambda: (pooled(False), pooled(True)), (3, 8, 8)),
    "another alignment of corners": (lambda: (upsampled(False), upsampled(None)), (3, 5, 5)),
    "a layer that was not loaded": (
        lambda: (seeded(Residual), edited(seeded(Residual), lambda n: n.conv.reset_parameters())),
        IMAGE,
    ),
    "colours the other way": (
        lambda: (seeded(Residual), edited(seeded(Residual), lambda n: n.stem.weight.copy_(n.stem.weight.flip(1)))),
        IMAGE,
    ),
}
CLOSE = {
    "one last place": (
        lambda: (
            seeded(Residual),
            edited(seeded(Residual), lambda n: n.conv.weight[0, 0, 0].copy_(n.conv.weight[0, 0, 0].nextafter(LARGE))),
        ),
        IMAGE,
    ),
    "bfloat16 and back": (lambda: (seeded(Picture), seeded(Picture).bfloat16().float()), IMAGE),
}
LARGE = torch.tensor(9.0)


LAWS = {"one formula": EQUAL, "rounded": ROUNDED, "parted": DIFFERENT, "close": CLOSE}


@pytest.mark.rotated
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own, where exported programs are copied
@pytest.mark.parametrize(("law", "name"), [(law, name) for law, cases in LAWS.items() for name in cases])
def test_a_port_holds_a_fold_holds_as_rounded_and_the_place_of_a_mistake_is_named(law, name):
    make, inputs = LAWS[law][name]
    found = certify(*make(), **({"images": inputs} if isinstance(inputs, torch.Tensor) else {"input_size": inputs}))
    holds, rounded = found.verdict is Verdict.HOLDS, found.strength is Strength.ROUNDED
    match law:
        case "one formula":
            assert holds, found.to_text()
        case "rounded":
            assert (holds, rounded) == (True, True), found.to_text()
        case "parted":
            assert found.verdict is Verdict.REFUTED or (not holds and found.place is not None), found.to_text()
        case "close":
            assert rounded or not holds, found.to_text()
