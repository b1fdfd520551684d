"""Networks that are written in two ways: the same map, an alias of an operator, or what only looks alike."""

import torch
from torch import nn
from torch.nn import functional as F

IMAGES = torch.rand(2, 3, 9, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
MATRIX = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
VECTOR = torch.randn(5, generator=torch.Generator().manual_seed(2))
KERNEL = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(3))


class Written(nn.Module):
    """Two convolutions, and a function of what they return."""

    def __init__(self, function):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.other = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 1)
        self.function = function
        self.register_buffer("matrix", MATRIX.clone())
        self.register_buffer("vector", VECTOR.clone())
        self.register_buffer("kernel", KERNEL.clone())
        self.register_buffer("short", KERNEL[:, :, :1, :2].clone())
        self.register_buffer("zero", torch.zeros(()))

    def forward(self, image):
        return self.function(self, self.conv(image), self.other(image))


class Many(Written):
    """Many functions of what two convolutions return, each of copies of its own."""

    def forward(self, image):
        first, second = self.conv(image), self.other(image)
        return [each(self, first.clone(), second.clone()) for each in self.function]


def ones(like):
    return torch.ones_like(like)


def cat_as(dtype, x, y):
    return torch.cat([x.detach(), y.detach()], 1, out=torch.cat([y, x], 1).detach().to(dtype))


def batch_norm(x, numbers):
    return torch.ops.aten._native_batch_norm_legit_no_training(x, None, None, numbers, numbers**2, 0.1, 1e-5)


def last(x):
    return x.permute(0, 2, 3, 1)


def of_axes(x, axes):
    """Images with so many axes behind their channels."""
    return (x.flatten(2), x, x.unsqueeze(1))[axes - 1]


