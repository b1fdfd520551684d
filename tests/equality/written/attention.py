"""Attention as people write it: fused and by hand, shared heads, positions, windows."""

import math

import torch
import torch.nn.functional as F
from equality.written.pair import Pair
from torch import nn

HEADS, D_HEAD, TOKENS = 2, 4, (2, 5, 8)
attend = F.scaled_dot_product_attention
LATER = torch.ones(5, 5).triu(1).bool()


def fused():
    return {"qkv": nn.Linear(8, 24), "output": nn.Linear(8, 8)}


def heads(m, x):
    """Queries, keys and values by head, of one product."""
    b, n, _ = x.shape
    return m.qkv(x).reshape(b, n, 3, HEADS, D_HEAD).permute(2, 0, 3, 1, 4)


def merged(m, y):
    return m.output(y.transpose(1, 2).flatten(2))


def of_torch(m, x, **settings):
    return merged(m, attend(*heads(m, x), **settings))


def by_hand(m, x):
    queries, keys, values = heads(m, x)
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(D_HEAD)
    return merged(m, scores.softmax(dim=-1) @ values)


def scaled_first(m, x):
    queries, keys, values = heads(m, x)
    queries = queries * D_HEAD**-0.5
    return merged(m, F.softmax(queries @ keys.transpose(-2, -1), dim=-1) @ values)


def by_einsum(m, x):
    queries, keys, values = (each.transpose(1, 2) for each in heads(m, x))
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", queries, keys) * D_HEAD**-0.5, -1)
    return m.output(torch.einsum("bhqk,bkhd->bqhd", weights, values).reshape(x.shape))


def three_products(m, x):
    parts = zip(m.qkv.weight.chunk(3), m.qkv.bias.chunk(3), strict=True)
    split = [F.linear(x, *part).unflatten(-1, (HEADS, D_HEAD)).transpose(1, 2) for part in parts]
    return merged(m, attend(*split))


def of_torchs_module(m, x):
    return m.attention(x, x, x, need_weights=False)[0]


def of_its_weights(m, x):
    layer = m.attention
    projected = F.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
    queries, keys, values = (each.view(len(x), 5, HEADS, D_HEAD).transpose(1, 2) for each in projected)
    weights = (queries @ keys.mT / math.sqrt(D_HEAD)).softmax(-1)
    return layer.out_proj((weights @ values).transpose(1, 2).reshape(x.shape))


def causal_by_hand(m, x):
    queries, keys, values = heads(m, x)
    scores = (queries @ keys.mT * D_HEAD**-0.5).masked_fill(LATER, float("-inf"))
    return merged(m, scores.softmax(-1) @ values)


def added_mask(m, x):
    mask = torch.zeros(5, 5).masked_fill(torch.arange(5) > 2, -math.inf)
    return of_torch(m, x, attn_mask=mask)


def shared():
    return {"queries": nn.Linear(8, 16), "keys_values": nn.Linear(8, 16), "output": nn.Linear(16, 8)}


def grouped(m, x):
    queries = m.queries(x).unflatten(-1, (4, 4)).transpose(1, 2)
    keys, values = m.keys_values(x).unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
    return queries, keys, values


def flagged(m, x):
    return merged(m, attend(*grouped(m, x), enable_gqa=True))


def repeated(m, x):
    queries, keys, values = grouped(m, x)
    return merged(m, attend(queries, keys.repeat_interleave(2, 1), values.repeat_interleave(2, 1)))


def repeat_kv(x, times):
    b, h, n, d = x.shape
    return x[:, :, None].expand(b, h, times, n, d).reshape(b, h * times, n, d)


def expanded(m, x):
    queries, keys, values = grouped(m, x)
    weights = (queries @ repeat_kv(keys, 2).mT / math.sqrt(D_HEAD)).softmax(-1)
    return merged(m, weights @ repeat_kv(values, 2))


def one_head_broadcast(m, x):
    queries, keys, values = grouped(m, x)
    return merged(m, (queries @ keys[:, :1].mT * 0.5).softmax(-1) @ values[:, :1])


def one_head_expanded(m, x):
    queries, keys, values = grouped(m, x)
    return merged(m, attend(queries, *(each[:, :1].expand(-1, 4, -1, -1) for each in (keys, values))))


def angles():
    inverse = 10000 ** -(torch.arange(0, 8, 2) / 8)
    phases = torch.arange(5)[:, None] * inverse
    return {"cos": phases.cos(), "sin": phases.sin()}


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotary(m, x):
    return x * torch.cat([m.cos, m.cos], -1) + rotate_half(x) * torch.cat([m.sin, m.sin], -1)


def rotary_by_halves(m, x):
    first, second = x[..., :4], x[..., 4:]
    return torch.cat([first * m.cos - second * m.sin, second * m.cos + first * m.sin], dim=-1)


def rotary_by_pairs(m, x):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * m.cos - odd * m.sin, even * m.sin + odd * m.cos], dim=-1).flatten(-2)


def rotary_in_place(m, x):
    result = torch.empty_like(x)
    result[..., ::2] = x[..., ::2] * m.cos - x[..., 1::2] * m.sin
    result[..., 1::2] = x[..., 1::2] * m.cos + x[..., ::2] * m.sin
    return result


def with_table():
    places = torch.arange(5)
    return {**fused(), "table": nn.Parameter(torch.randn(9, HEADS)), "index": places[:, None] - places + 4}


