"""Networks that note their own attention, as people write them: each is read as it is, or refused with a reason."""

import random
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn import convert
from conv2attn.errors import UsageError
from conv2attn.networks.reading import layouts
from conv2attn.span import ask_attention

CELLS, WIDTH, HEADS, IMAGES = 16, 8, 2, 3
TRUTH: list[torch.Tensor] = []
"""The attention of the network that runs, one call after the other: (images, heads, cells, cells), NaN elsewhere."""


def note(attention, places):
    """Notes attention (images, windows, heads, queries, keys) of tokens at `places` (windows, tokens) of all images, or
    of (images, windows, tokens)."""
    whole = torch.full((len(attention), HEADS, CELLS, CELLS), torch.nan, dtype=torch.float64)
    for image, each in enumerate(places.expand(len(attention), *places.shape[-2:])):
        for window, at in enumerate(each):
            whole[image, :, at[:, None], at[None]] = attention[image, window].double()
    TRUTH.append(whole)


WHOLE = torch.arange(CELLS)[None]
ROWS = torch.arange(CELLS).view(4, 4)
SIDES = torch.stack([ROWS[:, :2].flatten(), ROWS[:, 2:].flatten()])
WINDOWS = ROWS.view(2, 2, 2, 2).transpose(1, 2).reshape(4, 4)


class Layer(nn.Module):
    """Two heads. `lay` brings queries, keys and values (images, heads, tokens, width) into the form of the network."""

    def __init__(self, weigh=lambda scores: scores.softmax(-1)):
        super().__init__()
        self.qkv, self.proj, self.weigh = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), weigh

    def parts(self, tokens):
        return (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.qkv(tokens).chunk(3, -1))

    def out(self, mixed):
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def noted(self, weights, mixed):
        """The output, with attention among all tokens, which is noted."""
        note(weights[:, None], WHOLE)
        return self.out(mixed)

    def forward(self, tokens, places=WHOLE):
        query, key, value = self.parts(tokens)
        weights = self.weigh(2 * query @ key.mT)
        if places is not None:
            note(weights.unflatten(0, (-1, places.shape[-2])), places)
        return self.out(weights @ value)


class Network(nn.Module):
    """16 patches of an image, and `attend` with one layer on its tokens."""

    def __init__(self, attend, layer):
        super().__init__()
        self.patch, self.layer, self.attend = nn.Conv2d(3, WIDTH, 2, 2), layer, attend

    def forward(self, image):
        return self.attend(self.layer, self.patch(image).flatten(2).mT)


def windows_first(layer, tokens):
    """Windows lie in front of images on the batch axis."""
    query, key, value = layer.parts(tokens[:, WINDOWS].transpose(0, 1).flatten(0, 1))
    weights = (2 * query @ key.mT).softmax(-1)
    note(weights.unflatten(0, (4, -1)).transpose(0, 1), WINDOWS)
    return layer.out(weights @ value)


def images_third(layer, tokens):
    """The axes are (heads, images, queries, keys), and what stands behind is not linear."""
    query, key, value = (each.transpose(0, 1) for each in layer.parts(tokens))
    weights = (2 * query @ key.mT).softmax(-1)
    note(weights.transpose(0, 1)[:, None], WHOLE)
    return F.hardswish((weights @ value).permute(1, 2, 0, 3).flatten(2))


def heads_first(layer, tokens):
    """One axis of (heads, images), and what stands behind is not linear."""
    query, key, value = (each.transpose(0, 1).flatten(0, 1) for each in layer.parts(tokens))
    weights = torch.bmm(2 * query, key.mT).softmax(-1)
    note(weights.unflatten(0, (HEADS, -1)).transpose(0, 1)[:, None], WHOLE)
    return F.hardswish(torch.bmm(weights, value).unflatten(0, (HEADS, -1)).permute(1, 2, 0, 3).flatten(2))


def largest(layer, tokens):
    """Each image keeps the half of its patches that has the largest norm, in the order of the grid."""
    at = tokens.norm(dim=-1).topk(8, -1).indices.sort(-1).values
    return layer(tokens.gather(1, at[..., None].expand(-1, -1, WIDTH)), at[:, None])


def axial(layer, tokens):
    """The same layer on the rows of the grid, then on its columns."""
    lines = layer(tokens.reshape(-1, 4, WIDTH), ROWS).view(-1, 4, 4, WIDTH)
    return layer(lines.transpose(1, 2).reshape(-1, 4, WIDTH), ROWS.T)


