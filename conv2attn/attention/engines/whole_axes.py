"""The softmaxes of all heads along whole axes, applied at once with the channels innermost: few, large products."""

from collections.abc import Sequence

import torch
from torch import Tensor

from conv2attn.attention.engines.axis_mixing import AxisSoftmax, axis_attention
from conv2attn.basis import AttentionGrid

Path = tuple[int, ...]
WIDE = 256  # measured: below so many numbers behind an axis, one product for each head is faster than one for each line


def mix_whole_axes(operators: AxisSoftmax, grid: AttentionGrid, keys: Tensor, steps: Sequence[Sequence[int]]) -> Tensor:
    """The mixed tokens of all heads, (batch, heads, *queries, d_in), for the padded image `keys`.

    Args:
        steps: for each axis, `steps[axis][h]` is the head whose softmax head h shares.
    """
    mixed = keys.movedim(1, -1)[:, None, None]
    prefixes: list[Path] = [()]
    paths = list(zip(*steps, strict=True))
    for axis, step in enumerate(steps):
        heads = sorted(set(step))
        last = axis == len(steps) - 1
        chosen = paths if last else list(dict.fromkeys(path[: axis + 1] for path in paths))
        weights = axis_attention(operators, grid, axis, heads, keys.dtype)
        weights = selected(weights, [heads.index(path[-1]) for path in chosen], 0)
        mixed = along_axis(mixed, weights, [prefixes.index(path[:-1]) for path in chosen])
        prefixes = chosen
    return mixed.unflatten(2, grid.queries)


def along_axis(mixed: Tensor, weights: Tensor, parents: Sequence[int]) -> Tensor:
    """Mixes the first axis of the grid that is not mixed yet.

    Args:
        mixed: (batch, prefixes, queries so far, keys, *remaining sides, channels).
        weights: (paths, queries, keys).
        parents: the prefix that each path continues.
    Returns:
        (batch, paths, queries so far, remaining sides ..., channels), with the new queries among those so far.
    """
    remaining = mixed.shape[4:]
    tokens = mixed.flatten(4)
    if tokens.shape[1] == 1 and mixed.shape[2] == 1:
        shared = weights.flatten(0, 1).expand(len(tokens), -1, -1)  # torch.matmul would transpose the whole product
        product = torch.bmm(shared, tokens[:, 0, 0]).unflatten(1, weights.shape[:2])[:, :, None]
    elif tokens.shape[-1] < WIDE:
        columns = selected(tokens, parents, 1).permute(1, 3, 0, 2, 4)
        product = (weights @ columns.flatten(2)).unflatten(2, columns.shape[2:]).permute(2, 0, 3, 1, 4)
    else:
        product = weights[:, None] @ selected(tokens, parents, 1)
    return product.flatten(2, 3).unflatten(3, remaining)


def selected(tensor: Tensor, indices: Sequence[int], dim: int) -> Tensor:
    """Slices of `tensor` along `dim`, without an index tensor: it would be copied to the device at each call."""
    if list(indices) == list(range(tensor.shape[dim])):
        return tensor
    return torch.stack([tensor.select(dim, index) for index in indices], dim)
