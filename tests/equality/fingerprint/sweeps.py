"""Calls of torch's operators with swept arguments, as tables: a function and the values of each of its arguments.

Of operators with rules, which name their arguments. What only moves numbers, or is a function of whole tensors, passes
all arguments on, and is drawn from torch's own samples; of moves a few are here for random programs.

"roll": (torch.roll, [-7, -1, 0, 2], [-4, 0, 3])    rolls of an image by -7, ..., 2 along axis -4, 0 or 3
"""

import math

import torch
import torch.nn.functional as F

GENERATOR = torch.Generator().manual_seed(6)
SHAPE = (2, 4, 6, 6)


def drawn(*shape):
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


KERNELS = {1: drawn(4, 4, 3, 3), 2: drawn(4, 2, 3, 3), 4: drawn(4, 1, 3, 3)}
BACKWARD_KERNELS = {1: drawn(4, 4, 2, 3), 2: drawn(4, 2, 2, 3)}
BIAS, MEAN, VARIANCE, MATRIX = drawn(4), drawn(4), drawn(4).abs() + 0.1, drawn(6, 6)
LOWER = torch.ones(6, 6).tril().bool()
MASKS = {
    "none": None,
    "lower": LOWER,
    "diagonal": torch.eye(6).bool(),
    "all": torch.ones(6, 6).bool(),
    "numbers": MATRIX,
    "zeros": torch.zeros(6, 6, dtype=torch.float64),
    "infinite": torch.zeros(6, 6, dtype=torch.float64).masked_fill(~LOWER, -math.inf),
}


def convolution(x, stride, padding, dilation, groups, bias):
    result = F.conv2d(x, KERNELS[groups], BIAS if bias == "inside" else None, stride, padding, dilation, groups)
    return result if bias in ("inside", "none") else result + BIAS.view(4, 1, 1)


def transposed_convolution(x, stride, padding, more, groups, dilation, bias):
    weight = BACKWARD_KERNELS[groups]
    inside = BIAS if bias == "inside" else None
    result = F.conv_transpose2d(x, weight, inside, stride, padding, more, groups, dilation)
    return result if bias in ("inside", "none") else result + BIAS.view(4, 1, 1)


def resized(x, size, mode, aligned):
    return F.interpolate(x, size=size, mode=mode, align_corners=aligned if mode in ("bilinear", "bicubic") else None)


def batch_norm(x, eps, weight, bias, training):
    factors = BIAS if weight else None, MEAN if bias else None
    return F.batch_norm(x, None if training else MEAN, None if training else VARIANCE, *factors, training, 0.0, eps)


def group_norm(x, groups, eps, weight):
    return F.group_norm(x, groups, BIAS if weight else None, None, eps)


def layer_norm(x, axes, eps, weight):
    shape = x.shape[-axes:]
    return F.layer_norm(x, shape, torch.full(shape, 2.0, dtype=x.dtype) if weight else None, None, eps)


def mean_square_norm(x, axes, eps):
    return F.rms_norm(x, x.shape[-axes:], eps=eps)


def attention(x, scale, mask, queries, keys):
    given = MASKS[mask]
    part = None if given is None else given[:queries, :keys]
    return F.scaled_dot_product_attention(x[:, :, :queries], 2 * x[:, :, :keys], x[:, :, :keys] + 1, part, scale=scale)


def attention_by_hand(x, scale, mask, queries, keys):
    scores = x[:, :, :queries] @ (2 * x[:, :, :keys]).mT * (6**-0.5 if scale is None else scale)
    given = MASKS[mask]
    if given is not None:
        part = given[:queries, :keys]
        scores = scores.masked_fill(~part, -math.inf) if part.dtype == torch.bool else scores + part
    return scores.softmax(-1) @ (x[:, :, :keys] + 1)


def grouped_attention(x, scale, causal):
    return F.scaled_dot_product_attention(x, x[:, :2], x[:, 2:], is_causal=causal, scale=scale, enable_gqa=True)


def variance(x, **arguments):
    return torch.var_mean(x, **arguments)[0]


def written(x, write):
    result = x.clone()
    write(result)
    return result


AXES, EPS = [-4, -3, -2, -1, 0, 1, 2, 3], [1e-5, 1e-5 * (1 + 1e-9), 1e-3, 0.0, -1e-3, 1e-46, 0.1]
SOME_AXES = [(), 0, 1, -1, (0, 1), (1, 2), (-1, -2), (2, 3), (0, 1, 2, 3)]
STRIDES, WINDOWS = [1, 2, (1,), (2,), (1, 2), (2, 1)], [2, 3, (2,), (3, 2)]
FLAGS, BIASES = [False, True], ["none", "inside", "after"]
SIZES = [1, 2, 3, 4, 5, 6, 7, 9, (1, 2), (3, 5), (6, 3)]
SCALES = [0.5, 0.7, 1.0, 1.2, 1.5, 1.7, 2.0, 2.1, (1.2, 2.3), (0.3, 1.4)]
PADS = [(1, 1), (1, 0), (0, 1), (1, 1, 1, 1), (1, 2, 3, 0), (0, 0, 1, 1)]
INDICES = [[0, 2, 1, 3], [3, 2, 1, 0], [-1, 0], [3, 0], [0, 0, 1, 1], [-4, -2, -3, -1]]
STARTS, ENDS, STEPS = [-6, -4, -2, 0, 2, 4, 6], [-6, -3, -1, 3, 6, 9], [1, 2, 3]

