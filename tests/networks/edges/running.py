"""Converted networks live as the original did: cast, trained, run in threads and after errors."""

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from networks.cases import IMAGE
from networks.networks import Mixed
from torch import nn
from whole import assert_equal, image_of, whole

from conv2attn import convert, set_engine
from conv2attn.networks import attention_layers


def pair() -> tuple[nn.Module, nn.Module]:
    model = whole(nn.Sequential(Mixed(), nn.ReLU()))
    return model, convert(model, example_input=IMAGE)


def test_casting_a_network_casts_its_calls_too():
    model, _ = pair()
    network = convert(model, example_input=IMAGE, alpha=1024)
    network(image_of(2, 3, 8, 10))
    parameters = [name for name, _ in network.named_parameters()]
    for image in (IMAGE, image_of(2, 3, 8, 10)):
        assert_equal(model.double(), network.double(), image.double(), engines=["auto", "dense"])
    assert [name for name, _ in network.named_parameters()] == parameters
    assert len(attention_layers(network)) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_inside_leaves_nothing_behind(error):
    def stop(*_):
        raise error

    model, network = pair()
    network[0].fail = error is KeyboardInterrupt
    handle = network[0].register_forward_pre_hook(stop, prepend=True) if error is ValueError else None
    for _ in range(2):
        with pytest.raises(error):
            network(IMAGE)
    assert torch._C._len_torch_function_stack() == 0
    network[0].fail = False
    if handle:
        handle.remove()
    assert_equal(model, network, IMAGE)


def test_an_error_in_a_skipped_layer_does_not_stop_redirecting():
    model = whole(nn.Sequential(Mixed(), nn.ReLU()))
    network = convert(model, example_input=IMAGE, skip="0.conv")
    with pytest.raises(RuntimeError, match="channels"):
        network(image_of(2, 5, 8, 9))
    set_engine(network, "dense")
    attention_layers(network)["0.attending_calls.layers.0"].encoding.assign(alpha=torch.nan)
    assert network(IMAGE).isnan().any()


def test_threads_do_not_disturb_each_other():
    model, network = pair()
    images = [image_of(1, 3, 5 + i % 3, 5 + i % 4, seed=i) for i in range(24)]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(network, images))
    for image, result in zip(images, results, strict=True):
        assert torch.equal(result, model(image))


def test_skipped_convolutions_can_be_converted_later():
    model, _ = pair()
    first = convert(model, example_input=IMAGE, only="0.conv")
    assert_equal(model, convert(first, example_input=IMAGE), IMAGE)


@pytest.mark.parametrize(
    "options",
    [
        {"trainable": True},
        {"d_head": 7},
        {"alpha": 200},
        {"alpha": 1000.0, "encoding": "enumerated"},
        {"encoding": "enumerated", "d_head": 4, "trainable": True},
        {"stride_by": "pooling"},
    ],
)
@pytest.mark.filterwarnings("ignore:C2A132")
def test_options_reach_layers_and_calls(options):
    model = whole(nn.Sequential(OrderedDict(a=nn.Conv2d(3, 4, 3, stride=2), b=nn.Conv2d(4, 2, (1, 2)))))
    engines = ["auto", "gather", "dense"]
    assert_equal(model, convert(model, **options), IMAGE, engines=engines)
    model = whole(Mixed())
    network = convert(model, example_input=IMAGE, **{**options, "d_head": options.get("d_head", 4)})
    assert_equal(model, network, IMAGE, engines=engines)
    for layer in attention_layers(network).values():
        assert (not layer.encoding.is_frozen) == options.get("trainable", False)
        assert layer.encoding.alpha[0] == options.get("alpha", 128)
        assert layer.encoding.family.name == options.get("encoding", "quadratic")


def test_a_trainable_network_learns_its_positions():
    model, _ = pair()
    network = convert(model, example_input=IMAGE, alpha=2.0, trainable=True)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-3)
    network(IMAGE).square().mean().backward()
    optimiser.step()
    moved = {name for name, parameter in network.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == before.keys()
    assert {name.rpartition(".")[2] for name in moved} == {"alpha", "center", "bias", "weight"}
    assert all(parameter.isfinite().all() for parameter in network.parameters())