SAME = {
    "order of a sum": (lambda n, x, y: x + y, lambda n, x, y: y + x),
    "order of a product": (lambda n, x, y: x * y, lambda n, x, y: y * x),
    "a function for an operator": (lambda n, x, y: x + y, lambda n, x, y: torch.add(x, y)),
    "in place": (lambda n, x, y: x + y, lambda n, x, y: x.clone().add_(y)),
    "a difference of a number": (lambda n, x, y: x - 2.0, lambda n, x, y: x + -2.0),
    "a difference of nothing": (lambda n, x, y: x, lambda n, x, y: x - 0.0),
    "a whole number": (lambda n, x, y: x * 2, lambda n, x, y: x * 2.0),
    "the largest whole number that counts": (lambda n, x, y: x * 2**53, lambda n, x, y: x * 2.0**53),
    "a quotient by a power of two": (lambda n, x, y: x / 4, lambda n, x, y: x * 0.25),
    "a square": (lambda n, x, y: x**2, lambda n, x, y: x * x),
    "square": (lambda n, x, y: x.square(), lambda n, x, y: x * x),
    "times one": (lambda n, x, y: x, lambda n, x, y: x * 1),
    "negation": (lambda n, x, y: -x, lambda n, x, y: x * -1),
    "dead code": (lambda n, x, y: x, lambda n, x, y: (x.exp().sum(), x)[1]),
    "relu as clamp": (lambda n, x, y: x.relu(), lambda n, x, y: x.clamp(min=0)),
    "relu as clamp_min": (lambda n, x, y: x.relu(), lambda n, x, y: x.clamp_min(0.0)),
    "relu twice": (lambda n, x, y: x.relu(), lambda n, x, y: x.relu().relu()),
    "relu6 as clamp": (lambda n, x, y: F.relu6(x), lambda n, x, y: x.clamp(0, 6)),
    "relu6 as hardtanh": (lambda n, x, y: F.relu6(x), lambda n, x, y: F.hardtanh(x, 0.0, 6.0)),
    "silu": (lambda n, x, y: F.silu(x), lambda n, x, y: x * torch.sigmoid(x)),
    "mean over negative axes": (lambda n, x, y: x.mean((2, 3)), lambda n, x, y: x.mean((-2, -1))),
    "axes in another order": (lambda n, x, y: x.mean((2, 3)), lambda n, x, y: x.mean((3, 2))),
    "mean with the axes kept": (
        lambda n, x, y: x.mean((2, 3)),
        lambda n, x, y: x.mean((2, 3), keepdim=True).flatten(1),
    ),
    "pooling to one pixel": (lambda n, x, y: x.mean((2, 3), True), lambda n, x, y: F.adaptive_avg_pool2d(x, 1)),
    "pooling to one pixel, flattened": (
        lambda n, x, y: x.mean((2, 3)),
        lambda n, x, y: F.adaptive_avg_pool2d(x, (1, 1)).flatten(1),
    ),
    "squeezed": (lambda n, x, y: x.mean((2, 3)), lambda n, x, y: F.adaptive_avg_pool2d(x, 1)[:, :, 0, 0]),
    "a pool whose stride is told": (lambda n, x, y: F.max_pool2d(x, 2), lambda n, x, y: F.max_pool2d(x, (2, 2), 2)),
    "an average pool by axes": (lambda n, x, y: F.avg_pool2d(x, 2), lambda n, x, y: F.avg_pool2d(x, (2, 2), (2, 2))),
    "permuted there and back": (lambda n, x, y: x.relu(), lambda n, x, y: last(x).permute(0, 3, 1, 2).relu()),
    "two transpositions": (lambda n, x, y: last(x), lambda n, x, y: x.transpose(1, 2).transpose(2, 3)),
    "movedim": (lambda n, x, y: last(x), lambda n, x, y: x.movedim(1, -1)),
    "flattened by view": (lambda n, x, y: x.flatten(1), lambda n, x, y: x.reshape(x.shape[0], -1)),
    "flattened twice": (lambda n, x, y: x.flatten(1), lambda n, x, y: x.flatten(2).flatten(1)),
    "an axis more and less": (lambda n, x, y: x, lambda n, x, y: x.unsqueeze(2).squeeze(2)),
    "a copy": (lambda n, x, y: x, lambda n, x, y: x.clone().contiguous().detach()),
    "the own dtype": (lambda n, x, y: x, lambda n, x, y: x.to(x.dtype).type_as(x)),
    "linear as a product": (
        lambda n, x, y: F.linear(last(x), n.matrix, n.vector),
        lambda n, x, y: last(x) @ n.matrix.t() + n.vector,
    ),
    "linear as addmm": (
        lambda n, x, y: F.linear(x.mean((2, 3)), n.matrix, n.vector),
        lambda n, x, y: torch.addmm(n.vector, x.mean((2, 3)), n.matrix.t()),
    ),
    "chunks as slices": (lambda n, x, y: x.chunk(2, 1)[0], lambda n, x, y: x[:, :2]),
    "split": (lambda n, x, y: x.split(2, 1)[1], lambda n, x, y: x[:, 2:]),
    "unbind": (lambda n, x, y: x.unbind(1)[1], lambda n, x, y: x[:, 1]),
    "an expansion to the own shape": (lambda n, x, y: x, lambda n, x, y: x.expand_as(y)),
    "order of a comparison": (lambda n, x, y: torch.eq(x, y), lambda n, x, y: torch.eq(y, x)),
    "a momentum that evaluation does not read": (
        lambda n, x, y: F.batch_norm(x, n.vector[:4], n.vector[:4].square(), momentum=0.1),
        lambda n, x, y: F.batch_norm(x, n.vector[:4], n.vector[:4].square(), momentum=0.5),
    ),
    "groups with another kernel": (
        lambda n, x, y: F.group_norm(x, 2),
        lambda n, x, y: torch.group_norm(x, 2, cudnn_enabled=False),
    ),
    "narrow": (lambda n, x, y: x.narrow(1, 1, 2), lambda n, x, y: x[:, 1:3]),
    "from the end": (lambda n, x, y: x[:, 3], lambda n, x, y: x.select(1, -1)),
    "stack as cat": (
        lambda n, x, y: torch.stack([x, y], 1),
        lambda n, x, y: torch.cat([x.unsqueeze(1), y.unsqueeze(1)], 1),
    ),
    "cat over a negative axis": (lambda n, x, y: torch.cat([x, y], 1), lambda n, x, y: torch.cat((x, y), dim=-3)),
    "padding": (lambda n, x, y: F.pad(x, (1, 1, 1, 1)), lambda n, x, y: nn.ZeroPad2d(1)(x)),
    "padding of nothing": (lambda n, x, y: F.pad(x, (1, 1)), lambda n, x, y: F.pad(x, (1, 1, 0, 0))),
    "softmax over a negative axis": (lambda n, x, y: x.softmax(1), lambda n, x, y: F.softmax(x, dim=-3)),
    "dropout in evaluation": (lambda n, x, y: x, lambda n, x, y: F.dropout(x, 0.5, training=False)),
    "places in memory": (
        lambda n, x, y: x.as_strided((4,), (1,), 2),
        lambda n, x, y: x.clone().as_strided((4,), (1,), 2),
    ),
    "clamp as maximum": (lambda n, x, y: x.clamp(min=2), lambda n, x, y: torch.maximum(x, torch.full_like(x, 2.0))),
    "clamp as maximum of a constant": (lambda n, x, y: x.clamp(min=1), lambda n, x, y: x.new_ones(()).maximum(x)),
    "relu6 as minimum": (lambda n, x, y: F.relu6(x), lambda n, x, y: torch.minimum(x.relu(), x.new_full((), 6.0))),
    "clamps that overlap": (lambda n, x, y: x.clamp(-1, 2), lambda n, x, y: x.clamp(min=-1).clamp(-3, 2)),
    "linear as einsum": (
        lambda n, x, y: F.linear(last(x), n.matrix, n.vector),
        lambda n, x, y: torch.einsum("bchw,oc->bhwo", x, n.matrix) + n.vector,
    ),
    "linear of two axes as einsum": (
        lambda n, x, y: F.linear(x.mean((2, 3)), n.matrix),
        lambda n, x, y: torch.einsum("oc,bc->bo", n.matrix, x.mean((2, 3))),
    ),
    "matmul as einsum": (
        lambda n, x, y: x.flatten(2) @ y.flatten(2).mT,
        lambda n, x, y: torch.einsum("bcn,bdn->bcd", x.flatten(2), y.flatten(2)),
    ),
    "matmul of many as einsum": (
        lambda n, x, y: x @ y.mT,
        lambda n, x, y: torch.einsum("bcij,bckj->bcik", x, y),
    ),
    "zeros before a convolution": (
        lambda n, x, y: F.conv2d(x, n.kernel, padding=(1, 2)),
        lambda n, x, y: F.conv2d(F.pad(x, (2, 2, 1, 1)), n.kernel),
    ),
    "zeros before a convolution of one image": (
        lambda n, x, y: F.conv2d(x[0], n.kernel, padding=1),
        lambda n, x, y: F.conv2d(F.pad(x[0], (1, 1, 1, 1)), n.kernel),
    ),
    "zeros before a convolution with some": (
        lambda n, x, y: F.conv2d(x, n.kernel, padding=(1, 2)),
        lambda n, x, y: F.conv2d(nn.ZeroPad2d((1, 1, 0, 0))(x), n.kernel, padding=1),
    ),
    "zeros before a convolution whose weight is computed": (
        lambda n, x, y: F.conv2d(x, w, padding=1) if (w := n.kernel * 3) is not None else x,
        lambda n, x, y: F.conv2d(F.pad(x, (1, 1, 1, 1)), w) if (w := n.kernel * 3) is not None else x,
    ),
}


