"""Operators independent of the inputs' numbers: constants computed by code, and table lookups by ids."""

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.families import TEMPLATES
from conv2attn.equality.worlds.all_copies import every_copy, is_seen_elsewhere, wide
from conv2attn.equality.worlds.shadows import COPIES, Shadow, is_number, is_shadow
from conv2attn.equality.worlds.shaking import UNITS
from conv2attn.equality.worlds.steps import Step
from conv2attn.torch_internals import tree_leaves

MADE = {"zeros", "ones", "full", "empty", "empty_strided", *TEMPLATES}


def constant_step(step: Step, tensors: list[Tensor]) -> None:
    """Computes an operator of constants in each copy; results are shaken again, since the network rounds them."""
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
    numbers, unit = step.watch.numbers, max(UNITS.get(t.dtype, UNITS[torch.float32]) for t in floats)
    shadows = [t for t in tree_leaves((step.args, step.kwargs), is_leaf=is_shadow) if isinstance(t, Shadow)]
    if step.func._schema.is_mutable and isinstance(step.x, Shadow):
        new = numbers.moved(step.computed(), unit)
        for i, mine in enumerate(step.x.copies):
            mine.copy_(new.of(i))
        step.watch.keep(step.out, step.x)
    elif not shadows or step.name in MADE:
        for t in floats:
            new = numbers.moved(t, unit)
            # Tensors that code creates to write into have every copy from the start, so that writes reach views.
            if step.name in MADE:
                new.copies = every_copy(new, step.watch.oracles.worlds * COPIES, step.watch.oracles.shakes)
            step.watch.keep(t, new)
    else:
        # GRU adds numbers of the input to parts of a constant: then all parts have every copy, as created tensors do.
        if step.name.startswith("unsafe_split") and not is_seen_elsewhere(step.x):
            step.x.copies = every_copy(step.x, step.watch.oracles.worlds * COPIES, step.watch.oracles.shakes)
        keep_results(step, unit)


def keep_results(step: Step, unit: float) -> None:
    """The shadows of an operator's results on constants: views share memory, other results are rounded."""
    result, outs = step.computed(), [step.out] if isinstance(step.out, Tensor) else step.out
    for t, shadow in zip(outs, [result] if isinstance(result, Shadow) else result, strict=False):
        if is_number(t):
            moved = step.watch.numbers.moved
            step.watch.keep(t, Shadow(shadow.copies, state=step.x.state) if step.is_view else moved(shadow, unit))


def looked_up_axis(step: Step) -> int | None:
    """The axis of a table along which an operator takes rows; None for other operators."""
    if step.name == "embedding":
        return 0
    if step.name == "index_select":
        return int(step.bound["dim"])
    axes = [n for n, t in enumerate(step.bound["indices"]) if t is not None] if step.name == "index" else []
    return axes[0] if len(axes) == 1 else None


def random_rows(step: Step, axis: int, ids: Tensor) -> Shadow:
    """The rows of a table selected by ids of the input, each replaced by a random combination of all rows.

    So rows of other ids are compared too, and the scale or the mean of the table may be folded.
    """
    leaves = tree_leaves(step.args, is_leaf=is_shadow)
    weight = next(t for t in leaves if isinstance(t, Shadow))
    rows, used = weight.of(0).shape[axis], ids.unique()
    to = used[torch.arange(rows) % len(used)]
    to[used] = used
    factors, oracles = list[Tensor](), step.watch.oracles
    for w, scale in enumerate(oracles.scales):
        generator = torch.Generator().manual_seed(7 + w + 10 * rows)
        factors.append(scale * torch.randn(rows, generator=generator, device="cpu", dtype=torch.float64))

    def looked_up(table: Tensor, factor: Tensor) -> Tensor:
        table = table.movedim(axis, -1) * factor
        table = torch.zeros_like(table).index_add_(-1, to, table).movedim(-1, axis)
        return torch.as_tensor(wide(step.func)(*(table if t is weight else t for t in step.args), **step.kwargs))

    result: Shadow = step.across(looked_up, weight, oracles.spread(factors))
    return result