def exchanged_in_the_second(layer, tokens):
    """Two neighbours change places in the second image, whatever it shows."""
    orders = torch.arange(CELLS).repeat(len(tokens), 1)
    orders[1:2, :2] = torch.tensor([1, 0])
    return layer(tokens.gather(1, orders[..., None].expand_as(tokens)), orders[:, None])


def rolled_by_content(layer, tokens):
    """Tokens roll by one where the first of them has a number above 0."""
    rolled = (tokens[:, 0, 0] > 0)[:, None]
    orders = torch.where(rolled, torch.arange(CELLS).roll(1), torch.arange(CELLS))
    return layer(tokens.gather(1, orders[..., None].expand_as(tokens)), orders[:, None])


def rolled_images(layer, tokens):
    """Keys and values are those of another image."""
    query, (_, key, value) = next(layer.parts(tokens)), layer.parts(tokens.roll(1, 0))
    return layer.out((query @ key.mT).softmax(-1) @ value)


def by_hand(scores):
    """Weights that are normalised by hand."""
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True)


def best_four(scores):
    """The four largest shares of each query, which are shares once more."""
    weights = scores.softmax(-1)
    weights = weights * (weights >= weights.topk(4, -1).values[..., -1:])
    return weights / weights.sum(-1, keepdim=True)


def mixed_heads(scores):
    """Heads are mixed by a layer behind the softmax."""
    return F.linear(scores.softmax(-1).movedim(1, -1), torch.tensor([[0.8, 0.2], [-0.3, 1.0]]).to(scores)).movedim(
        -1, 1
    )


def sink_dropped(scores):
    """A key that is none of the tokens takes some of the weights."""
    return F.pad(scores, (0, 1)).softmax(-1)[..., :-1]


def exchanged(weights, order):
    """Weights whose columns are in another order than the values."""
    return weights[..., order]


class Core(nn.Module):
    """Takes queries, keys and values of all heads."""

    def forward(self, query, key, value):
        weights = (2 * query @ key.mT).softmax(-1)
        note(weights[:, None], WHOLE)
        return weights @ value


class WithCore(Layer):
    """What stands behind its core is not linear, or is a linear layer."""

    def __init__(self, behind=F.hardswish):
        super().__init__()
        self.core, self.behind = Core(), self.proj if behind is None else behind

    def forward(self, tokens):
        return self.behind(self.core(*self.parts(tokens)).transpose(1, 2).flatten(2))


def of_sums(layer, tokens):
    """Scores are sums over a hyperbolic tangent: no product of queries and keys."""
    query, key, value = layer.parts(tokens)
    weights = torch.tanh(query[:, :, :, None] + key[:, :, None]).sum(-1).softmax(-1)
    return layer.out(weights @ value)


def beside_an_operator(layer, tokens):
    """A second attention is called as an operator."""
    query, key, value = layer.parts(tokens + layer(tokens))
    return torch.ops.aten.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


def online(layer, tokens):
    """A second attention divides by its sums behind the values."""
    query, key, value = layer.parts(tokens + layer(tokens))
    weights = (query @ key.mT).exp()
    return (weights @ value / weights.sum(-1, keepdim=True)).transpose(1, 2).flatten(2)


def pairs_exchanged(layer, tokens):
    """Windows of two tokens, whose columns are exchanged."""
    return layer(tokens.reshape(-1, 2, WIDTH), None)


def drawn(layer, tokens):
    """Scores are scaled by a random number in each run."""
    query, key, value = layer.parts(tokens)
    return layer.out((query @ key.mT * (1 + random.random())).softmax(-1) @ value)


def two_views(layer, tokens):
    """The patches of an image and the same once more, mirrored, stand behind each other on the batch axis."""
    return layer(torch.cat([tokens, 2 * tokens.flip(1)]), None)


def views_and_heads(layer, tokens):
    """Two views of each image, whose heads share one axis with them."""
    query, key, value = (each.flatten(0, 1) for each in layer.parts(torch.cat([tokens, -tokens])))
    return layer.proj(
        torch.bmm(torch.bmm(query, key.mT).softmax(-1), value).unflatten(0, (-1, HEADS)).sum(1).repeat(1, 1, 2)
    )


