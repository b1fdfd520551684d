"""Layers of many groups: profiles and weights are folded into one kernel, `sum_h M_h R_h x C_h` into a convolution.

Far from the border the softmax is the same for every query, so that one kernel serves them all. Queries that see the
border are in strips: along its short axis a strip is folded into its weights, along the long axis it is mixed.
"""

import math
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.engines.channels import in_order
from conv2attn.attention.engines.profiles import Block, Reading, weights_of
from conv2attn.attention.engines.separable_plan import Plan, reading_of, whole
from conv2attn.attention.hardness import targets
from conv2attn.attention.recipe import Question
from conv2attn.basis import AttentionGrid, Basis, Sides, Sites

CALL = 2 * 10**6  # measured: the calls for a strip take as long as so many multiply-adds


@final
@dataclass(frozen=True, eq=False)
class Strips:
    """The boxes of queries at both ends of an axis.

    Args:
        axis: the short one.
        ends: their queries and keys along that axis, first and last.
        short: the profiles along it, those of both ends on the diagonal: (profiles, queries, keys).
        long: those along the other axis, one below the other: (profiles * keys, queries).
    """

    axis: int
    ends: tuple[Block, Block]
    short: Tensor
    long: Tensor


@final
@dataclass(frozen=True, eq=False)
class Fold:
    """A box of queries that share a kernel, and the strips around it.

    Args:
        inner: along each axis, the queries that see the same softmax, with the keys of the first of them.
        pattern: the weights of each head on the taps of the kernel, (heads, *kernel).
        order: the heads as all pairs of profiles, row-major; None where each has profiles of its own.
        strips: above and below, along all columns; left and right, along the inner rows.
    """

    inner: tuple[Block, Block]
    pattern: Tensor
    order: tuple[int, ...] | None
    strips: tuple[Strips, ...]


def fold_for(question: Question, plan: Plan) -> Fold | None:
    """The fold of a layer with groups, two axes and frozen heads, if it takes fewer multiply-adds than `plan`.

    Not in half precision, which would round the folded kernel, nor where a convolution is no plain sum.
    """
    weights, known = question.basis.weights, question.known
    plain = known.indirect is None and question.dtype in (torch.float32, torch.float64)
    frozen = not (question.traced or question.free or question.trained)
    if weights.groups == 1 or len(plan.axes) != 2 or not (frozen and plain and known.numbers.centers):
        return None
    reading = reading_of(question, question.grid)
    inner = inner_block(reading, plan, 0), inner_block(reading, plan, 1)
    if not cost(inner, plan, question) < plan.cost:
        return None
    short = [axis for axis in (0, 1) if inner[axis].stop - inner[axis].start < question.grid.queries[axis]]
    return Fold(
        inner, pattern(question, inner), plan.order, tuple(strips(question, plan, axis, inner) for axis in short)
    )


def cost(inner: tuple[Block, Block], plan: Plan, question: Question) -> float:
    """Multiply-adds for one image; the strips take their part of `plan`."""
    weights, queries = question.basis.weights, math.prod(question.grid.queries)
    served = math.prod(block.stop - block.start for block in inner)
    kernel = math.prod(block.last - block.first for block in inner) * weights.d_out * weights.d_in // weights.groups
    return kernel * served + plan.cost * (1 - served / queries) + CALL * len(inner)


def inner_block(reading: Reading, plan: Plan, axis: int) -> Block:
    """The longest run of queries along `axis` that see the same softmax."""
    longest = run = Block(0, 0, 0, 0)
    for block in reading.blocks(range(len(plan.prefix)), axis, 1):
        first = replace(run, stop=run.start + 1)
        same = run.stop > 0 and first.shape(reading.grid, axis) == block.shape(reading.grid, axis)
        run = replace(run, stop=block.stop) if same else block
        longest = max(longest, run, key=lambda each: each.stop - each.start)
    return longest


def pattern(question: Question, inner: tuple[Block, ...]) -> Tensor:
    """The weights of each head on the taps of the kernel, (heads, *kernel)."""
    operators, grid, total = question.basis.operators, question.grid, None
    for axis, block in enumerate(inner):
        one = replace(block, stop=block.start + 1).shape(grid, axis)
        profile = weights_of(operators, grid, axis, range(operators.heads), one, question.dtype)[:, 0]
        total = profile if total is None else total[..., None] * profile.unflatten(1, (*[1] * axis, -1))
    assert total is not None
    return total