def indexed_bias(m, x):
    queries, keys, values = heads(m, x)
    bias = m.table[m.index.view(-1)].view(5, 5, -1).permute(2, 0, 1).contiguous()
    scores = queries * 0.5 @ keys.transpose(-2, -1) + bias.unsqueeze(0)
    return merged(m, scores.softmax(-1) @ values)


def embedded_bias(m, x):
    return of_torch(m, x, attn_mask=F.embedding(m.index, m.table).movedim(-1, 0))


def with_slopes():
    return {**fused(), "slopes": torch.tensor([2.0**-4, 2.0**-8])}


def distances(m, x):
    places = torch.arange(5)
    bias = -(places[:, None] - places).abs() * m.slopes[:, None, None]
    queries, keys, values = heads(m, x)
    return merged(m, (queries @ keys.mT * 0.5 + bias).softmax(-1) @ values)


def slopes_as_mask(m, x):
    rows = [-abs(i - j) for i in range(5) for j in range(5)]
    return of_torch(m, x, attn_mask=torch.tensor(rows).view(5, 5) * m.slopes.view(1, 2, 1, 1))


def linear_attention(m, x):
    queries, keys, values = heads(m, x)
    queries, keys = F.elu(queries) + 1, F.elu(keys) + 1
    return merged(m, queries @ keys.mT @ values)


def linear_attention_by_state(m, x):
    queries, keys, values = heads(m, x)
    state = torch.einsum("bhnd,bhne->bhde", F.elu(keys) + 1, values)
    return merged(m, torch.einsum("bhnd,bhde->bhne", F.elu(queries) + 1, state))


def in_windows(m, x):
    b, h, w, c = x.shape
    windows = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
    y = of_torch(m, windows)
    return y.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)


def in_unfolded_windows(m, x):
    windows = x.unfold(1, 2, 2).unfold(2, 2, 2).flatten(-2).movedim(-1, -2)
    y = torch.stack([torch.stack([by_hand(m, windows[:, i, j]) for j in range(3)], 1) for i in range(2)], 1)
    return y.unflatten(3, (2, 2)).transpose(2, 3).flatten(1, 2).flatten(2, 3)


def cosines(m, x):
    queries, keys, values = heads(m, x)
    return merged(m, (F.normalize(queries, dim=-1) @ F.normalize(keys, dim=-1).mT * 10).softmax(-1) @ values)


def cosines_by_norms(m, x):
    queries, keys, values = heads(m, x)
    queries, keys = (each / each.norm(dim=-1, keepdim=True).clamp(min=1e-12) for each in (queries, keys))
    return merged(m, attend(queries, keys, values, scale=10))


def encoder():
    settings = {"dim_feedforward": 16, "activation": "gelu", "batch_first": True, "norm_first": True}
    return {"block": nn.TransformerEncoderLayer(8, HEADS, **settings)}


def block_by_hand(m, x):
    block = m.block
    layer, normed = block.self_attn, block.norm1(x)
    projected = F.linear(normed, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
    y = attend(*(each.unflatten(-1, (HEADS, D_HEAD)).transpose(1, 2) for each in projected))
    x = x + layer.out_proj(y.transpose(1, 2).flatten(2))
    return x + block.linear2(F.gelu(block.linear1(block.norm2(x))))


def stabilised(m, x):
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


ATTENTION = {
    "attention of torch, by hand": Pair(TOKENS, of_torch, by_hand, fused),
    "attention, scaled before the product": Pair(TOKENS, of_torch, scaled_first, fused),
    "attention by einsum": Pair(TOKENS, by_hand, by_einsum, fused),
    "one product, three products": Pair(TOKENS, of_torch, three_products, fused),
    "nn.MultiheadAttention, by hand": Pair(
        TOKENS, of_torchs_module, of_its_weights, lambda: {"attention": nn.MultiheadAttention(8, 2, batch_first=True)}
    ),
    "causal attention": Pair(TOKENS, lambda m, x: of_torch(m, x, is_causal=True), causal_by_hand, fused),
    "a mask of truth values, of -inf": Pair(
        TOKENS, lambda m, x: of_torch(m, x, attn_mask=(torch.arange(5) <= 2).expand(5, 5)), added_mask, fused
    ),
    "shared heads, repeated heads": Pair(TOKENS, flagged, repeated, shared),
    "shared heads, repeat_kv": Pair(TOKENS, flagged, expanded, shared),
    "one head of keys, expanded": Pair(TOKENS, one_head_broadcast, one_head_expanded, shared),
    "rotary by halves": Pair(TOKENS, rotary, rotary_by_halves, angles),
    "rotary by pairs": Pair(TOKENS, rotary_by_pairs, rotary_in_place, angles),
    "relative bias": Pair(TOKENS, indexed_bias, embedded_bias, with_table),
    "ALiBi": Pair(TOKENS, distances, slopes_as_mask, with_slopes),
    "linear attention": Pair(TOKENS, linear_attention, linear_attention_by_state, fused),
    "attention in windows": Pair((2, 4, 6, 8), in_windows, in_unfolded_windows, fused),
    "attention by cosines": Pair(TOKENS, cosines, cosines_by_norms, fused),
    "nn.TransformerEncoderLayer, by hand": Pair(TOKENS, lambda m, x: m.block(x), block_by_hand, encoder),
    "softmax less the maximum": Pair(TOKENS, lambda m, x: x.softmax(-1), stabilised),
}
