"""What the tokens of a layer are, read from the run: grids, leading tokens, text, sound, channels, windows, heads."""

from functools import partial

import numpy as np
import pytest
import torch
from commands import call, refused
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn import capture, check_span, heads
from conv2attn.span import ask_attention
from conv2attn.theory.basis import Sites
from conv2attn.verdicts import Verdict


def attention(tokens, count=4, causal=False):
    """Self-attention of tokens (batch, tokens, channels), by torch's fused function."""
    parts = tokens.unflatten(-1, (count, -1)).transpose(1, 2)
    return F.scaled_dot_product_attention(parts, parts, parts, is_causal=causal).transpose(1, 2).flatten(2)


class Layer(nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.causal = causal

    def forward(self, tokens):
        return tokens + attention(tokens, causal=self.causal)


class Flat(nn.Module):
    """Tokens (images, tokens, channels) of a map."""

    def forward(self, image):
        return image.flatten(2).mT


class Patches(nn.Module):
    """A patch embedding, so many leading and trailing tokens, and a layer; `merging` halves the grid for a second."""

    def __init__(self, leading=0, merging=False, linear=False, trailing=0):
        super().__init__()
        self.leading, self.merging, self.trailing = leading, merging, trailing
        self.linear = nn.Linear(48, 16) if linear else None
        self.patch, self.first, self.second = nn.Conv2d(3, 16, 4, 4), Layer(), Layer()

    def forward(self, image):
        if self.linear:
            tokens = self.linear(image.unfold(2, 4, 4).unfold(3, 4, 4).movedim(1, -1).flatten(1, 2).flatten(2))
        else:
            tokens = self.patch(image).flatten(2).mT
        leading, trailing = (tokens.new_ones(len(tokens), count, 16) for count in (self.leading, self.trailing))
        tokens = self.first(torch.cat([leading, tokens, *([trailing] if self.trailing else [])], 1))
        if self.merging:
            tokens = F.avg_pool2d(tokens[:, self.leading :].mT.unflatten(-1, (8, 8)), 2).flatten(2).mT
        return self.second(tokens)


class ByName(Patches):
    """The same, with every argument by its name."""

    def forward(self, image):
        tokens = F.conv2d(input=image, weight=self.patch.weight, bias=self.patch.bias, stride=4).flatten(2).mT
        tokens = F.linear(input=tokens, weight=torch.eye(16).to(tokens))
        return torch.matmul(input=torch.softmax(input=tokens @ tokens.mT, dim=-1), other=tokens)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.layer = nn.Embedding(99, 16), nn.Embedding(99, 16), Layer(causal=True)

    def forward(self, ids):
        return self.layer(self.words(ids) + self.places(torch.arange(ids.shape[1])[None]))


class WordsFirst(Words):
    """XLNet: embeddings are (words, texts, channels)."""

    def forward(self, ids):
        return self.layer(self.words(ids.T.contiguous()).transpose(0, 1))


class Written(Words):
    """What is written of a sound: words attend to words, then to frames."""

    def __init__(self):
        super().__init__()
        self.frames = nn.Conv1d(8, 16, 4, 4)

    def forward(self, ids, waves):
        words, frames = super().forward(ids), self.frames(waves).mT
        return words + F.scaled_dot_product_attention(words[:, None], frames[:, None], frames[:, None])[:, 0]


class Both(nn.Module):
    """Attention in each of two images."""

    def __init__(self):
        super().__init__()
        self.one, self.other = Patches(), Patches()

    def forward(self, one, other):
        return self.one(one), self.other(other)


class Channels(nn.Module):
    """XCiT: the channels of each head attend to each other."""

    num_heads = 2

    def forward(self, tokens):
        parts = tokens.unflatten(-1, (2, -1)).permute(0, 2, 3, 1)
        found = torch.softmax(F.normalize(parts, dim=-1) @ F.normalize(parts, dim=-1).mT, -1) @ parts
        return found.permute(0, 3, 1, 2).flatten(2)


with torch.random.fork_rng():
    torch.manual_seed(0)
    CASES = {
        "patches": (Patches(), torch.randn(2, 3, 24, 32), [((6, 8), 0)] * 2),
        "class token": (Patches(1), torch.randn(2, 3, 24, 32), [((6, 8), 1)] * 2),
        "registers": (Patches(5), torch.randn(2, 3, 32, 32), [((8, 8), 5)] * 2),
        "merged": (Patches(0, True), torch.randn(2, 3, 32, 32), [((8, 8), 0), ((4, 4), 0)]),
        "no convolution": (Patches(1, linear=True), torch.randn(2, 3, 24, 32), [((6, 8), 1)] * 2),
        "arguments by name": (ByName(), torch.randn(2, 3, 24, 32), [((6, 8), 0)]),
        "words": (Words(), torch.randint(0, 99, (2, 64)), [((64,), 0)]),
        "words first": (WordsFirst(), torch.randint(0, 99, (2, 64)), [((64,), 0)]),
        "sound": (nn.Sequential(nn.Conv1d(8, 16, 3, 2, 1), Flat(), Layer()), torch.randn(2, 8, 50), [((25,), 0)]),
    }


@pytest.mark.rotated
@pytest.mark.parametrize("name", CASES)
def test_the_run_tells_the_grid_and_the_leading_tokens(name):
    network, inputs, expected = CASES[name]
    assert [
        (read.tokens.sides, read.tokens.leading) for read in ask_attention(network.eval(), inputs).reads()
    ] == expected
    report = heads(network, inputs)
    assert [layer.grid for layer in report.layers] == [sides for sides, _ in expected]
    spans = check_span(network, example_input=inputs, offsets=[(0,) * len(expected[0][0])])
    assert [row.grid for row in spans.rows] == [sides for sides, _ in expected]


def test_words_beside_a_sound_are_placed_by_their_embeddings():
    torch.manual_seed(0)
    to_frames, among_words = ask_attention(
        Written().eval(), (torch.randint(0, 99, (2, 9)), torch.randn(2, 8, 48))
    ).reads()
    assert (among_words.tokens.sides, among_words.tokens.leading) == ((9,), 0)
    assert to_frames.tokens is None
    assert to_frames.unplaced.startswith("its queries have no place in the input")


def test_tokens_of_a_second_image_are_placed_in_it():
    """Planted: the first image alone was perturbed, and nothing of the input arrived."""
    torch.manual_seed(0)
    images = {"one": torch.randn(2, 3, 24, 32), "other": torch.randn(2, 3, 32, 16)}
    sides = [each.tokens and each.tokens.sides for each in ask_attention(Both().eval(), images).reads()]
    assert sides == [(6, 8), (6, 8), (8, 4), (8, 4)]


def rectified(channels):
    """Patches of 4x4 pixels behind a leaky relu, with so many channels for four heads."""
    return nn.Sequential(nn.Conv2d(3, channels, 4, 4), nn.LeakyReLU(0.1), Flat(), Layer())


class OneHead(nn.Linear):
    """Attention of one channel by one head."""

    def forward(self, tokens):
        query, key, value = super().forward(tokens).chunk(3, -1)
        return torch.softmax(query @ key.mT, -1) @ value


def single(behind):
    """One channel behind a function of a convolution of 2x2 pixels."""
    return nn.Sequential(nn.Conv2d(3, 1, 2, 2), behind, Flat(), OneHead(1, 3))


class ValuesElsewhere(nn.Module):
    """Values are those of single pixels, two patches from the keys of the same number, or constant."""

    def __init__(self, constant=False):
        super().__init__()
        self.keys, self.values = nn.Conv2d(3, 32, 4, 4), nn.Conv2d(3, 16, 1)
        self.values.weight.data *= not constant

    def forward(self, image):
        query, key = self.keys(image).flatten(2).mT.chunk(2, -1)
        value = self.values(image)[..., ::4, ::4].flatten(2).mT.roll(8, 1)
        return torch.softmax(query @ key.mT, -1) @ value


class Itself(nn.MultiheadAttention):
    def forward(self, tokens):
        return super().forward(tokens, tokens, tokens)[0]


def striped(memory=False):
    """Patches of 4x16 pixels, so that 32x32 have 8x2; `memory` adds torch's learned key and value."""
    attending = Itself(24, 3, add_bias_kv=memory, batch_first=True)
    return nn.Sequential(nn.Conv2d(3, 24, (4, 16), (4, 16)), Flat(), attending)


class ConvolvedQueries(nn.Module):
    """Queries behind a convolution of 5x5 over the 7x7 tokens of the keys, which are moved so far in front of it."""

    def __init__(self, moved):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 16, 3, 2, 1))
        self.query = nn.Conv2d(16, 16, 5, 1, 2, groups=16)
        self.others, self.moved = nn.Conv2d(16, 32, 1), moved
        nn.init.uniform_(self.query.weight, 0, 0.2)

    def forward(self, image):
        image = self.stem(image)
        query = self.query(F.pad(image, (self.moved, -self.moved))).flatten(2).mT
        key, value = self.others(image).flatten(2).mT.chunk(2, -1)
        return torch.softmax(query @ key.mT, -1) @ value


