"""The imitated device refuses what a device refuses, and counts what is asked of it."""

import copy

import numpy as np
import pytest
import torch
from imitated_device import DEVICE, counting, has_float64, imitated
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def there():
    with imitated():
        yield


def numbers(*shape):
    return torch.arange(float(np.prod(shape))).reshape(shape).to(DEVICE)


MIXED = {
    "sum": lambda x: x + torch.ones(3),
    "product": lambda x: x @ torch.ones(3, 2),
    "concatenation": lambda x: torch.cat([x, torch.ones(1, 3)]),
    "indices on the device, numbers on the host": lambda x: torch.ones(3)[
        torch.zeros(2, dtype=torch.long, device=DEVICE)
    ],
    "numbers of no dimension on the device": lambda x: torch.ones(3) + x[0, 0],
    "assignment at indices": lambda x: x.index_put_((torch.tensor([0]),), torch.ones(1, 3)),
    "a layer that stayed": lambda x: nn.Linear(3, 2)(x),
}


@pytest.mark.parametrize("how", MIXED)
def test_tensors_of_two_devices_are_refused(how):
    with pytest.raises(RuntimeError, match="on the same device"):
        MIXED[how](numbers(2, 3))


READ = {
    "item": lambda x: x[0, 0].item(),
    "truth": lambda x: bool(x.sum() > 0),
    "list": lambda x: x.tolist(),
    "host": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu", torch.float64),
    "copy": lambda x: torch.empty(2, 3).copy_(x),
    "forced array": lambda x: x.numpy(force=True),
    "equality": lambda x: torch.equal(x, x),
    "places": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "kinds": lambda x: x.unique(),
    "wait": lambda x: torch.accelerator.synchronize(),
}


@pytest.mark.parametrize("how", READ)
def test_a_read_of_the_device_s_numbers_is_counted(how):
    x = numbers(2, 3)
    with counting() as counts:
        READ[how](x)
    assert counts.reads.total() == 1
    assert counts.copies.total() == 0


COPIED = {
    "to": lambda x: torch.ones(2).to(DEVICE),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device=DEVICE),
    "as tensor": lambda x: torch.as_tensor([1.0], device=DEVICE),
    "new tensor": lambda x: x.new_tensor([1.0]),
    "copy": lambda x: x.copy_(torch.ones(3)),
    "list as index": lambda x: x[[0, 1]],
    "list among slices": lambda x: x[:, [0, 1]],
    "host's indices": lambda x: x[torch.tensor([0, 1])],
    "assignment": lambda x: x.__setitem__([0], 1.0),
}


@pytest.mark.parametrize("how", COPIED)
def test_a_copy_from_the_host_is_counted(how):
    x = numbers(2, 3)
    with counting() as counts:
        COPIED[how](x)
    assert counts.copies.total() == 1
    assert counts.reads.total() == 0


def test_tensors_of_lists_in_torch_s_own_functions_are_made_there():
    x = numbers(2, 3)
    with counting() as counts:
        place = torch.unravel_index(x.argmax(), (2, 3))  # divides by a list, modulo a list
    assert counts.copies.total() == 2
    assert [each.item() for each in place] == [1, 2]


SENT = {
    "views": (lambda x: x[0].reshape(3, 1).mT.expand(2, 1, 3), 0, 0, 0),
    "sum": (lambda x: x + 1, 1, 24, 24),
    "expanded": (lambda x: x[0, 0].expand(100) * 2, 1, 4, 400),
    "in place": (lambda x: x.add_(1), 1, 24, 24),
    "made there": (lambda x: torch.zeros(3, device=DEVICE), 1, 0, 12),
    "two": (lambda x: x.exp().sum(), 2, 48, 28),
    "layer": (lambda x: F.linear(x, x), 1, 48, 16),
}


@pytest.mark.parametrize("how", SENT)
def test_operators_are_counted_with_the_bytes_that_they_read_and_write(how):
    call, operators, read, written = SENT[how]
    x = numbers(2, 3)
    with counting() as counts:
        result = call(x)
    assert result.device == DEVICE
    assert (counts.operators, counts.bytes_read, counts.bytes_written) == (operators, read, written)
    assert not counts.reads
    assert not counts.copies