def strips(question: Question, plan: Plan, axis: int, inner: tuple[Block, Block]) -> Strips:
    """The strips at both ends of `axis`: above and below along all columns, left and right along the inner rows."""
    long, grid, operators = 1 - axis, question.grid, question.basis.operators
    reading = reading_of(question, grid)
    along = inner[long] if axis == 1 else whole(grid, long)
    heads = [plan.axes[each].heads if plan.order else range(operators.heads) for each in (axis, long)]

    def profiles(each: int, block: Block) -> Tensor:
        shape = block.shape(grid, each)
        return weights_of(operators, grid, each, heads[each != axis], shape, question.dtype)

    ends, diagonal = [], []
    for start, stop in ((0, inner[axis].start), (inner[axis].stop, grid.queries[axis])):
        none = (Block(start, start, 0, 1),)  # an end without queries
        (block,) = none if start == stop else reading.blocks(heads[0], axis, stop - start, (start, stop))
        ends.append(block)
        diagonal.append(profiles(axis, block))
    short = torch.stack([torch.block_diag(*each) for each in zip(*diagonal, strict=True)])
    mixed = profiles(long, replace(along, first=0, last=grid.keys[long]))
    return Strips(axis, (ends[0], ends[1]), short, mixed.transpose(1, 2).flatten(0, 1))


def folded_products(basis: Basis, sides: Sides, dtype: torch.dtype) -> int:
    """How many more products than taps may be rounded in one output of this layer, on padded grids of up to `sides`.

    Each entry of a folded kernel is a sum over heads of a weight times its profiles; none is rounded of one-hot heads.
    """
    operators, groups, numbers = basis.operators, basis.weights.groups, basis.operators.numbers()
    soft = operators.is_separable and numbers.centers and isinstance(targets(numbers, dtype, "cpu"), str)
    if groups == 1 or not soft:
        return 0
    reading, widths = Reading(numbers, AttentionGrid(sides, Sites.everywhere(len(sides))), dtype, every=False), []
    for axis, side in enumerate(sides):
        reads = [
            reading.keys(alpha, center[axis], (2 * side, 2 * side), 4 * side + 1)
            for alpha, center in zip(numbers.alphas, numbers.centers, strict=True)
        ]
        widths.append(max(last for _, last in reads) - min(first for first, _ in reads))
    heads = len(numbers.alphas)
    return heads * (1 + max(widths)) + len(sides) + basis.weights.d_in // groups * math.prod(widths)


def run_folded(basis: Basis, image: Tensor, fold: Fold) -> Tensor:
    """The layer by one convolution, and strip by strip around it."""
    keys, weights = basis.padding.pad(image), basis.weights
    output = of_inner(basis, keys, fold)
    taps = (weights if fold.order is None else in_order(weights, fold.order)).taps()
    for each in reversed(fold.strips):
        around = of_strips(basis, keys, each, taps, fold.order is not None)
        before, behind = around.split([block.stop - block.start for block in each.ends], 2 + each.axis)
        output = torch.cat((before, output, behind), 2 + each.axis)
    return output


def of_inner(basis: Basis, keys: Tensor, fold: Fold) -> Tensor:
    """The output of the queries that share the kernel."""
    stride, weights = basis.sites.stride, basis.weights
    for axis, block in enumerate(fold.inner):
        length = (block.stop - block.start - 1) * stride[axis] + block.last - block.first
        keys = keys.narrow(2 + axis, block.first, length)
    kernel = torch.tensordot(weights.taps().permute(1, 2, 0), fold.pattern, 1)
    one, none = [1 for _ in stride], [0 for _ in stride]
    return torch.convolution(keys, kernel, weights.bias, stride, none, one, False, none, weights.groups)


def of_strips(basis: Basis, keys: Tensor, strips: Strips, taps: Tensor, paired: bool) -> Tensor:
    """The output of both strips, whose heads are `paired` or have profiles of their own."""
    weights, batch = basis.weights, len(keys)
    if paired:
        pairs = (len(strips.short), -1) if strips.axis == 0 else (-1, len(strips.short))
        formula = "ijoc,isk->osjck" if strips.axis == 0 else "jioc,isk->osjck"
        folded = torch.einsum(formula, taps.unflatten(0, pairs), strips.short)
    else:
        folded = torch.einsum("hoc,hsk->oshck", taps, strips.short)
    ends = [keys.narrow(2 + strips.axis, block.first, block.last - block.first) for block in strips.ends]
    lines = torch.cat([end if strips.axis == 0 else end.transpose(2, 3) for end in ends], 2)
    lines = lines.unflatten(1, (weights.groups, -1)).flatten(0, 1).flatten(1, 2)
    folded = folded.reshape(1, weights.groups, -1, lines.shape[1]).expand(batch, -1, -1, -1).flatten(0, 1)
    mixed = torch.bmm(folded, lines).view(-1, len(strips.long)) @ strips.long
    output = mixed.view(batch, weights.d_out, strips.short.shape[1], mixed.shape[1])
    if weights.bias is not None:
        output = output + weights.bias[:, None, None]
    return output if strips.axis == 0 else output.transpose(2, 3)
