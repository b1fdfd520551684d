"""What public calls return does not depend on torch.set_default_device or torch.set_default_dtype."""

import pytest
import torch
from equality.pairs import Net
from imitated_device import DEVICE, imitated
from torch import nn

import conv2attn

CALLS = {
    "certify": lambda first, second, image: conv2attn.certify(first, second, input_size=(3, 7, 8)),
    "check_span": lambda first, second, image: conv2attn.check_span(second[0], grid=(5, 6)),
    "heads": lambda first, second, image: conv2attn.heads(second, image),
}


def attend(net, image):
    """Attention of one's own on patches: it is read by runs of copies."""
    tokens = net.patch(image).flatten(2).mT
    query, key, value = (each.unflatten(2, (2, 4)).transpose(1, 2) for each in net.qkv(tokens).chunk(3, -1))
    return net.out(((query @ key.mT).softmax(-1) @ value).transpose(1, 2).flatten(2))


def default(device="cpu", dtype=torch.float32):
    torch.set_default_device(None if device == "cpu" else device)
    torch.set_default_dtype(dtype)


@pytest.fixture(autouse=True)
def there():
    with imitated():
        yield
        default()


def networks(place="cpu", alpha="auto"):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2)).to(place)
    return network, conv2attn.convert(network, alpha=alpha)


@pytest.mark.rotated
@pytest.mark.parametrize("alpha", ["auto", 1.0])
@pytest.mark.parametrize("place", ["cpu", DEVICE], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_default_device_changes_no_verdict(name, place, alpha):
    first, second = networks(place, alpha)
    image = torch.rand(1, 3, 6, 7, generator=torch.Generator().manual_seed(0)).to(place)
    expected = CALLS[name](first, second, image)
    for device in (DEVICE, "meta"):
        default(device)
        report = CALLS[name](first, second, image)
        assert report.verdict is expected.verdict
        assert report.exit_code == expected.exit_code


@pytest.mark.parametrize("name", CALLS)
def test_the_default_dtype_changes_no_verdict(name):
    first, second = networks()
    image = torch.rand(1, 3, 6, 7, generator=torch.Generator().manual_seed(0))
    expected = CALLS[name](first, second, image)
    default(dtype=torch.float64)
    assert CALLS[name](first, second, image).verdict is expected.verdict


def test_a_default_device_of_meta_converts_a_network_that_has_numbers():
    network, _ = networks()
    image = torch.rand(1, 3, 6, 7)
    default("meta")
    converted = conv2attn.convert(network)
    default()
    assert torch.equal(converted(image), network(image))


@pytest.mark.parametrize("place", [DEVICE, "meta"], ids=str)
def test_attention_of_ones_own_is_read_alike_whatever_the_default_device(place):
    torch.manual_seed(0)
    parts = {"patch": nn.Conv2d(3, 8, 2, 2), "qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8)}
    network, images = Net(attend, **parts).eval(), torch.randn(2, 3, 8, 8)
    expected = conv2attn.heads(network, images)
    default(place)
    report = conv2attn.heads(network, images)
    default()
    assert expected.layers[0].grid == (4, 4)
    assert report.to_json() == expected.to_json()