def in_groups(layer, tokens):
    """Groups of heads and the heads of a group have an axis each."""
    query, key, value = (each.unflatten(1, (HEADS, 1)) for each in layer.parts(tokens))
    weights = (query @ key.mT).softmax(-1).expand(-1, -1, 1, -1, -1)
    note(weights.flatten(1, 2)[:, None], WHOLE)
    return layer.out((weights @ value).flatten(1, 2))


def backwards(layer, tokens):
    """The batch runs backwards in a loop over its images."""
    weights, found = [], []
    for query, key, value in zip(*(each.flip(0) for each in layer.parts(tokens)), strict=True):
        weights.append((2 * query @ key.mT).softmax(-1))
        found.append(weights[-1] @ value)
    note(torch.stack(weights[::-1])[:, None], WHOLE)
    return layer.out(torch.stack(found))


def by_numbers(layer, tokens):
    """Tokens stand in the order of a list of numbers that went to Python, which attention in front changes."""
    tokens = tokens + 2 * layer(tokens)
    orders = torch.tensor([sorted(range(CELLS), key=row.__getitem__) for row in tokens[..., 0].tolist()])
    return layer(tokens.gather(1, orders[..., None].expand_as(tokens)), orders[:, None])


def shared_keys(layer, tokens):
    """Heads of queries stand beside their tokens in an einsum with one key of all."""
    query, key, value = layer.parts(tokens)
    weights = torch.einsum("bhqd,bkd->bhqk", query, key[:, 0]).softmax(-1)
    note(weights[:, None], WHOLE)
    return layer.proj(torch.einsum("bhqk,bkd->bqhd", weights, value[:, 0]).flatten(2))


def with_experts(layer, tokens):
    """A softmax of experts stands behind the attention."""
    tokens = tokens + layer(tokens)
    gates = layer.qkv(tokens)[..., :3].softmax(-1)
    return sum(gate * tokens**power for power, gate in enumerate(gates.split(1, -1), 1))


def of_slots(scores):
    """Shares over queries, then over keys."""
    weights = scores.softmax(-2)
    return weights / weights.sum(-1, keepdim=True)


def rows_of_one_head(layer, tokens):
    """Each row of the grid attends alone, by all channels as one head."""
    query, key, value = (each.view(-1, 4, WIDTH) for each in layer.qkv(tokens).chunk(3, -1))
    weights = (query @ key.mT).softmax(-1)
    note(weights.unflatten(0, (-1, 4))[:, :, None].expand(-1, -1, HEADS, -1, -1), ROWS)
    return layer.proj(weights @ value)


def sparsemax(scores):
    """The nearest point of the simplex: Martins and Astudillo 2016."""
    largest = scores.sort(-1, descending=True).values
    counts = torch.arange(1, CELLS + 1).to(scores)
    support = (1 + counts * largest > largest.cumsum(-1)).sum(-1, keepdim=True)
    return (scores - (largest.cumsum(-1).gather(-1, support - 1) - 1) / support).clamp_min(0)


def best_scores(scores):
    """All but the four largest scores of each query are masked."""
    return scores.masked_fill(scores < scores.topk(4, -1).values[..., -1:], -torch.inf).softmax(-1)


def masked_fused(layer, tokens):
    """Fused attention with a mask of distances."""
    query, key, value = layer.parts(tokens)
    mask = -0.3 * (torch.arange(CELLS)[:, None] - torch.arange(CELLS)).abs().to(query)
    note(by_hand(query @ key.mT / 2 + mask)[:, None], WHOLE)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return layer.out(mixed)


def keys_by_column(layer, tokens):
    """Keys and values stand column by column, queries row by row."""
    order = ROWS.T.flatten()
    query, key, value = layer.parts(tokens)
    weights = (2 * query @ key[:, :, order].mT).softmax(-1)
    return layer.noted(weights[..., order.argsort()], weights @ value[:, :, order])


def narrow_scores(cast, layer, tokens):
    """Scores and shares have fewer digits than the tokens, as of large networks."""
    query, key, value = layer.parts(tokens)
    weights = (2 * cast(query) @ cast(key).mT).softmax(-1)
    return layer.noted(weights, weights.to(value.dtype) @ value)


def centred_keys(layer, tokens):
    """Keys are centred over the images of the batch."""
    query, key, value = layer.parts(tokens)
    return layer.out((query @ (key - key.mean(0)).mT).softmax(-1) @ value)


