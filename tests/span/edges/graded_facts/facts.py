"""Facts of heads against planted attention whose true numbers are known, and against plain loops."""

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard, mixed, soft
from changes import changing
from schemas import entries, nearly
from torch import nn

import conv2attn
from conv2attn import heads
from conv2attn.span import ask_attention

SIDES = (3, 4)


def planted(weights, seed=0, sides=SIDES, sharp=0.5):
    """A sampler of attention of one head, (images, 1, tokens, tokens), and its true shares: it mixes a head that is
    nearly a shift, a fixed random one, and a random one for each image."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.unravel_index(np.arange(np.prod(sides)), sides), -1)
    away = places[None] - places[:, None]
    moved = np.exp(-((away - [0, 1]) ** 2).sum(-1))
    relative = moved / moved.sum(-1, keepdims=True)
    fixed = rng.dirichlet(np.full(len(places), sharp), len(places))
    mean = weights[0] * relative + weights[1] * fixed + weights[2] / len(places)
    centred = mean - 1 / len(places)
    kinds = {}
    for q, k in np.ndindex(*mean.shape):
        kinds.setdefault(tuple(away[q, k]), []).append(centred[q, k])
    by_offset = sum(len(x) * np.mean(x) ** 2 for x in kinds.values())
    count = len(places)
    spread = weights[2] ** 2 * count * (1 - 1 / count) / (count * sharp + 1)
    energies = np.array([by_offset, (centred**2).sum() - by_offset, spread])

    def draw(images):
        varying = rng.dirichlet(np.full(count, sharp), (images, count))
        return (weights[0] * relative + weights[1] * fixed + weights[2] * varying)[:, None]

    return draw, energies / energies.sum()


MIXTURES = {
    "position": (1.0, 0.0, 0.0),
    "other position": (0.0, 1.0, 0.0),
    "content": (0.0, 0.0, 1.0),
    "position and content": (0.5, 0.0, 0.5),
    "all": (0.4, 0.3, 0.3),
}


@pytest.mark.rotated
@pytest.mark.parametrize("images", [2, 3, 8, 64])
@pytest.mark.parametrize("name", MIXTURES)
def test_shares_are_the_true_ones_within_three_standard_errors(name, images):
    draw, true = planted(MIXTURES[name])
    within = total = 0
    estimates, errors = [], []
    for _ in range(20 if images < 64 else 10):
        (layer,) = heads(draw(images), grid=SIDES).layers
        (head,) = layer.heads
        for value, error, truth in zip(
            (head.relative, head.absolute, head.content),
            (head.errors.relative, head.errors.absolute, head.errors.content),
            true,
            strict=True,
        ):
            within += abs(value - truth) <= 3 * error + 1e-9
            total += 1
        estimates.append(head.content)
        errors.append(head.errors.content)
    assert within >= 0.975 * total
    if images >= 8 and MIXTURES[name][2] and len(estimates) == 20:
        assert 0.6 * np.std(estimates) <= np.mean(errors) <= 2 * np.std(estimates) + 1e-9


def test_one_image_does_not_tell_content_from_position():
    draw, _ = planted(MIXTURES["content"], sides=(6, 6))
    (layer,) = heads(draw(1), grid=(6, 6)).layers
    (head,) = layer.heads
    assert (head.absolute, head.content, head.errors.relative) == (None, None, None)
    assert abs(head.relative) < 0.05
    (known,) = heads(conv2attn.convert(nn.Conv2d(1, 1, 3)), grid=(6, 7)).layers
    assert [each.content for each in known.heads] == [0.0] * 9


def test_masked_keys_are_neither_content_nor_position():
    rng = np.random.default_rng(0)
    scores = 0.3 * rng.standard_normal((12, 4, 40, 40))
    scores[..., ~np.tri(40, dtype=bool)] = -np.inf
    (layer,) = heads(torch.softmax(torch.from_numpy(scores), -1), grid=(40,)).layers
    for head in layer.heads:
        assert head.relative <= 3 * head.errors.relative
        assert head.content >= 1 - 3 * head.errors.content
    even = np.tri(40) / np.tri(40).sum(-1, keepdims=True)
    (layer,) = heads(np.stack([even[None]] * 3), grid=(40,)).layers
    assert (layer.heads[0].relative, layer.heads[0].kind) == (None, "uniform")


def test_heads_that_are_nearly_dependent_reach_what_they_span():
    (layer,) = heads(mixed(hard((12,), [(-1,), (0,), (1,)]), 1e6), grid=(12,)).layers
    assert layer.span(3).mean > 0.9


@pytest.mark.parametrize("alpha", [0.7, 128.0])
@pytest.mark.parametrize("apart", [1.0, 2.0**-23])
def test_heads_known_axis_by_axis_have_the_facts_of_their_attention(alpha, apart, monkeypatch):
    layer = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1, stride=2), alpha=5, trainable=True)
    layer.encoding.assign(alpha=alpha)
    with changing(layer, "center") as numbers:
        numbers[5, 1] = apart
    with changing(layer, "center") as numbers:
        numbers[8] = numbers[7]
    layer.prepare()
    dense = heads(layer, grid=(7, 8))
    monkeypatch.setattr("conv2attn.span.graded_facts.sums.BY_AXIS", 0)
    by_axis = heads(layer, grid=(7, 8))
    assert entries(by_axis.to_dict()) == nearly(dense.to_dict(), rel=1e-5, abs=1e-6)


def test_what_a_convolution_leaves_of_soft_heads_is_told_up_to_a_number_of_entries(monkeypatch):
    layer = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1))
    layer.encoding.assign(alpha=0.7)
    assert heads(layer, grid=(6, 7)).layers[0].convolution(3).error is not None
    entries = 9 * (6 * 7) * (8 * 9)
    for most, told in ((entries, True), (entries - 1, False)):
        monkeypatch.setattr("conv2attn.span.graded_facts.nearest.DENSE", most)
        fact = heads(layer, grid=(6, 7)).layers[0].convolution(3)
        assert [number is not None for number in (fact.error, fact.norm)] == [told, told]


def with_row(row):
    """A head whose every query has this attention, of 36 keys on a 6x6 grid."""
    return np.broadcast_to(np.asarray(row, float) / np.sum(row), (1, 36, 36))


def of_kind(kind):
    """Attention of one head (images, 1, 36, 36) of a kind, and its leading tokens."""
    rng = np.random.default_rng(0)
    if kind == "shift":
        return hard((6, 6), [(0, 1)])[None], 0
    if kind == "itself":
        return hard((6, 6), [(0, 0)])[None], 0
    if kind == "local":
        return soft((6, 6), 0.5, [(0, 0)])[None], 0
    if kind == "bar":
        return np.kron(np.eye(6), np.full((6, 6), 1 / 6))[None, None], 0
    if kind == "sink":
        return with_row([60] + [1] * 35)[None], 0
    if kind == "uniform":
        return with_row([1] * 36)[None], 0
    if kind == "class token":
        whole = np.full((1, 1, 37, 37), 0.3 / 36)
        whole[..., 0] = 0.7
        return whole, 1
    if kind == "varies with the image":
        return rng.dirichlet(np.full(36, 0.2), (6, 1, 36)), 0
    return np.broadcast_to(rng.dirichlet(np.full(36, 0.2), (1, 1, 36)), (6, 1, 36, 36)), 0


@pytest.mark.parametrize(
    "kind", ["shift", "itself", "local", "bar", "sink", "uniform", "class token", "varies with the image", "mixed"]
)
def test_each_kind_is_that_of_planted_heads(kind):
    attention, extra = of_kind(kind)
    report = heads(attention, grid=(6, 6), extra_tokens=extra)
    (head,) = report.layers[0].heads
    assert head.kind == kind
    assert ("shift (0, 1)" in report.to_text()) == (kind == "shift")
    assert head.margin > 0.02


@pytest.mark.parametrize(("queries", "images"), [(1, 1), (1, 3), (2, 1)])
def test_a_kind_needs_two_queries(queries, images):
    attention = np.ones((images, 1, queries, queries)) / queries
    (head,) = heads(attention, grid=(1, queries)).layers[0].heads
    assert (head.kind == "one query") == (queries == 1)


def test_a_network_on_a_loader_counts_all_images():
    network = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    images = torch.randn(6, 9, 8)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, torch.arange(6)), batch_size=2)
    together, apart = heads(network, images, grid=3), heads(network, loader, grid=3)
    assert together.layers[0].images == apart.layers[0].images == 6
    assert apart.layers[0].means.content == pytest.approx(together.layers[0].means.content, rel=1e-4)


def test_layers_that_are_not_asked_for_are_not_computed(monkeypatch):
    layers = {"first": hard((5, 6), OFFSETS), "second": np.full((1, 30, 30), np.nan)}
    assert [each.name for each in heads(layers, grid=(5, 6), only=["first"]).layers] == ["first"]


def test_a_converted_network_is_read_as_what_it_is():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    network = nn.Sequential(conv2attn.convert(conv))
    for report in (heads(network, torch.randn(2, 2, 6, 7)), heads(network, grid=(6, 7))):
        (layer,) = report.layers
        assert (report.exit_code, layer.grid) == (0, (8, 9))
        assert [head.peak for head in layer.heads] == OFFSETS
        assert [head.peak_mass for head in layer.heads] == [1.0] * 9
        explained = layer.convolution(3)
        assert explained.share == pytest.approx(1)
        assert explained.error < 1e-5
        taps = torch.from_numpy(explained.taps).permute(1, 2, 0).unflatten(-1, (3, 3))
        torch.testing.assert_close(taps.float(), conv.weight)


def test_converted_layers_in_a_container_are_read_from_their_parameters():
    layers = [conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)), nn.ReLU(), conv2attn.convert(nn.Conv2d(3, 2, (1, 3)))]
    network = nn.Sequential(*layers, nn.Sequential(conv2attn.convert(nn.Conv2d(2, 2, 3, stride=2))))
    network[0].register_forward_pre_hook(lambda layer, given: given[0] * network.scale)
    network._parameters = {"scale": nn.Parameter(torch.ones(8, 9)), **network._parameters}
    by_size = [("0", (10, 11)), ("2", (8, 9)), ("3.0", (8, 7))]
    by_tokens = [("0", (10, 11)), ("2", (8, 9)), ("3.0", (8, 9))]
    for given, grids in (
        ({"grid": (8, 9)}, by_tokens),
        ({"example_input": torch.randn(2, 2, 8, 9)}, by_size),
        ({"example_input": (2, 8, 9)}, by_size),
        ({"example_input": (2, 8, 9), "grid": (8, 9)}, by_tokens),
    ):
        report = conv2attn.check_span(network, **given)
        assert [(row.name, row.grid) for row in report.rows] == grids
        assert [row.verdict.value for row in report.rows] == ["holds", "refuted", "holds"]
        assert all("from parameters, positions alone" in " ".join(row.notes) for row in report.rows)
    with pytest.raises(conv2attn.errors.UsageError, match=r"C2A503 0: .* any grid. Pass the sides"):
        conv2attn.check_span(network)
    with pytest.raises(conv2attn.errors.UsageError, match="C2A502 first is of class Sequential, a network"):
        conv2attn.check_span({"first": network}, grid=(8, 9))


def test_attention_as_networks_return_it():
    for returned in (tuple, list):
        report = heads(returned([hard((5, 6), OFFSETS), soft((5, 6), 1.0)]), grid=(5, 6))
        assert [layer.name for layer in report.layers] == ["layer 0", "layer 1"]
        assert [row.name for row in conv2attn.check_span(returned([np.eye(9)[None]]), 1).rows] == ["layer 0"]
    assert heads(np.eye(9), grid=3).layers[0].heads[0].kind == "itself"


@pytest.mark.parametrize("bias", [True, False])
def test_values_and_outputs_of_torch_s_own_layer(bias):
    layer = nn.MultiheadAttention(8, 2, bias=bias, batch_first=True).eval().double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(1, 5, 8).double()
    computed, weights = layer(x, x, x, average_attn_weights=False)
    ((matrices, shift),) = (read.weights for read in ask_attention(layer, (x, x, x)).reads())
    made = torch.einsum("nhqk,nki,hoi->nqo", weights, x, matrices)
    torch.testing.assert_close(made if shift is None else made + shift, computed)


def test_the_legend_counts_no_shifts_of_a_square_on_a_line():
    layer = conv2attn.convert(torch.nn.Conv1d(1, 2, 3))
    assert "9 shifts" not in conv2attn.heads(layer, grid=9).to_text()
