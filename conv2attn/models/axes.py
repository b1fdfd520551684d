"""Which axes of attention are images, heads and queries, from the attributes of the module or its input's batch."""

from math import prod

from torch import Tensor, nn

from conv2attn.models.positions.position_scores import Unread

HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead", "nheads", "num_head")
"""Attributes in which modules keep their number of heads."""


def with_one_query_axis(attention: Tensor) -> Tensor:
    """Merges the query axes (rows, columns) of attention (..., rows, columns, ..., keys) into one."""
    if attention.ndim < 5 or attention.shape[-1] == attention.shape[-2]:
        return attention
    sides = attention.shape
    pairs = [at for at in range(1, attention.ndim - 2) if sides[at] * sides[at + 1] == sides[-1]]
    return attention.flatten(pairs[0], pairs[0] + 1).movedim(pairs[0], -2) if len(pairs) == 1 else attention


def split_heads(attention: Tensor, module: nn.Module, batch: int | None, heads_argument: int | None) -> Tensor | Unread:
    """Attention (..., queries, keys) as (images, heads, queries, keys); four axes are taken as they are.

    The number of heads is `heads_argument`, or that of the module's attributes, or the first axis over the batch of its
    input; images come before heads where they share an axis.
    """
    if attention.ndim == 4:
        return attention
    count = prod(attention.shape[:-2])
    attribute_heads = next(
        (value for name in HEADS if isinstance(value := getattr(module, name, None), int) and value > 0), None
    )
    batch_heads = count // batch if batch and count % batch == 0 else None
    for heads in (heads_argument, attribute_heads, batch_heads):
        if heads and count % heads == 0:
            return attention.reshape(-1, heads, *attention.shape[-2:])
    shape = "x".join(map(str, attention.shape))
    return Unread(f"nothing tells how many heads the {shape} numbers of its attention are of: pass heads= to capture")
