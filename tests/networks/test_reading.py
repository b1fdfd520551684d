"""Networks that are made to be read wrongly: no place is wrong, and no wrong reading replays."""

from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conv2attn import check_span, heads
from conv2attn.errors import UsageError
from conv2attn.networks.reading import MOST_RESIDUAL, replay
from conv2attn.span import ask_attention
from conv2attn.theory.basis import AttentionGrid, Sites
from conv2attn.verdicts import Verdict

ORDER = torch.randperm(49, generator=torch.Generator().manual_seed(3))


def unchanged(*parts):
    return parts


class Block(nn.Module):
    """Attention of four heads with interleaved weights (heads, three parts, width), and a layer behind it."""

    def __init__(self, change=unchanged):
        super().__init__()
        self.change, self.qkv, self.proj, self.mlp = change, nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, tokens):
        query, key, value = self.change(*self.qkv(tokens).unflatten(-1, (4, 3, 8)).permute(3, 0, 2, 1, 4))
        tokens = tokens + self.proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return tokens + F.gelu(self.mlp(tokens))


CHANGED_PARTS = {
    "a head in another order": lambda *parts: (torch.cat([x[:, :-1], x[:, -1:, ORDER]], 1) for x in parts),
    "even attention": lambda query, key, value: (1e-6 * query, key, value),
}
"""What happens to queries, keys and values in both blocks."""


def attended_by_hand(tokens):
    weights = (tokens @ tokens.mT / 6).exp()
    return tokens + weights @ tokens / weights.sum(-1, keepdim=True)


CHANGED_TOKENS = {
    "another order": lambda tokens: tokens[:, ORDER],
    "some dropped": lambda tokens: tokens[:, ORDER[:20]],
    "pairs averaged": lambda tokens: (tokens[:, :48:2] + tokens[:, 1:48:2]) / 2,
    "a mean added": lambda tokens: tokens + tokens.mean(1, keepdim=True),
    "a reversed copy added": lambda tokens: tokens + 1e-2 * tokens.flip(1),
    "attention by hand": attended_by_hand,
}
"""What happens to tokens between the blocks."""


class Network(nn.Module):
    """28x28 pixels, 7x7 tokens, and two blocks, with what `kind` says in them or between them."""

    def __init__(self, kind):
        super().__init__()
        change = CHANGED_PARTS.get(kind, unchanged)
        self.between, self.stem = CHANGED_TOKENS.get(kind, nn.Identity()), nn.Conv2d(3, 32, 4, 4)
        self.first, self.second = Block(change), Block(change)

    def forward(self, image):
        return self.second(self.between(self.first(self.stem(image).flatten(2).mT)))


def read(kind):
    """The records of both blocks."""
    torch.manual_seed(0)
    return list(ask_attention(Network(kind).eval(), torch.randn(2, 3, 28, 28)).reads())


@pytest.mark.parametrize("kind", ["", "another order", "even attention"])
def test_every_token_of_one_patch_has_its_place(kind):
    for each in read(kind):
        assert (each.tokens.sides, each.tokens.leading, each.tokens.windows) == ((7, 7), 0, None)
        assert each.replay < 1e-9


def test_tokens_that_are_left_keep_their_places():
    _, second = read("some dropped")
    assert second.tokens.windows.places[0].tolist() == ORDER[:20].tolist()


@pytest.mark.rotated
@pytest.mark.parametrize("kind", [*CHANGED_TOKENS][2:])
def test_tokens_that_are_mixed_without_visible_attention_have_no_place(kind):
    first, second, *unseen = read(kind)
    assert [each.name for each in unseen] == ["(root)"] * (kind == "attention by hand")
    assert first.tokens.sides == (7, 7)
    assert second.tokens is None


SECOND = torch.arange(49).unflatten(0, (7, 7))[::2, ::2].flatten()
FROM_THE_SECOND = torch.arange(49).unflatten(0, (7, 7))[1::2, 1::2].flatten()


def learned(tokens, count):
    """So many tokens that no input reaches."""
    return torch.linspace(-1, 1, tokens.shape[-1]).to(tokens).expand(len(tokens), count, -1)


def on_map(change):
    """Queries that are changed as a map of 7x7 tokens."""
    return lambda tokens: change(tokens.mT.unflatten(-1, (7, 7))).flatten(2).mT


