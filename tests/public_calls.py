"""A call of each public name, with what makes its argument: (build, call of what was built, device and file)."""

import torch
from torch import nn

import conv2attn
from studies.transformer import TransformerPlan, VisionTransformer

IMAGE = torch.ones(1, 2, 4, 5)


class Noisy(nn.Module):
    """A network that draws wherever it is run."""

    def __init__(self):
        super().__init__()
        self.conv, self.drop = nn.Conv2d(2, 3, 3, padding=1), nn.Dropout(0.5)

    def forward(self, image):
        return self.drop(self.conv(image)) + torch.rand((), device=image.device)


class Attending(nn.Module):
    """Two heads over the pixels of an image."""

    def __init__(self):
        super().__init__()
        self.patches, self.qkv = nn.Conv2d(1, 4, 2, 2), nn.Linear(4, 12)

    def forward(self, image):
        tokens = self.patches(image).flatten(2).mT
        query, key, value = self.qkv(tokens).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        return ((query @ key.mT).softmax(-1) @ value).transpose(1, 2).flatten(2).mean(1)


def images(at):
    return torch.linspace(0, 1, 288).reshape(6, 1, 6, 8).sin().to(at)


def conv():
    return nn.Conv2d(2, 3, 3, padding=1)


def mha():
    return nn.MultiheadAttention(8, 2, batch_first=True)


def layer():
    return conv2attn.convert(conv())


def encoder():
    return nn.TransformerEncoderLayer(8, 2, batch_first=True)


CALLS = {
    "as_basis": (conv, lambda it, at, file: conv2attn.as_basis(it)),
    "assert_equivalent": (
        conv,
        lambda it, at, file: conv2attn.assert_equivalent(it, it, torch.ones(1, 2, 4, 5).to(at)),
    ),
    "assert_same": (Noisy, lambda it, at, file: conv2attn.assert_same(it, it, input_size=(2, 4, 5))),
    "capture": (encoder, lambda it, at, file: conv2attn.capture(it, torch.ones(1, 5, 8).to(at))),
    "certify": (Noisy, lambda it, at, file: conv2attn.certify(it, it, input_size=(2, 4, 5))),
    "check_span": (layer, lambda it, at, file: conv2attn.check_span(it, grid=(4, 5))),
    "conversion_of": (lambda: conv2attn.convert(Noisy()), lambda it, at, file: conv2attn.conversion_of(it)),
    "convert": (Noisy, lambda it, at, file: conv2attn.convert(it, example_input=IMAGE.to(at))),
    "distil": (
        Attending,
        lambda it, at, file: conv2attn.distil(it, images(at), max_loss=10.0, kernel_size=3),
    ),
    "explore": (Noisy, lambda it, at, file: conv2attn.explore(it, torch.ones(1, 2, 8, 9).to(at))),
    "express": (layer, lambda it, at, file: conv2attn.express(conv2attn.recover(it).module, it)),
    "from_torch": (mha, lambda it, at, file: conv2attn.from_torch(it)),
    "heads": (encoder, lambda it, at, file: conv2attn.heads(it, torch.ones(1, 4, 8).to(at), grid=(2, 2))),
    "load": (
        lambda: nn.Sequential(layer()),
        lambda it, at, file: (conv2attn.save(it, file), conv2attn.load(file)),
    ),
    "recover": (layer, lambda it, at, file: conv2attn.recover(it)),
    "save": (lambda: nn.Sequential(layer()), lambda it, at, file: conv2attn.save(it, file)),
    "set_engine": (layer, lambda it, at, file: conv2attn.set_engine(it, "dense")),
    "soften": (
        lambda: conv2attn.convert(Noisy()),
        lambda it, at, file: conv2attn.soften(it, IMAGE.to(at), alpha=5),
    ),
    "softened": (layer, lambda it, at, file: conv2attn.softened(it, alpha=5).__enter__()),
    "start_at_convolution": (
        lambda: VisionTransformer(TransformerPlan(side=16, patch=4, width=32, heads=8, layers=1)),
        lambda it, at, file: conv2attn.start_at_convolution(it, kernel_size=3),
    ),
    "to_mha": (layer, lambda it, at, file: conv2attn.to_mha(it, side=8)),
    "to_torch": (mha, lambda it, at, file: conv2attn.to_torch(conv2attn.from_torch(it))),
}
