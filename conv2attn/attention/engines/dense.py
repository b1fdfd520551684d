"""Softmax over all keys, in chunks of queries under the memory limit: exact for every layer, the oracle of the rest."""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from conv2attn.attention.engines.channels import project
from conv2attn.attention.recipe import Question, Run, score_dtype
from conv2attn.basis import AttentionGrid, Basis, cut_softmax
from conv2attn.errors import EngineError

COPIES = 4  # scores, a term being added to them, their softmax, and its cast to the dtype of the image


def decide(question: Question) -> Run:
    """The recipe, which serves every layer.

    Raises:
        EngineError: not even one query fits under the memory limit (C2A202).
    """
    direct = question.known.indirect is None
    if question.traced:
        return partial(run, direct=direct, step=None)
    return partial(run, direct=direct, step=queries_per_chunk(question))


def queries_per_chunk(question: Question) -> int:
    """How many queries at once keep the temporary tensors under the memory limit.

    Raises:
        EngineError: not even one (C2A202).
    """
    queries, keys = question.grid.shape
    batch, d_in = question.shape[:2]
    scored = batch if question.basis.operators.reads_content else 1
    itemsize = torch.finfo(question.score_dtype).bits // 8
    row = question.basis.operators.heads * itemsize * (COPIES * scored * keys + 2 * batch * d_in)
    if row > question.memory_limit:
        raise EngineError(
            "C2A202",
            f"{question.name}: one query takes {row:,} bytes of the memory limit of {question.memory_limit:,}",
            "Raise memory_limit, or use an engine that does not compare all pairs.",
        )
    return max(1, min(queries, question.memory_limit // row))


def run(basis: Basis, image: Tensor, direct: bool, step: int | None) -> Tensor:
    """The layer by its definition, Eqs. (1) to (8).

    Several chunks that are trained are computed again in the backward pass, so that no more than one is ever held.
    """
    keys = basis.padding.pad(image)
    grid = AttentionGrid(tuple(keys.shape[2:]), basis.sites, keys.device)
    every = grid.every_query()
    chunks = [every] if step is None else every.split(step)
    part = partial(output_of_queries, basis, keys, grid, direct)
    if len(chunks) > 1 and torch.is_grad_enabled():
        pieces = [checkpoint(part, chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    else:
        pieces = [part(chunk) for chunk in chunks]
    whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)
    return whole.unflatten(2, grid.queries)


def output_of_queries(basis: Basis, keys: Tensor, grid: AttentionGrid, direct: bool, queries: Tensor) -> Tensor:
    """The output of some queries on the padded image `keys`: (batch, d_out, queries)."""
    attention = attention_of_queries(basis, keys, grid, queries)
    mixed = keys.flatten(2) @ attention.flatten(1, 2).mT
    return project(mixed.unflatten(2, attention.shape[1:3]), basis.weights, direct)


def attention_of_queries(basis: Basis, keys: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
    """The attention of some queries, (batch or 1, heads, queries, keys), in the dtype of the image."""
    return cut_softmax(basis.operators.scores(grid, queries, score_dtype(keys.dtype), keys)).to(keys.dtype)


def attention_chunks(basis: Basis, keys: Tensor, step: int | None) -> Iterator[tuple[slice, Tensor]]:
    """The attention on the padded image `keys`, chunk after chunk of `step` queries, or all at once.

    Yields:
        Which queries, and their attention, (batch or 1, heads, queries, keys), in the dtype of the image; softmax is
        computed in the score dtype.
    """
    grid = AttentionGrid(tuple(keys.shape[2:]), basis.sites, keys.device)
    every = grid.every_query()
    chunks = [every] if step is None else every.split(step)
    start = 0
    for queries in chunks:
        yield slice(start, start + queries.shape[0]), attention_of_queries(basis, keys, grid, queries)
        start += queries.shape[0]


def bytes_of_formula(question: Question) -> int:
    """Bytes of the attention of the whole call, were it materialised: heads x queries x keys."""
    heads, itemsize = question.basis.operators.heads, torch.finfo(question.score_dtype).bits // 8
    return heads * math.prod(question.grid.shape) * itemsize