QUERIES = {
    "every second": lambda tokens: tokens[:, SECOND],
    "every second from the second": lambda tokens: tokens[:, FROM_THE_SECOND],
    "without a column": lambda tokens: tokens.unflatten(1, (7, 7))[:, :, :-1].flatten(1, 2).flip(1),
    "in another order": lambda tokens: tokens[:, ORDER[:20]],
    "padded means of nine": on_map(lambda image: F.avg_pool2d(image, 3, 2, 1)),
    "means of two": on_map(lambda image: F.avg_pool2d(image, (2, 1))),
    "resized": on_map(lambda image: F.interpolate(image, (5, 7), mode="bilinear")),
    "means of four": on_map(lambda image: F.avg_pool2d(image, 2)),
    "twice as many": on_map(lambda image: F.interpolate(image, scale_factor=2)),
    "between": on_map(lambda image: F.interpolate(image, (9, 9), mode="bilinear")),
    "two of one": lambda tokens: tokens[:, SECOND.repeat(2)],
    "learned": lambda tokens: learned(tokens, 16),
    "one learned": lambda tokens: torch.cat([learned(tokens, 1), tokens[:, SECOND]], 1),
}


STEMS = {
    "patches": lambda: nn.Conv2d(3, 32, 4, 4),
    "overlapping": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 2, 1)),
}


class Resampled(nn.Module):
    """LeViT: between two blocks of 7x7 tokens, attention of some queries that has no residual."""

    def __init__(self, kind, stem="patches"):
        super().__init__()
        self.queries, self.stem, self.first, self.second = QUERIES[kind], STEMS[stem](), Block(), Block()
        self.query, self.keys, self.values = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, image):
        tokens = self.first(self.stem(image).flatten(2).mT)
        parts = self.query(self.queries(tokens)), self.keys(tokens), self.values(tokens)
        query, key, value = (each.unflatten(-1, (4, 8)).transpose(1, 2) for each in parts)
        tokens = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return self.second(F.gelu(tokens))


def resampled_network(kind, stem="patches"):
    torch.manual_seed(0)
    return Resampled(kind, stem).eval()


@cache
def resampled(kind, stem="patches"):
    """The records of attention with queries of this kind, and of the block behind it."""
    subsampled, _, behind = ask_attention(resampled_network(kind, stem), torch.randn(2, 3, 28, 28)).reads()
    return subsampled, behind


SITES = {
    "every second": Sites((2, 2), (0, 0), (0, 0)),
    "every second from the second": Sites((2, 2), (1, 1), (1, 1)),
    "padded means of nine": Sites((2, 2), (0, 0), (0, 0)),
    "without a column": Sites((1, 1), (0, 0), (0, 1)),
}


BETWEEN = ["means of four", "means of two", "resized"]


@pytest.mark.rotated
@pytest.mark.parametrize("kind", SITES)
@pytest.mark.parametrize("stem", STEMS)
def test_where_queries_stand_on_keys_is_asked(kind, stem):
    subsampled, _ = resampled(kind, stem)
    assert (subsampled.tokens.sides, subsampled.tokens.sites) == ((7, 7), SITES[kind])


@pytest.mark.rotated
@pytest.mark.parametrize("kind", BETWEEN)
@pytest.mark.parametrize("stem", STEMS)
def test_queries_between_keys_have_no_places(kind, stem):
    between, behind = resampled(kind, stem)
    assert (between.tokens, between.unplaced) == (None, "its queries are between its keys")
    assert behind.tokens is None


def test_heads_whose_queries_stand_between_keys_have_no_displacements():
    network, images = resampled_network("resized"), torch.randn(2, 3, 28, 28)
    network.second = nn.Identity()
    measured = heads(network, images)
    (layer,) = (each for each in measured.layers if each.unread)
    assert (layer.heads, "its queries are between its keys" in layer.unread) == ((), True)
    report = check_span(network, example_input=images, only=layer.name)
    assert report.verdict is Verdict.UNDECIDED
    assert "are on" not in report.to_text()


def test_queries_that_count_as_standing_on_the_nearest_key_are_noticed(monkeypatch):
    """Planted: any key is near."""
    monkeypatch.setattr("conv2attn.networks.reading.token_grids.NEARER", 1e9)
    assert resampled.__wrapped__("resized")[0].tokens is not None


