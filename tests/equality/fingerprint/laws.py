"""Fingerprints: one function written in two ways is identified, another never is, what reads numbers is undecided."""

import copy
import threading

import pytest
import torch
from equality.fingerprint.cases import DIFFERENT, EQUAL, IMAGE, UNDECIDED
from equality.pairs import Net
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.equality.fingerprint import identify


@pytest.mark.parametrize("name", EQUAL)
def test_one_function_in_two_ways_is_identified_with_its_chance(name):
    found = identify(*EQUAL[name], IMAGE)
    assert (found.equal, found.reason) == (True, "")
    assert found.log2_chance <= -40
    assert found.size == tuple(IMAGE.shape)
    assert identify(*EQUAL[name][::-1], IMAGE).equal is True


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_function_is_not_identified(name):
    found = identify(*DIFFERENT[name], IMAGE)
    assert (found.equal, found.log2_chance) == (False, None)


class Noted(torch.Tensor):
    """A tensor of a class of the user's."""


def noting(x, note):
    """A tensor with an attribute of the user's."""
    y = x + 1
    y.note = note
    return y


PACKED = {
    "a list": (lambda x: (x + 1, None), lambda x: [x + 1, None], True),
    "an empty part": (lambda x: {"y": x + 1, "more": []}, lambda x: {"y": x + 1, "more": []}, True),
    "another number": (lambda x: (x + 1, 2), lambda x: (x + 1, 3), False),
    "another type of number": (lambda x: (x + 1, 1), lambda x: (x + 1, True), False),
    "another name": (lambda x: {"y": x + 1}, lambda x: {"z": x + 1}, False),
    "another order": (lambda x: (x, x + 1), lambda x: (x + 1, x), False),
    "another attribute": (lambda x: noting(x, 1), lambda x: noting(x, 2), False),
    "an object": (lambda x: (x + 1, object), lambda x: (x + 1, object), None),
    "a class of tensors": (lambda x: x.as_subclass(Noted), lambda x: x.as_subclass(Noted), None),
}


@pytest.mark.parametrize("name", PACKED)
def test_parts_of_outputs_are_compared_by_their_paths(name):
    first, second, equal = PACKED[name]
    assert identify(first, second, IMAGE).equal is equal


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_reads_numbers_or_has_no_rule_is_undecided_with_its_operator(name):
    network = UNDECIDED[name]
    found = identify(network, network, IMAGE)
    assert found.equal is None
    assert found.reason


def test_a_converted_network_is_identified_with_its_original_and_neither_is_changed():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2)
    ).eval()
    network = conv2attn.convert(model)
    conv2attn.set_engine(network, "dense")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    generator, hooks = torch.get_rng_state(), [dict(module.__dict__) for module in network.modules()]
    found = identify(model, network, IMAGE)
    assert (found.equal, found.reason) == (True, "")
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [list(module.__dict__) for module in network.modules()] == [list(each) for each in hooks]
    wrong = copy.deepcopy(network)
    with torch.no_grad():
        wrong[3].weight[0, 0, 0, 0] += 1e-4
    assert identify(model, wrong, IMAGE).equal is False


@pytest.mark.parametrize("last", [3, 1000])
def test_a_network_that_counts_its_calls_is_undecided(last):
    def counting(net, x):
        net.calls += 1
        return x * (2 if net.calls > last else 1)

    assert identify(Net(counting, calls=0), lambda x: x * 1, IMAGE).equal is None


@pytest.mark.parametrize("before", [None, torch.tensor(torch.nan)], ids=["nothing", "a number"])
def test_a_network_that_keeps_what_its_first_call_saw_is_undecided(before):
    def centred(net, x):
        if net.mean is None or net.mean.isnan():
            net.mean = x.mean()
        return x - net.mean

    found = identify(Net(centred, mean=before), Net(centred, mean=before), IMAGE)
    assert found.equal is None
    assert "depends on its first call" in found.reason


def test_two_threads_at_once_get_right_answers():
    answers = {}

    def ask(name):
        pair = EQUAL["unfold and a product"] if name % 2 else DIFFERENT["a weight changed"]
        answers[name] = identify(*pair, IMAGE).equal

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {0: False, 1: True, 2: False, 3: True}


def test_each_operator_of_a_run_is_told():
    told = []
    other = nn.Sequential(nn.SiLU(), nn.Identity())
    certify(nn.SiLU(), other, input_size=(1, 2, 3), progress=lambda *words: told.append(words))
    assert told == [(1, 1, "formulas modulo 3 primes")] * 2


def test_networks_whose_numbers_differ_are_told_apart_by_one_prime():
    told = []
    assert identify(nn.SiLU(), nn.GELU(), IMAGE, progress=lambda *words: told.append(words)).equal is False
    assert told == [(1, 1, "formulas modulo 1 prime")] * 2


def halves(layer):
    """A layer whose sum is formed in two halves, so that it rounds otherwise."""

    def code(net, tokens):
        parts = zip(tokens.chunk(2, 1), net.layer.weight.chunk(2, 1), strict=True)
        return sum(half @ weight.T for half, weight in parts) + net.layer.bias

    return Net(code, layer=layer)


@pytest.mark.parametrize(
    ("another", "primes"), [(halves, ["1 prime", "3 primes"]), (lambda layer: nn.Sequential(layer), ["3 primes"])]
)
def test_a_large_network_of_other_bits_is_asked_by_one_prime_first(another, primes):
    """A fold of it, whose numbers agree but for rounding, is then another formula at a third of the price."""
    told = []
    network, image = nn.Linear(1001, 1000), torch.rand(1, 1001, generator=torch.Generator().manual_seed(0))
    assert identify(network, another(network), image, progress=lambda *words: told.append(words)).equal
    assert list(dict.fromkeys(words for *_, words in told)) == [f"formulas modulo {each}" for each in primes]