def test_float64_is_refused_where_there_is_none():
    assert has_float64(DEVICE)
    with imitated(float64=False):
        assert not has_float64(DEVICE)
        x = torch.ones(2, device=DEVICE)
        made = (lambda: x.double(), lambda: torch.zeros(2, device=DEVICE, dtype=torch.float64))
        for call in (*made, lambda: torch.ones(2).double().to(DEVICE)):
            with pytest.raises(TypeError, match="does not support float64"):
                call()
        assert x.to("cpu", torch.float64).dtype == torch.float64


def test_products_are_cast_under_autocast_and_sums_are_not():
    x = numbers(1, 3, 8)
    calls = {
        torch.bfloat16: [lambda: F.linear(x, x[0]), lambda: x @ x.mT, lambda: F.conv1d(x, x)],
        torch.float32: [lambda: x + x, lambda: x.softmax(-1)],
    }
    with torch.autocast("imitated", torch.bfloat16):
        assert {call().dtype for call in calls[torch.bfloat16]} == {torch.bfloat16}
        assert F.conv_transpose2d(x[None], torch.ones(1, 1, 1, 1, device=DEVICE)).dtype == torch.bfloat16
        assert {call().dtype for call in calls[torch.float32]} == {torch.float32}
    assert {call().dtype for each in calls.values() for call in each} == {torch.float32}


def test_an_array_of_the_device_is_refused():
    for call in (np.asarray, lambda x: x.numpy()):
        with pytest.raises(TypeError, match="to numpy"):
            call(numbers(3))


def test_a_network_computes_and_trains_there_as_on_the_cpu():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(60, 2))
    image = torch.randn(2, 2, 4, 5)
    moved = copy.deepcopy(copy.deepcopy(network).to(DEVICE))
    for each, x in ((network, image), (moved, image.to(DEVICE))):
        optimiser = torch.optim.SGD(each.parameters(), 0.1, momentum=0.9)
        for _ in range(2):
            optimiser.zero_grad()
            each(x).square().mean().backward()
            optimiser.step()
    assert dict(moved.named_parameters()).keys() == dict(network.named_parameters()).keys()
    for name, tensor in moved.state_dict().items():
        assert tensor.device == DEVICE
        assert torch.equal(tensor.cpu(), network.state_dict()[name])


def test_an_lstm_computes_there_as_on_the_cpu():
    torch.manual_seed(0)
    layer, x = nn.LSTM(3, 4, num_layers=2, bidirectional=True).double(), torch.randn(5, 2, 3).double()
    assert torch.allclose(copy.deepcopy(layer).to(DEVICE)(x.to(DEVICE))[0].cpu(), layer(x)[0], rtol=1e-12)


def test_its_random_numbers_are_its_own():
    torch.manual_seed(3)
    first, state = torch.randn(4, device=DEVICE), torch.get_rng_state()
    second = nn.Dropout()(torch.ones(4, device=DEVICE))
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(3)
    assert torch.equal(first.cpu(), torch.randn(4, device=DEVICE).cpu())
    assert torch.equal(second.cpu(), nn.Dropout()(torch.ones(4, device=DEVICE)).cpu())


def test_what_was_saved_is_loaded_on_the_cpu(tmp_path):
    layer = nn.Linear(2, 3).to(DEVICE)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    state = torch.load(tmp_path / "layer.pt", weights_only=True)
    assert torch.equal(state["weight"], layer.weight.cpu())


class Noting(torch.Tensor):
    """A tensor of a class that sees each operator first."""

    @staticmethod
    def __new__(cls, numbers, seen):
        noting = torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=numbers.dtype, device=numbers.device)
        noting.numbers, noting.seen = numbers, seen
        return noting

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        next(each for each in args if isinstance(each, Noting)).seen.append(function)
        return function(*(each.numbers if isinstance(each, Noting) else each for each in args))


@pytest.mark.parametrize("first", [True, False])
def test_a_class_of_a_user_sees_operators_before_the_device(first):
    seen, x = [], numbers(2, 3)
    operands = (Noting(x, seen), x) if first else (x, Noting(x, seen))
    assert torch.equal((torch.add(*operands)).cpu(), 2 * x.cpu())
    assert seen == [torch.ops.aten.add.Tensor]


def test_a_copy_shares_no_memory_and_no_attributes():
    layer = nn.Linear(2, 3).to(DEVICE)
    copied = copy.deepcopy(layer)
    vars(copied.weight).update(vars(layer.weight))
    with torch.no_grad():
        copied.weight[0, 0] += 1
    assert not torch.equal(copied.weight, layer.weight)
