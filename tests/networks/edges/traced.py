"""Compilers and exports follow redirected convolutions: one graph, no break, batch and sides left open."""

import pytest
import torch
import torch._dynamo.testing
from networks.networks import Mixed, StaticSame
from torch import nn
from torch.nn import functional as F
from whole import image_of, whole

from conv2attn import convert, set_engine
from conv2attn.errors import EngineError

IMAGE = image_of(2, 3, 10, 14)


class Calls(nn.Module):
    """Convolutions as layers and as functions, with weights held, shared and computed."""

    def __init__(self):
        super().__init__()
        self.conv, self.skipped = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1)
        self.mix, self.inner = nn.Parameter(torch.empty(3, 3, 2, 2)), StaticSame(3, 3, 4)

    def forward(self, image):
        image = self.conv(image) + F.conv2d(image, self.conv.weight, self.conv.bias, 1, 1)
        image = F.conv2d(input=image, weight=self.conv.weight.flip(-1), padding="same") + self.skipped(image)
        image = F.conv_transpose2d(image % 3, self.mix, stride=(2, 1), padding=1, output_padding=(1, 0))
        return self.inner(image)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("skip", [(), ("skipped", "inner")])
def test_one_graph_serves_every_size(skip):
    network = convert(whole(Calls()), IMAGE, skip=skip)
    network(IMAGE)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(network, fullgraph=True, dynamic=True, backend=counter)
    for side in (11, 18):
        image = image_of(2, 3, side, side + 1)
        assert torch.equal(compiled(image), network(image))
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("skip", "engine"),
    [((), "auto"), (("skipped", "inner"), "separable"), ("(root)", "auto")],
)
def test_an_export_leaves_batch_and_sides_open_where_the_engine_is_chosen(skip, engine):
    network = set_engine(convert(whole(Calls()), IMAGE, skip=skip), engine)
    network(IMAGE)
    open_ = torch.export.Dim.DYNAMIC
    sides = ({0: open_, 2: open_, 3: open_},) if engine == "auto" else None
    program = torch.export.export(network, (IMAGE,), dynamic_shapes=sides)
    image = image_of(3, 3, 11, 14) if sides else IMAGE
    assert torch.equal(program.module()(image), network(image))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_the_export_of_a_new_geometry_is_refused():
    model = whole(nn.Sequential(Mixed()))
    network, other = convert(model, IMAGE), image_of(2, 3, 10, 13)
    network(IMAGE)
    with pytest.raises(EngineError, match=r"C2A203 a functional convolution of kernel \(2, 2\) did not run"):
        torch.export.export(network, (other,))
    torch._dynamo.reset()
    assert torch.equal(torch.compile(network, backend="eager")(other), model(other))
    program = torch.export.export(network, (other,))
    assert torch.equal(program.module()(other), model(other))
