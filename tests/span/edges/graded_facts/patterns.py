"""Symmetry, shape, overlap and coverage of planted heads, and the spread of centres that content moves."""

import numpy as np
import pytest
import torch
from attentions import hard
from torch import nn

import conv2attn
from conv2attn import heads
from conv2attn.layers.attention import Encoding
from conv2attn.layers.theorem import deformable_as_attention
from conv2attn.span.graded_facts import patterns


def facts(attention, grid):
    return heads(attention, grid=grid).layers[0]


@pytest.mark.parametrize("images", [3, 8, 20])
def test_two_errors_cover_the_symmetry_of_heads_that_content_makes_noisy(images):
    """Scores by distance, and content that is drawn: mirror images and heads are alike on average over images."""
    draw, side, draws = np.random.default_rng(7), 4, 20
    place = np.stack(np.unravel_index(np.arange(side**2), (side, side)), -1)
    scores = -0.2 * np.square(place[None] - place[:, None]).sum(-1)
    covered = {"horizontal": [], "vertical": [], "overlap": [], "anisotropy": []}
    for _ in range(draws):
        queries, keys = draw.standard_normal((2, images, 2, side**2, 6))
        weights = np.exp(scores + queries @ keys.swapaxes(-1, -2))
        for head in facts(weights / weights.sum(-1, keepdims=True), (side, side)).heads:
            for name, apart in covered.items():
                truth = 0 if name == "anisotropy" else 1
                apart.append(abs(getattr(head, name) - truth) <= 2 * getattr(head.errors, name))
    assert {name: np.mean(apart) for name, apart in covered.items() if np.mean(apart) < 0.85} == {}


def test_groups_of_images_keep_their_members_when_one_is_left_out():
    """The corrected estimate and its replicates of eleven images in eight groups, three of them of two."""
    attention = np.random.default_rng(1).dirichlet(np.full(9, 0.4), (11, 2, 9))
    layer, group = facts(attention, (3, 3)), np.arange(11) % patterns.GROUPS

    def corrected(kept):
        def plain(images):
            return np.array([head.horizontal for head in facts(attention[images].mean(0)[None], (3, 3)).heads])

        value = plain(kept)
        rest = [np.array([i for i in kept if group[i] != number]) for number in sorted({*group[kept]})]
        return value + sum(len(each) / len(kept) * (value - plain(each)) for each in rest)

    every = np.arange(11)
    assert [head.horizontal for head in layer.heads] == pytest.approx(corrected(every))
    without = np.array([corrected(np.delete(every, image)) for image in every])
    spread = np.sqrt(10 / 11 * np.square(without - without.mean(0)).sum(0)) * 3.1693 / 3
    assert [head.errors.horizontal for head in layer.heads] == pytest.approx(spread, rel=1e-3)


def facts_attention(layer):
    return layer.attention(sides=(5, 6)).detach().numpy()


def test_pairs_are_redundant_where_their_cosine_says_so(monkeypatch):
    """Of two heads that differ in a part of their weight the cosine is known."""
    shift, other = hard((4, 5), [(0, 0), (1, 1)])
    mixed = np.stack([shift, 0.75 * shift + 0.25 * np.roll(shift, 7, 1), other])
    layer = facts(mixed, (4, 5))
    cosine = 0.75 / np.hypot(0.75, 0.25)
    assert layer.heads[1].likeness == pytest.approx(cosine)
    assert layer.redundant_pairs == 1
    monkeypatch.setattr(patterns, "REDUNDANT", cosine + 1e-6)
    assert facts(mixed, (4, 5)).redundant_pairs == 0


def spread(centers):
    """The root of the mean squared distance from the mean, of centres (places, axes)."""
    return float((centers - centers.mean(0)).square().sum(-1).mean().sqrt())


@pytest.mark.parametrize("images", [1, 2, 5])
def test_the_spread_of_moving_centres_is_that_of_the_offsets(images):
    torch.manual_seed(0)
    offsets, conv = nn.Conv2d(3, 18, 1), nn.Conv2d(3, 4, 3, padding=1)
    batch = torch.randn(images, 3, 5, 6)
    report = heads(nn.Sequential(deformable_as_attention(offsets, conv)), batch)
    moves = offsets(batch).detach().double().unflatten(1, (9, 2)).movedim(2, -1)
    (layer,) = report.layers
    for number, head in enumerate(layer.heads):
        own = moves[:, number]
        assert head.moved == pytest.approx(spread(own.flatten(0, 2)), rel=1e-5)
        assert (head.errors.moved is None) == (images == 1)
        if images > 2:
            rest = [spread(torch.cat([own[:i], own[i + 1 :]]).flatten(0, 2)) for i in range(images)]
            jackknife = np.sqrt((images - 1) / images * ((rest - np.mean(rest)) ** 2).sum())
            assert head.errors.moved == pytest.approx(jackknife * 4.6041 / 3, rel=1e-3)
    assert "moved" in report.to_text(verbose=True)


@pytest.mark.parametrize("terms", ["qr+vr", "qk+qr+vr", "qr"])
def test_moved_centres_are_the_vertices_of_the_scores(terms):
    """A quadratic form is fitted to the scores of positions over the keys of each query."""
    torch.manual_seed(1)
    encoding = Encoding.of("quadratic", [[0.5, -1.0], [1.0, 0.25]], 0.7)
    layer = conv2attn.MultiHeadSelfAttention(3, 4, encoding, terms=terms, dtype=torch.float64)
    image = torch.randn(1, 3, 4, 5, dtype=torch.float64)
    scores = layer.term_scores(image)
    found = layer.moved_centers(image)
    total = scores["qr"] + scores.get("vr", 0)
    places = torch.cartesian_prod(torch.arange(4), torch.arange(5)).double()
    for head in range(2):
        for query, place in enumerate(places):
            row, column = (places - place).unbind(-1)
            form = torch.stack([row**2, column**2, row * column, row, column, torch.ones(20)], -1)
            a, b, c, d, e, _ = torch.linalg.lstsq(form, total[0, head, query, :, None]).solution[:, 0].tolist()
            bent = np.array([[2 * a, c], [c, 2 * b]])
            if np.linalg.eigvalsh(bent).max() < -1e-9:
                expected = np.linalg.solve(bent, [-d, -e])
                assert found[0, head, query].tolist() == pytest.approx(expected, rel=1e-6)
            else:
                assert found[0, head, query].isnan().all()


def test_heads_that_no_content_moves_have_no_spread_and_no_column():
    layer = conv2attn.convert(nn.Conv2d(3, 4, 3, padding=1))
    learned = conv2attn.MultiHeadSelfAttention(3, 4, Encoding.of("learned", 2, (5, 5), 4), terms="qr")
    image = torch.randn(2, 3, 5, 5)
    for network in (layer, learned):
        report = heads(network, image)
        assert {head.moved for head in report.layers[0].heads} == {None}
        assert "moved" not in report.to_text(verbose=True)
