"""Applies a function to all copies of its arguments, and writes results into the copies of a tensor."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import COPIES, Shadow, Unfollowed, is_number, repeated
from conv2attn.torch_internals import storage_users, tree_leaves

MOST_BYTES = 2 << 30
"""Most bytes of the copies of one tensor; a table lookup takes up to seven times as much at once."""


def in_all_copies(least: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The results of a function for each copy: at least `least` copies, or COPIES for constants.

    Raises:
        Unfollowed: the copies of one result would take more than MOST_BYTES.
    """
    shadows = [*shadows_in((args, [*kwargs.values()]))]
    constant = all(s.constant for s in shadows)
    # The result of a maximum has more worlds than other results, until an oracle replaces it.
    count = max([COPIES if constant else least, *(len(s.copies) for s in shadows)])
    # Copies that no stored number moves are one tensor, so their results are one too.
    outs, results = [], dict[Any, Any]()
    for i in range(count):
        same = tuple(id(s.of(i)) for s in shadows)
        if same not in results:
            results[same] = function(*in_copy(args, i), **{name: in_copy(value, i) for name, value in kwargs.items()})
            refuse_many(results[same], count)
        outs.append(results[same])
    if not isinstance(outs[0], (tuple, list)):
        return Shadow(outs, constant)
    parts = zip(*outs, strict=True)
    return [Shadow(part, constant) if isinstance(part[0], Tensor) else None for part in parts]


def refuse_many(result: Any, count: int) -> None:
    """Refuses results too large to store `count` times: the system would kill the process."""
    for part in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(part, Tensor) and part.numel() * part.element_size() * count > MOST_BYTES:
            shape = "x".join(map(str, part.shape))
            raise Unfollowed(f"{count} copies of a tensor {shape} take more than {MOST_BYTES / 2**30:.2g} GiB")


def shadows_in(value: Any) -> Iterator[Shadow]:
    """The shadows among arguments. Written by hand, since pytree takes longer than many operators."""
    if isinstance(value, Shadow):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from shadows_in(part)


def in_copy(value: Any, i: int) -> Any:
    """Arguments, with copy i in place of each shadow."""
    if isinstance(value, Shadow):
        return value.of(i)
    return [in_copy(part, i) for part in value] if isinstance(value, (list, tuple)) else value


def wide(func: Callable[..., Any]) -> Callable[..., Any]:
    """The operator for copies: a floating dtype among its arguments becomes that of the copy."""

    def widened(*args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        if dtype is None:
            return func(*args, **kwargs)
        real = next((t.dtype for t in tree_leaves((args, kwargs)) if is_number(t)), torch.float64).to_real()
        if dtype.is_complex or dtype.is_floating_point:
            dtype = real.to_complex() if dtype.is_complex else real
        return func(*args, dtype=dtype, **kwargs)

    return widened


def write(target: Shadow, result: Any) -> None:
    """Writes a result into the copies of the target. Copies that nothing shares are replaced, unless it is constant."""
    if isinstance(result, Shadow) and result.copies[0] is not target.copies[0]:
        if not is_seen_elsewhere(target) and not result.constant:
            target.copies = result.copies
        else:
            if len({id(result.of(i)) for i in range(len(target.copies))}) > len(set(map(id, target.copies))):
                raise Unfollowed("copies that share one tensor are written separately")
            for i, mine in enumerate(target.copies):
                mine.copy_(result.of(i))
    target.state["constant"] = False


def is_seen_elsewhere(shadow: Shadow) -> bool:
    """Whether other tensors share the memory of its copies."""
    return storage_users(shadow.copies[0].untyped_storage()._cdata) > 2


def every_copy(shadow: Shadow, count: int, shakes: int) -> list[Tensor]:
    """`count` copies to write into: per world the true one and as many as `shakes`, repeated to fill the world."""
    worlds = range(0, count, COPIES)
    return [t for w in worlds for t in repeated([shadow.of(w + i).clone() for i in range(1 + shakes)])]
