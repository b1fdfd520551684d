"""Reading a network: what stands in memory is that of one layer, whatever the number of layers."""

from copy import deepcopy
from pkgutil import resolve_name

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from conv2attn import check_span, heads
from conv2attn.networks.reading import Perturbed
from studies.transformer import TransformerPlan, VisionTransformer

READING = "conv2attn.networks.reading"
WIDTH, HEADS, SIDE = 64, 4, 8
SUMS = 26 * 8 * HEADS * SIDE**2
"""Bytes that may be kept of a layer: 26 numbers for each token and head, places and sums over channels."""
FACTORS = 2 * 8 * WIDTH**2
"""Bytes of the factors of a layer's matrices, which the report of `heads` keeps."""


class Alive(TorchDispatchMode):
    """Counts the bytes of tensors that are made while it is active: the most that are there at once."""

    def __init__(self, network):
        super().__init__()
        self.own = {each.untyped_storage().data_ptr() for each in network.parameters()}
        self.storages, self.total, self.most = {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            storage = each.untyped_storage() if isinstance(each, torch.Tensor) else None
            if storage is not None and storage.data_ptr() not in self.own:
                before = self.storages.get(storage.data_ptr())
                self.storages[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
                self.total += storage.nbytes() - (0 if before is None else before[1])
        if self.total > self.most:  # those that are gone are counted until then
            self.storages = {place: each for place, each in self.storages.items() if not each[0].expired()}
            self.total = sum(size for _, size in self.storages.values())
            self.most = max(self.most, self.total)
        return result


def places_alone(network, images):
    return resolve_name(f"{READING}.rounds.places")(
        Perturbed(network, images), resolve_name(f"{READING}.score_order.Order")()
    )


ASKED = {
    "heads": (heads, FACTORS + SUMS),
    "check_span": (lambda network, images: check_span(network, example_input=images, kernel_size=1), SUMS),
    "places": (places_alone, SUMS),
}


def most(name, layers, side, width):
    """The most bytes that stand in memory while a network is asked."""
    plan = TransformerPlan(side=2 * side, patch=2, width=width, heads=HEADS, layers=layers, hidden=2 * width)
    network, images = VisionTransformer(plan).eval(), torch.randn(2, 1, 2 * side, 2 * side)
    with Alive(network) as alive:
        ASKED[name][0](network, images)
    return alive.most


def grown(name, monkeypatch):
    """By how many bytes the most memory of a question grows with a layer, from three layers to five."""
    monkeypatch.setattr(f"{READING}.phase.AT_ONCE", 1)  # each layer is a group of its own, as large ones are
    return (most(name, 5, SIDE, WIDTH) - most(name, 3, SIDE, WIDTH)) / 2


@pytest.mark.rotated
@pytest.mark.parametrize("name", ASKED)
def test_memory_does_not_grow_with_layers(name, monkeypatch):
    torch.manual_seed(0)
    assert grown(name, monkeypatch) <= ASKED[name][1]


def copied(network, share):
    return deepcopy(network).cpu().double()


class InMemory(dict):
    """Keeps what is to be stored."""

    def __init__(self, file):
        super().__init__()

    def put(self, run, key, tensor):
        self[run, key] = tensor

    def get(self, run, key):
        return self[run, key]


def keeping(calls_of):
    every = []

    def kept(*args):
        own = calls_of(*args)
        # Twice, since the memory of places, which are asked before, hides what grows little.
        every.extend((own, deepcopy(own)))
        return own

    return kept


PLANTED = {
    "a copy of the weights": ("perturbed.double_copy", copied, "heads"),
    "queries, keys and values": ("responses.Stored", InMemory, "places"),
    "matrices of heads": ("head_matrices.HeadMatrices.packed", lambda self: self, "heads"),
    "inputs of layers": ("phase.calls_of", keeping(resolve_name(f"{READING}.phase.calls_of")), "check_span"),
}


@pytest.mark.rotated
@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_kept_of_each_layer_is_counted(planted, monkeypatch):
    torch.manual_seed(0)
    where, other, name = PLANTED[planted]
    monkeypatch.setattr(f"{READING}.{where}", other)
    assert grown(name, monkeypatch) > ASKED[name][1]


def attentions(name):
    """How many attentions of one image, in float64, stand in memory at once where tokens are many."""
    return most(name, 1, 16, 16) / (8 * HEADS * 257**2)


@pytest.mark.parametrize("name", ASKED)
def test_a_layer_is_read_in_the_memory_of_five_attentions(name):
    """Scores and softmax of the run, scores and softmax of random attention, and the mean of two."""
    torch.manual_seed(0)
    assert attentions(name) < 5.5


def all_at_once(*seeds):
    def rule(_, own):
        scores = [torch.randn(own.shape, dtype=torch.float64) for _ in seeds]
        return torch.stack([(3 * each).softmax(-1) for each in scores]).mean(0)

    return rule


def test_random_attention_that_is_drawn_at_once_is_counted(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(f"{READING}.layer_alone.drawn", all_at_once)
    assert attentions("heads") > 5.5