def values_below(layer, tokens):
    """Values are those of the row above."""
    query, key, value = layer.parts(tokens)
    return layer.out((query @ key.mT).softmax(-1) @ value.roll(4, 2))


class TokensFirst(nn.Module):
    """torch's attention on (tokens, images, channels), whose weights the network reads."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS)

    def forward(self, tokens):
        tokens = tokens.transpose(0, 1)
        output, weights = self.attention(tokens, tokens, tokens, average_attn_weights=False)
        note(weights[:, None], WHOLE)
        return output.transpose(0, 1)


GRID = ROWS.view(2, 2, 2, 2).permute(1, 3, 0, 2).reshape(4, 4)
SWAPPED = torch.arange(CELLS)
SWAPPED[[5, 6]] = SWAPPED[[6, 5]]
ROLLED = torch.arange(CELLS).roll(1)


class Wrapped(Layer):
    """The softmax stands in a module with dropout."""

    def __init__(self):
        super().__init__()
        self.weigh = nn.Sequential(nn.Softmax(-1), nn.Dropout(0.1))


def with_dots(layer, tokens):
    """Products by einsum with an ellipsis, and a table that queries meet, added last."""
    query, key, value = layer.parts(tokens)
    table = torch.linspace(-1, 1, HEADS * CELLS * 4).sin().view(HEADS, CELLS, 4).to(query)
    weights = (torch.einsum("...qd,...kd->...qk", query, key) + query @ table.mT).softmax(-1)
    return layer.noted(weights, torch.einsum("...qk,...kd->...qd", weights, value))


def turned(layer, tokens):
    """Queries are the columns of the softmax, and of the product with the values."""
    query, key, value = layer.parts(tokens)
    weights = (2 * key @ query.mT).softmax(-2)
    note(weights.mT[:, None], WHOLE)
    return layer.proj((value.mT @ weights).permute(0, 3, 1, 2).flatten(2))


def two_steps(layer, tokens):
    """A random walk of two steps: attention is the square of the softmax."""
    query, key, value = layer.parts(tokens)
    weights = torch.matrix_power((2 * query @ key.mT).softmax(-1), 2)
    return layer.noted(weights, weights @ value)


def rows_exchanged(layer, tokens):
    """Two rows of the weights are exchanged: each is of the query of the other."""
    query, key, value = layer.parts(tokens)
    weights = (2 * query @ key.mT).softmax(-1)
    return layer.noted(weights, weights[:, :, SWAPPED] @ value)


def behind_exchanged_rows(layer, tokens):
    """What stands behind weights with exchanged rows, without a residual, stands where their queries do."""
    return layer(rows_exchanged(layer, tokens), SWAPPED[None])


class Unfolded(Layer):
    """Overlapping patches of 3x3 tokens are cut by unfold."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(9 * WIDTH, WIDTH)

    def forward(self, tokens):
        return super().forward(self.patches(F.unfold(tokens.mT.unflatten(-1, (4, 4)), 3, padding=1).mT))


class Convolved(Layer):
    """Queries, keys and values are made of two padded convolutions over tokens, in other orders in front and behind."""

    def __init__(self, before=WHOLE[0], behind=WHOLE[0]):
        super().__init__()
        self.maps = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, 1, 1), nn.Conv2d(WIDTH, WIDTH, 3, 1, 1))
        self.before, self.behind = before, behind

    def forward(self, tokens):
        mapped = self.maps(tokens[:, self.before].mT.unflatten(-1, (4, 4))).flatten(2).mT
        return super().forward(mapped[:, self.behind], self.behind[None])


class Halved(Layer):
    """The left and the right half of the image pass a padded convolution on their own."""

    def __init__(self):
        super().__init__()
        self.maps = nn.Conv2d(WIDTH, WIDTH, (3, 1), 1, (1, 0))

    def forward(self, tokens):
        halves = tokens[:, SIDES].flatten(0, 1).mT.unflatten(-1, (4, 2))
        return super().forward(self.maps(halves).flatten(2).mT, SIDES)


class Crops(nn.Conv2d):
    """Patches of 2x2 pixels of two crops of an image, one pixel apart, on the batch axis."""

    def forward(self, image):
        return super().forward(torch.cat([image[..., :12, :12], image[..., 1:13, 1:13]]))


