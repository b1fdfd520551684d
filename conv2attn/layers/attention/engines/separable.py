"""The softmax over a box of scores that are a sum over the axes is the outer product of one softmax per axis: mix rows,
then columns, then channels. Exact for every alpha and every real centre, and for learned positions, borders included:
claim L2d. Heads that read one smoothed image are left to `smoothed`.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from conv2attn.layers.attention.engines.channels import joined
from conv2attn.layers.attention.engines.mixing import Mixing
from conv2attn.layers.attention.engines.smoothed import decide_smoothed
from conv2attn.layers.attention.recipe import DEPENDS_ON_CONTENT, DROPS_WEIGHTS, Evaluation, Question
from conv2attn.layers.attention.storage import channels_are_last
from conv2attn.theory.basis import Basis, Weights

HALVES = (torch.bfloat16, torch.float16)
TERMS = 64  # measured: in tiles, one product of this many terms sums heads with few channels


def decide(question: Question) -> Evaluation | str:
    """The recipe for position-only scores that are a sum over the axes, otherwise the reason why not.

    It stores the profiles of frozen heads.
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
    mixing, kept = Mixing.of(question, question.basis.sites, range(operators.heads)), None
    if question.keeps_profiles:
        with torch.no_grad():
            kept = mixing.profiles(operators, slice(None), question.dtype)
    return partial(run_heads, mixing=mixing, kept=kept)


def run_heads(basis: Basis, image: Tensor, mixing: Mixing, kept: list[Tensor] | None) -> Tensor:
    """The layer head by head: products along the axes in storage order, then over channels."""
    profiles = kept or mixing.profiles(basis.operators, slice(None), image.dtype)
    last = channels_are_last(image)
    lines = mixing.laid_out(image, last)
    heads = (mixing.mixed(lines, head, last) for head in zip(*(weights.unbind(0) for weights in profiles), strict=True))
    return mixing.image_of(sum_of_heads(heads, basis.weights, TERMS if mixing.in_tiles else 1), last)


def sum_of_heads(mixed: Iterator[Tensor], weights: Weights, terms: int) -> Tensor:
    """`sum_h M_h x_h + b` for the mixed tokens of the heads, (batch, d_in, tokens) each: (batch, d_out, tokens).

    Heads are summed one by one, or several by one product of `terms` terms, which limits memory without gradients. In
    half precision one product sums all, and rounds once.
    """
    groups, bias = weights.groups, None if weights.bias is None else weights.bias[:, None]
    if weights.stored.dtype in HALVES:
        # Sums over heads in half precision would round after every head: one product accumulates in float32.
        whole = torch.cat([tokens.unflatten(1, (groups, -1)) for tokens in mixed], 2)
        matrix = weights.taps().permute(1, 0, 2).flatten(1).unflatten(0, (groups, -1))
        result = (matrix @ whole).flatten(1, 2)
        return result if bias is None else result + bias
    matrices = weights.taps().unflatten(1, (groups, -1)).permute(1, 2, 0, 3).contiguous()  # groups first, heads third
    start = torch.zeros_like(matrices[:, :, 0, :1]) if bias is None else bias.unflatten(0, (groups, -1))
    if matrices.shape[3] == 1:  # with one channel per group, products are elementwise
        total = start[None]
        for tokens, matrix in zip(mixed, matrices.unbind(2), strict=True):
            # A matrix product of one term per group would be slower than this elementwise one.
            total = torch.addcmul(total, tokens[:, :, None], matrix)
        return total.flatten(1, 2)
    result, batch = None, 0
    for matrix in matrices.split(max(1, terms // matrices.shape[3]), 2):
        read = joined([tokens.unflatten(1, (groups, -1)) for tokens in islice(mixed, matrix.shape[2])], 2)
        batch = read.shape[0]
        taken, read = matrix.flatten(2).expand(batch, -1, -1, -1).flatten(0, 1), read.flatten(0, 1)
        if result is None:
            result = torch.baddbmm(start.expand(batch, -1, -1, -1).flatten(0, 1), taken, read)
        else:
            result = result.baddbmm_(taken, read)
    assert result is not None, "a layer has heads"
    return result.view(batch, weights.d_out, result.shape[2])