@pytest.mark.parametrize("kind", SITES)
def test_leading_tokens_and_shared_keys_leave_queries_where_they_stand(kind):
    class Shared(Resampled):
        """One class token among queries and among keys, which all heads share."""

        def forward(self, image):
            tokens = self.stem(image).flatten(2).mT
            first = learned(tokens, 1)
            query = torch.cat([first, self.queries(tokens)], 1).unflatten(-1, (4, 8)).transpose(1, 2)
            key = self.keys(torch.cat([first, tokens], 1))[:, None, :, :8]
            return ((query @ key.mT).softmax(-1) @ key).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    (read,) = ask_attention(Shared(kind).eval(), torch.randn(2, 3, 28, 28)).reads()
    assert (read.tokens.sides, read.tokens.leading, read.tokens.sites) == ((7, 7), 1, SITES[kind])


@pytest.mark.parametrize("kind", ["every second", "every second from the second", "without a column"])
def test_queries_that_stand_on_keys_attend_to_them_as_those_keys_would(kind):
    torch.manual_seed(0)
    network, images = Resampled(kind).eval(), torch.randn(2, 3, 28, 28)
    network.keys.load_state_dict(network.query.state_dict())
    subsampled, *_ = ask_attention(network, images).reads()
    network.queries = lambda tokens: tokens
    whole, *_ = ask_attention(network, images).reads()
    grid = AttentionGrid((7, 7), subsampled.tokens.sites)
    sites = (torch.cartesian_prod(*map(grid.site, (0, 1))) * torch.tensor([7, 1])).sum(-1)
    torch.testing.assert_close(subsampled.attention, whole.attention[..., sites, :])


@pytest.mark.parametrize(("kind", "places"), [("every second", SECOND), ("in another order", ORDER[:20])])
def test_behind_attention_without_a_residual_tokens_have_the_places_of_their_queries(kind, places):
    assert resampled(kind)[-1].tokens.windows.places[0].tolist() == places.tolist()


@pytest.mark.rotated
@pytest.mark.parametrize("kind", ["means of four", "twice as many", "between", "two of one", "learned", "one learned"])
def test_behind_queries_that_stand_at_no_value_of_their_own_nothing_has_a_place(kind):
    _, read = resampled(kind)
    assert read.tokens is None
    assert "nothing here depends on the input" in read.unplaced


FEWER_KEYS = {
    "means of four": (lambda tokens: F.avg_pool2d(tokens, 2), (4, 4)),
    "every second": (lambda tokens: tokens[..., ::2, ::2], (4, 4)),
    "a corner": (lambda tokens: tokens[..., :4, :4], None),
    "no whole number of queries": (lambda tokens: F.interpolate(tokens, (3, 3), mode="area"), None),
}


@pytest.mark.parametrize("kind", FEWER_KEYS)
def test_fewer_keys_than_queries_stand_in_cells_of_queries_or_nowhere(kind):
    fewer, sides = FEWER_KEYS[kind]

    class Fewer(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.layer = STEMS["overlapping"](), nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, image):
            tokens = self.stem(image)
            return attended(self.layer, tokens.flatten(2).mT, fewer(tokens).flatten(2).mT)

    torch.manual_seed(0)
    (read,) = ask_attention(Fewer().eval(), torch.randn(2, 3, 32, 32)).reads()
    assert (read.tokens and read.tokens.sides) == sides, read.unplaced


