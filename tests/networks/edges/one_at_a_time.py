"""Reading a network: the attention of one layer stands in memory, and not that of the layer before."""

import weakref

import pytest
import torch

from conv2attn import check_span, heads
from conv2attn.networks.reading import phase
from studies.transformer import TransformerPlan, VisionTransformer

NETWORK = VisionTransformer(TransformerPlan(side=8, patch=2, width=16, heads=2, layers=3)).eval()
IMAGES = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
ASKED = {
    "heads": lambda: heads(NETWORK, IMAGES),
    "check_span": lambda: check_span(NETWORK, example_input=IMAGES, kernel_size=1),
}


def most_alive(ask, monkeypatch):
    """How much attention, of layers and of parts of the images, is there when a layer's parts are joined, and when its
    record is made."""
    monkeypatch.setattr(phase, "AT_ONCE", 1)
    made, counts, record, joined, part_of = [], [], phase.read_of, phase.joined_calls, phase.attention_of

    def count():
        counts.append(sum(each() is not None for each in made))

    def kept(pieces):
        several = len(pieces) > 1
        whole = joined(pieces)
        made.append(weakref.ref(whole))
        if several:
            count()
        return whole

    def counted(*args):
        count()
        return record(*args)

    def part(*args):
        of_run = part_of(*args)
        made.append(weakref.ref(of_run))
        return of_run

    monkeypatch.setattr(phase, "joined_calls", kept)
    monkeypatch.setattr(phase, "attention_of", part)
    monkeypatch.setattr(phase, "read_of", counted)
    ask()
    assert (len(counts), len(made)) == (2 * 3, 3 * 3)  # two parts of two images, and all four
    return max(counts)


@pytest.mark.parametrize("name", ASKED)
def test_the_attention_of_the_layer_before_is_gone(name, monkeypatch):
    assert most_alive(ASKED[name], monkeypatch) == 1


def test_attention_that_somebody_holds_is_counted(monkeypatch):
    """Planted: the last record stays while the next is made, as `enumerate` has it."""

    def ask():
        for _ in enumerate(phase.read_network(NETWORK, IMAGES, phase.Selection(()))):
            pass

    assert most_alive(ask, monkeypatch) > 1
