"""The softmax over a box of scores that are a sum over the axes is the outer product of one softmax an axis: mix rows,
then columns. Exact for every alpha and every real centre, and for learned positions, borders included: claim L2d.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.engines.axis_mixing import AxisMixing, AxisSoftmax, Band, axis_mixings, bands_along, mix
from conv2attn.attention.engines.channels import project, project_tokens, rows_per_slab
from conv2attn.attention.engines.gather import CACHED
from conv2attn.attention.engines.whole_axes import mix_whole_axes
from conv2attn.attention.recipe import DEPENDS_ON_CONTENT, Question, Run
from conv2attn.basis import AttentionGrid, Basis, ContentSoftmax, LearnedSoftmax, QuadraticSoftmax, SinusoidalSoftmax

LONGEST_WHOLE = 128  # measured: on longer sides a band of a trained head is cheaper than its whole axis


@final
@dataclass(frozen=True)
class AxisPlan:
    """Along one axis, `step[h]` is the head whose softmax head h shares, and `bands` has those of the heads shared."""

    step: tuple[int, ...]
    bands: tuple[tuple[int, Band | None], ...]


def decide(question: Question) -> Run | str:
    """The recipe for quadratic, learned or sinusoidal positions alone, otherwise why not."""
    operators = question.basis.operators
    if isinstance(operators, ContentSoftmax):
        return DEPENDS_ON_CONTENT
    if not isinstance(operators, QuadraticSoftmax | LearnedSoftmax | SinusoidalSoftmax):
        return "its scores are not a sum over the axes"
    axes, direct = range(len(question.shape) - 2), question.known.indirect is None
    if not question.traced and torch.is_grad_enabled() and fits_at_once(question):
        return partial(run_whole, steps=tuple(step_of(question, axis) for axis in axes), direct=direct)
    plans = tuple(plan_of(question, axis) for axis in axes)
    limit = min(question.memory_limit, CACHED) if question.device.type == "cpu" else question.memory_limit
    return partial(run, plans=plans, direct=direct, limit=None if question.traced else limit)


def fits_at_once(question: Question) -> bool:
    """Whether a gradient step may mix all heads at once: sides short enough that no band is cheaper, and the mixed
    tokens and the attention of each axis under the memory limit.
    """
    grid, heads = question.grid, question.basis.operators.heads
    tokens = question.shape[0] * question.shape[1] * math.prod(grid.queries)
    axes = max(queries * keys for queries, keys in zip(grid.queries, grid.keys, strict=True))
    needed = heads * max(tokens, axes) * torch.finfo(question.score_dtype).bits // 8
    return max(grid.keys) <= LONGEST_WHOLE and needed <= question.memory_limit


def step_of(question: Question, axis: int) -> tuple[int, ...]:
    """The head whose softmax along `axis` each head shares: equal ones are computed once, unless each head is to
    receive its own gradient.
    """
    operators, numbers = question.basis.operators, question.known.numbers
    trained = torch.is_grad_enabled() and any(value.requires_grad for value in operators.values)
    if question.free or not numbers.centers or trained:
        return tuple(range(operators.heads))
    profiles = [(alpha, center[axis]) for alpha, center in zip(numbers.alphas, numbers.centers, strict=True)]
    return tuple(profiles.index(profile) for profile in profiles)


def plan_of(question: Question, axis: int) -> AxisPlan:
    """The softmaxes along `axis`, each with the band that holds what it weighs, where a band is cheaper."""
    step, numbers = step_of(question, axis), question.known.numbers
    heads = sorted(set(step))
    if question.free or question.traced or not numbers.centers:
        return AxisPlan(step, tuple((head, None) for head in heads))
    bands = bands_along(numbers, question.grid, axis, heads, question.dtype)
    return AxisPlan(step, tuple(zip(heads, bands, strict=True)))


def over_axes(operators: AxisSoftmax | SinusoidalSoftmax, grid: AttentionGrid) -> AxisSoftmax:
    """The operators as a family with a score for each axis: sinusoidal positions are tables on a given grid."""
    return operators.on(grid) if isinstance(operators, SinusoidalSoftmax) else operators


def run_whole(basis: Basis, image: Tensor, steps: Sequence[tuple[int, ...]], direct: bool) -> Tensor:
    """The layer with all heads mixed at once, whose mixed tokens a training step keeps for its gradients anyway."""
    keys = basis.padding.pad(image)
    grid = AttentionGrid(tuple(keys.shape[2:]), basis.sites, image.device)
    mixed = mix_whole_axes(over_axes(basis.operators, grid), grid, keys, steps)
    if basis.weights.groups > 1:
        return project(mixed.movedim(-1, 1), basis.weights, direct)
    return project_tokens(mixed, basis.weights)


def run(basis: Basis, image: Tensor, plans: Sequence[AxisPlan], direct: bool, limit: int | None) -> Tensor:
    """The layer in slabs of rows under the memory limit, or all at once while a graph is traced."""
    keys = basis.padding.pad(image)
    grid = AttentionGrid(tuple(keys.shape[2:]), basis.sites, image.device)
    operators = over_axes(basis.operators, grid)
    mixings = [axis_mixings(operators, grid, axis, dict(plan.bands), image.dtype) for axis, plan in enumerate(plans)]
    paths = list(zip(*[plan.step for plan in plans], strict=True))
    if limit is None:
        return project(mix_heads(basis, keys, mixings, paths, 0), basis.weights, direct)
    rows, slab = grid.queries[0], rows_per_slab(basis, image.shape, image.element_size(), len(paths), limit)
    pieces = []
    for start in range(0, rows, slab):
        first = {head: whole.queries(start, start + slab) for head, whole in mixings[0].items()}
        mixed = mix_heads(basis, keys, [first, *mixings[1:]], paths, start)
        pieces.append(project(mixed, basis.weights, direct))
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)


def mix_heads(
    basis: Basis, keys: Tensor, mixings: Sequence[dict[int, AxisMixing]], paths: Sequence[tuple[int, ...]], start: int
) -> Tensor:
    """The mixed tokens of all heads, (batch, d_in, heads, *queries): the axes in turn, shared prefixes only once.

    `start` is the row of the first query; the first axis of `mixings` holds only the rows of this slab.
    """
    images: dict[tuple[int, ...], Tensor] = {(): keys}
    for axis, choices in enumerate(mixings):
        stride, last = basis.sites.stride[axis], axis == len(mixings) - 1
        first = basis.sites.before[axis] + (start * stride if axis == 0 else 0)
        steps = paths if last else list(dict.fromkeys(path[: axis + 1] for path in paths))
        parts = [mix(images[step[:-1]], choices[step[-1]], 2 + axis, first, stride) for step in steps]
        if last:
            return torch.stack(parts, 2)
        images = dict(zip(steps, parts, strict=True))
    raise AssertionError("a grid has at least one axis")