class WithoutResidual(nn.Module):
    """Attention without a residual on 7x7 tokens, joined in some way, and a block behind it."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.stem, self.cropped = kind, nn.Conv2d(3, 32, 4, 4), nn.Conv2d(3, 32, 3, 3)
        self.first, self.other, self.last = (nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(3))

    def forward(self, image):
        tokens = self.stem(image).flatten(2).mT
        match self.kind:
            case "a sum over two orders":
                tokens = attended(self.first, tokens) + attended(self.other, tokens[:, ORDER], tokens)
            case "one module in two orders":
                once = attended(self.first, tokens)
                tokens = attended(self.first, once[:, ORDER], once)
            case "an attention beside it":
                tokens, beside = attended(self.first, tokens[:, ORDER], tokens), attended(self.other, tokens)
                return attended(self.last, tokens) + beside
            case "as many keys of a part":
                return attended(self.last, tokens, self.cropped(image[..., :21, :21]).flatten(2).mT)
            case "keys of a part":
                return attended(self.last, tokens[:, SECOND], self.cropped(image[..., :21, :21]).flatten(2).mT)
        return attended(self.last, tokens)


def attended(layer, queries, keys=None):
    keys = queries if keys is None else keys
    return layer(queries, keys, keys, need_weights=False)[0]


@pytest.mark.parametrize("kind", ["a sum over two orders", "keys of a part", "as many keys of a part"])
def test_tokens_that_one_attention_without_a_residual_does_not_place_have_no_place(kind):
    """Planted: the attention in front alone passed; cells of any sides were alike."""
    torch.manual_seed(0)
    *_, read = ask_attention(WithoutResidual(kind).eval(), torch.randn(2, 3, 28, 28)).reads()
    assert (read.name, read.tokens) == ("last", None)


def test_a_module_that_is_called_twice_without_a_residual_places_what_stands_behind():
    torch.manual_seed(0)
    first, second, _, last = ask_attention(
        WithoutResidual("one module in two orders").eval(), torch.randn(2, 3, 28, 28)
    ).reads()
    assert [each.name for each in (first, second, last)] == ["first", "first (call 2)", "last"]
    assert [each.tokens.sides for each in (first, second, last)] == [(7, 7)] * 3
    assert [each.reordered for each in (first, second, last)] == [False, True, True]


class Particular(nn.Module):
    """Attention between patches or words by a network that takes its kind of numbers alone."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.words, self.stem, self.block = kind, nn.Embedding(9, 32), nn.Conv2d(3, 32, 4, 4), Block()

    def forward(self, image):
        if self.kind == "a range" and (image.min() < 0 or image.max() > 1):
            raise Exception("images are in [0, 1]")
        if self.kind == "zeros and ones" and not torch.equal(image, image.round()):
            raise Exception("images are of zeros and ones")
        tokens = self.words(image) if self.kind == "float32 of words" else self.stem(image).flatten(2).mT
        if self.kind.startswith("float32") and tokens.dtype != torch.float32:
            raise Exception("float32 alone")
        return self.block(tokens)


@pytest.mark.parametrize("kind", ["zeros and ones", "float32", "float32 of words"])
def test_a_network_that_refuses_other_numbers_is_read_without_places(kind):
    """Planted: its own error ended the reading."""
    torch.manual_seed(0)
    image = torch.randint(0, 9, (2, 49)) if kind == "float32 of words" else torch.randn(2, 3, 28, 28).gt(0).float()
    (read,) = ask_attention(Particular(kind).eval(), image).reads()
    assert (read.unread, read.tokens, read.attention.shape[-2:]) == ("", None, (49, 49))
    noisy = kind == "zeros and ones"
    why = "two images do not run together" if noisy else "run in float64 with the same"
    assert why in read.unplaced


def test_a_network_that_compares_its_numbers_decides_under_noise_as_without():
    torch.manual_seed(0)
    (read,) = ask_attention(Particular("a range").eval(), torch.randn(2, 3, 28, 28).gt(0).float()).reads()
    assert (read.tokens.sides, read.unplaced) == ((7, 7), "")


def test_a_network_that_raises_an_error_of_its_own_is_refused_in_a_sentence():
    with pytest.raises(UsageError, match=r"Particular does not run on .* \(images are in \[0, 1\]\)"):
        heads(Particular("a range"), torch.full((2, 3, 28, 28), 2.0))


def test_attention_beside_others_passes_places_on():
    torch.manual_seed(0)
    *_, read = ask_attention(WithoutResidual("an attention beside it").eval(), torch.randn(2, 3, 28, 28)).reads()
    assert (read.name, read.tokens.sides, read.reordered) == ("last", (7, 7), True)


def test_heads_with_their_tokens_in_different_orders_are_not_read():
    for each in read("a head in another order"):
        assert each.tokens is None
        assert "different orders" in each.unplaced


WRONG = {
    "heads in reverse": lambda matrices: matrices.flip(0),
    "transposed": lambda matrices: matrices.mT,
    "a head twice": lambda matrices: torch.cat([matrices[:1], matrices[:-1]]),
    "one head off by a thousandth": lambda matrices: torch.cat([1.02 * matrices[:1], matrices[1:]]),
}


@pytest.mark.parametrize("kind", ["", "even attention"])
@pytest.mark.parametrize("planted", WRONG)
def test_a_wrong_reading_does_not_replay_whatever_the_layer_attends_to(planted, kind, monkeypatch):
    right = replay.Layer.answers

    def answers(*arguments):
        return {end: WRONG[planted](matrices) for end, matrices in right(*arguments).items()}

    monkeypatch.setattr(replay.Layer, "answers", answers)
    for each in read(kind):
        assert each.weights is None
        assert each.replay > MOST_RESIDUAL


