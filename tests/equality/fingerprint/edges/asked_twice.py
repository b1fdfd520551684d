"""Operators that both networks ask for are computed once, and nothing that is found depends on it."""

import copy
import sys

import pytest
import torch
from equality.fingerprint.cases import DIFFERENT, EQUAL, IMAGE
from torch import nn

from conv2attn.equality.fingerprint import answers, field, identify

identification = sys.modules["conv2attn.equality.fingerprint.identify"]  # the package has a function of this name


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3)).eval()


@pytest.fixture
def products(monkeypatch):
    counted, bilinear = [], field.bilinear

    def count(*operands):
        counted.append(operands)
        return bilinear(*operands)

    monkeypatch.setattr(field, "bilinear", count)
    return counted


def test_the_products_of_two_networks_of_the_same_operators_are_computed_once(products):
    model = network()
    assert identify(model, copy.deepcopy(model), IMAGE, primes=4).equal
    assert len(products) == 2


def test_large_networks_of_the_same_bits_are_counted_without_primes(monkeypatch):
    fields, begin = [], identification.Field

    def made(count, bits=31, progress=None):
        fields.append((count, bits))
        return begin(count, bits, progress)

    monkeypatch.setattr(identification, "LARGE", 0)
    monkeypatch.setattr(identification, "Field", made)
    model = network()
    found = identify(model, copy.deepcopy(model), IMAGE)
    assert found.equal
    assert found.log2_chance <= -40
    assert [count for count, _ in fields] == [1, 0, found.primes]
    assert fields[-1] == (found.primes, found.bits)
    with torch.no_grad():
        (other := copy.deepcopy(model))[0].bias[0] += 1e-3
    fields.clear()
    assert identify(model, other, IMAGE).equal is False
    assert fields == [(1, 20)]


def test_a_changed_weight_is_computed_again_and_what_follows_too(products):
    model, other = network(), network()
    with torch.no_grad():
        other[0].weight[0, 0, 0, 0] += 1e-6
    assert identify(model, other, IMAGE, primes=4).equal is False
    assert len(products) == 4


@pytest.mark.parametrize("pair", [*EQUAL.values(), *DIFFERENT.values()], ids=[*EQUAL, *DIFFERENT])
def test_all_that_is_found_is_the_same_where_nothing_is_held(pair, monkeypatch):
    held = identify(*pair, IMAGE, primes=4)
    monkeypatch.setattr(answers, "MOST_HELD", 0)
    assert identify(*pair, IMAGE, primes=4) == held


def test_one_number_of_any_stride_is_a_constant_as_any_other():
    every, same = torch.tensor([[3.0, 4.0], [5.0, 6.0]]), torch.tensor([3.0])
    assert identify(lambda x: x * every[:1, 0], lambda x: x * same, IMAGE).equal
    assert identify(lambda x: x * every[:1, 0], lambda x: x * every[:1, 1], IMAGE).equal is False


def test_a_product_of_two_stores_of_equal_numbers_is_no_square():
    def squares(x):
        return 1 / (x * x + 1)

    def products(x):
        return 1 / (x * x.clone() + 1)

    assert identify(squares, squares, IMAGE).equal
    found = identify(squares, products, IMAGE)
    assert found.equal is None
    assert "positive" in found.reason


def test_a_write_to_an_answer_does_not_change_it():
    def writing(x):
        first, second = x + 1, x + 1
        first.mul_(2)
        second.mul_(3)
        return first + second + (x + 1)

    assert identify(writing, lambda x: 6 * x + 6, IMAGE).equal


def test_a_constant_that_is_written_to_is_another_one():
    """Its memory stays, and so what is remembered of it must not."""

    def network(x):
        constant = torch.ones(5000)
        before = x.sum() * constant
        constant.add_(1)
        return before, x.sum() * constant

    image = torch.rand(1, 3)
    assert identify(network, lambda x: (x.sum() * torch.ones(5000), x.sum() * torch.full((5000,), 2.0)), image).equal
    assert identify(network, lambda x: (x.sum() * torch.ones(5000),) * 2, image).equal is False