def overlapping():
    """Patches of 16 pixels at a stride of 10: those of one column differ less in their rows than each spreads."""
    return nn.Sequential(nn.Conv2d(1, 16, 16, 10), Flat(), Layer())


PLACES = {
    # Whisper's line has 1,500 frames.
    "a long line": (lambda: nn.Sequential(nn.Conv1d(8, 16, 3, 2, 1), Flat(), OneHead(16, 48)), (1, 8, 2060), (1030,)),
    # By noise the two rows of one column are apart, and heads that agree repeat it: a transformer of spectra has such.
    "two rows of 6": (overlapping, (1, 1, 26, 66), (2, 6), 20),
    "two rows of 40": (overlapping, (1, 1, 26, 406), (2, 40), 20),
    # Planted: one noise: one channel has one direction, and of two a block of four pixels was no guess.
    **{f"{count} channels": (partial(rectified, count), (2, 3, 32, 32), (8, 8)) for count in (4, 8, 16)},
    # Planted: a token that answers nothing on one image was without a place, and another image had other ones.
    "zeroed by a relu": (lambda: single(nn.ReLU()), (1, 3, 8, 8), "in some images only"),
    "zeroed by a relu in two images": (lambda: single(nn.ReLU()), (2, 3, 8, 8), "in some images only"),
    # Planted: on one image one pixel alone is seen of each maximum, and tokens stood at pixels.
    "the largest of four pixels": (lambda: single(nn.MaxPool2d(2)), (1, 3, 16, 16), (4, 4)),
    # Planted: only values on the grid of the keys were compared with them.
    "values on another grid": (ValuesElsewhere, (2, 3, 16, 16), "keys and values"),
    # Planted: values that nothing of the input reaches were values on another grid.
    "constant values": (lambda: ValuesElsewhere(constant=True), (2, 3, 16, 16), (4, 4)),
    # Planted: an axis of two tokens told nothing, and centres of channels that fell apart by chance were channels.
    "two wide tokens a row": (striped, (2, 3, 32, 32), (8, 2)),
    "a learned key": (lambda: striped(memory=True), (2, 3, 32, 32), "different numbers of tokens without a place"),
    # Planted: near the border a kernel reaches inwards alone, by more than a cell, and they were refused.
    "convolved queries": (lambda: ConvolvedQueries(0), (1, 3, 28, 28), (7, 7), 1),
    "moved queries": (lambda: ConvolvedQueries(1), (1, 3, 28, 28), "queries and keys are on different parts", 1),
}
"""A network with one layer that attends, the shape of its images, the sides of its tokens or a part of the reason why
they have no place, and the seed, where it is not 0."""


