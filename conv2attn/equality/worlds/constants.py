"""Operators that no number of the inputs enters: constants that code computes, and tables that ids look up."""

from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.all_copies import wide
from conv2attn.equality.worlds.shadows import COPIES, Shadow, cast, is_number, is_shadow, scale_of
from conv2attn.equality.worlds.shaking import UNITS, shaken, shaken_again
from conv2attn.equality.worlds.steps import Step
from conv2attn.torch_internals import tree_leaves

MADE = {
    *("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones"),
    *("new_full", "new_empty", "empty_strided", "new_empty_strided"),
}


def constant_step(step: Step, tensors: list[Tensor]) -> None:
    """Computes an operator of constants in each constant copy; results are shaken again, as the network rounds them."""
    floats = [t for t in tree_leaves(step.out) if is_number(t)]
    ids = [t for t in tensors if getattr(t, "_ids", False)]
    if not floats:
        for t in tree_leaves(step.out) if ids else ():
            if isinstance(t, Tensor) and t.dtype != torch.bool:
                t._ids = True  # type: ignore[attr-defined]
        return
    axis = looked_up_axis(step)
    if axis is not None and len(ids) == 1:
        step.watch.keep(step.out, random_rows(step, axis, ids[0]))
        return
    watch, dtype = step.watch, step.watch.oracles.dtype
    unit, seed = max(UNITS.get(t.dtype, UNITS[torch.float32]) for t in floats), watch.numbers.seed()
    shadows = [t for t in tree_leaves((step.args, step.kwargs), is_leaf=is_shadow) if isinstance(t, Shadow)]
    if step.func._schema.is_mutable and isinstance(step.x, Shadow):
        new = Shadow(shaken_again(step.computed().copies[:COPIES], unit, seed, dtype), True)
        for i, mine in enumerate(step.x.copies):
            mine.copy_(new.of(i))
        watch.keep(step.out, step.x)
    elif not shadows:
        for t in floats:
            copies = shaken(t, unit, seed, dtype)
            # What code makes to write into has every copy from the start, so that views of it see what is written.
            made = [copies[i % COPIES].clone() for _, i in watch.oracles.copies] if step.name in MADE else copies
            watch.keep(t, Shadow(made, True))
    else:
        keep_results(step, unit, seed)


def keep_results(step: Step, unit: float, seed: int) -> None:
    """The shadows of what an operator makes of constants: views share memory, all else is rounded."""
    watch, dtype = step.watch, step.watch.oracles.dtype
    is_view = any(r.alias_info is not None for r in step.func._schema.returns)
    result: Any
    if step.name in MADE:
        result = Shadow([cast(step.out, i, dtype) for _, i in watch.oracles.copies], True)
    elif is_view and isinstance(step.x, Shadow):
        parts = [wide(step.func)(t, *step.args[1:], **step.kwargs) for t in step.x.copies]
        if isinstance(parts[0], Tensor):
            result = Shadow(parts, state=step.x.state)
        else:
            result = [Shadow(part, state=step.x.state) for part in zip(*parts, strict=True)]
    else:
        result = step.computed()
    outs = [step.out] if isinstance(step.out, Tensor) else step.out
    for t, shadow in zip(outs, [result] if isinstance(result, Shadow) else result, strict=False):
        if is_number(t):
            watch.keep(t, shadow if is_view else Shadow(shaken_again(shadow.copies[:COPIES], unit, seed, dtype), True))


def looked_up_axis(step: Step) -> int | None:
    """The axis of a table along which an operator takes rows; None for other operators."""
    if step.name == "embedding":
        return 0
    if step.name == "index_select":
        return int(step.bound["dim"])
    axes = [n for n, t in enumerate(step.bound["indices"]) if t is not None] if step.name == "index" else []
    return axes[0] if len(axes) == 1 else None


def random_rows(step: Step, axis: int, ids: Tensor) -> Shadow:
    """The rows of a table that ids of the input choose, each replaced by a random sum that all rows enter.

    So rows of other ids count too, and the scale or the mean of the table may be folded.
    """
    leaves = tree_leaves(step.args, is_leaf=is_shadow)
    weight = next(t for t in leaves if isinstance(t, Shadow))
    rows, used, copies = weight.of(0).shape[axis], ids.unique(), []
    to = used[torch.arange(rows) % len(used)]
    to[used] = used
    for w, i in step.watch.oracles.copies:
        generator = torch.Generator().manual_seed(7 + w + 10 * rows)
        factors = scale_of(w) * torch.randn(rows, generator=generator, device="cpu", dtype=torch.float64)
        table = weight.of(i).movedim(axis, -1) * factors.to(weight.of(i).dtype)
        table = torch.zeros_like(table).index_add_(-1, to, table).movedim(-1, axis)
        copies.append(wide(step.func)(*(table if t is weight else t for t in step.args), **step.kwargs))
    return Shadow(copies)
