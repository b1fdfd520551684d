"""Laws of recipes: traced, exported and eager layers agree, and read no value."""

import pytest
import torch
from layers.attention.cases import CONVOLUTIONS, HARD, SOFT_ENGINES, hard_layer, soft_layer
from torch.export import Dim

from conv2attn import convert
from conv2attn.errors import EngineError
from conv2attn.layers.attention import ENGINES, Encoding, MultiHeadSelfAttention, set_engine
from conv2attn.testing import assert_same_output


def image_for(layer, batch=2, sides=(9, 12)):
    return torch.randn(batch, layer.d_in, *sides, generator=torch.Generator().manual_seed(sum(sides)))


def close(layer, image):
    """Twice the rounding of the channel product, which two orders of summation may differ by."""
    taps = layer.weights.taps().abs().sum().item() * image.abs().max().item()
    return 4 * (layer.heads * layer.d_in + 8) * 2.0**-24 * (taps + 1)


@pytest.mark.rotated
@pytest.mark.parametrize(("name", "engine"), HARD)
def test_an_exported_layer_is_the_layer_at_every_size(name, engine):
    layer = hard_layer(name, engine)
    dynamic = {0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}
    program = torch.export.export(layer, (image_for(layer),), dynamic_shapes=(dynamic,), strict=False)
    for batch, sides in ((2, (9, 12)), (3, (13, 8))):
        image = image_for(layer, batch, sides)
        assert_same_output(program.module()(image), layer(image), close(layer, image))


@pytest.mark.rotated
@pytest.mark.parametrize("engine", ENGINES)
def test_a_compiled_layer_is_one_graph_for_all_sizes(engine):
    torch.compiler.reset()
    layer, graphs = hard_layer("strided", engine), []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(layer, backend=counting, fullgraph=True, dynamic=True)
    for sides in ((9, 12), (20, 17)):
        image = image_for(layer, sides=sides)
        assert_same_output(compiled(image), layer(image), close(layer, image))
    assert len(graphs) == 1


@pytest.mark.parametrize("engine", ["auto", "conv", "gather"])
def test_a_layer_is_compiled_before_its_first_call(engine):
    """Nothing that an eager call would have computed and kept is missed: no other test has such a kernel."""
    torch.compiler.reset()
    kernel = {"auto": (1, 5), "conv": (5, 1), "gather": (1, 7)}[engine]
    layer = set_engine(convert(torch.nn.Conv2d(2, 3, kernel, dilation=3)).requires_grad_(False), engine)
    image = torch.randn(1, 2, 20, 20)
    found = torch.compile(layer, backend="eager", fullgraph=True)(image)
    assert_same_output(found, layer(image), close(layer, image))


def test_sdpa_is_compiled_after_a_first_call():
    """The longest side that its features allow is known by then, whoever set the engine."""
    torch.compiler.reset()
    encoding = Encoding.of("quadratic", [[0.3, -1.2]], 0.7).learn(False)
    layer = MultiHeadSelfAttention(2, 3, encoding, engine="sdpa").requires_grad_(False)
    image = torch.randn(1, 2, 6, 5)
    expected = layer(image)
    assert_same_output(torch.compile(layer, backend="eager", fullgraph=True)(image), expected, close(layer, image))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_layer_without_numbers_gives_shapes(name, engine):
    """On the meta device, where reading a value raises."""
    layer = hard_layer(name, engine).to("meta")
    image = torch.empty(2, layer.d_in, 9, 12, device="meta", requires_grad=True)
    layer(image).sum().backward()
    assert image.grad.shape == image.shape
    assert layer.attention(image).shape[:2] == (1, layer.heads)


@pytest.mark.parametrize("engine", ["auto", "separable", "dense"])
def test_a_compiled_layer_can_be_trained(engine):
    """Its graph rests on no value of centres and sharpness, so that it serves them after a step too."""
    torch.compiler.reset()
    layer = soft_layer(engine)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    image = image_for(layer)
    compiled(image).square().mean().backward()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    assert_same_output(compiled(image).detach(), layer(image).detach(), 8 * close(layer, image))


def test_a_layer_from_which_nothing_was_derived_is_not_traced():
    layer = hard_layer("plain", "conv")
    layer.encoding.derived.clear()
    with pytest.raises(EngineError, match="C2A203 attention: no facts were derived from its centres and sharpness"):
        torch.export.export(layer, (image_for(layer),), strict=False)


def test_the_law_of_subnormals_rejects_a_plain_softmax(monkeypatch):
    """Planted: the softmax of torch, which leaves subnormal weights."""
    monkeypatch.setattr(
        "conv2attn.layers.attention.engines.dense.cut_softmax", lambda scores: torch.softmax(scores, -1)
    )
    attention = soft_layer("dense", 1.0).attention(sides=(19, 17))
    assert ((attention != 0) & (attention < torch.finfo(torch.float32).tiny)).any()


@pytest.mark.parametrize("engine", SOFT_ENGINES)
def test_soft_engines_agree_traced_and_eager(engine):
    layer = soft_layer(engine).requires_grad_(False)
    layer.encoding.learn(False)
    layer.prepare()
    program = torch.export.export(
        layer, (image_for(layer),), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},), strict=False
    )
    image = image_for(layer, 3, (13, 8))
    assert_same_output(program.module()(image), layer(image), 8 * close(layer, image))


def test_parameters_are_stored_plainly():
    """So that optimisers, pruning, and safetensors, which flatten them, work."""
    layer = hard_layer("plain", "auto")
    assert all(parameter.is_contiguous() for parameter in layer.parameters())
    vector = torch.nn.utils.parameters_to_vector(layer.parameters())
    torch.nn.utils.vector_to_parameters(vector, layer.parameters())


def test_a_layer_is_one_node_of_a_symbolic_trace():
    network = torch.nn.Sequential(hard_layer("plain", "auto"), torch.nn.ReLU())
    graph = torch.fx.symbolic_trace(network)
    assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == ["0", "1"]
    image = image_for(network[0])
    assert_same_output(graph(image), network(image))
