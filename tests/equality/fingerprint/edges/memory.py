"""Runs over fields keep the numbers that later operators read, and no others: memory does not grow with the depth."""

import copy
import weakref

import pytest
import torch
from torch import nn

from conv2attn.equality.fingerprint import answers, identify, tensors
from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.state import alike, network_state

IMAGE = torch.rand(2, 4, 16)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, tokens):
        return tokens + self.outer(torch.tanh(self.inner(self.norm(tokens))))


def network(depth):
    torch.manual_seed(depth)
    return nn.Sequential(*(Residual() for _ in range(depth))).eval()


@pytest.fixture
def largest_of_stores(monkeypatch):
    """The most residues that were in stores at once, in bytes."""
    sizes, largest, make = weakref.WeakKeyDictionary(), [0], tensors.Store.__init__

    def watched(store, *arguments, **options):
        make(store, *arguments, **options)
        if store.residues is not None:
            sizes[store] = store.residues.values.nbytes
        largest[0] = max(largest[0], sum(sizes.values()))

    monkeypatch.setattr(tensors.Store, "__init__", watched)
    return largest


def test_the_residues_of_a_run_do_not_grow_with_the_depth(largest_of_stores):
    most = []
    for depth in (2, 5):
        largest_of_stores[0] = 0
        model = network(depth)
        assert identify(model, copy.deepcopy(model), IMAGE, primes=3).equal
        most.append(largest_of_stores[0])
    assert most[0] == most[1] > 0


def test_residues_have_four_bytes_and_weights_are_never_modulo_all_primes(monkeypatch):
    weights, made = torch.rand(64, 64), list[int]()
    field = Field(5)
    assert field.encode(weights).values.nbytes == 5 * 4 * weights.numel()

    def counted(make):
        def function(*sides, **options):
            made.append(make(*sides, **options).nbytes)
            return make(*sides, **options)

        return function

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, counted(getattr(torch, name)))
    part = field.factor(weights).part(3, columns=slice(None), rows=slice(8))
    assert max(made) == part.nbytes == 8 * 8 * 64


@pytest.mark.parametrize("room", [0, 1000, 10**6])
def test_answers_hold_no_more_than_their_room(room, monkeypatch):
    fields, forget = list[int](), Field.forget_answers

    def counted(field):
        held = [each for answer in field.answers.answers.values() for each in answers.tree_leaves(answer.made)]
        columns = {id(values): values for each in field.answers.columns.values() for values, _ in each.values()}
        fields.append(sum(each.numel() for each in (*(each.residues.values for each in held), *columns.values())))
        forget(field)

    monkeypatch.setattr(answers, "MOST_HELD", room)
    monkeypatch.setattr(Field, "forget_answers", counted)
    model = network(5)
    assert identify(model, copy.deepcopy(model), IMAGE, primes=3).equal
    assert max(fields) <= room
    assert bool(max(fields)) is (room > 0)


@pytest.mark.parametrize("changed", [0.0, -0.0, 1.0, torch.inf])
def test_a_state_is_a_hash_that_sees_each_bit_and_takes_any_nan_for_another(changed):
    model = nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[torch.nan, 0.0, 2.0]]))
    before = network_state(model)
    with torch.no_grad():
        model.weight.view(torch.int32)[0, 0] ^= 1  # another NaN
    assert alike(before, network_state(model))
    with torch.no_grad():
        model.weight[0, 1] = changed
    assert alike(before, network_state(model)) is (str(changed) == "0.0")
