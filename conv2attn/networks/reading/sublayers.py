"""The scores of a layer that attends, measured in runs: the module that takes its tokens, and q and k of each head."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import FAILURES, tensors_in
from conv2attn.errors import first_line
from conv2attn.networks.reading.attended import Attended, Running
from conv2attn.networks.reading.layer_alone import Call, replay_residual
from conv2attn.networks.reading.perturbed import Perturbed
from conv2attn.networks.reading.replay import calls_of, parent
from conv2attn.networks.reading.replay_result import MOST_RESIDUAL
from conv2attn.networks.reading.watch import Watch
from conv2attn.torch_internals import tree_map

SAME_ATTENTION = 1e-6
"""Largest difference, in float64, between an attention weight and the softmax of the scores as read."""
NOT_PRODUCTS = "the scores of some heads are not inner products of maps of its tokens"
RANK = 1e-9
"""Singular values below this share of the largest are float64 rounding."""


@final
@dataclass(frozen=True, eq=False)
class AffineScores:
    """`softmax(q k^T)` of each head, `q = Q x + q0` and `k = K x + k0`.

    Weights are (heads, width, d_in), biases (heads, width).
    """

    query: Tensor
    query_bias: Tensor
    key: Tensor
    key_bias: Tensor

    def attention(self, tokens: Tensor) -> Tensor:
        """The attention (batch, heads, queries, keys) on tokens (batch, tokens, channels)."""
        return self.products(tokens).softmax(-1)

    def products(self, tokens: Tensor) -> Tensor:
        """The scores."""
        query = torch.einsum("bnc,hkc->bhnk", tokens, self.query) + self.query_bias[:, None]
        key = torch.einsum("bnc,hkc->bhnk", tokens, self.key) + self.key_bias[:, None]
        return query @ key.mT


@final
@dataclass(frozen=True, eq=False)
class Sublayer:
    """A module from tokens to tokens, (batch, tokens, channels), that is `y = sum_h A_h x M_h^T + b`.

    `returned` is 0 if it returns a tensor, else the length of its tuple of one tensor and Nones. `unread` are the heads
    whose attention is not the softmax of `scores`, all of them where `scores` is None, for the reason `why`.
    """

    name: str
    returned: int
    scores: AffineScores | None
    unread: tuple[int, ...] = ()
    why: str = ""


def sublayer_of(perturbed: Perturbed, name: str, matrices: Tensor, count: int) -> Sublayer | str:
    """The module around the attention `name` that maps `count` tokens by these matrices; or the reason for none."""
    modules = {each or "(root)": module for each, module in perturbed.network.named_modules()}
    names = [each for each in (name, parent(name)) if each in modules and each != "(root)"]
    calls, _ = calls_of(perturbed, [name])
    why = "no module around it takes its tokens and returns its output"
    for each in names:
        if each not in calls:
            continue
        try:
            sublayer = as_sublayer(each, modules[each], calls[each], matrices, count)
        except FAILURES as error:
            sublayer = f"it does not run alone on other tokens ({first_line(error)})"
        if isinstance(sublayer, Sublayer):
            return sublayer
        why = sublayer or why
    return why


def as_sublayer(name: str, module: nn.Module, call: Call, matrices: Tensor, count: int) -> Sublayer | str:
    """The module as a sublayer; an empty text, or the reason, if it is not one."""
    tensors = tensors_in((call.args, call.kwargs))
    heads, d_out, d_in = matrices.shape
    first = next(iter(tensors), None)
    if first is None or first.shape[1:] != (count, d_in):
        return ""
    if any(each is not first for each in tensors):
        return "its module takes more than its tokens"
    result, every = run_alone(module, call, first, first)
    output, *others = result if isinstance(result, tuple) else (result,)
    returned = len(result) if isinstance(result, tuple) else 0
    if any(each is not None for each in others):
        return "its module returns more than its tokens"
    if not isinstance(output, Tensor) or output.shape != (*first.shape[:2], d_out) or len(every) != 1:
        return ""
    (attended,) = every
    if attended.attention.shape != (len(first), heads, count, count):
        return "its attention is not (images, heads, queries, keys)"
    expected = torch.einsum("bhqk,bkc,hdc->bqd", attended.attention, first, matrices)
    if not replay_residual(output, expected)[0] <= MOST_RESIDUAL:
        return ""
    scores = scores_of(module, call, first, attended)
    if isinstance(scores, str):
        return Sublayer(name, returned, None, tuple(range(heads)), scores)
    apart = torch.zeros(heads, dtype=first.dtype)
    generator = torch.Generator().manual_seed(0)
    spread = torch.randn(first.shape, generator=generator, device="cpu", dtype=first.dtype) * first.std()
    for tokens in (first, spread):
        own = run_alone(module, call, first, tokens)[1][0].attention
        apart = apart.maximum((own - scores.attention(tokens)).abs().amax((0, 2, 3)))
    unread = tuple((~(apart <= SAME_ATTENTION)).nonzero().flatten().tolist())
    return Sublayer(name, returned, scores, unread, NOT_PRODUCTS if unread else "")


def run_alone(module: nn.Module, call: Call, first: Tensor, tokens: Tensor) -> tuple[Any, list[Attended]]:
    """The result of a module on other tokens than the `first` of a call, and the attention in that run."""
    every: list[Attended] = []

    def see(attended: Attended, _: Running) -> None:
        every.append(attended)

    args, kwargs = tree_map(lambda each: tokens if each is first else each, (call.args, call.kwargs))
    watch = Watch(module, see, rule=lambda _, own: own)
    return watch.run(lambda: module(*args, **kwargs)), every


def scores_of(module: nn.Module, call: Call, tokens: Tensor, attended: Attended) -> AffineScores | str:
    """The queries and keys as affine maps of the tokens; or the reason why they are unknown.

    Zeros as tokens give the biases, and unit vectors give the columns.
    """
    width, count = tokens.shape[-1], tokens.shape[-2]
    if attended.query is None or attended.key is None:
        return "its queries and keys were not observed"
    chunks = -(-width // count)
    # The first sequence is zeros and gives the biases; the others hold one unit vector per token.
    units = torch.zeros(1 + chunks, count, width, dtype=tokens.dtype)
    units[1:].view(-1, width)[:width] = torch.eye(width, dtype=tokens.dtype)
    answer = run_alone(module, call, tokens, units)[1][0]
    shape = attended.attention.shape[1:3]
    maps: list[Tensor] = []
    for each in (answer.query, answer.key):
        if each is None or each.shape[:3] != (1 + chunks, *shape):
            return "its queries and keys are not (images, heads, tokens, channels)"
        bias = each[0, :, 0]
        columns = each[1:].transpose(1, 2).flatten(0, 1)[:width] - bias
        maps += [columns.permute(1, 2, 0), bias]
    scores = AffineScores(*maps)
    scale = score_scale(scores.products(tokens), attended.attention)
    return AffineScores(scores.query * scale[:, None, None], scores.query_bias * scale[:, None], *maps[2:])


def score_scale(products: Tensor, attention: Tensor) -> Tensor:
    """For each head, the factor with which the products best explain the logarithms of attention, row by row."""
    # Scores are determined up to a constant per row, which the softmax drops, so both sides are centred row by row.
    logs = attention.clamp(min=torch.finfo(attention.dtype).tiny).log()
    logs, products = (each - each.mean(-1, keepdim=True) for each in (logs, products))
    size = (products * products).sum((0, 2, 3))
    return torch.where(size > 0, (products * logs).sum((0, 2, 3)) / size, 1.0)


def parts_of_matrices(matrices: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Values and outputs of each head, `M_h = W_out W_val`, both with the largest rank of any head."""
    left, sizes, right = torch.linalg.svd(matrices, full_matrices=False)
    rank = max(1, int((sizes > RANK * sizes.amax(-1, keepdim=True)).sum(-1).max()))
    for u, s, v in zip(left[..., :rank], sizes[..., :rank].sqrt(), right[..., :rank, :], strict=True):
        yield s[:, None] * v, u * s
