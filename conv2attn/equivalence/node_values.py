"""The numbers of two graphs at the first node that differs: both run with the layers of the first network."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from conv2attn.equivalence.differential import alone
from conv2attn.equivalence.graph import Graph
from conv2attn.equivalence.opaque import CALL, LAYER, Calls

SUMS = {1: nn.functional.conv1d, 2: nn.functional.conv2d, 3: nn.functional.conv3d}


class Reached(Exception):
    """The node was computed."""

    def __init__(self, value: Any):
        super().__init__()
        self.value = value


class UpTo(fx.Interpreter):
    """Runs a graph up to one node, with real layers in place of the opaque ones."""

    def __init__(self, graph: Graph, layers: Mapping[int, nn.Module], calls: Calls, wanted: str):
        super().__init__(graph.program.graph_module)
        self.layers, self.calls, self.wanted = layers, calls, wanted

    def run_node(self, n: fx.Node) -> Any:
        """Computes one node; stops after the one that is wanted."""
        value = super().run_node(n)
        if n.name == self.wanted:
            raise Reached(value)
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes one operator; an opaque one by the layer that it hides."""
        if target is LAYER:
            return alone(self.layers[args[1]], args[0])
        if target is CALL:
            image, weight, bias, number = args[:4]
            known = self.calls.convolutions[number]
            options = {"stride": known.stride, "dilation": known.dilation, "groups": known.groups}
            return SUMS[len(known.stride)](known.padding.pad(image), weight, bias, **options)
        return super().call_function(target, args, kwargs)


def value_at(graph: Graph, wanted: str, layers: Mapping[int, nn.Module], calls: Calls, images: Tensor) -> Any:
    """The value of a node of a graph on some images; None if it is not reached."""
    inputs, constants = set(graph.program.graph_signature.user_inputs), graph.constants
    given = [
        images if node.name in inputs else constants.get(node.name)
        for node in graph.program.graph.nodes
        if node.op == "placeholder"
    ]
    copies = [each.detach().clone() if isinstance(each, Tensor) else each for each in given]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            UpTo(graph, layers, calls, wanted).run(*copies)
    except Reached as reached:
        return reached.value
    return None


def both_values(
    graphs: tuple[Graph, Graph], names: tuple[str, str], layers: Mapping[int, nn.Module], calls: Calls, images: Tensor
) -> str:
    """The numbers of two graphs at one node each, where they differ most, as ` (...)`; empty if they are not known."""
    try:
        pairs = zip(graphs, names, strict=True)
        first, second = (value_at(graph, name, layers, calls, images) for graph, name in pairs)
    except Exception:  # an operator may refuse these images
        return ""
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        return ""
    if first.shape != second.shape:
        return f" (its shape is {tuple(second.shape)}, not {tuple(first.shape)})"
    ours, theirs = first.double(), second.double()
    gap = (theirs - ours).abs().nan_to_num(torch.inf)
    if not gap.numel() or not gap.max():
        return " (both compute the same numbers here)"
    place = tuple(int(i) for i in torch.unravel_index(gap.argmax(), gap.shape))
    return f" (at {place} it computes {theirs[place].item():.9g}, not {ours[place].item():.9g})"
