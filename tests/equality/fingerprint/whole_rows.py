"""Functions of whole tensors and pictures against the same by other operators, and one with a planted change."""

import torch
import torch.nn.functional as F

WEIGHT = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def tokens(x):
    return x.flatten(2).mT


def resized(**settings):
    return lambda x: F.interpolate(2 * x, **settings)


def sampled(order, **settings):
    return lambda x: F.grid_sample(2 * x, x[:, order].permute(0, 2, 3, 1), **settings)


OF_WHOLE_TENSORS = {
    "sorted": (lambda x: x.sort(-1).values, lambda x: x.sort(-2).values),
    "the largest two": (lambda x: x.topk(2, 1).values, lambda x: x.topk(2, 1, largest=False).values),
    "the second smallest": (lambda x: x.kthvalue(2, 1).values, lambda x: x.kthvalue(3, 1).values),
    "the median of all": (lambda x: x.median(), lambda x: x.abs().median()),
    "the place of the largest": (lambda x: x.argmax(2), lambda x: x.flip(2).argmax(2)),
    "distances": (lambda x: torch.cdist(x[0, 0], x[0, 1, :3]), lambda x: torch.cdist(x[0, 0], x[0, 1, :3], p=1.0)),
    "a form of two vectors": (
        lambda x: F.bilinear(tokens(x), tokens(x).square(), WEIGHT),
        lambda x: F.bilinear(tokens(x).square(), tokens(x), WEIGHT),
    ),
    "running products": (lambda x: x.cumprod(1), lambda x: x.flip(1).cumprod(1)),
    "whether all are positive": (lambda x: (x > 0).all(1), lambda x: (x > 0).any(1)),
}
CASES = {
    **{
        name: (lambda x, f=function: f(x / 2 + x / 2), function, planted)
        for name, (function, planted) in OF_WHOLE_TENSORS.items()
    },
    "made larger": (
        resized(scale_factor=2, mode="bilinear"),
        lambda x: F.interpolate(x + x, scale_factor=2, mode="bilinear"),
        resized(scale_factor=2, mode="bilinear", align_corners=True),
    ),
    "made smaller, channels and rows in another order": (
        resized(size=(3, 4), mode="bicubic"),
        lambda x: resized(size=(3, 4), mode="bicubic")(x.flip(1, 2)).flip(1, 2),
        lambda x: resized(size=(3, 4), mode="bicubic")(x.roll(1, 2)).roll(1, 2),
    ),
    "made larger after a product of channels": (
        lambda x: F.interpolate(F.conv2d(x, WEIGHT[0, :, :, None, None]), scale_factor=2, mode="bilinear"),
        lambda x: F.conv2d(F.interpolate(x, scale_factor=2, mode="bilinear"), WEIGHT[0, :, :, None, None]),
        lambda x: F.conv2d(F.interpolate(x, scale_factor=2, mode="bicubic"), WEIGHT[0, :, :, None, None]),
    ),
    "a row made larger": (
        lambda x: F.interpolate(x[0], size=9, mode="linear"),
        lambda x: F.interpolate(x[:1].squeeze(0), size=9, mode="linear"),
        lambda x: F.interpolate(x[0].flip(2), size=9, mode="linear").flip(2),
    ),
    "read at points of its own": (
        sampled([0, 1], align_corners=False),
        lambda x: F.grid_sample(x + x, x[:, :2].movedim(1, -1), align_corners=False),
        sampled([1, 0], align_corners=False),
    ),
    "read at points, zeros around": (
        sampled([0, 1], align_corners=False, padding_mode="zeros"),
        sampled([0, 1], align_corners=False),
        sampled([0, 1], align_corners=False, padding_mode="border"),
    ),
}
"""A function, the same by other operators, and another function."""