@pytest.mark.parametrize("name", PLACES)
def test_tokens_have_their_places_or_a_reason(name):
    build, shape, expected, *seed = PLACES[name]
    torch.manual_seed(*seed or [0])
    (read,) = ask_attention(build().eval(), torch.randn(shape)).reads()
    if isinstance(expected, str):
        assert expected in read.unplaced
    else:
        assert (read.unplaced or (read.tokens.sides, read.tokens.leading)) == (expected, 0)


def test_noise_does_not_reach_a_kink_that_is_near():
    """Planted: noise of a millionth made a token another function of its pixels, and no cell fitted all tokens."""
    torch.manual_seed(0)
    network, image = rectified(16).double().eval(), torch.randn(1, 3, 32, 32).double()
    with torch.no_grad():
        network[0].bias -= network[0](image)[0, :, 2, 3] - 1e-6
    (read,) = ask_attention(network, image).reads()
    assert read.tokens.sides == (8, 8)


def test_tokens_behind_the_grid_are_read_in_front_of_it():
    network, images = Patches(1, trailing=3).eval(), torch.randn(2, 3, 24, 32)
    order = torch.tensor([0, 49, 50, 51, *range(1, 49)])
    for read, seen in zip(ask_attention(network, images).reads(), capture(network, images).values(), strict=True):
        assert (read.tokens.sides, read.tokens.leading) == ((6, 8), 4)
        assert torch.equal(read.attention, seen[:, :, order][..., order])


