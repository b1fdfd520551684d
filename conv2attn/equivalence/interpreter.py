"""An abstract interpreter: the graph of a network is run once, and beside each number stands a bound for all inputs.

Every number that a network computes is described by how large it can be (`size`) and by how much the second network's
can differ from the first's (`error`), both for all finite inputs in the range. The graphs of both are equal, so that an
error passes through each operator by a rule of its own, and each side rounds. On deep networks the bound is vacuous.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from conv2attn.attention.hardness import FORMATS
from conv2attn.bounds import format_of
from conv2attn.equivalence.arithmetic import gradual_underflow
from conv2attn.equivalence.domain import SLACK, Carried, LayerRule, Stop
from conv2attn.equivalence.graph import Graph
from conv2attn.equivalence.nodes import module_of, nodes_of
from conv2attn.equivalence.opaque import LAYER
from conv2attn.equivalence.outputs import leaves
from conv2attn.equivalence.rules import RULES, Call
from conv2attn.equivalence.rules.registry import name_of, tensors_in
from conv2attn.errors import UsageError

MAKING = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")
SHAPES = ("sym_size", "sym_numel", "sym_stride", "_assert_tensor_metadata", "_assert_scalar", "_assert_async")


def propagate(
    graph: Graph, layers: Mapping[int, LayerRule], images: Tensor, input_range: float
) -> tuple[float | None, str]:
    """The bound on the difference of the outputs for one image within +-input_range, or None and where it stops.

    The largest of all outputs. What the network does must not depend on its numbers: a graph shows that it does not.
    Where subnormal numbers are flushed none is given, since what is lost then without any rounding is not counted.

    Args:
        layers: for the numbers of the compared layers, how what goes in becomes what comes out.
        images: one of them is run, for the shapes.
    """
    if not math.isfinite(input_range):
        return None, "inputs that are not finite"
    with gradual_underflow() as flushing:
        if flushing:
            return None, "numbers that are flushed to zero"
    try:
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng():
            bound = Run(graph, layers).bound(images[:1], input_range)
    except Stop as stop:
        return None, stop.where
    except Exception as error:  # an operator may refuse a single image
        return None, f"an error ({type(error).__name__})"
    return (bound, "") if math.isfinite(bound) else (None, "an infinite bound")


def repeats(first: Graph, second: Graph) -> bool:
    """Whether two equal graphs run the same operators, none of them random, on the same numbers in the same layout.

    Vectorised sums depend on addresses too, up to 64 bytes.
    """
    ours, theirs = (tuple(nodes_of(graph.program)) for graph in (first, second))
    if [node.key for node in ours] != [node.key for node in theirs]:
        return False
    mine, others = (
        [(held.stride(), held.data_ptr() % 64) for node in nodes for held in map(graph.constant, dict(node.constants))]
        for graph, nodes in ((first, ours), (second, theirs))
    )
    inside = [each for each in first.program.graph_module.modules() if isinstance(each, fx.GraphModule)]
    return mine == others and not any(is_random(node) for each in inside for node in each.graph.nodes)


class Run:
    """One run of a graph on an image of zeros; the bounds of what comes from the image are kept beside it."""

    def __init__(self, graph: Graph, layers: Mapping[int, LayerRule]):
        self.graph, self.layers = graph, layers
        self.values: dict[fx.Node, Any] = {}
        self.known: dict[int, Carried] = {}
        self.last: dict[fx.Node, fx.Node] = {}
        for node in graph.program.graph.nodes:
            for each in node.all_input_nodes:
                self.last[each] = node

    def bound(self, image: Tensor, input_range: float) -> float:
        """The largest error of all that the network returns for an image within +-input_range."""
        program = self.graph.program
        inputs = set(program.graph_signature.user_inputs)
        constants = self.graph.constants
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = torch.zeros_like(image) if node.name in inputs else constants.get(node.name)
                if node.name in inputs:
                    size = torch.full((1,) * image.ndim, input_range, dtype=torch.float64)
                    self.known[id(self.values[node])] = Carried(size, torch.zeros_like(size))
            elif node.op == "output":
                return self.largest_error(node, set(program.graph_signature.user_outputs))
            elif node.op == "call_function":
                self.step(node)
            else:
                raise Stop("a graph inside the graph")
            self.forget(node)
        raise Stop("a graph without outputs")

    def largest_error(self, node: fx.Node, returned: set[str]) -> float:
        """The largest error of the outputs that the network returns; updates of buffers are none."""
        outputs = [self.values[each] for each in node.all_input_nodes if each.name in returned]
        tensors = [tensor for output in outputs for _, tensor in leaves(output)]
        if not tensors:
            raise Stop("an output without tensors")
        errors = [self.bounds(tensor).error.max().item() * SLACK for tensor in tensors]
        return math.inf if any(map(math.isnan, errors)) else max(errors)

    def bounds(self, tensor: Tensor) -> Carried:
        """The bounds of a tensor; one that does not come from the image is the same in both networks."""
        found = self.known.get(id(tensor))
        return Carried.of_constant(tensor) if found is None else found

    def step(self, node: fx.Node) -> None:
        """Runs one operator and notes the bounds of what it returns."""
        try:
            self.values[node] = self.carried(node)
        except Stop as stop:
            inside = module_of(node)
            raise Stop(f"{stop.where} in {inside}" if inside else stop.where) from None
        except UsageError:
            raise Stop(f"the roundings of {name_of(node.target)}") from None

    def carried(self, node: fx.Node) -> Any:
        """Runs an operator and notes the bounds of its result."""
        args: Any
        kwargs: Any
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: self.values[each])
        function, name = node.target, name_of(node.target)
        computed = [tensor for tensor in tensors_in((args, kwargs)) if id(tensor) in self.known]
        written = tensors_written(function, args, kwargs)
        if any(all(tensor is not each for each in computed) for tensor in written):
            raise Stop("a change in place of what does not come from the image")
        value = function(*args, **kwargs)  # type: ignore[operator]
        if function is LAYER:
            if args[1] not in self.layers:
                raise Stop("a layer without a bound")
            self.note(value, self.layers[args[1]](self.bounds(args[0])))
            return value
        if not computed or name in SHAPES or (name in MAKING and len(computed) == 1):
            if not computed and is_random(node):
                raise Stop(f"{name}, which is random")
            return value
        if name == "getitem":
            return value
        if name not in RULES:
            raise Stop(name)
        for tensor in written:
            self.forget_views(tensor)
        given = schema_arguments(function, args, kwargs)
        known = dict(self.known)
        call = Call(function, given, value, self.bounds, lambda tensor: id(tensor) in known)
        found = RULES[name](call)
        for tensor, piece in zip(tensors_in(value), found if isinstance(found, list) else [found], strict=False):
            if not (fits(piece.size, tensor) and fits(piece.error, tensor)):
                raise Stop(f"{name}, whose bounds have another shape")
            self.note(tensor, piece.with_axes(tensor.ndim))
        for tensor in tensors_in(value):
            if id(tensor) not in self.known and tensor.is_floating_point():
                raise Stop(f"{name}, of which not all is bounded")
        return value

    def note(self, tensor: Tensor, bounds: Carried) -> None:
        """Keeps the bounds of a tensor, as long as they are numbers and the tensor does not overflow."""
        if not math.isfinite(bounds.reach):
            raise Stop("an infinite bound")
        if tensor.dtype in FORMATS and bounds.reach > format_of(FORMATS[tensor.dtype]).largest:
            raise Stop(f"numbers of up to {bounds.reach:.3g}, beyond {FORMATS[tensor.dtype]}")
        self.known[id(tensor)] = bounds

    def forget_views(self, changed: Tensor) -> None:
        """Stops where something else that is still to be read shares memory with a tensor that is changed in place."""
        place = changed.untyped_storage().data_ptr()
        for value in self.values.values():
            for other in tensors_in(value):
                if other is not changed and other.untyped_storage().data_ptr() == place:
                    raise Stop("a change in place of a part of a tensor")

    def forget(self, node: fx.Node) -> None:
        """Drops the values that no later operator reads."""
        for each in node.all_input_nodes:
            if self.last[each] is node:
                del self.values[each]
        alive = {id(tensor) for value in self.values.values() for tensor in tensors_in(value)}
        self.known = {key: bounds for key, bounds in self.known.items() if key in alive}


def is_random(node: fx.Node) -> bool:
    """Whether an operator may draw random numbers; dropout in evaluation mode draws none."""
    dropout = name_of(node.target) == "dropout" and node.args[2] is False
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not dropout


def tensors_written(function: Any, args: Any, kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a call changes in place, or is given to write to."""
    schema = getattr(function, "_schema", None)
    if schema is None or schema.name == "aten::detach_":  # which changes no number
        return []
    given = {**dict(zip([argument.name for argument in schema.arguments], args, strict=False)), **kwargs}
    names = [each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    return [tensor for name in names for tensor in tensors_in(given.get(name))]


def schema_arguments(function: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the schema, with their defaults."""
    schema = getattr(function, "_schema", None)
    if schema is None:
        raise Stop(name_of(function))
    names = [argument.name for argument in schema.arguments]
    given = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
    return {name: {**given, **dict(zip(names, args, strict=False)), **kwargs}[name] for name in names}


def fits(bound: Tensor, tensor: Tensor) -> bool:
    """Whether a bound broadcasts to the shape of a tensor."""
    missing = tensor.ndim - bound.ndim
    return missing >= 0 and all(
        side in (1, whole) for side, whole in zip(bound.shape, tensor.shape[missing:], strict=True)
    )
