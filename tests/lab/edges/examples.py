"""The trained examples: they classify well, and their heads are what docs/experiments.md says.

The numbers are those of three files and of one page: no law predicts them.
"""

import json
import re
from pathlib import Path

import pytest
import torch

import conv2attn
from conv2attn.lab.data import normalised_images, read_images_of
from conv2attn.networks import attention_layers
from conv2attn.span import check_span
from conv2attn.verdicts import Verdict

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "experiments.md").read_text().split("## What the heads of the examples learned")[1]
KINDS = ("quadratic", "generalised", "learned")
GRID = (4, 4)


def example(kind):
    return conv2attn.load(ROOT / "examples" / f"attention-{kind}.pt")


def row(kind):
    """The cells of the table on the heads of a network."""
    return re.search(rf"^\| {kind} \|(.*)\|$", TEXT, re.M)[1].split("|")


@pytest.fixture(scope="module")
def shown():
    """Images as the networks take them, and their classes."""
    images = read_images_of("fashion-mnist")
    return normalised_images(images.test_pixels[:2000], *images.statistics()), images.test_labels[:2000]


@torch.no_grad()
@pytest.mark.needs("images")
@pytest.mark.parametrize("kind", KINDS)
def test_each_classifies_more_than_85_percent(kind, shown):
    inputs, labels = shown
    assert (example(kind)(inputs).argmax(1) == labels).double().mean() > 0.85
    assert (ROOT / "examples" / f"attention-{kind}.pt").stat().st_size < 2e6


@pytest.mark.parametrize("kind", ["quadratic", "generalised"])
def test_centres_have_as_many_nearest_tokens_as_the_page_says(kind):
    counts = []
    for layer in attention_layers(example(kind)).values():
        nearest = set(map(tuple, layer.encoding.center.detach().round().tolist()))
        counts.append(f"{len(nearest)} ({sum(max(map(abs, token)) <= 1 for token in nearest)})")
    assert row(kind)[0].strip() == ", ".join(counts)


@pytest.mark.parametrize("kind", KINDS)
def test_shares_are_those_of_the_page(kind):
    layers = json.loads(conv2attn.heads(example(kind), grid=GRID).to_json())["layers"]
    shares = [next(c["share"] for c in layer["convolutions"] if c["kernel_size"] == 3) for layer in layers]
    reached = [next(span["mean"] for span in layer["spans"] if span["kernel_size"] == 3) for layer in layers]
    assert row(kind)[1].split("%")[0].strip() == ", ".join(f"{100 * mean:.0f}" for mean in reached)
    assert row(kind)[2].strip() == ", ".join(f"{100 * share:.0f}" for share in shares) + " %"


@pytest.mark.parametrize("kind", KINDS)
def test_no_layer_can_express_every_convolution(kind):
    for layer in attention_layers(example(kind)).values():
        assert check_span(layer, grid=GRID).verdict is Verdict.REFUTED