@pytest.mark.parametrize("count", [20, 64])
def test_attention_between_channels_is_named_and_not_read(count):
    network, tokens = nn.Sequential(nn.Linear(128, 128), Channels()), torch.randn(2, count, 128)
    (read,) = ask_attention(network, tokens).reads()
    assert "between channels" in read.unplaced
    report = check_span(network, example_input=tokens)
    assert (report.verdict, report.exit_code) == (Verdict.UNDECIDED, 3)


class Convolved(nn.Module):
    """Layers behind a stem whose windows overlap, each behind two more convolutions with a residual."""

    def __init__(self, *layers):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 16, 3, 2, 1))
        self.convolutions = nn.ModuleList(nn.Conv2d(16, 16, 3, 1, 1, groups=16) for _ in layers)
        self.layers = nn.ModuleList(layers)

    def forward(self, image):
        image = self.stem(image)
        for convolution, layer in zip(self.convolutions, self.layers, strict=True):
            for _ in range(2):
                image = image + convolution(image)
            image = image + layer(image.flatten(2).mT).mT.reshape(image.shape)
        return image


def test_attention_between_channels_is_named_behind_convolutions():
    """Planted: the image alone was asked, where tokens are blurred, and its values mixed tokens."""
    blurred, placed = ask_attention(Convolved(Channels(), Layer()).eval(), torch.randn(2, 3, 32, 48)).reads()
    assert "between channels" in blurred.unplaced
    assert placed.tokens.sides == (8, 12)


def test_a_map_is_asked_without_those_in_front_of_it():
    """Planted: noise of the first layer's map went through a convolution that is no layer's, and blurred the second."""
    reads = ask_attention(Convolved(Layer(), Layer()).eval(), torch.randn(2, 3, 32, 48)).reads()
    assert [read.unplaced or read.tokens.sides for read in reads] == [(8, 12), (8, 12)]


