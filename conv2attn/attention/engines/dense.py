"""Softmax over all keys, in chunks of queries under the memory limit: exact for every layer, the oracle of the rest."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from conv2attn.attention.call import Call
from conv2attn.attention.engines.channels import project
from conv2attn.errors import EngineError

COPIES = 4  # scores, a term being added to them, their softmax, and its cast to the dtype of the image


def prepare(call: Call) -> Callable[[], Tensor]:
    """Ready to run for any call."""
    return lambda: run(call)


def run(call: Call) -> Tensor:
    """The layer by its definition, Eqs. (1) to (8)."""
    tokens = call.padded.flatten(2)
    pieces = []
    for _, attention in attention_chunks(call):
        mixed = tokens @ attention.flatten(1, 2).mT
        pieces.append(project(mixed.unflatten(2, attention.shape[1:3]), call.weights))
    return torch.cat(pieces, 2).unflatten(2, call.grid.queries)


def attention_chunks(call: Call) -> Iterator[tuple[slice, Tensor]]:
    """The attention, chunk after chunk of queries: (queries, (batch or 1, heads, queries, keys)), softmax in the
    score dtype, then cast to the image's.

    Raises:
        EngineError: not even one query fits under the memory limit (C2A202).
    """
    queries, keys = call.grid.shape
    layer, batch, d_in = call.layer, *call.image.shape[:2]
    scored = batch if layer.has_content else 1
    itemsize = torch.finfo(call.score_dtype).bits // 8
    row = layer.heads * itemsize * (COPIES * scored * keys + 2 * batch * d_in)
    if row > call.memory_limit:
        raise EngineError(
            "C2A202", f"{layer.name}: one query takes {row:,} bytes of the memory limit of {call.memory_limit:,}"
        )
    step = max(1, min(queries, call.memory_limit // row))
    for start in range(0, queries, step):
        rows = torch.arange(start, min(start + step, queries))
        yield slice(start, start + len(rows)), torch.softmax(scores(call, rows), -1).to(call.image.dtype)


def scores(call: Call, rows: Tensor) -> Tensor:
    """Eq. (8) for the queries `rows`: (batch or 1, heads, queries, keys)."""
    layer, grid, dtype = call.layer, call.grid, call.score_dtype
    total = layer.encoding.scores(grid, rows, dtype)[None]
    if not layer.has_content:
        return total
    image = call.padded.to(dtype)
    tokens = image.flatten(2)
    asking = image[call.sites.view(grid.keys, (0,) * len(grid.keys))].flatten(2)[:, :, rows.to(image.device)]
    if layer.key is not None:
        keys = torch.einsum("hdc,bck->bhdk", layer.key.to(dtype), tokens)
        if layer.query is not None:
            queries = torch.einsum("hdc,bcq->bhdq", layer.query.to(dtype), asking)
            total = total + queries.mT @ keys
        if layer.content_bias is not None:
            total = total + torch.einsum("hd,bhdk->bhk", layer.content_bias.to(dtype), keys)[:, :, None]
    if layer.position_key is not None and layer.query is not None:
        queries = torch.einsum("hdc,bcq->bhdq", layer.query.to(dtype), asking)
        toward = torch.einsum("bhdq,hdp->bhqp", queries, layer.position_key.to(dtype))
        total = total + torch.einsum("bhqp,qkp->bhqk", toward, layer.encoding.vectors(grid, rows).to(dtype))
    return total


def bytes_of_formula(call: Call) -> int:
    """Bytes of the attention of the whole call, were it materialised: heads x queries x keys."""
    return call.layer.heads * math.prod(call.grid.shape) * (torch.finfo(call.score_dtype).bits // 8)