GEOMETRY = {
    "convolution": (
        convolution,
        STRIDES,
        [0, 1, (1,), (0, 1), "same", "valid"],
        [1, 2, (2,), (1, 2)],
        [1, 2, 4],
        BIASES,
    ),
    "transposed convolution": (
        transposed_convolution,
        [1, 2, (2,), (1, 2)],
        [0, 1, (1,)],
        [0, 1, (0, 1)],
        [1, 2],
        [1, 2],
        BIASES,
    ),
    "average": (
        F.avg_pool2d,
        WINDOWS,
        [None, 1, 2, (2,), (1, 2)],
        [0, 1, (1,), (1, 0)],
        FLAGS,
        FLAGS,
        [None, 1, 3, -2],
    ),
    "maximum of windows": (
        F.max_pool2d,
        WINDOWS,
        [None, 1, 2, (2,), (1, 2), 5],
        [0, 1, (1,), (1, 0)],
        [1, 2, (2,), (1, 2)],
        FLAGS,
    ),
    "adaptive average": (F.adaptive_avg_pool2d, SIZES),
    "adaptive maximum": (F.adaptive_max_pool2d, SIZES),
    "resized": (resized, SIZES, ["nearest", "nearest-exact", "area", "bilinear", "bicubic"], FLAGS),
    "scaled": (
        lambda x, scale, mode, again: F.interpolate(x, None, scale, mode, recompute_scale_factor=again),
        SCALES,
        ["nearest", "nearest-exact", "area", "bilinear"],
        [None, True, False],
    ),
    "padded": (F.pad, PADS, ["reflect", "replicate", "circular"]),
    "windows folded": (
        lambda x, *window: F.fold(F.unfold(x, *window), x.shape[2:], *window),
        [2, 3, (2, 3)],
        [1, 2, (1, 2)],
        [0, 1, (0, 1)],
        [1, 2, (1, 2)],
    ),
    **{
        name: (lambda x, axes, keep, f=function: f(x, dim=axes, keepdim=keep), SOME_AXES, FLAGS)
        for name, function in {
            "sum": torch.sum,
            "mean": torch.mean,
            "amax": torch.amax,
            "amin": torch.amin,
            "nansum": torch.nansum,
            "logsumexp": torch.logsumexp,
            "all": torch.all,
            "any": torch.any,
        }.items()
    },
    **{
        name: (
            lambda x, axes, keep, less, f=function: f(x, dim=axes, keepdim=keep, correction=less),
            SOME_AXES,
            FLAGS,
            [0, 1, 2, 5, 0.5, None, -1, True],
        )
        for name, function in {"variance": torch.var, "deviation": torch.std, "variance beside": variance}.items()
    },
    "norm": (
        torch.linalg.vector_norm,
        [2, 2.0, 1, 0, 0.5, 3, -1, math.inf, -math.inf],
        SOME_AXES,
        FLAGS,
    ),
    "normalised": (F.normalize, [1, 2, 3, math.inf], AXES, [1e-12, 1e-3, 0.0, 1e-46]),
    "cosine": (lambda x, axis, eps: F.cosine_similarity(x, x * x + 1, axis, eps), AXES, [1e-8, 0.1, 0.0]),
    "cumulative sum": (torch.cumsum, AXES),
    "cumulative product": (torch.cumprod, AXES),
    "sorted": (lambda x, axis, down: x.sort(axis, down).values, AXES, FLAGS),
    "softmax": (torch.softmax, AXES),
    "log softmax": (torch.log_softmax, AXES),
    "flip": (torch.flip, [(axis,) for axis in AXES]),
    "roll": (torch.roll, [-7, -2, -1, 0, 1, 2, 4, 6], AXES),
    "lower": (torch.tril, [-4, -2, -1, 0, 1, 3]),
    "upper": (torch.triu, [-4, -2, -1, 0, 1, 3]),
    "batch norm": (batch_norm, EPS, FLAGS, FLAGS, FLAGS),
    "group norm": (group_norm, [1, 2, 4], EPS, FLAGS),
    "layer norm": (layer_norm, [1, 2, 3], EPS, FLAGS),
    "mean square norm": (mean_square_norm, [1, 2, 3], [*EPS, None]),
    "local norm": (F.local_response_norm, [2, 3, 5], [1e-4, 0.1], [0.75, 1.0], [1.0, 2.0]),
    "attention": (attention, [None, 1.0, 0.5, 6**-0.5, 0.0, -1.0, 1e-46], list(MASKS), [3, 6], [3, 6]),
    "attention by hand": (attention_by_hand, [None, 1.0, 0.5, 6**-0.5, 0.0, -1.0, 1e-46], list(MASKS), [3, 6], [3, 6]),
    "grouped attention": (grouped_attention, [None, 1.0, 6**-0.5], FLAGS),
    "added at": (lambda x, index: x.index_add(1, torch.tensor(index) % 4, x[:, : len(index)]), INDICES),
    "scattered sum": (lambda x, place: x.scatter_add(1, torch.full((2, 1, 6, 6), place), x[:, 1:2]), [0, 1, 2, 3]),
    "sliced": (lambda x, *ends: x[..., slice(*ends)] * 1, STARTS, ENDS, STEPS),
    "slice doubled": (lambda x, *ends: written(x, lambda y: y[..., slice(*ends)].mul_(2)), STARTS, ENDS, STEPS),
}


def images_of(shape):
    """Images on which two calls with equal residues must agree: near and far, whole, zero, of one sign."""
    return [
        drawn(*shape),
        drawn(*shape) * 50,
        drawn(*shape) * 1e-3,
        torch.randint(-3, 4, shape, generator=GENERATOR).double(),
        torch.zeros(shape, dtype=torch.float64),
        drawn(*shape).abs() + 0.1,
        -drawn(*shape).abs(),
        torch.ones(shape, dtype=torch.float64),
    ]


IMAGES = images_of(SHAPE)