def test_one_head_without_a_batch_and_tokens_before_the_batch():
    class Alone(nn.Module):
        def forward(self, tokens):
            return torch.softmax(tokens @ tokens.T, -1) @ tokens

    class First(nn.Module):
        """Tokens come first, and heads share an axis with the batch."""

        def forward(self, tokens):
            parts = tokens.unflatten(-1, (4, -1)).flatten(1, 2).transpose(0, 1)
            return (torch.softmax(parts @ parts.mT, -1) @ parts).transpose(0, 1).unflatten(1, (-1, 4)).flatten(2)

    assert capture(nn.Sequential(Alone()), torch.randn(9, 4))["0"].shape == (1, 1, 9, 9)
    assert capture(nn.Sequential(First()), torch.randn(10, 2, 16))["0"].shape == (2, 4, 10, 10)
    with pytest.raises(conv2attn.errors.UsageError, match="C2A501"):
        capture(nn.Softmax(-1), torch.randn(9, 9))


class Windowed(nn.Module):
    """Swin's layer by positions alone: a bias in windows of 4x4, shifted by 2 with masks across the border."""

    def __init__(self, shift, content=0.0):
        super().__init__()
        self.shift, self.content, self.num_heads = shift, content, 2
        self.patch, self.norm, self.weight = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8), nn.Linear(8, 8)
        torch.manual_seed(0)
        self.bias = torch.randn(2, 16, 16)

    def forward(self, image):
        tokens = self.norm(self.patch(image).movedim(1, -1))
        batch, rows, columns, _ = tokens.shape
        moved = tokens.roll((-self.shift, -self.shift), (1, 2))
        cut = moved.unfold(1, 4, 4).unfold(2, 4, 4).movedim(3, -1).flatten(1, 2).flatten(2, 3).flatten(0, 1)
        value = self.weight(cut).unflatten(-1, (2, 4)).transpose(1, 2)
        regions = torch.zeros(rows, columns)
        for n, part in enumerate(
            (slice(0, rows - 4), slice(rows - 4, rows - self.shift), slice(rows - self.shift, rows))
        ):
            regions[part] += n
            regions[:, part] += 3 * n
        places = regions.unfold(0, 4, 4).unfold(1, 4, 4).flatten(0, 1).flatten(1)
        mask = -100.0 * (places[:, :, None] != places[:, None]) if self.shift else torch.zeros(len(places), 16, 16)
        scores = self.bias + mask[:, None] + self.content * (value @ value.mT).unflatten(0, (batch, -1))
        return torch.softmax(scores.flatten(0, 1), -1) @ value


@pytest.mark.parametrize("shift", [0, 2])
def test_a_windowed_layer_that_reads_no_content_has_none(shift):
    images = torch.randn(4, 3, 24, 24)
    (layer,) = heads(Windowed(shift).eval(), images).layers
    assert (layer.grid, layer.images) == ((12, 12), 4), layer.unread
    for head in layer.heads:
        assert abs(head.content) <= max(3 * head.errors.content, 1e-6)
    (read,) = heads(Windowed(shift, 3.0).eval(), images).layers
    assert all(head.content > 0.05 for head in read.heads)
    (read,) = ask_attention(Windowed(shift).eval(), images).reads()
    places = read.tokens.windows.places
    first = [i * 12 + j for i in range(shift, shift + 4) for j in range(shift, shift + 4)]
    assert places[0].tolist() == first


