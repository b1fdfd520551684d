"""Layers on a device: what they read there, what they copy there, and where their results live."""

import copy

import pytest
import torch
from changes import changing
from imitated_device import DEVICE, counting, imitated
from layers.attention.cases import CONVOLUTIONS, hard_layer, soft_layer
from torch import nn

from conv2attn import convert, set_engine
from conv2attn.errors import EngineError
from conv2attn.layers.attention import ENGINES
from conv2attn.layers.theorem import attention_for, read_convolution
from conv2attn.testing import assert_same_output

EXPORTED = {
    "hard, auto": lambda: hard_layer("plain", "auto"),
    "hard, gather": lambda: hard_layer("strided", "gather"),
    "soft, separable": lambda: frozen(soft_layer("separable")),
    "soft, trained": lambda: soft_layer("separable"),
}
TIMED = {name for name, engine in ENGINES.items() if engine.choose and name != "auto"}
"""Rules that run engines to choose one, and so wait for the device."""
ALWAYS = ("auto", "separable", "dense")
"""Engines that serve hard and soft heads alike."""


def frozen(layer):
    layer.encoding.learn(False)
    return layer.requires_grad_(False)


@pytest.fixture(autouse=True)
def there():
    with imitated():
        yield


def step(layer, image):
    """One forward and one backward pass; of the second of these, what was asked of the device."""
    for _ in range(2):
        with counting() as counts:
            output = layer(image)
            output.sum().backward()
    assert output.device == image.grad.device == DEVICE
    return counts


def image_for(layer, sides=(9, 12)):
    drawn = torch.randn(2, layer.d_in, *sides, generator=torch.Generator().manual_seed(0))
    return drawn.to(DEVICE).requires_grad_()


def network(engine, **options):
    """Two converted layers among others."""
    parts = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2, groups=2)
    return set_engine(convert(nn.Sequential(*parts), **options), engine)


def soft(engine, *, trains, moves):
    layer = soft_layer(engine)
    layer.encoding.learn(trains).requires_grad_(moves)
    return layer


STEPS = {
    **{
        f"{name}, {engine}": lambda name=name, engine=engine: hard_layer(name, engine)
        for name in CONVOLUTIONS
        for engine in ENGINES
        if engine not in TIMED
    },
    **{f"network, {engine}": lambda engine=engine: network(engine) for engine in ALWAYS},
    **{f"soft network, {engine}": lambda engine=engine: network(engine, alpha=5.0) for engine in ALWAYS},
    **{f"trained, {engine}": lambda engine=engine: soft(engine, trains=True, moves=True) for engine in ALWAYS},
    **{f"parameters, {engine}": lambda engine=engine: soft(engine, trains=True, moves=False) for engine in ALWAYS},
    **{f"numbers, {engine}": lambda engine=engine: soft(engine, trains=False, moves=False) for engine in ALWAYS},
    "numbers, sdpa": lambda: frozen(soft_layer("sdpa")),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_reads_nothing_and_copies_nothing(name):
    layer = STEPS[name]().to(DEVICE)
    counts = step(layer, image_for(layer[0] if isinstance(layer, nn.Sequential) else layer))
    assert not counts.reads
    assert not counts.copies


def test_a_step_that_reads_a_value_or_copies_one_is_found():
    """Planted: hooks that do."""
    layer = hard_layer("plain", "auto").to(DEVICE)
    layer.register_forward_hook(lambda module, args, output: output * output.max().item())
    layer.register_forward_hook(lambda module, args, output: output + torch.ones(8, 1, 1).to(DEVICE))
    counts = step(layer, image_for(layer))
    assert counts.reads.total() == counts.copies.total() == 1


@pytest.mark.parametrize("engine", ["conv", "gather", "sdpa"])
def test_engines_that_rest_on_values_refuse_trained_heads_on_a_device(engine):
    layer = soft_layer(engine).to(DEVICE)
    with pytest.raises(EngineError, match=r"C2A201 attention: .* cannot be read here without a sync; freeze them"):
        layer(image_for(layer))


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_moving_a_layer_needs_no_float64(kind):
    conv = nn.Conv2d(3, 4, 3, padding=1)
    layer = attention_for(read_convolution(conv)) if kind == "hard" else soft_layer("auto")
    expected = layer(image_for(layer).detach().cpu()).detach()
    with imitated(float64=False):
        moved = copy.deepcopy(layer).to(DEVICE)
        output = moved(image_for(layer))
        assert moved.attention(sides=(4, 5)).device == output.device == DEVICE
        assert_same_output(output.detach().cpu(), expected, 1e-5)


@pytest.mark.parametrize("float64", [True, False])
@pytest.mark.parametrize("name", ["center", "alpha"])
def test_a_layer_on_a_device_follows_numbers_that_were_assigned_and_reads_nothing(name, float64):
    with imitated(float64):
        layer = hard_layer("plain", "auto").to(DEVICE)
        image = image_for(layer)
        before = layer(image)
        with changing(layer.cpu(), name) as numbers:
            numbers[4] += {"center": 1.0, "alpha": -127.0}[name]
        expected = copy.deepcopy(layer)(image.detach().cpu())
        layer.to(DEVICE)
        with counting() as counts:
            after = layer(image)
        assert not counts.reads
        assert_same_output(after.detach().cpu(), expected.detach(), 1e-4)
        assert not torch.allclose(before, after)


@pytest.mark.rotated
@pytest.mark.parametrize("kind", EXPORTED)
def test_a_program_exported_on_a_device_is_the_layer_at_every_size(kind):
    layer = EXPORTED[kind]().to(DEVICE)
    free = dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO)
    image = image_for(layer).detach()
    program = torch.export.export(layer, (image,), dynamic_shapes=(free,), strict=False).module()
    for each in (image, image[:1, :, :7, 2:]):
        expected = copy.deepcopy(layer).to("cpu")(each.cpu())
        assert program(each).device == DEVICE
        assert_same_output(program(each).cpu(), expected, 1e-4)


def test_torch_compiles_nothing_on_the_imitated_device():
    """So laws of torch.compile run on the CPU alone. The control is a convolution of torch, which it refuses too."""
    for layer in (hard_layer("plain", "auto"), nn.Conv2d(3, 8, 3)):
        compiled = torch.compile(layer.to(DEVICE), backend="eager", fullgraph=True)
        with pytest.raises(RuntimeError, match="non-infra torch dispatch mode present"):
            compiled(torch.ones(1, 3, 5, 6, device=DEVICE))


def test_heads_that_trained_on_a_device_are_frozen_as_they_are_now():
    layer = soft_layer("auto").to(DEVICE)
    image = image_for(layer)
    layer(image).square().mean().backward()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    expected = copy.deepcopy(layer).to("cpu")(image.detach().cpu())
    result = frozen(layer)(image)
    assert_same_output(result.detach().cpu(), expected.detach(), 1e-4)
    with counting() as counts:
        layer(image)
    assert not counts.reads
