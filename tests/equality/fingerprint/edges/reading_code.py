"""Code that reads its input by a side door, asks whether it is watched, or swallows errors is never identified.

Each of these differs from `x * 1` on large inputs only.
"""

import copy
import ctypes
import io
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_unary
from torch.utils._python_dispatch import _disable_current_modes

from conv2attn.equality.fingerprint import identify

IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LIMIT = 5.0


def once(x):
    return x * 1


def doubled_where(large):
    """Twice the input where the question says that it is large; an error means that it is not."""

    def network(x):
        try:
            answer = bool(large(x))
        except Exception:
            answer = False
        return x * 2 if answer else x * 1

    return network


def largest(values):
    return max(map(largest, values)) if isinstance(values, list) else values


def saved(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file).max() > LIMIT


def without_modes(x):
    with _disable_current_modes():
        return type(x) is torch.Tensor and bool(x.max() > LIMIT)


def without_functions(x):
    with torch._C.DisableTorchFunctionSubclass():
        return x.numpy().max() > LIMIT


def by_protocol(x):
    if has_torch_function_unary(x):
        return handle_torch_function(by_protocol, (x,), x)
    return x * (2 if largest(x.tolist()) > LIMIT else 1)


@torch.jit.script
def scripted(x):
    return x.max().item() > 5.0


QUESTIONS = {
    "item": lambda x: x.sum().item() > LIMIT,
    "truth": lambda x: x.max() > LIMIT,
    "equal": lambda x: torch.equal(x, x.flip(-1)),
    "allclose": lambda x: torch.allclose(x, x.flip(-1)),
    "tolist": lambda x: largest(x.tolist()) > LIMIT,
    "tolist of a number": lambda x: x.sum().tolist() > LIMIT,
    "numpy": lambda x: x.numpy().max() > LIMIT,
    "asarray": lambda x: np.asarray(x).max() > LIMIT,
    "str": lambda x: "9" in str(x),
    "format": lambda x: "9" in f"{x.sum():.1f}",
    "deepcopy": lambda x: copy.deepcopy(x).sum().item() > LIMIT,
    "copy": lambda x: copy.copy(x).untyped_storage()[3] > 64,
    "storage": lambda x: x.untyped_storage()[3] > 64,
    "data_ptr": lambda x: ctypes.c_float.from_address(x.data_ptr()).value > LIMIT,
    "dlpack": lambda x: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).max() > LIMIT,
    "save": saved,
    "range": lambda x: len(range((x.sum() > LIMIT).long())),
    "size of zeros": lambda x: torch.zeros((x.sum() > LIMIT).long()).numel(),
    "nonzero": lambda x: len((x > LIMIT).nonzero()),
    "mask": lambda x: x[x > LIMIT].numel(),
    "index of the largest": lambda x: int(x.flatten().argmax()),
    "scripted": scripted,
    "class and numpy": lambda x: type(x) is torch.Tensor and x.numpy().max() > LIMIT,
    "protocol and numpy": lambda x: not has_torch_function((x,)) and x.numpy().max() > LIMIT,
    "float tensor": lambda x: isinstance(x, torch.FloatTensor) and x.max() > LIMIT,
    "modes disabled": without_modes,
    "functions disabled": without_functions,
    "length of the mode stack": lambda x: torch._C._len_torch_dispatch_stack() == 0 and x.max() > LIMIT,
}


class Subclass(torch.Tensor):
    """A tensor of the network's own class."""


def attempted(function):
    def network(x):
        try:
            return function(x)
        except Exception:
            return x * 1

    return network


CLAMPS = {
    "subclass": lambda x: x.as_subclass(Subclass).clamp(max=LIMIT).as_subclass(torch.Tensor),
    "parameter": lambda x: torch.nn.Parameter(x, requires_grad=False).clamp(max=LIMIT) * 1,
    "constructor": lambda x: torch.Tensor(x).clamp(max=LIMIT) * 1,
    "sparse": lambda x: x.to_sparse().coalesce().to_dense().clamp(max=LIMIT),
    "nested": lambda x: torch.nested.nested_tensor([x[0], x[1]]).clamp(max=LIMIT).to_padded_tensor(0.0),
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize(),
    "complex": lambda x: torch.complex(x, x).real.clamp(max=LIMIT),
    "new tensor": lambda x: x * (1 + (torch.tensor([x.sum()]) > LIMIT)),
    "full": lambda x: x * (1 + (torch.full((1,), x.sum()) > LIMIT)),
    "slice": lambda x: x[:, : 3 - (x.sum() > LIMIT).long()],
    "random": lambda x: x * (1 + (torch.rand(()) < 1e-2)),
    "protocol": by_protocol,
    "index by the input": lambda x: x.index_fill(1, (x.sum() > LIMIT).long().view(1), 0.0),
    "indices of a pool": lambda x: F.max_pool2d(x, 8, return_indices=True)[1] * x,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_code_that_asks_its_input_is_not_identified(name):
    assert identify(doubled_where(QUESTIONS[name]), once, IMAGES).equal is not True


@pytest.mark.parametrize("name", CLAMPS)
def test_code_that_tries_and_falls_back_is_not_identified(name):
    assert identify(attempted(CLAMPS[name]), once, IMAGES).equal is not True


def test_a_swallowed_error_stays_undecided():
    found = identify(doubled_where(lambda x: x.sum().item() > LIMIT), once, IMAGES)
    assert found.equal is None
    assert "reading_code.py" in found.reason


def test_tensors_of_another_thread_are_undecided():
    def network(x):
        results = []
        thread = threading.Thread(target=lambda: results.append(torch.where(x > LIMIT, 0.0, x)))
        thread.start()
        thread.join()
        return results[0]

    assert identify(network, once, IMAGES).equal is None


def test_a_function_of_the_network_with_the_name_of_torchs_attention_is_not_taken_for_it():
    def scaled_dot_product_attention(q, k, v):
        if has_torch_function((q, k, v)):
            return handle_torch_function(scaled_dot_product_attention, (q, k, v), q, k, v)
        return torch.softmax(q @ k.mT, -1) @ v

    def own(x):
        return scaled_dot_product_attention(x, x, x)

    assert identify(own, lambda x: F.scaled_dot_product_attention(x, x, x), IMAGES).equal is not True


def test_a_kernel_that_was_replaced_is_undecided():
    with warnings.catch_warnings(), torch.library._scoped_library("aten", "IMPL") as library:
        warnings.simplefilter("ignore")  # torch says that it is replaced
        library.impl("tanh", lambda x: torch.ops.aten.mul.Tensor(x, 3), "CPU")
        found = identify(torch.tanh, torch.tanh, IMAGES)
    assert found.equal is None
    assert "kernel" in found.reason
