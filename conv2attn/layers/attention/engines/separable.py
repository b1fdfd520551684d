"""The softmax over a box of scores that are a sum over the axes is the outer product of one softmax an axis: mix rows,
then columns, then channels. Exact for every alpha and every real centre, and for learned positions, borders included:
claim L2d. Heads that see one smoothed image leave the rest to `smoothed`.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from conv2attn.layers.attention.engines.profiles import KeysRead, Profiles, Tiling, along, profiles_of
from conv2attn.layers.attention.engines.smoothed import crops_of, decide_smoothed, keys_of
from conv2attn.layers.attention.recipe import DEPENDS_ON_CONTENT, DROPS_WEIGHTS, Evaluation, Question
from conv2attn.layers.attention.storage import channels_are_last
from conv2attn.theory.basis import AttentionGrid, Basis, Sides, Weights

HALVES = (torch.bfloat16, torch.float16)
Tilings = tuple[Tiling, ...] | None
"""For each axis; one product along each where nothing is known of the grid."""


def decide(question: Question) -> Evaluation | str:
    """The recipe for positions alone whose scores are a sum over the axes, otherwise why not.

    It holds the profiles of heads that are not trained.
    """
    operators = question.basis.operators
    if operators.reads_content:
        return DEPENDS_ON_CONTENT
    if question.dropout:
        return DROPS_WEIGHTS
    if not operators.is_separable:
        return "its scores are not a sum over the axes"
    if (run := decide_smoothed(question)) is not None:
        return run
    basis, sides, tilings, kept = question.basis, question.shape[2:], None, None
    if not question.traced:
        reading = KeysRead.of(question, question.grid)
        crops = enumerate(crops_of(basis, sides))
        tilings = tuple(reading.tiling(range(operators.heads), axis, crop) for axis, crop in crops)
    if question.keeps_profiles:
        with torch.no_grad():
            kept = all_profiles(tilings, basis, sides, question.dtype, question.device)
    return partial(run_heads, tilings=tilings, kept=kept)


def all_profiles(
    tilings: Tilings, basis: Basis, sides: Sides, dtype: torch.dtype, device: torch.device
) -> list[Profiles]:
    """The profiles of all heads along every axis."""
    grid = AttentionGrid(basis.padding.sides(tuple(sides)), basis.sites, device)
    every_axis, heads = enumerate(crops_of(basis, sides)), slice(None)
    return [
        profiles_of(basis.operators, grid, axis, tiling_of(tilings, grid, axis), heads, dtype, crop)
        for axis, crop in every_axis
    ]


def tiling_of(tilings: Tilings, grid: AttentionGrid, axis: int) -> Tiling:
    """How the axis is mixed."""
    return Tiling.whole(grid, axis) if tilings is None else tilings[axis]


def run_heads(basis: Basis, image: Tensor, tilings: Tilings, kept: list[Profiles] | None) -> Tensor:
    """The layer head by head: its products along the axes, in the order in which the image is stored, then channels."""
    sides = tuple(image.shape[2:])
    grid = AttentionGrid(basis.padding.sides(sides), basis.sites, image.device)
    profiles = kept or all_profiles(tilings, basis, sides, image.dtype, image.device)
    keys, crops = keys_of(basis, image), crops_of(basis, sides)
    last = channels_are_last(image)
    keys, first = (keys.movedim(1, -1).contiguous(), 1) if last else (keys.contiguous(), 2)

    def mixed(head: int) -> Tensor:
        tokens = keys
        for axis, (blocks, crop) in enumerate(zip(profiles, crops, strict=True)):
            tokens = along(tokens, first + axis, tiling_of(tilings, grid, axis), [each[head] for each in blocks], crop)
        return tokens.flatten(1, -2).mT if last else tokens.flatten(2)

    return sum_of_heads(map(mixed, range(basis.operators.heads)), basis.weights).unflatten(2, grid.queries)


def sum_of_heads(mixed: Iterator[Tensor], weights: Weights) -> Tensor:
    """`sum_h M_h x_h + b` for the mixed tokens of the heads, (batch, d_in, tokens) each: (batch, d_out, tokens).

    One head after the other, so that no more than one is held where there are no gradients; in half precision by one
    product of all, which is rounded once.
    """
    groups, bias = weights.groups, None if weights.bias is None else weights.bias[:, None]
    if weights.stored.dtype in HALVES:
        whole = torch.cat([tokens.unflatten(1, (groups, -1)) for tokens in mixed], 2)
        matrix = weights.taps().permute(1, 0, 2).flatten(1).unflatten(0, (groups, -1))
        result = (matrix @ whole).flatten(1, 2)
        return result if bias is None else result + bias
    matrices = weights.taps().unflatten(1, (groups, -1))
    total = torch.zeros_like(matrices[0, :, :, :1]) if bias is None else bias.unflatten(0, (groups, -1))
    if matrices.shape[3] == 1:  # one channel a group: its products are no products of matrices
        for tokens, matrix in zip(mixed, matrices, strict=True):
            total = torch.addcmul(total, tokens[:, :, None], matrix)
        return total.flatten(1, 2)
    result, batch = None, 0
    for tokens, matrix in zip(mixed, matrices, strict=True):
        batch = tokens.shape[0]
        start = total.expand(batch, -1, -1, -1).flatten(0, 1) if result is None else result
        taken = matrix.expand(batch, -1, -1, -1).flatten(0, 1)
        result = torch.baddbmm(start, taken, tokens.unflatten(1, (groups, -1)).flatten(0, 1))
    assert result is not None, "a layer has heads"
    return result.view(batch, weights.d_out, result.shape[2])
