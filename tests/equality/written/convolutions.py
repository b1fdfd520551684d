"""Convolutions, pools and resizing as people write them."""

import torch
import torch.nn.functional as F
from equality.written.pair import Pair
from torch import nn

IMAGES = (2, 4, 6, 6)


def layer(*settings, **others):
    return lambda: {"layer": nn.Conv2d(*settings, **others)}


def convolved(m, x):
    return m.layer(x)


def unfolded(m, x):
    columns = F.unfold(x, 3, padding=1)
    return (m.layer.weight.flatten(1) @ columns + m.layer.bias[:, None]).view(len(x), 5, 6, 6)


def embedded(m, x):
    return m.layer(x).flatten(2).transpose(1, 2)


def by_patches(m, x):
    patches = x.reshape(len(x), 4, 2, 3, 2, 3).permute(0, 2, 4, 1, 3, 5).reshape(len(x), 4, 36)
    return F.linear(patches, m.layer.weight.flatten(1), m.layer.bias)


def pointwise(m, x):
    return F.linear(x.permute(0, 2, 3, 1), m.layer.weight[:, :, 0, 0], m.layer.bias).permute(0, 3, 1, 2)


def by_taps(m, x):
    x, weight = F.pad(x, (1, 1, 1, 1)), m.layer.weight
    taps = [x[..., i : i + 6, j : j + 6] * weight[:, 0, i, j].view(-1, 1, 1) for i in range(3) for j in range(3)]
    return sum(taps) + m.layer.bias.view(1, -1, 1, 1)


def by_groups(m, x):
    parts = zip(x.chunk(2, 1), m.layer.weight.chunk(2), m.layer.bias.chunk(2), strict=True)
    return torch.cat([F.conv2d(each, weight, bias, padding=1) for each, weight, bias in parts], dim=1)


def zeros_between(m, x):
    spread = torch.zeros(len(x), 4, 11, 11)
    spread[..., ::2, ::2] = x
    return F.conv2d(F.pad(spread, (2, 2, 2, 2)), m.layer.weight.transpose(0, 1).flip((2, 3)), m.layer.bias)


def shuffled(m, x):
    b, c, h, w = x.shape
    return x.view(b, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // 4, 2 * h, 2 * w)


def focus(m, x):
    corners = x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]
    return m.layer(torch.cat(corners, 1))


def focus_as_one(m, x):
    weight = m.layer.weight.reshape(5, 2, 2, 4).permute(0, 3, 2, 1)
    return F.conv2d(x, weight, m.layer.bias, stride=2)


def largest_of_windows(m, x):
    return F.unfold(x, 2, stride=2).view(len(x), 4, 4, 9).amax(2).view(len(x), 4, 3, 3)


def wrapped(m, x):
    x = torch.cat([x[..., -1:, :], x, x[..., :1, :]], dim=-2)
    x = torch.cat([x[..., -1:], x, x[..., :1]], dim=-1)
    return F.conv2d(x, m.layer.weight, m.layer.bias)


def joined(m, x):
    return m.layer(torch.cat([x, x.flip(-1)], 1))


def summed(m, x):
    first, second = m.layer.weight.split(4, 1)
    return F.conv2d(x, first, m.layer.bias, padding=1) + F.conv2d(x.flip(-1), second, padding=1)


def low_rank():
    return {"layer": nn.Linear(8, 8), "down": nn.Linear(8, 2, bias=False), "up": nn.Linear(2, 8, bias=False)}


def merged(m, x):
    return F.linear(x, m.layer.weight + m.up.weight @ m.down.weight, m.layer.bias)


CONVOLUTIONS = {
    "unfold and a product": Pair(IMAGES, convolved, unfolded, layer(4, 5, 3, padding=1)),
    "patches": Pair(IMAGES, embedded, by_patches, layer(4, 5, 3, 3)),
    "1x1 and a linear layer": Pair(IMAGES, convolved, pointwise, layer(4, 5, 1)),
    "depthwise by taps": Pair(IMAGES, convolved, by_taps, layer(4, 4, 3, padding=1, groups=4)),
    "groups by chunks": Pair(IMAGES, convolved, by_groups, layer(4, 6, 3, padding=1, groups=2)),
    "transposed, zeros between": Pair(
        IMAGES, convolved, zeros_between, lambda: {"layer": nn.ConvTranspose2d(4, 5, 3, 2)}
    ),
    "pixel shuffle": Pair(IMAGES, lambda m, x: F.pixel_shuffle(x, 2), shuffled),
    "space to depth": Pair(IMAGES, focus, focus_as_one, layer(16, 5, 1)),
    "a mean over the image": Pair(
        IMAGES, lambda m, x: F.adaptive_avg_pool2d(x, 1).flatten(1), lambda m, x: x.mean(dim=(2, 3))
    ),
    "largest of windows": Pair(IMAGES, lambda m, x: F.max_pool2d(x, 2), largest_of_windows),
    "every second place": Pair(
        IMAGES,
        lambda m, x: F.conv2d(x, m.layer.weight, None, 2, 1),
        lambda m, x: m.layer(x)[..., ::2, ::2],
        layer(4, 5, 3, padding=1, bias=False),
    ),
    "nearest neighbours": Pair(
        IMAGES,
        lambda m, x: F.interpolate(x, scale_factor=2),
        lambda m, x: x.repeat_interleave(2, -1).repeat_interleave(2, -2),
    ),
    "wrapped around": Pair(IMAGES, convolved, wrapped, layer(4, 5, 3, padding=1, padding_mode="circular")),
    "joined channels, a sum": Pair(IMAGES, joined, summed, layer(8, 5, 3, padding=1)),
    "a low rank merged": Pair((2, 5, 8), lambda m, x: m.layer(x) + m.up(m.down(x)), merged, low_rank),
}
