"""Warnings of a conversion in which nothing was converted, or nothing can be learned."""

import pytest
import torch
from torch import nn
from whole import image_of, whole

from conv2attn import conversion_of, convert
from conv2attn.errors import Conv2AttnWarning

IMAGE = image_of(2, 1, 8, 9)


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.MultiheadAttention(4, 2), nn.Sequential()])
def test_a_module_without_a_convolution_comes_back_as_a_copy_with_a_warning(model):
    with pytest.warns(Conv2AttnWarning, match=rf"C2A109 {type(model).__name__} has no convolution") as warned:
        network = convert(model)
    assert [warning.filename for warning in warned] == [__file__]
    assert network is not model
    assert conversion_of(network).rows == ()


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("compiled", [torch.jit.script, lambda model: torch.jit.trace(model, IMAGE)])
def test_a_torchscript_program_comes_back_with_a_warning(compiled):
    model = compiled(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()))
    with pytest.warns(Conv2AttnWarning, match="C2A109 no convolution of .* 0 .Conv2d. is compiled by torch.jit"):
        convert(model)


@pytest.mark.filterwarnings("ignore:`isinstance.treespec")
def test_an_exported_program_is_not_asked_for_the_example_that_it_has():
    model = torch.export.export(nn.Conv2d(1, 2, 3), (IMAGE,)).module()
    with pytest.warns(Conv2AttnWarning, match="C2A109 .* as layers or as calls of torch.nn.functional"):
        convert(model, example_input=IMAGE)


def gradients(alpha: float) -> float:
    """The largest gradient of a centre after one step's backward pass."""
    layer = convert(whole(nn.Conv2d(1, 2, 3, padding=1)), alpha=alpha, trainable=True)
    (layer(IMAGE) * image_of(2, 2, 8, 9, seed=2)).mean().backward()
    return layer.encoding.center.grad.abs().max().item()


@pytest.mark.parametrize("alpha", ["auto", 46, 128])
def test_a_trainable_conversion_warns_of_positions_that_do_not_move(alpha):
    with pytest.warns(Conv2AttnWarning, match=r"C2A132 alpha=.* do not move.*alpha=5") as warned:
        convert(nn.Conv2d(1, 2, 3), alpha=alpha, trainable=True)
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_the_gradients_that_the_warning_names():
    """At 20 and less there is no warning, which would be an error here."""
    with pytest.warns(Conv2AttnWarning, match="C2A132"):
        assert gradients(128) == 0
    with pytest.warns(Conv2AttnWarning, match="C2A132"):
        assert 0 < gradients(46) < 1e-18
    assert gradients(20) < 1e-7
    assert gradients(5) > 1e-3
