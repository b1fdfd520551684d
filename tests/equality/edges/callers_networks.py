"""The caller's own networks are as they were, whatever a call changes in them: copies run."""

import collections
import contextlib
import itertools
import random
import threading

import numpy as np
import pytest
import torch
from equality.pairs import After, Net, layer
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.errors import UsageError
from conv2attn.verdicts import Strength, Verdict

SIZE = (3, 8, 9)
GAIN = {"gain": torch.ones(4, 1, 1)}


class Slots:
    """An object without a mapping of its attributes."""

    __slots__ = ("number",)

    def __init__(self):
        self.number = 0


def made_at_the_first_call(net, x):
    if "made" not in net._parameters:
        net.made = nn.Parameter(torch.zeros(1))
    return x + net.made


def with_gradients(net, x):
    with torch.enable_grad():
        (net.conv.weight * 3).sum().backward()
    return x


def replaced(net, x):
    net.gain = net.gain + 1
    return x


def written(net, x):
    net.gain += 1
    return x


def moved(net, x):
    net.gain.data = torch.ones(8)
    return x


def hooked(net, x):
    net.register_forward_hook(lambda *_: None)
    return x


CHANGING = {
    "counts": (lambda net, x: (setattr(net, "count", net.count + 1), x)[1], {"count": 0}),
    "keeps in a list": (lambda net, x: (net.past.append(x), x)[1], {"past": []}),
    "keeps in a mapping": (lambda net, x: (net.past.update({len(net.past): x}), x)[1], {"past": {}}),
    "keeps in order": (lambda net, x: (net.past.move_to_end(1), x)[1], {"past": collections.OrderedDict({1: 1, 2: 2})}),
    "keeps in a queue": (lambda net, x: (net.past.append(x), x)[1], {"past": collections.deque([1], maxlen=1)}),
    "keeps in a set": (lambda net, x: (net.past.add(len(net.past)), x)[1], {"past": set()}),
    "keeps deep inside": (lambda net, x: (net.past[0][0]["a"].append(x), x)[1], {"past": ([{"a": []}],)}),
    "keeps in slots": (lambda net, x: (setattr(net.past, "number", net.past.number + 1), x)[1], {"past": Slots()}),
    "draws": (lambda net, x: (net.past.random(), x)[1], {"past": random.Random(1)}),
    "draws tensors": (lambda net, x: (torch.rand(1, generator=net.past), x)[1], {"past": torch.Generator()}),
    "makes a parameter": (made_at_the_first_call, {}),
    "adds gradients": (with_gradients, {}),
    "replaces a buffer": (replaced, GAIN),
    "writes into a buffer": (written, GAIN),
    "gives a buffer other memory": (moved, GAIN),
    "adds a hook": (hooked, {}),
    "changes its mode": (lambda net, x: net.eval() and x, {}),
    "stops training its weight": (lambda net, x: (net.conv.weight.requires_grad_(False), x)[1], {}),
}


def content(value, known=None):
    """A value taken apart, so that a change of it is seen."""
    known = set() if known is None else known
    if isinstance(value, torch.Tensor):
        grad = None if value.grad is None else value.grad.tolist()
        return id(value), value.tolist(), value.requires_grad, grad, value.data_ptr(), value.shape
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, random.Random):
        return value.getstate()
    if id(value) in known:
        return id(value)
    known.add(id(value))
    if isinstance(value, dict):
        return [(key, content(each, known)) for key, each in value.items()]
    if isinstance(value, (list, tuple, set, collections.deque)):
        return [content(each, known) for each in value]
    if isinstance(value, Slots):
        return value.number
    return id(value), content(vars(value), known) if isinstance(value, nn.Module) else None


@pytest.mark.parametrize("way", CHANGING)
def test_a_network_that_changes_at_a_call_is_as_it_was(way):
    after, attributes = CHANGING[way]
    original = nn.Sequential(After(after, **attributes), nn.BatchNorm2d(4))
    converted = conv2attn.convert(original)
    before = content(original), content(converted)
    certify(original, converted, input_size=SIZE)
    assert (content(original), content(converted)) == before


def test_statistics_in_training_mode_are_put_back_and_it_holds():
    original = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    converted = conv2attn.convert(original)
    before = content(original), content(converted)
    found = certify(original, converted, images=torch.rand(2, *SIZE))
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.PROVED), found.to_text()
    assert (content(original), content(converted)) == before


def test_a_network_that_raises_is_as_it_was():
    def after(net, x):
        net.past.append(1)
        if net.odd:
            raise ValueError("odd")
        return x

    first, second = After(after, past=[], odd=False), After(after, past=[], odd=True)
    assert certify(first, second, input_size=SIZE).verdict is Verdict.REFUTED
    assert (first.past, second.past) == ([], [])


def test_an_iterator_is_where_it_was():
    count = itertools.count()
    original = After(lambda net, x: (next(net.past), x)[1], past=count)
    certify(original, conv2attn.convert(original), input_size=SIZE)
    assert next(count) == 0


def test_two_threads_certify_and_call_one_network():
    original = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    converted, image, wrong = conv2attn.convert(original), torch.rand(1, *SIZE), []
    expected = original(image), converted(image)

    def calling():
        for _ in range(40):
            if not (torch.equal(original(image), expected[0]) and torch.equal(converted(image), expected[1])):
                wrong.append("other numbers")

    def certifying():
        for _ in range(3):
            if not certify(original, converted, input_size=SIZE):
                wrong.append("does not hold")

    threads = [threading.Thread(target=each) for each in (calling, certifying, calling, certifying)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def rewritten(first):
    """The same formula in other code, so that it is followed operator by operator."""
    return Net(lambda net, image: first.code(net, net.conv(image) * 1), conv=layer(3, 4)).train()


DRAWS = {
    "dropout": lambda net, x: nn.functional.dropout(x, 0.5),
    "noise of torch": lambda net, x: x + 0 * torch.rand(1),
    "a number of Python": lambda net, x: x * (random.random() > -1),
    "a number of NumPy": lambda net, x: x * float(np.random.rand() > -1),
    "a draw, then an error": lambda net, x: x + torch.rand(1) + random.random() + np.random.rand() + [],
}


def of_the_process():
    """The states of generators, and the flags, that a call must leave as they are."""
    generators = torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())
    return generators, torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("second", [conv2attn.convert, rewritten], ids=range(2))
def test_all_generators_are_as_they_were(name, second):
    first = After(DRAWS[name]).train()
    other = second(first)
    before = of_the_process()
    with contextlib.suppress(UsageError):
        certify(first, other, input_size=SIZE)
    assert of_the_process() == before
