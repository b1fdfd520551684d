"""Lines of symbols: their classes, and training, measuring and drawing of what attends in one axis."""

import re

import pytest
import torch
from lab.cases import quiet, small
from torch import nn

import conv2attn
from conv2attn.lab.data import read_images_of
from conv2attn.lab.training import train
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan
from studies.figures import draw_figures

SIZES = {"data": "motifs", "patch": 1, "width": 8, "heads": 3, "layers": 1, "images": 40, "batch": 20, "epochs": 1}


@pytest.fixture(scope="module")
def motifs():
    return read_images_of("motifs")


def written(lines):
    """Lines as words, a letter for each symbol."""
    return ["".join("abcdefgh"[symbol] for symbol in line) for line in lines.argmax(1).tolist()]


def test_each_line_has_one_motif_which_is_its_class(motifs):
    assert (motifs.shape, len(motifs.pixels), len(motifs.test_pixels)) == ((8, 48), 4000, 1000)
    for lines, labels in ((motifs.pixels, motifs.labels), (motifs.test_pixels, motifs.test_labels)):
        assert set(lines.unique().tolist()) == {0, 255}
        assert bool((lines.sum(1, dtype=torch.int64) == 255).all())
        for word, label in zip(written(lines), labels.tolist(), strict=True):
            found = [name for name in motifs.classes for _ in re.findall(f"(?={name})", word)]
            assert found == [motifs.classes[label]]
    assert read_images_of("motifs").digest() == motifs.digest()
    assert not {*written(motifs.pixels)} & {*written(motifs.test_pixels)}


def test_a_convolution_of_three_taps_tells_the_classes_and_counts_of_symbols_do_not(motifs):
    conv = nn.Conv1d(8, 6, 3, bias=False)
    filters = torch.stack([torch.eye(8)["abcdefgh".index(letter)] for name in motifs.classes for letter in name])
    conv.weight.data = filters.unflatten(0, (6, 3)).mT
    found = conv(motifs.test_pixels.float() / 255).amax(2).argmax(1)
    assert torch.equal(found, motifs.test_labels)
    counts = motifs.pixels.sum(2).double() / 255
    means = torch.stack([counts[motifs.labels == label].mean(0) for label in range(6)])
    test = motifs.test_pixels.sum(2).double() / 255
    nearest = torch.cdist(test, means).argmin(1)
    assert (nearest == motifs.test_labels).double().mean() < 0.25


def test_parts_of_a_line_are_channels_of_a_token():
    plan = ClassifierPlan(axes=1, side=8, patch=4, channels=3, width=8, heads=2, layers=1, hidden=8)
    network, lines, parts = AttentionClassifier(plan), torch.randn(2, 3, 8), []
    network.embed.register_forward_pre_hook(lambda module, given: parts.append(given[0]))
    network(lines)
    for token in range(2):
        assert torch.equal(parts[0][:, token], lines[..., 4 * token : 4 * token + 4].flatten(1))


@pytest.mark.parametrize("kind", ["quadratic", "generalised", "learned"])
def test_attention_in_one_axis_is_trained_kept_and_measured(tmp_path, kind):
    run = train(small(kind, **SIZES), tmp_path / kind, report=quiet)
    network = conv2attn.load(run.network)
    assert network.plan.input_size == (8, 48)
    (layer,) = conv2attn.heads(network).layers
    assert (layer.grid, len(layer.heads)) == ((48,), 3)
    drawn = {path.stem for path in draw_figures([run], tmp_path / "figures", average=1, examples=1)}
    assert not {each for each in drawn if "attention" in each or "factors" in each}
