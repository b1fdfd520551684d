"""The softmax over a box of scores that are a sum over the axes is the outer product of one softmax an axis: mix rows,
then columns. Exact for every alpha and every real centre, and for learned positions, borders included: claim L2d.

With rows R_i and columns C_j, `y = sum_ij M_ij R_i x C_j = sum_j [sum_i M_ij R_i x] C_j`: the channel product stands
between the axes or after both, whichever takes fewer multiply-adds.
"""

import math
from functools import partial

import torch
from torch import Tensor

from conv2attn.attention.engines.channels import in_order, multiply, project
from conv2attn.attention.engines.folded import fold_for, run_folded
from conv2attn.attention.engines.profiles import AxisPlan
from conv2attn.attention.engines.separable_plan import Plan, plan_for
from conv2attn.attention.engines.smoothed import bands_of, run_smoothed, smoothing_for
from conv2attn.attention.recipe import DEPENDS_ON_CONTENT, Question, Run
from conv2attn.basis import AttentionGrid, Basis

Profiles = list[list[list[Tensor]]]
"""For each axis and block: the profiles as one tensor (profiles, queries, keys); of the last axis, for each profile and
block: (1, keys, queries)."""


def decide(question: Question) -> Run | str:
    """The recipe for positions alone whose scores are a sum over the axes, otherwise why not.

    It holds the profiles of heads that are not trained.
    """
    operators = question.basis.operators
    if operators.reads_content:
        return DEPENDS_ON_CONTENT
    if not operators.is_separable:
        return "its scores are not a sum over the axes"
    fixed = bool(operators.values) and not (question.traced or question.free or question.trained)
    keep = fixed and question.device.type == "cpu"
    if (smoothing := smoothing_for(question)) is not None:
        with torch.no_grad():
            bands = bands_of(smoothing, question.basis, question.shape[2:], question.dtype) if keep else None
        return partial(run_smoothed, smoothing=smoothing, kept=bands)
    plan = plan_for(question)
    with torch.set_grad_enabled(question.trained):
        if (fold := fold_for(question, plan)) is not None:
            return partial(run_folded, fold=fold)
        kept = profiles_of(plan, question.basis, question.grid, question.dtype) if keep else None
    return partial(run, plan=plan, kept=kept)


def profiles_of(plan: Plan, basis: Basis, grid: AttentionGrid, dtype: torch.dtype) -> Profiles:
    """The profiles of every axis, laid out as the sums read them."""
    *others, last = [each.profiles(basis.operators, grid, axis, dtype) for axis, each in enumerate(plan.axes)]
    turned = [weights.mT.unsqueeze(1).unbind() for weights in last]
    return [*([[weights] for weights in each] for each in others), [list(each) for each in zip(*turned, strict=True)]]


def run(basis: Basis, image: Tensor, plan: Plan, kept: Profiles | None) -> Tensor:
    """The layer, slab after slab of queries."""
    keys = basis.padding.pad(image)
    grid = AttentionGrid(tuple(keys.shape[2:]), basis.sites, image.device)
    profiles = kept or profiles_of(plan, basis, grid, image.dtype)
    kernel = between_kernel(basis, plan) if plan.between else None
    parts = [keys] if plan.images is None else keys.split(plan.images)
    return joined([of_images(basis, part, plan, profiles, kernel) for part in parts], 0)


def of_images(basis: Basis, keys: Tensor, plan: Plan, profiles: Profiles, kernel: Tensor | None) -> Tensor:
    """The output for some images, padded: (batch, d_out, *queries)."""
    if len(plan.axes) == 1:
        return of_slab(basis, keys[:, :, None, None], plan, profiles, kernel).squeeze(2)
    slabs = []
    for block, (weights,) in zip(plan.axes[0].blocks, profiles[0], strict=True):
        read = keys if plan.axes[0].whole else keys.narrow(2, block.first, block.last - block.first)
        mixed = along_rows(read, weights)
        slabs.append(of_slab(basis, mixed, plan, profiles, kernel))
    return joined(slabs, 2)


def of_slab(basis: Basis, mixed: Tensor, plan: Plan, profiles: Profiles, kernel: Tensor | None) -> Tensor:
    """The output of a slab of rows, whose first axis is mixed."""
    if len(plan.axes) == 3:
        mixed = along_middle(mixed, plan, profiles[1][0][0])
    if kernel is None:
        return product_last(basis, mixed, plan, profiles[-1])
    return product_between(basis, mixed, plan, profiles[-1], kernel)


def along_rows(keys: Tensor, weights: Tensor) -> Tensor:
    """The first axis mixed by the profiles `weights` of a slab: (batch, d_in, profiles, rows, *other sides)."""
    batch, d_in, _, *others = keys.shape
    if torch.compiler.is_compiling():  # one profile after another: a graph of all sizes cannot flatten profiles
        return torch.stack([(weight @ keys.flatten(3)).unflatten(3, others) for weight in weights], 2)
    lines = keys.reshape(batch * d_in, keys.shape[2], math.prod(others))
    mixed = torch.bmm(weights.flatten(0, 1).expand(lines.shape[0], -1, -1), lines)
    return mixed.view(batch, d_in, *weights.shape[:2], *others)