class Halo(nn.Module):
    """Blocks of 4x4 queries attend to the 6x6 keys around them, with zeros beyond the image."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patch, self.of_all = nn.Conv2d(3, 16, 2, 2), nn.Conv2d(16, 48, 1)

    def parts(self, image):
        """Queries (images, windows, tokens, channels), and keys and values (images, windows, channels, tokens)."""
        queries, *others = self.of_all(self.patch(image)).chunk(3, 1)
        queries = F.unfold(queries, 4, stride=4).unflatten(1, (16, 16)).movedim(-1, 1).mT
        return queries, *(
            F.unfold(each, 6, padding=1, stride=4).unflatten(1, (16, 36)).movedim(-1, 1) for each in others
        )

    def forward(self, image):
        queries, keys, values = self.parts(image)
        self.attention = torch.softmax(queries @ keys, -1)
        return self.attention @ values.mT


def test_facts_of_a_halo_are_those_of_its_map_over_the_image():
    """Planted: keys were taken to stand at the queries of their window; they were refused before."""
    network, images = Halo().eval(), torch.randn(2, 3, 24, 24)
    (layer,) = heads(network, images).layers
    with torch.no_grad():
        network(images)
    cells = torch.arange(144.0).reshape(1, 1, 12, 12)
    queries, keys = (F.unfold(cells + 1, *how)[0].mT.long() - 1 for how in ((4, 1, 0, 4), (6, 1, 1, 4)))
    # A leading token takes what keys beyond the image get.
    whole = torch.zeros(2, 145, 145)
    for window, (own, around) in enumerate(zip(queries, keys, strict=True)):
        there = around >= 0
        whole[:, 1 + own[:, None], 1 + around[there]] = network.attention[:, window][..., there]
    whole[..., 0] = (1 - whole.sum(-1)).clamp_min(0)
    (expected,) = heads(whole[:, None], grid=(12, 12), extra_tokens=1).layers
    assert torch.allclose(torch.tensor(layer.mass), torch.tensor(expected.mass), atol=1e-6)


class Shifts(Halo):
    """Nine heads, each of which attends to one neighbour by its scores of 1000; `moved` puts keys in another order."""

    def __init__(self, moved):
        super().__init__()
        inner, steps = torch.arange(36).view(6, 6)[1:-1, 1:-1].flatten(), torch.tensor([-1, 0, 1])
        targets = inner + (6 * steps[:, None] + steps).flatten()[:, None]
        self.order = torch.randperm(36) if moved else torch.arange(36)
        self.scores = 1000 * F.one_hot(targets, 36)[..., self.order].double()

    def forward(self, image):
        queries, *others = (each[:, :, None].expand(-1, -1, 9, -1, -1) for each in self.parts(image))
        keys, values = (each[..., self.order] for each in others)
        return torch.softmax(queries @ keys + self.scores, -1) @ values.mT


@pytest.mark.parametrize("moved", [False, True])
def test_a_halo_is_judged_as_a_convolution_on_the_keys_of_a_window(moved):
    """Planted: a halo has no grid; and keys in any order are taken for rows of a box."""
    network, images = Shifts(moved).double().eval(), torch.randn(2, 3, 24, 24).double()
    (read,) = ask_attention(network, images).reads()
    inside = ((6, 6), Sites((1, 1), (1, 1), (1, 1)))
    assert read.unplaced or (read.tokens.sides, read.tokens.sites) == (
        ((), Sites((1,), (0,), (20,))) if moved else inside
    )
    assert check_span(network, example_input=images).verdict is (Verdict.UNDECIDED if moved else Verdict.HOLDS)


def photos(folder):
    """Two pictures of different shapes."""
    from PIL import Image

    folder.mkdir()
    drawn = np.random.default_rng(0)
    for name, shape in (("a.png", (40, 60, 3)), ("b.png", (60, 40, 3))):
        Image.fromarray(drawn.integers(0, 255, shape, np.uint8)).save(folder / name)


def made():
    """The factory that the commands call."""
    return Patches(1)


@pytest.mark.parametrize("command", ["heads", "check-span", "recover", "explore"])
def test_a_folder_of_photos_needs_options_that_the_command_has(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "photos")
    torch.save(made().state_dict(), "model.pt")
    written = {"recover": ["-o", "found.pt"], "explore": ["-o", "page.html"]}.get(command, [])
    asked = [command, "model.pt", "--arch", f"{__file__}:made", "--inputs", "photos", *written]
    if command != "explore":  # the remedy names options of the command: tests/cli/test_remedies.py
        refused(*asked, match="C2A005")
    done = call(*asked, "--input-size", "3x32x32")
    unread = command == "recover"  # the values of this layer are its tokens: no weights tell them
    assert done.exit_code == {"heads": 0, "check-span": 1, "recover": 2, "explore": 0}[command], done.output
    assert ("C2A505" in done.stderr) is unread