class ByHead(Layer):
    """Each head has a padded convolution of its channels, on the batch axis."""

    def __init__(self):
        super().__init__()
        self.maps = nn.Conv2d(WIDTH // HEADS, WIDTH // HEADS, 3, 1, 1)

    def parts(self, tokens):
        return (
            self.maps(each.flatten(0, 1).mT.unflatten(-1, (4, 4))).flatten(2).mT.unflatten(0, (-1, HEADS))
            for each in super().parts(tokens)
        )


PLAIN = Layer.__call__
HALVES = ROWS[:, [2, 3, 0, 1]].flatten()


def talking(scores):
    """Heads that a matrix mixes behind the softmax, on the last axis for it."""
    return torch.einsum("bhij,hg->bgij", scores.softmax(-1), torch.tensor([[0.7, -0.2], [0.3, 1.1]]).to(scores))


MIXTURE = torch.tensor([[1.0, -2.0], [-1.5, 0.5]]), torch.tensor([0.2, -0.1])


def of_either_sign(heads):
    """Heads that a layer mixes by numbers of either sign: no score that is lowered makes a weight vanish."""
    return F.linear(heads.movedim(1, -1), *(each.to(heads) for each in MIXTURE)).movedim(-1, 1)


def mixed_twice(scores, between=lambda each: each):
    """Heads are mixed in front of the softmax, where `between` changes them, and behind it."""
    return of_either_sign(between(of_either_sign(scores)).softmax(-1))


def rounded(scores):
    """A softmax in float32, in which a small noise is lost: CLIP, SegFormer and SAM have such."""
    return scores.softmax(-1, dtype=torch.float32).to(scores)


def exchanged_in_one_head(heads, axis):
    """Two neighbours are exchanged in the second head alone."""
    return torch.stack([heads[:, 0], heads[:, 1].index_select(axis, SWAPPED)], 1)


def with_shares_beside(order, scores):
    """Half of the weights are a softmax, half are shares made by hand of the same scores, in an order of their own."""
    return (scores.softmax(-1) + by_hand(scores / 2)[..., order]) / 2


def weighed(weigh, reason=""):
    """The layer with other weights."""
    return PLAIN, partial(Layer, weigh), reason


def right(attend=PLAIN, layer=Layer):
    """What is read as it is."""
    return attend, layer, ""


STYLES = {
    "plain": right(PLAIN),
    "scores in float32": right(partial(narrow_scores, torch.Tensor.float)),
    "scores in bfloat16": right(partial(narrow_scores, lambda each: each.to(torch.bfloat16))),
    "windows": right(lambda layer, tokens: layer(tokens[:, WINDOWS].flatten(0, 1), WINDOWS)),
    "windows in front of images": right(windows_first),
    "heads in front of images": right(images_third),
    "heads in front of images on one axis": right(heads_first),
    "images one by one": right(lambda layer, tokens: torch.cat([layer(each[None]) for each in tokens])),
    "tokens of each image": right(largest),
    "two tokens of the second image exchanged": right(exchanged_in_the_second),
    "tokens rolled by what they show": right(rolled_by_content),
    "a layer on rows and columns": right(axial),
    "normalised by hand": weighed(by_hand),
    "its four largest": weighed(best_four),
    "heads mixed behind the softmax": weighed(mixed_heads),
    "a softmax of a softmax": weighed(lambda scores: (9 * scores.softmax(-1)).softmax(-1)),
    "the mean of heads": weighed(lambda scores: scores.softmax(-1).mean(1, keepdim=True)),
    "one head for all": weighed(lambda scores: scores[:, :1].softmax(-1)),
    "the mean of images": weighed(lambda scores: scores.softmax(-1).mean(0, keepdim=True), "several images"),
    "a key dropped": weighed(sink_dropped),
    "a softmax with dropout": right(layer=Wrapped),
    "a core of queries, keys and values": right(layer=WithCore),
    "einsum with dots": right(with_dots),
    "turned": right(turned),
    "two steps": (two_steps, Layer, "on other queries"),
    "columns rolled": weighed(lambda scores: exchanged(scores.softmax(-1), ROLLED), "columns"),
    "two columns exchanged": weighed(lambda scores: exchanged(scores.softmax(-1), SWAPPED), "columns"),
    "two rows exchanged": right(rows_exchanged),
    "behind exchanged rows": right(behind_exchanged_rows),
    "shares of one more": weighed(lambda scores: scores.exp() / (1 + scores.exp().sum(-1, True))),
    "parts of what is positive": weighed(lambda scores: F.relu(scores) / 99, "not observed"),
    "mixed heads and columns": weighed(lambda scores: exchanged(mixed_heads(scores), SWAPPED), "columns"),
    "columns of two": (pairs_exchanged, partial(Layer, lambda scores: scores.softmax(-1).flip(-1)), "at most two keys"),
    "scores of sums": (of_sums, Layer, "queries and keys were not observed"),
    "an operator beside it": (beside_an_operator, Layer, "not observed"),
    "sums behind the values": (online, Layer, "not observed"),
    "scores of random numbers": (drawn, Layer, "differs between runs"),
    "two views of an image": (two_views, Layer, "have the same tokens"),
    "views and heads on one axis": (views_and_heads, Layer, "have the same tokens"),
    "heads in groups": right(in_groups),
    "talking heads": weighed(talking),
    "sparsemax": weighed(sparsemax),
    "its four largest scores": weighed(best_scores),
    "capped scores": weighed(lambda scores: (5 * torch.tanh(scores / 5)).softmax(-1)),
    "fused with a mask of distances": right(masked_fused),
    "heads mixed twice": weighed(mixed_twice),
    "heads mixed twice, two columns of scores exchanged": weighed(
        partial(mixed_twice, between=partial(exchanged_in_one_head, axis=-1)), "not in the order of its keys"
    ),
    "heads mixed twice, two rows of scores exchanged": weighed(
        partial(mixed_twice, between=partial(exchanged_in_one_head, axis=-2)), "depends on other queries"
    ),
    "heads mixed twice, two columns exchanged": weighed(
        lambda scores: exchanged_in_one_head(mixed_twice(scores), -1), "not in the order of its keys"
    ),
    "heads mixed twice, two rows exchanged": weighed(
        lambda scores: exchanged_in_one_head(mixed_twice(scores), -2), "depends on other queries"
    ),
    "a rounded softmax": weighed(rounded),
    "a rounded softmax, two columns exchanged": weighed(
        lambda scores: exchanged_in_one_head(rounded(scores), -1), "not in the order of its keys"
    ),
    "a rounded softmax, two rows exchanged": weighed(
        lambda scores: exchanged_in_one_head(rounded(scores), -2), "have their tokens in different orders"
    ),
    "shares beside a softmax": weighed(partial(with_shares_beside, torch.arange(CELLS)), "by more than a softmax"),
    "exchanged shares beside a softmax": weighed(partial(with_shares_beside, SWAPPED), "by more than a softmax"),
    "keys by column": right(keys_by_column),
    "dilated windows": right(lambda layer, tokens: layer(tokens[:, GRID].flatten(0, 1), GRID)),
    "tokens first": right(layer=TokensFirst),
    "keys centred over images": (centred_keys, Layer, "several images"),
    "images backwards, one by one": right(backwards),
    "tokens in the order of numbers": right(by_numbers),
    "heads that share their keys": right(shared_keys),
    "a softmax of experts": right(with_experts),
    "shares over queries, then over keys": weighed(of_slots),
    "rows of the grid, one head": right(rows_of_one_head),
    "values of another row": (values_below, Layer, "keys and values"),
    "keys of another image": (rolled_images, Layer, "several images"),
    "padded convolutions": right(layer=Convolved),
    "padded convolutions of halves": right(layer=Halved),
    "padded convolutions of heads": right(layer=ByHead),
    "overlapping patches by unfold": right(layer=Unfolded),
    "two tokens exchanged behind convolutions": right(layer=partial(Convolved, behind=SWAPPED)),
    "halves exchanged in front of convolutions": (PLAIN, partial(Convolved, before=HALVES), "places are unknown"),
}
"""What the network does with its layer, the layer, and a part of the reason why it is refused, if it is."""


def read_as_noted(read):
    """Attention (images, heads, cells, cells) as it is read."""
    places = torch.arange(CELLS)[None] if read.tokens.windows is None else torch.as_tensor(read.tokens.windows.places)
    of_all = any("all images are read as windows" in note for note in read.notes)
    windows = len(places) // (IMAGES if of_all else 1)
    rows = read.attention.double().unflatten(0, (-1, windows))
    whole = torch.full((len(rows), HEADS, CELLS, CELLS), torch.nan, dtype=torch.float64)
    for row, at in enumerate(places.repeat(len(rows) * windows // len(places), 1)):
        image, window = divmod(row, windows)
        whole[image, :, at[:, None], at[None]] = rows[image, window]
    return whole


def verdict(name):
    """What is said of a style."""
    attend, layer, _ = STYLES[name]
    return verdict_of(attend, layer)


def verdict_of(attend, layer):
    """ "right", "wrong", or the reason why a network is refused."""
    torch.manual_seed(1)
    network, images = Network(attend, layer()).eval(), torch.randn(IMAGES, 3, 8, 8)
    TRUTH.clear()
    with torch.no_grad():
        network(images)
    truth = torch.cat(TRUTH) if TRUTH else None
    try:
        reads = list(ask_attention(network, images).reads())
    except UsageError as error:
        return str(error)
    refused = [each.unread or each.unplaced for each in reads if each.unread or each.unplaced]
    if refused:
        return refused[0]
    # Calls on other tokens are records of their own.
    whole = torch.cat([read_as_noted(read) for read in reads])
    same = truth is not None and whole.shape == truth.shape and torch.allclose(whole, truth, atol=1e-5, equal_nan=True)
    return "right" if same else "wrong"


EVERY_DAY = {
    name for name in STYLES if name.startswith(("heads mixed twice", "a rounded softmax")) or "shares beside" in name
}
"""Styles whose defects no other test finds."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.rotated) for name in STYLES]
)
def test_attention_is_read_as_it_is_or_refused(name):
    reason = STYLES[name][-1]
    assert reason in verdict(name) if reason else verdict(name) == "right"


def test_a_wrong_reading_is_seen(monkeypatch):
    """Planted: the network notes its windows in another order."""
    monkeypatch.setitem(
        STYLES, "planted", (lambda layer, tokens: layer(tokens[:, WINDOWS].flatten(0, 1), ROWS), Layer, "")
    )
    assert verdict("planted") == "wrong"


PLANTED = {
    "rows in their order": ("rounds.of_these", lambda queries, rows: queries, "two rows exchanged"),
    "what rows out of order pass on": ("rounds.of_these", lambda queries, rows: queries, "behind exchanged rows"),
    "parts of an image on one place": (
        "feature_maps.in_whole",
        lambda exact, *_: exact,
        "padded convolutions of halves",
    ),
    "patches that are no map": ("watch.sides_of_patches", lambda *_, **options: (16,), "overlapping patches by unfold"),
    "rounding to float32": ("double_precision.CASTS", set(), "scores in float32"),
    "rounding to bfloat16": ("double_precision.widest", lambda each: each, "scores in bfloat16"),
    "decisions of each run": (
        "decisions.Decisions.decided",
        lambda self, function, result, *_: result,
        "tokens in the order of numbers",
    ),
    "calls alone": ("answers.joined", lambda calls, *_: [(call,) for call in calls], "images one by one"),
    "images in their order": (
        "layouts.answering",
        lambda pair, own=layouts.answering: ({call: rows.flip(0) for call, rows in own(pair)[0].items()}, own(pair)[1]),
        "plain",
    ),
    "maps that are not asked where they lie": (
        "feature_maps.in_image",
        lambda exact, _: exact,
        "halves exchanged in front of convolutions",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_seen(planted, monkeypatch):
    where, other, style = PLANTED[planted]
    monkeypatch.setattr(f"conv2attn.networks.reading.{where}", other)
    assert (STYLES[style][-1] or "right") not in verdict(style)


@pytest.mark.parametrize("behind", [None, F.hardswish])
def test_a_core_of_queries_keys_and_values_has_the_heads_that_lie_at_the_same_tokens(behind):
    """Planted by taking the core alone: it replays as windows of one head."""
    torch.manual_seed(1)
    (read,) = ask_attention(Network(PLAIN, WithCore(behind)).eval(), torch.randn(3, 3, 8, 8)).reads()
    assert (read.name, tuple(read.attention.shape)) == ("layer.core", (3, HEADS, CELLS, CELLS))
    assert (read.weights is None) == (behind is not None)
    if read.weights is not None:
        assert (len(read.weights[0]), read.replay < 1e-9) == (HEADS, True)


class Divided(Layer):
    """What its attention mixes is divided by `divisor`, and its values are multiplied by `size`."""

    def __init__(self, divisor, size):
        super().__init__()
        self.divisor, self.size = divisor, size

    def forward(self, tokens):
        query, key, value = self.parts(tokens)
        mixed = (query @ key.mT).softmax(-1) @ (self.size * value) / self.divisor
        return self.out(mixed)


@pytest.mark.parametrize(
    ("divisor", "size", "reason"), [(0, 1, "not finite"), (1, 0, "does not change with its attention")]
)
def test_outputs_that_are_not_finite_or_the_same_are_not_called_nonlinear(divisor, size, reason):
    torch.manual_seed(1)
    (read,) = ask_attention(Network(PLAIN, Divided(divisor, size)).eval(), torch.randn(2, 3, 8, 8)).reads()
    assert reason in read.notes[0]


@pytest.mark.parametrize(
    ("attend", "reason"), [(PLAIN, ""), (exchanged_in_the_second, "other places in another image")]
)
def test_blurred_tokens_lie_alike_in_all_images_or_are_refused(attend, reason):
    """Planted by a limit of many steps in place of half of one: two exchanged tokens of the second image are lost."""
    torch.manual_seed(1)
    network = Network(attend, Layer()).eval()
    network.patch = nn.Sequential(nn.Conv2d(3, WIDTH, 3, 2, 1), nn.GELU(), nn.Conv2d(WIDTH, WIDTH, 3, 2, 1))
    (read,) = ask_attention(network, torch.randn(2, 3, 16, 16)).reads()
    assert reason in read.unplaced if reason else read.tokens.sides == (4, 4)


@pytest.mark.parametrize("planted", [False, True])
def test_overlapping_crops_of_an_image_are_no_heads_of_one_place(planted, monkeypatch):
    """Planted by centres alone, which are near enough to one place: the heads of both crops are heads of one layer."""
    if planted:
        monkeypatch.setattr("conv2attn.networks.reading.feature_maps.in_order", lambda _, placed, __: set(placed))
    torch.manual_seed(1)
    network = Network(lambda layer, tokens: layer(tokens, None), Layer()).eval()
    network.patch = Crops(3, WIDTH, 2, 2)
    reads = ask_attention(network, torch.randn(1, 3, 16, 16)).reads()
    placed = [each.attention.shape[1] for each in reads if not each.unplaced]
    assert placed == ([2 * HEADS] if planted else [])


class InThree(Layer):
    """Queries, keys and values by three products."""

    def parts(self, tokens):
        weights = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
        return (F.linear(tokens, *each).unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in weights)


def test_a_layer_that_is_not_observed_hides_no_other_after_it():
    """The values of the second come from products too, and are no weights."""
    torch.manual_seed(1)
    layers = nn.ModuleList(InThree(lambda scores: F.relu(scores) / 99) for _ in range(2))
    network = Network(lambda layers, tokens: layers[1](tokens + layers[0](tokens)), layers).eval()
    reads = list(ask_attention(network, torch.randn(2, 3, 8, 8)).reads())
    assert [read.name for read in reads] == ["layer.0", "layer.1"]
    assert all("not observed" in read.unread for read in reads)


class Behind(nn.Module):
    """Patches behind a layer of this project that reads content."""

    def __init__(self):
        super().__init__()
        self.own, self.network = convert(nn.Conv2d(3, 3, 3, padding=1), content="silent"), Network(PLAIN, Layer())
        nn.init.normal_(self.own.key)

    def forward(self, image):
        return self.network(image + self.own(image))


def test_layers_behind_one_of_this_project_are_placed():
    """Planted: what an observer stored of its attention counted as decisions of the network, and was told to others."""
    torch.manual_seed(1)
    own, read = ask_attention(Behind().eval(), torch.randn(2, 3, 8, 8)).reads()
    assert (own.name, read.unplaced or read.tokens.sides) == ("own", (4, 4))


class Replacing(Network):
    """Replaces its layer in its first run."""

    def forward(self, image):
        if not hasattr(self, "replaced"):
            self.layer, self.replaced = Layer().eval(), True
        return super().forward(image)


def test_a_layer_that_the_first_run_makes_has_its_name():
    """Planted: modules were named before that run, and the network itself attended."""
    (read,) = ask_attention(Replacing(PLAIN, nn.Identity()).eval(), torch.randn(2, 3, 8, 8)).reads()
    assert (read.name, read.tokens.sides) == ("layer", (4, 4))