def along_middle(mixed: Tensor, plan: Plan, weights: Tensor) -> Tensor:
    """The axis between the first and the last mixed: (batch, d_in, prefixes, rows, queries, keys of the last axis)."""
    (block,) = plan.axes[1].blocks
    mixed = mixed[..., block.first : block.last, :]
    return torch.stack([weights[second] @ mixed[:, :, first] for first, second in plan.prefixes], 2)


def along_last(lines: Tensor, axis: AxisPlan, profile: list[Tensor], onto: list[Tensor]) -> list[Tensor]:
    """The last axis of `lines` (any, any, keys) mixed by a profile, block after block, added to `onto` if any."""
    terms = [
        (
            lines if axis.whole else lines.narrow(-1, block.first, block.last - block.first),
            weights.expand(lines.shape[0], -1, -1),
        )
        for block, weights in zip(axis.blocks, profile, strict=True)
    ]
    if not onto:
        return [torch.bmm(*term) for term in terms]
    return [total.baddbmm_(*term) for total, term in zip(onto, terms, strict=True)]


def product_last(basis: Basis, mixed: Tensor, plan: Plan, profiles: list[list[Tensor]]) -> Tensor:
    """The last axis and then the channel product, for `mixed` (batch, d_in, prefixes, rows, ..., keys)."""
    batch, d_in, prefixes, *rows, _ = mixed.shape
    weights = basis.weights
    if plan.order is None:
        each = [mixed.flatten(0, 1)[:, prefix].flatten(1, -2) for prefix in plan.prefix]
        chosen = [profiles[p] for p in plan.axes[-1].profile]
        parts = [along_last(lines, plan.axes[-1], own, []) for lines, own in zip(each, chosen, strict=True)]
        heads = torch.stack([joined(part, -1).unflatten(1, rows).unflatten(0, (batch, d_in)) for part in parts], 2)
    else:
        lines = mixed.flatten(0, -2)[None]
        parts = [along_last(lines, plan.axes[-1], profile, []) for profile in profiles]
        heads = torch.stack(
            [joined(part, -1)[0].unflatten(0, (batch, d_in, prefixes, *rows)) for part in parts], 3
        ).flatten(2, 3)
        weights = in_order(weights, plan.order)
    return project(heads, weights, plan.direct)


def product_between(basis: Basis, mixed: Tensor, plan: Plan, profiles: list[list[Tensor]], kernel: Tensor) -> Tensor:
    """The channel product and then the last axis, for `mixed` (batch, d_in, prefixes, rows, ..., keys)."""
    batch, d_in, prefixes, *rows, keys = mixed.shape
    groups, (count, d_out) = basis.weights.groups, (len(plan.axes[-1].heads), basis.weights.d_out)
    if plan.order is None:
        chosen = mixed if plan.prefix == tuple(range(prefixes)) else mixed[:, :, list(plan.prefix)]
        products = torch.einsum("hgoi,bgihn->bhgon", kernel, chosen.flatten(3).unflatten(1, (groups, -1)))
        terms = products.unbind(1)
    else:
        columns = mixed.reshape(batch, d_in * prefixes, math.prod(rows) * keys)
        products = multiply(columns, kernel, None, groups, plan.direct)
        terms = products.view(batch, groups, count, d_out // groups, columns.shape[2]).unbind(2)
    total: list[Tensor] = []
    for term, profile in zip(terms, range(count) if plan.order else plan.axes[-1].profile, strict=True):
        lines = term.reshape(batch, d_out * math.prod(rows), keys)
        total = along_last(lines, plan.axes[-1], profiles[profile], total)
    result = joined(total, -1)
    result = result.view(batch, d_out, *rows, result.shape[-1])
    bias = basis.weights.bias
    return result if bias is None else result + bias.reshape(-1, *[1] * (len(rows) + 1))


def between_kernel(basis: Basis, plan: Plan) -> Tensor:
    """The channel matrices between the axes.

    Returns:
        For all pairs of profiles one matrix for each group, its rows (group, profile of the last axis, output), its
        columns (input, prefix); otherwise one matrix for each head and group, (heads, groups, outputs, inputs).
    """
    groups = basis.weights.groups
    if plan.order is None:
        return basis.weights.taps().unflatten(1, (groups, -1))
    taps = in_order(basis.weights, plan.order).taps()
    heads, d_out, d_in = taps.shape
    pairs = taps.view(len(plan.prefixes), -1, groups, d_out // groups, d_in)
    return pairs.permute(2, 1, 3, 4, 0).reshape(heads // len(plan.prefixes) * d_out, -1)


def joined(pieces: list[Tensor], dim: int) -> Tensor:
    """The pieces as one tensor, copied only where there are several."""
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim)
