"""Which axes of attention are images, heads and queries: read off the module, or off the batch of its input."""

from math import prod

from torch import Tensor, nn

from conv2attn.models.positions.attention import Unread

HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead", "nheads", "num_head")
"""How modules call their number of heads."""


def with_one_query_axis(attention: Tensor) -> Tensor:
    """Queries on one axis where they stand on two, as (..., rows, columns, ..., keys) with rows x columns keys."""
    if attention.ndim < 5 or attention.shape[-1] == attention.shape[-2]:
        return attention
    sides = attention.shape
    pairs = [at for at in range(1, attention.ndim - 2) if sides[at] * sides[at + 1] == sides[-1]]
    return attention.flatten(pairs[0], pairs[0] + 1).movedim(pairs[0], -2) if len(pairs) == 1 else attention


def heads_of(attention: Tensor, module: nn.Module, batch: int | None, given: int | None) -> Tensor | Unread:
    """Attention (..., queries, keys) as (images, heads, queries, keys): four axes are that, others are counted.

    The number of heads is the one given, or that of the module's attributes, or what is left of a batch of its input;
    images come before heads where they share an axis.
    """
    if attention.ndim == 4:
        return attention
    count = prod(attention.shape[:-2])
    named = next((held for name in HEADS if isinstance(held := getattr(module, name, None), int) and held > 0), None)
    left = count // batch if batch and count % batch == 0 else None
    for heads in (given, named, left):
        if heads and count % heads == 0:
            return attention.reshape(-1, heads, *attention.shape[-2:])
    shape = "x".join(map(str, attention.shape))
    return Unread(f"nothing tells how many heads the {shape} numbers of its attention are of: pass heads= to capture")