ATEN = torch.ops.aten
ALIASES = {
    "_native_batch_norm_legit_no_training": (
        lambda n, x, y: ATEN._native_batch_norm_legit_no_training(
            x, None, None, n.vector[:4], n.vector[:4].square(), 0.1, 1e-5
        )[0],
        lambda n, x, y: F.batch_norm(x, n.vector[:4], n.vector[:4].square()),
    ),
    "_to_copy": (lambda n, x, y: ATEN._to_copy(x, dtype=x.dtype), lambda n, x, y: x),
    "_unsafe_view": (lambda n, x, y: ATEN._unsafe_view(x, [x.shape[0], 4, -1]), lambda n, x, y: x.flatten(2)),
    "adaptive_avg_pool1d": (
        lambda n, x, y: F.adaptive_avg_pool1d(x.flatten(2), 1),
        lambda n, x, y: x.flatten(2).mean(2, True),
    ),
    "adaptive_avg_pool3d": (
        lambda n, x, y: F.adaptive_avg_pool3d(x.unsqueeze(2), 1),
        lambda n, x, y: x.unsqueeze(2).mean((2, 3, 4), True),
    ),
    "alias": (lambda n, x, y: ATEN.alias(x), lambda n, x, y: x),
    **{
        name: (lambda n, x, y, name=name: getattr(torch, name)(x, 0.5, False), lambda n, x, y: x)
        for name in ("alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    },
    "amax": (lambda n, x, y: x.amax(2), lambda n, x, y: x.amax(-2)),
    "amin": (lambda n, x, y: x.amin(2), lambda n, x, y: x.amin(-2, True).squeeze(2)),
    "avg_pool1d": (lambda n, x, y: F.avg_pool1d(x.flatten(2), 2), lambda n, x, y: F.avg_pool1d(x.flatten(2), 2, 2)),
    "avg_pool3d": (
        lambda n, x, y: F.avg_pool3d(x.unsqueeze(2), (1, 2, 2)),
        lambda n, x, y: F.avg_pool3d(x.unsqueeze(2), (1, 2, 2), (1, 2, 2)),
    ),
    "broadcast_to": (lambda n, x, y: torch.broadcast_to(x[:, :1], y.shape), lambda n, x, y: x[:, :1].expand_as(y)),
    "clamp_max": (lambda n, x, y: torch.clamp_max(x, 2.0), lambda n, x, y: x.clamp(max=2)),
    "clip": (lambda n, x, y: x.clip(-1, 2), lambda n, x, y: x.clamp(-1, 2)),
    "column_stack": (lambda n, x, y: torch.column_stack([x, y]), lambda n, x, y: torch.cat([x, y], 1)),
    "concat": (lambda n, x, y: torch.concat([x, y], 1), lambda n, x, y: torch.cat([x, y], 1)),
    "concatenate": (lambda n, x, y: torch.concatenate([x, y], 1), lambda n, x, y: torch.cat([x, y], 1)),
    "constant_pad_nd": (lambda n, x, y: ATEN.constant_pad_nd(x, [1, 1]), lambda n, x, y: F.pad(x, (1, 1))),
    "contiguous": (lambda n, x, y: last(x).contiguous(), lambda n, x, y: last(x)),
    "divide": (lambda n, x, y: torch.divide(x, 4), lambda n, x, y: x * 0.25),
    "dstack": (lambda n, x, y: torch.dstack([x, y]), lambda n, x, y: torch.cat([x, y], 2)),
    **{
        name: (
            lambda n, x, y, name=name: getattr(torch, name)(x, y),
            lambda n, x, y, name=name: getattr(torch, name)(y, x),
        )
        for name in ("eq", "ne", "logical_and", "logical_or", "logical_xor")
    },
    "expand": (lambda n, x, y: x[:, :1].expand(y.shape), lambda n, x, y: x[:, :1].expand_as(y)),
    "full": (
        lambda n, x, y: x * torch.full((4, 1, 1), 1.0, dtype=x.dtype),
        lambda n, x, y: x * torch.ones((4, 1, 1), dtype=x.dtype),
    ),
    "zeros_like": (
        lambda n, x, y: torch.maximum(x, torch.zeros_like(x)),
        lambda n, x, y: torch.maximum(x, torch.full_like(x, 0.0)),
    ),
    "full_like": (lambda n, x, y: x * torch.full_like(x, 1.0), lambda n, x, y: x * torch.ones_like(x)),
    "hstack": (lambda n, x, y: torch.hstack([x, y]), lambda n, x, y: torch.cat([x, y], 1)),
    "layer_norm": (
        lambda n, x, y: ATEN.layer_norm(last(x), [4], None, None, 1e-5, False),
        lambda n, x, y: F.layer_norm(last(x), (4,)),
    ),
    "lift_fresh_copy": (lambda n, x, y: x + ATEN.lift_fresh_copy(n.zero), lambda n, x, y: x + n.zero),
    "log_softmax": (lambda n, x, y: x.log_softmax(1), lambda n, x, y: F.log_softmax(x, -3)),
    "max_pool1d": (lambda n, x, y: F.max_pool1d(x.flatten(2), 2), lambda n, x, y: F.max_pool1d(x.flatten(2), 2, 2)),
    "max_pool1d_with_indices": (
        lambda n, x, y: ATEN.max_pool1d_with_indices(x.flatten(2), [2])[0],
        lambda n, x, y: F.max_pool1d(x.flatten(2), 2),
    ),
    "max_pool2d_with_indices": (
        lambda n, x, y: F.max_pool2d(x, 2, return_indices=True)[0],
        lambda n, x, y: F.max_pool2d(x, (2, 2), 2),
    ),
    "max_pool3d": (
        lambda n, x, y: F.max_pool3d(x.unsqueeze(2), (1, 2, 2)),
        lambda n, x, y: F.max_pool3d(x.unsqueeze(2), (1, 2, 2), (1, 2, 2)),
    ),
    "max_pool3d_with_indices": (
        lambda n, x, y: F.max_pool3d(x.unsqueeze(2), (1, 2, 2), return_indices=True)[0],
        lambda n, x, y: F.max_pool3d(x.unsqueeze(2), (1, 2, 2)),
    ),
    "mm": (lambda n, x, y: torch.mm(x.mean((2, 3)), n.matrix.t()), lambda n, x, y: F.linear(x.mean((2, 3)), n.matrix)),
    "moveaxis": (lambda n, x, y: x.moveaxis(1, -1), lambda n, x, y: last(x)),
    "multiply": (lambda n, x, y: torch.multiply(x, y), lambda n, x, y: y * x),
    "negative": (lambda n, x, y: torch.negative(x), lambda n, x, y: x * -1),
    "new_ones": (lambda n, x, y: x * x.new_ones((4, 1, 1)), lambda n, x, y: x * x.new_full((4, 1, 1), 1.0)),
    "new_zeros": (lambda n, x, y: x * x.new_zeros((4, 1, 1)), lambda n, x, y: x * x.new_full((4, 1, 1), 0.0)),
    "numpy_T": (lambda n, x, y: x.mean((2, 3)).T, lambda n, x, y: x.mean((2, 3)).t()),
    "positive": (lambda n, x, y: torch.positive(x), lambda n, x, y: x),
    "ravel": (lambda n, x, y: x.ravel(), lambda n, x, y: x.reshape(-1)),
    **{
        f"{kind}_pad{axes}d": (
            lambda n, x, y, kind=kind, axes=axes, mode=mode: getattr(ATEN, f"{kind}_pad{axes}d")(
                of_axes(x, axes), [0, 1] * axes
            ),
            lambda n, x, y, axes=axes, mode=mode: F.pad(of_axes(x, axes), (0, 1) * axes, mode=mode),
        )
        for kind, mode in (("reflection", "reflect"), ("replication", "replicate"))
        for axes in (1, 2, 3)
    },
    "reshape_as": (lambda n, x, y: x.flatten(2).reshape_as(y), lambda n, x, y: x),
    "rsub": (lambda n, x, y: torch.rsub(x, y), lambda n, x, y: y - x),
    "split_with_sizes": (lambda n, x, y: x.split([1, 3], 1)[1], lambda n, x, y: x[:, 1:]),
    "subtract": (lambda n, x, y: torch.subtract(x, 2.0), lambda n, x, y: x + -2.0),
    "swapaxes": (lambda n, x, y: x.swapaxes(1, 2), lambda n, x, y: x.transpose(2, 1)),
    "swapdims": (lambda n, x, y: x.swapdims(1, 3), lambda n, x, y: x.permute(0, 3, 2, 1)),
    "true_divide": (lambda n, x, y: torch.true_divide(x, 4), lambda n, x, y: x * 0.25),
    "unflatten": (lambda n, x, y: x.unflatten(1, (2, 2)).flatten(1, 2), lambda n, x, y: x),
    "unsafe_chunk": (lambda n, x, y: torch.unsafe_chunk(x, 2, 1)[1], lambda n, x, y: x[:, 2:]),
    "unsafe_split": (lambda n, x, y: torch.unsafe_split(x, 3, 1)[1], lambda n, x, y: x[:, 3:]),
    "view": (lambda n, x, y: last(x).contiguous().view(x.shape[0], -1), lambda n, x, y: last(x).flatten(1)),
    "view_as": (lambda n, x, y: x.flatten(2).view_as(y), lambda n, x, y: x),
    "vstack": (lambda n, x, y: torch.vstack([x, y]), lambda n, x, y: torch.cat([x, y])),
    "zeros": (
        lambda n, x, y: x * torch.zeros((4, 1, 1), dtype=x.dtype),
        lambda n, x, y: x * torch.full((4, 1, 1), 0.0, dtype=x.dtype),
    ),
}
"""Operators of torch by their names, each written in another way."""
SAME |= ALIASES


ALIKE = {
    "a bias on a bias": (
        lambda n, x, y: F.linear(last(x), n.matrix, 2 * n.vector) + n.vector,
        lambda n, x, y: F.linear(last(x), n.matrix) + n.vector,
    ),
    "order of a difference": (lambda n, x, y: x - y, lambda n, x, y: y - x),
    "order of a quotient": (lambda n, x, y: x / (y.exp()), lambda n, x, y: y / (x.exp())),
    "a difference of minus one": (lambda n, x, y: x, lambda n, x, y: x - -1.0),
    "a quotient by no power of two": (lambda n, x, y: x / 3, lambda n, x, y: x * (1 / 3)),
    "rows for a longer vector": (
        lambda n, x, y: torch.hstack([x.mean((0, 2, 3)), y.mean((0, 2, 3))]),
        lambda n, x, y: torch.vstack([x.mean((0, 2, 3)), y.mean((0, 2, 3))]),
    ),
    "a scaled sum": (lambda n, x, y: torch.add(x, y, alpha=2), lambda n, x, y: torch.add(y, x, alpha=2)),
    "axes of a mean": (lambda n, x, y: x - x.mean(2, True), lambda n, x, y: x - x.mean(3, True)),
    "a sum for a mean": (lambda n, x, y: x.mean((2, 3)), lambda n, x, y: x.sum((2, 3))),
    "a bound of a clamp": (lambda n, x, y: x.clamp(0, 6), lambda n, x, y: x.clamp(0, 5)),
    "a clamp from above": (lambda n, x, y: x.clamp(min=0), lambda n, x, y: x.clamp(max=0)),
    "a threshold that is filled": (lambda n, x, y: x.relu(), lambda n, x, y: F.threshold(x, 0.1, 0.0)),
    "another gate": (lambda n, x, y: F.silu(x), lambda n, x, y: x * torch.sigmoid(y)),
    "a power": (lambda n, x, y: x**2, lambda n, x, y: x**4),
    "an axis of a softmax": (lambda n, x, y: x.softmax(2), lambda n, x, y: x.softmax(3)),
    "another chunk": (lambda n, x, y: x.chunk(2, 1)[0], lambda n, x, y: x.chunk(2, 1)[1]),
    "a split at places out of order": (lambda n, x, y: x.tensor_split([3, 1, 2], 1)[2], lambda n, x, y: x[:, 3:4]),
    "bits for numbers": (lambda n, x, y: x.view(torch.int32).double(), lambda n, x, y: x.double()),
    "pairs of numbers for complex ones": (
        lambda n, x, y: torch.complex(x, y),
        lambda n, x, y: ATEN.view_as_real_copy(torch.complex(x, y)),
    ),
    "whole numbers as floats": (
        lambda n, x, y: (x * 1e9).long().double(),
        lambda n, x, y: ((x * 1e9).long() - 0.0).double(),
    ),
    "digits of a product": (
        lambda n, x, y: torch.mm(x.mean((2, 3)).half(), n.matrix.t().half()).double(),
        lambda n, x, y: torch.mm(x.mean((2, 3)).half(), n.matrix.t().half(), out_dtype=torch.float32).double(),
    ),
    "another part of an unbind": (lambda n, x, y: x.unbind(1)[1], lambda n, x, y: x.unbind(1)[2]),
    "one channel for all": (lambda n, x, y: x, lambda n, x, y: x[:, :1].expand_as(x)),
    "a smaller one for a larger": (lambda n, x, y: torch.fmax(x, y), lambda n, x, y: torch.fmin(x, y)),
    "what a batch norm adds": (
        lambda n, x, y: F.batch_norm(x, n.vector[:4], n.vector[:4].square()),
        lambda n, x, y: F.batch_norm(x, n.vector[:4], n.vector[:4].square(), eps=1e-3),
    ),
    "groups of a norm": (lambda n, x, y: F.group_norm(x, 2), lambda n, x, y: F.group_norm(x, 4)),
    "a cast to fewer digits": (lambda n, x, y: x, lambda n, x, y: x.half().float()),
    "dropout in evaluation of another tensor": (lambda n, x, y: x, lambda n, x, y: F.dropout(y, 0.5, training=False)),
    "another start": (lambda n, x, y: x.narrow(1, 1, 2), lambda n, x, y: x.narrow(1, 2, 2)),
    "another place": (lambda n, x, y: x.select(1, 0), lambda n, x, y: x.select(1, 1)),
    "order of a stack": (lambda n, x, y: torch.stack([x, y], 1), lambda n, x, y: torch.stack([y, x], 1)),
    "a sign": (lambda n, x, y: x, lambda n, x, y: -x),
    "a sum for a pool": (lambda n, x, y: F.adaptive_avg_pool2d(x, 1), lambda n, x, y: x.sum((2, 3), True)),
    "the sign of a product": (
        lambda n, x, y: torch.addmm(n.vector, x.mean((2, 3)), n.matrix.t()),
        lambda n, x, y: torch.addmm(n.vector, x.mean((2, 3)), -n.matrix.t()),
    ),
    "ones for zeros": (lambda n, x, y: x * torch.zeros_like(x), lambda n, x, y: x * torch.ones_like(x)),
    "a step": (lambda n, x, y: x[:, ::2], lambda n, x, y: x[:, :2]),
    "order of a cat": (lambda n, x, y: torch.cat([x, y], 1), lambda n, x, y: torch.cat([y, x], 1)),
    "a transposition": (lambda n, x, y: x[..., :8, :], lambda n, x, y: x[..., :8, :].transpose(2, 3)),
    "a number of a padding": (lambda n, x, y: F.pad(x, (1, 1)), lambda n, x, y: F.pad(x, (1, 1), value=1.0)),
    "a mode of a padding": (lambda n, x, y: F.pad(x, (1, 1)), lambda n, x, y: F.pad(x, (1, 1, 0, 0), mode="reflect")),
    "an amount of a padding": (lambda n, x, y: F.pad(x, (1, 1)), lambda n, x, y: F.pad(x, (2, 0))),
    "a kind of pool": (lambda n, x, y: F.max_pool2d(x, 2), lambda n, x, y: F.avg_pool2d(x, 2)),
    "what a pool counts": (
        lambda n, x, y: F.avg_pool2d(x, 3, 1, 1),
        lambda n, x, y: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    ),
    "a matrix transposed": (
        lambda n, x, y: F.linear(last(x), n.matrix[:4]),
        lambda n, x, y: F.linear(last(x), n.matrix[:4].t()),
    ),
    "a bias of a product": (
        lambda n, x, y: F.linear(last(x), n.matrix, n.vector),
        lambda n, x, y: F.linear(last(x), n.matrix) - n.vector,
    ),
    "a maximum with another number": (lambda n, x, y: x.relu(), lambda n, x, y: torch.maximum(x, n.zero + 1e-7)),
    "a maximum with some numbers": (
        lambda n, x, y: x.mean((2, 3)).clamp(min=0.25),
        lambda n, x, y: torch.maximum(x.mean((2, 3)), torch.tensor([0.25, 0.25, 0.25, 0.5])),
    ),
    "a maximum of other axes": (lambda n, x, y: x[:1].relu(), lambda n, x, y: torch.maximum(x[:1], 0 * x.detach())),
    "a minimum for a relu": (lambda n, x, y: x.relu(), lambda n, x, y: torch.minimum(x, n.zero)),
    "clamps apart": (lambda n, x, y: x.clamp(1, 1), lambda n, x, y: x.clamp(1, 2).clamp(-1, 0)),
    "an einsum of the matrix transposed": (
        lambda n, x, y: F.linear(last(x), n.matrix[:4]),
        lambda n, x, y: torch.einsum("bchw,co->bhwo", x, n.matrix[:4]),
    ),
    "an einsum over another axis": (
        lambda n, x, y: x[..., :8, :] @ y[..., :8, :].mT,
        lambda n, x, y: torch.einsum("bcij,bcjk->bcik", x[..., :8, :], y[..., :8, :]),
    ),
    "an einsum in another order": (
        lambda n, x, y: torch.einsum("bcn,bdn->bcd", x.flatten(2), y.flatten(2)),
        lambda n, x, y: torch.einsum("bcn,bdn->bdc", x.flatten(2), y.flatten(2)),
    ),
    "an einsum over two axes": (
        lambda n, x, y: torch.einsum("bcij,bdij->bcd", x, y),
        lambda n, x, y: torch.einsum("bcij,bdij->bcd", x, y.flip(3)),
    ),
    **{
        f"{name} before a convolution": (
            lambda n, x, y: F.conv2d(x, n.kernel, padding=1),
            lambda n, x, y, pad=pad: F.conv2d(pad(x), n.kernel),
        )
        for name, pad in {
            "ones": lambda x: F.pad(x, (1, 1, 1, 1), value=1.0),
            "a reflection": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
            "zeros that are turned": lambda x: F.pad(x, (1, 1, 1, 1)).flip(3),
        }.items()
    },
    "zeros where pixels were": (
        lambda n, x, y: F.conv2d(x, n.kernel, padding=1),
        lambda n, x, y: F.conv2d(F.pad(x, (-1, -1, -1, -1)), n.kernel, padding=2),
    ),
    "other minimum": (lambda n, x, y: torch.maximum(x, y), lambda n, x, y: torch.minimum(x, y)),
    "dropout in training": (lambda n, x, y: x, lambda n, x, y: F.dropout(x, 0.5)),
    "an update that is read": (lambda n, x, y: x + y, lambda n, x, y: (x.mul_(2), x)[0] + y),
    "an update of what dropout read": (
        lambda n, x, y: (F.dropout(x, 0.5).add_(1), x)[1],
        lambda n, x, y: F.dropout(x, 0.5).add_(1),
    ),
    "a number drawn before": (
        lambda n, x, y: torch.rand_like(x),
        lambda n, x, y: (x.clone().bernoulli_(0.0), torch.rand_like(x))[1],
    ),
    "an update of a list": (lambda n, x, y: x, lambda n, x, y: (torch._foreach_add_([x], 1.0), x)[1]),
    "an update of other bits": (
        lambda n, x, y: (x.view(torch.int32).bitwise_and_(7), x)[1] > 5,
        lambda n, x, y: (x.view(torch.int32).bitwise_and_(7), x)[0] > 5,
    ),
    "a comparison in place": (lambda n, x, y: x > 0, lambda n, x, y: x.clone().gt_(0)),
    "a comparison in numbers": (lambda n, x, y: x >= y, lambda n, x, y: torch.ge(x, y, out=ones(x))),
    "a cat into numbers of another kind": (
        lambda n, x, y: cat_as(x.dtype, x, y),
        lambda n, x, y: cat_as(torch.complex64, x, y),
    ),
    "a range in more digits": (
        lambda n, x, y: torch.arange(5, out=torch.empty(5)),
        lambda n, x, y: torch.arange(5, out=torch.empty(5, dtype=torch.double)),
    ),
    "an axis behind an empty vector": (
        lambda n, x, y: torch.cat([torch.empty(0), x, y], 1),
        lambda n, x, y: torch.cat([torch.empty(0), x, y], 2),
    ),
    "the sign of a padding": (lambda n, x, y: F.pad(x, (1, 1)), lambda n, x, y: F.pad(x, (1, 1), value=-0.0)),
    "a large number of a padding": (
        lambda n, x, y: torch.constant_pad_nd(x.long(), (1, 1), 2**53),
        lambda n, x, y: torch.constant_pad_nd(x.long(), (1, 1), 2**53 + 1),
    ),
    "the sign of nothing": (lambda n, x, y: x, lambda n, x, y: x - -0.0),
    "the sign of a threshold": (lambda n, x, y: x.relu(), lambda n, x, y: F.threshold(x, 0.0, 0.0)),
    "another comparison": (lambda n, x, y: torch.eq(x, y), lambda n, x, y: torch.ne(x, y)),
    "the sign of a maximum": (lambda n, x, y: x.relu(), lambda n, x, y: torch.maximum(x, n.zero)),
    "the sign of a minimum": (lambda n, x, y: x.clamp(max=0), lambda n, x, y: torch.minimum(x, torch.zeros_like(x))),
    **{
        f"order of {name}": (
            lambda n, x, y, name=name: getattr(torch, name)(x, -x),
            lambda n, x, y, name=name: getattr(torch, name)(-x, x),
        )
        for name in ("maximum", "minimum", "fmax", "fmin")
    },
    "the signs of a maximum": (
        lambda n, x, y: x.mean((2, 3)).relu(),
        lambda n, x, y: torch.maximum(x.mean((2, 3)), torch.tensor([0.0, -0.0, 0.0, 0.0])),
    ),
    "a padding by a size": (lambda n, x, y: x, lambda n, x, y: F.pad(x, (0, x.shape[2] % 3))),
    "a factor by a size": (lambda n, x, y: x + y, lambda n, x, y: torch.add(x, y, alpha=x.shape[2] // 9)),
    "a limit by a size": (lambda n, x, y: x.clamp(max=1), lambda n, x, y: x.clamp(max=x.shape[2] // 9)),
    "a maximum with a size": (
        lambda n, x, y: x.clamp(min=9),
        lambda n, x, y: x.maximum(torch.full_like(x, x.shape[2])),
    ),
    "the statistics of a batch norm": (
        lambda n, x, y: batch_norm(x, n.vector[:4])[0],
        lambda n, x, y: batch_norm(x, n.vector[:4])[1],
    ),
    "bits read as integers": (lambda n, x, y: x.amax(), lambda n, x, y: x.view(torch.int32).amax().to(x.dtype)),
    "a sum that overflows": (
        lambda n, x, y: ((x > 0).int() << 30).sum().to(x.dtype),
        lambda n, x, y: ((x > 0).int() << 30).sum(dtype=torch.int32).to(x.dtype),
    ),
    "an integer that is rounded": (
        lambda n, x, y: ((x > 0).int() * 16777217).amax().double(),
        lambda n, x, y: ((x > 0).int() * 16777217 - 0.0).amax().double(),
    ),
    "memory beside a part": (
        lambda n, x, y: x[:, 2:].as_strided((4,), (1,), 0),
        lambda n, x, y: x[:, 2:].clone().as_strided((4,), (1,), 0),
    ),
    "a maximum with a truth value": (
        lambda n, x, y: torch.maximum(x, torch.full_like(x, True)),
        lambda n, x, y: torch.maximum(x, torch.full_like(x, False)),
    ),
    "parts of a complex number": (
        lambda n, x, y: torch.complex(x, y).abs().max(),
        lambda n, x, y: torch.view_as_real_copy(torch.complex(x, y)).abs().max(),
    ),
}
