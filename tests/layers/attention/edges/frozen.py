"""Positions that do not train are numbers: nobody changes them unseen, and no mode or wrapper of torch meets them."""

import copy
import io
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication

from conv2attn import convert, set_engine
from conv2attn.errors import UsageError
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.testing import assert_same_output

FAMILIES = {
    "quadratic": lambda: Encoding.of("quadratic", [[0.3, -1.2], [1.0, 0.0]], [0.7, 2.0]),
    "enumerated": lambda: Encoding.of("enumerated", [[0.3, -1.2], [1.0, 0.0]], 0.7),
    "generalised": lambda: Encoding.of("generalised", [[0.3, -1.2], [1.0, 0.0]]),
    "learned": lambda: Encoding.of("learned", 2, (8, 8), 4),
    "sinusoidal": lambda: Encoding.of("sinusoidal", 2, 2, 4),
}


def layer_of(family, trains, terms="vr"):
    torch.manual_seed(0)
    return MultiHeadSelfAttention(3, 4, FAMILIES[family]().learn(trains), terms=terms)


def image_of(sides=(6, 5)):
    return torch.randn(2, 3, *sides, generator=torch.Generator().manual_seed(1))


def converted(alpha):
    return convert(nn.Conv2d(3, 4, 3, padding=1), alpha=alpha)


LAYERS = {
    "hard": lambda: converted("auto"),
    "hard, by gather": lambda: set_engine(converted("auto"), "gather"),
    "soft": lambda: converted(5.0),
    **{f"frozen {family}": lambda family=family: layer_of(family, False) for family in FAMILIES},
    **{f"trained {family}": lambda family=family: layer_of(family, True) for family in FAMILIES},
    "frozen, with content": lambda: layer_of("quadratic", False, "qk+qr+vr"),
    "trained, with content": lambda: layer_of("learned", True, "qk+qr"),
}


@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
@pytest.mark.parametrize("name", LAYERS)
def test_memory_planners_run_a_layer_and_leave_nothing_behind(name, first):
    layer, image, mode = LAYERS[name](), image_of(), FakeTensorMode(allow_non_fake_inputs=True)
    if not first:
        layer(image)
    with mode:
        planned = layer(mode.from_tensor(image)).shape
    expected = copy.deepcopy(layer)(image)
    assert planned == expected.shape
    assert_same_output(layer(image), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_function_transforms_leave_nothing_behind(name):
    layer, image = LAYERS[name](), image_of()
    gradient = torch.func.grad(lambda image: layer(image).sum())(image)
    expected = copy.deepcopy(layer)(image.requires_grad_())
    assert_same_output(gradient, torch.autograd.grad(expected.sum(), image)[0], 1e-4)
    assert_same_output(layer(image), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_are_no_tensors_and_nobody_writes_to_them(family):
    layer = layer_of(family, False)
    copies = copy.deepcopy(layer), torch.load(saved(layer), weights_only=False), layer.half(), layer.to("meta")
    for each in (layer, *copies):
        assert not [*each.encoding.parameters(), *each.encoding.buffers()]
        for name in each.encoding.names:
            numbers = getattr(each.encoding, name)
            for array in numbers if isinstance(numbers, tuple) else [numbers]:
                assert array.dtype == np.float64
                with pytest.raises(AttributeError, match="fill_"):
                    array.fill_(0)
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 0
                with pytest.raises(ValueError, match="WRITEABLE"):
                    array.setflags(write=True)


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("trains", [False, True])
def test_numbers_are_assigned_under_their_name_and_followed(trains):
    layer, image = layer_of("quadratic", trains), image_of()
    before = layer(image)
    if trains:
        layer.encoding.assign(alpha=3.0)
    else:
        layer.encoding.alpha = 3.0
    assert layer.encoding.alpha.tolist() == [3.0, 3.0]
    expected = set_engine(copy.deepcopy(layer), "dense")(image)
    assert_same_output(layer(image), expected, 1e-5)
    assert not torch.allclose(before, expected)


def test_numbers_of_another_shape_or_without_values_are_refused():
    encoding = FAMILIES["quadratic"]().learn(False)
    with pytest.raises(UsageError, match=r"C2A007 alpha has the shape \(2,\), and the numbers have another one"):
        encoding.alpha = [1.0, 2.0, 3.0]
    with pytest.raises(UsageError, match="C2A006 alpha is on the meta device, without numbers"):
        encoding.assign(alpha=torch.empty(2, device="meta"))
    with pytest.raises(UsageError, match="C2A006 center is on the meta device, without numbers"):
        FAMILIES["quadratic"]().to("meta").learn(False)
    assert encoding.alpha.tolist() == [torch.tensor(0.7).item(), 2.0]


def test_a_layer_with_the_encoding_of_another_follows_its_numbers():
    first, second, image = layer_of("quadratic", False), layer_of("quadratic", False), image_of()
    second.encoding.assign(alpha=[4.0, 5.0])
    before = first(image)
    first.encoding = second.encoding
    assert not torch.allclose(first(image), before)
    assert_same_output(first(image), set_engine(copy.deepcopy(first), "dense")(image), 1e-5)


@pytest.fixture
def one_process(tmp_path):
    """A mesh of one process: its distributed tensors take the ways of those of many."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["hard", "frozen", "trained"])
def test_distributed_tensors_are_served(one_process, kind):
    layer, image = converted("auto") if kind == "hard" else layer_of("quadratic", kind == "trained"), image_of()
    expected = layer(image)
    spread = distribute_module(layer, one_process)
    # Attention by position is a plain tensor, which meets an image of the mesh: torch asks for this context.
    with nullcontext() if kind == "hard" else implicit_replication():
        output = spread(distribute_tensor(image, one_process, [Shard(0)]))
    assert_same_output(output.full_tensor(), expected, 1e-5)
