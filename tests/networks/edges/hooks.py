"""Hooks of a convolution work on the attention in its place: each once, with the same arguments."""

from torch import nn
from whole import image_of, whole

from conv2attn import MultiHeadSelfAttention, convert

IMAGE = image_of(2, 3, 6, 7)


def hooked(calls: list) -> nn.Module:
    model = whole(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)))
    conv = model[1]
    conv.register_forward_pre_hook(lambda module, args: calls.append("pre"))
    conv.register_forward_pre_hook(lambda module, args, kwargs: calls.append(("pre", *kwargs)), with_kwargs=True)
    conv.register_forward_hook(lambda module, args, result: calls.append(tuple(result.shape)))
    conv.register_forward_hook(lambda module, args, kwargs, result: calls.append(tuple(kwargs)), with_kwargs=True)
    conv.register_forward_hook(lambda module, args, result: calls.append("always"), always_call=True)
    conv.register_full_backward_pre_hook(lambda module, grad: calls.append("backward pre"))
    conv.register_full_backward_hook(lambda module, grad, result: calls.append("backward"))
    return model


def test_every_kind_of_hook_fires_once_and_in_order():
    expected, calls = [], []
    for model, log in ((hooked(expected), expected), (convert(hooked(calls)), calls)):
        model(IMAGE).sum().backward()
        log.append("end")
    assert isinstance(convert(hooked([]))[1], MultiHeadSelfAttention)
    assert calls == expected
    assert len(calls) == 8


def test_always_called_hooks_are_called_after_an_error():
    calls = []
    network = convert(hooked(calls))
    try:
        network[1](image_of(2, 9, 6, 7))
    except Exception:
        calls.append("error")
    assert calls[-2:] == ["always", "error"]


class Watcher(nn.Module):
    """Hooks its own method on its convolution."""

    def __init__(self):
        super().__init__()
        self.conv, self.attention = nn.Conv2d(3, 3, 3), []
        self.handle = self.conv.register_forward_hook(self.note)

    def note(self, module, args, result):
        self.attention.append(module)

    def forward(self, image):
        return self.conv(image)


def test_a_method_as_hook_is_bound_to_the_copy():
    model = Watcher()
    network = convert(model)
    model.handle.remove()
    for each in (model, network):
        each(IMAGE)
    assert model.attention == []
    assert network.attention == [network.conv]