def test_matrices_are_the_weights_of_the_layer():
    torch.manual_seed(0)
    network = Network("").eval()
    for block, each in zip(
        (network.first, network.second), ask_attention(network, torch.randn(1, 3, 28, 28)).reads(), strict=True
    ):
        value = block.qkv.weight.double().unflatten(0, (4, 3, 8))[:, 2]
        expected = torch.einsum("ohc,hci->hoi", block.proj.weight.double().unflatten(1, (4, 8)), value)
        torch.testing.assert_close(each.weights[0], expected.detach(), rtol=1e-9, atol=1e-9)


class Core(nn.Module):
    """Attention of so many heads, with their outputs side by side and no weights behind."""

    def __init__(self, count):
        super().__init__()
        self.count, self.value = count, nn.Linear(32, 32)

    def forward(self, tokens):
        asked, value = (x.unflatten(-1, (self.count, -1)).transpose(1, 2) for x in (tokens, self.value(tokens)))
        return F.scaled_dot_product_attention(asked, asked, value).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("count", [1, 4])
def test_output_weights_that_stand_around_a_module_are_read(count):
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.core, self.out = nn.Conv2d(3, 32, 4, 4), Core(count), nn.Linear(32, 32)

        def forward(self, image):
            tokens = self.stem(image).flatten(2).mT
            return tokens + self.out(self.core(tokens))

    torch.manual_seed(0)
    network = Around().eval()
    (found,) = ask_attention(network, torch.randn(2, 3, 28, 28)).reads()
    weights = (network.out.weight.double(), network.core.value.weight.double())
    each = [x.unflatten(axis, (count, -1)).movedim(axis, 0) for axis, x in zip((1, 0), weights, strict=True)]
    torch.testing.assert_close(found.weights[0], (each[0] @ each[1]).detach(), rtol=1e-9, atol=1e-9)
    assert "its output is that of out" in found.notes


class Turned(nn.Module):
    """Channels behind tokens."""

    def forward(self, tokens):
        return tokens.mT.contiguous()


class InPlace(nn.Module):
    """The values of the attention are the tokens, and its output is added to them in place."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 16)

    def forward(self, tokens):
        parts = tokens.unflatten(-1, (4, 4)).transpose(1, 2)
        tokens += self.proj(F.scaled_dot_product_attention(parts, parts, parts).transpose(1, 2).flatten(2))
        return tokens


def test_layers_that_write_into_their_input_are_read():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.Flatten(2), Turned(), InPlace(), InPlace()).eval()
    for read, layer in zip(ask_attention(network, torch.randn(2, 3, 16, 16)).reads(), network[3:], strict=True):
        assert read.replay < MOST_RESIDUAL
        own = layer.proj.weight.detach().double()
        for head, matrix in enumerate(read.weights[0]):
            part = slice(4 * head, 4 * head + 4)
            assert torch.allclose(matrix[:, part], own[:, part])
            assert not matrix[:, [at for at in range(16) if not part.start <= at < part.stop]].any()


class Logged(nn.Module):
    """Fused attention beside a softmax of its own, which multiplies no values."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, tokens):
        query, key, value = self.qkv(tokens).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        mask = torch.ones(2 * tokens.shape[1:2], dtype=torch.bool).tril()
        self.entropy = (query @ key.mT).masked_fill(~mask, -torch.inf).softmax(-1).max()
        return tokens + F.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(2)


def test_a_softmax_that_multiplies_no_values_leaves_those_beside_it_read():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.Flatten(2), Turned(), Logged(), Logged()).eval()
    layers = heads(network, torch.randn(2, 3, 16, 20)).layers
    assert {layer.name: layer.grid for layer in layers if not layer.unread} == {"3": (4, 5), "4": (4, 5)}
    assert {layer.unread.split(",")[0] for layer in layers if layer.unread} == {
        "no product of its softmax with values was observed"
    }


def test_a_layer_that_cannot_be_read_ends_no_report():
    class Linear(nn.Module):
        """Linear attention, whose softmax is over channels."""

        def forward(self, tokens):
            return tokens + tokens.softmax(1) @ (tokens.mT @ tokens)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.attention, self.linear_attention = nn.Conv2d(3, 32, 4, 4), Block(), Linear()

        def forward(self, image):
            return self.linear_attention(self.attention(self.patches(image).flatten(2).mT))

    Linear.__name__ = "LinearAttention"
    report = heads(Both().eval(), torch.randn(1, 3, 28, 28))
    assert [(layer.name, bool(layer.unread)) for layer in report.layers] == [
        ("attention", False),
        ("linear_attention", True),
    ]
    assert report.exit_code == 0
