"""The graph of a network: the operators between its layers for every size of input, and what its code asks of sizes."""

import logging
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.export import Dim, ExportedProgram
from torch.export.exported_program import _get_shape_env
from torch.fx.experimental import _config as symbolic
from torch.fx.experimental.symbolic_shapes import ShapeGuardPythonPrinter
from torch.nn.parameter import is_lazy

from conv2attn.arguments import export_shapes
from conv2attn.equality.context.opaque import NORM, OPAQUE, Layer, opaque, readable_layers
from conv2attn.errors import Conv2AttnError
from conv2attn.models.conversion.redirection import CHILD

NO_GRADIENTS = torch.ops.higher_order.wrap_with_set_grad_enabled
PAD_OPERATORS = (torch.ops.aten.pad.default, torch.ops.aten.constant_pad_nd.default)
AXES = {0: (), 1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
PACKAGE = Path(__file__).parents[2]
OWN = tuple(map(str, (Path(torch.__file__).parent, PACKAGE / "equality", PACKAGE / "models" / "conversion")))
SIZE_OF_INPUT = re.compile(r"L\['?\w+'?\](?:\['?\w+'?\])*\.size\(\)\[(\d+)\]")
BARE = r"((?!==|!=|<|>| and | or ).)+"
NONEMPTY = re.compile(rf"{BARE} (>= 0|>= 1|!= 0)( and {BARE} (>= 0|>= 1|!= 0))*")


class Unexported(Exception):
    """A network has no graph, the `first` of two or another; the reason, with the line of its code."""

    first = False


@final
@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """The operators of a network in the order in which they run, and for which sizes of input they are what runs.

    Args:
        module: one node for each operator; the parameters and buffers are inputs.
        layers: those that the opaque nodes number; `refused` says why others are not opaque.
        constants: the parameters, buffers and other tensors by the names of the nodes that stand for them, each with
            the name that the network has for it.
        spec: the structure of what is returned; `image` is the name of the node of the input.
        guards: what the code asks of the sizes, in words; beyond that no map may be empty.
    """

    module: fx.GraphModule
    layers: list[Layer]
    refused: Mapping[str, Conv2AttnError]
    constants: Mapping[str, tuple[Tensor, str]]
    spec: Any
    guards: tuple[str, ...]
    image: str = ""

    @property
    def nodes(self) -> Iterator[fx.Node]:
        """The operators."""
        return (node for node in self.module.graph.nodes if node.op not in ("placeholder", "output"))

    @property
    def fixed(self) -> bool:
        """Whether it holds for one size of input only."""
        (image,) = (node for node in self.module.graph.nodes if node.name == self.image)
        return isinstance(image.meta["val"].shape[0], int)

    @property
    def changes(self) -> bool:
        """Whether some operator may change a tensor in place."""
        schemas = map(operator_schema, self.nodes)
        return any(each is not None and (each.is_mutable or "norm" in each.name) for each in schemas)

    @property
    def opaque(self) -> Iterator[tuple[fx.Node, Layer]]:
        """The opaque nodes, each with its layer."""
        return ((node, self.layers[number_of(node)]) for node in self.nodes if node.target is OPAQUE)

    @property
    def compared(self) -> list[Layer]:
        """The layers that are modules, and the functions that are called, calls that are one layer once."""
        called = {layer for _, layer in self.opaque}
        return [layer for layer in self.layers if layer.function is None or layer in called]

    @property
    def returned(self) -> list[fx.Node]:
        """The nodes whose values are returned, in their order."""
        (output,) = (node for node in self.module.graph.nodes if node.op == "output")
        return list(output.args[0])


def number_of(node: fx.Node) -> int:
    """The number of the layer of an opaque node."""
    number = node.args[3]
    assert isinstance(number, int)
    return number


def name_of(function: Any) -> str:
    """The name of an operator of torch without its overload; with its namespace if it is somebody else's."""
    schema = getattr(function, "_schema", None)
    return (
        str(schema.name).removeprefix("aten::") if schema is not None else str(getattr(function, "__name__", function))
    )


def arguments_of(node: fx.Node, value: Callable[[fx.Node], Any]) -> dict[str, Any]:
    """The arguments of a call by the names of its schema, defaults filled in, with the `value` of each node."""
    args, kwargs = tuple[Any, Any](fx.map_arg((node.args, node.kwargs), value))
    defaults = {each.name: each.default_value for each in operator_schema(node).arguments}
    return defaults | dict(zip(defaults, args, strict=False)) | kwargs


def written_by(node: fx.Node) -> list[str]:
    """The names of the arguments that an operator changes in place."""
    arguments = operator_schema(node).arguments
    return [each.name for each in arguments if each.alias_info is not None and each.alias_info.is_write]


def operator_schema(node: fx.Node) -> Any:
    """The schema of an operator; None for what is no operator of torch."""
    return getattr(node.target, "_schema", None)


class Root(nn.Module):
    """A network under another module: of a graph module at the root torch.export runs neither hooks nor forward."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Any:
        """The outputs of the network."""
        return self.network(image)


def graph_of(network: nn.Module, images: Tensor, *, every_size: bool = True) -> OperatorGraph:
    """The graph of `network`.

    Args:
        images: (batch, channels, *sides), of which only shape and dtype count; the number of axes and channels stay.
        every_size: whether batch and sides are unknown, so that the graph holds for all of them.
    Raises:
        Unexported: there is none.
    """
    for name, each in [*network.named_parameters(), *network.named_buffers()]:
        if is_lazy(each):
            raise Unexported(f"{name} has no numbers yet: the layer is lazy and has not seen an input")
    dynamic = {axis: Dim.AUTO for axis in range(images.ndim) if axis != 1} if every_size else {}
    layers, refused = readable_layers(network)
    try:
        with opaque(network, layers):
            root = Root(network) if isinstance(network, fx.GraphModule) else network
            program = exported(root, images, dynamic)
        module = program.graph_module
        if any("_functorch" in str(getattr(node.target, "__module__", "")) for node in module.graph.nodes):
            raise NotImplementedError("its code calls torch.vmap or torch.func, under which a tensor has no memory")
        constants = constants_of(program)
        flatten(module.graph)
        join_pads(module.graph, layers)
        read_calls(module.graph, layers, constants)
        for node in module.graph.nodes:
            node.target = torch.ops.aten.batch_norm.default if node.target is NORM else node.target
        guards = guards_of(program, images, dynamic)
    except Exception as error:  # the network's own code may raise anything, and so may the export
        raise Unexported(reason_of(error)) from error
    (image,) = program.graph_signature.user_inputs
    return OperatorGraph(module, layers, refused, constants, program.call_spec.out_spec, guards, str(image))


def exported(network: nn.Module, images: Tensor, dynamic: Mapping[int, Any]) -> ExportedProgram:
    """The program of `network`; code between the operators runs as it is, sizes of 0 and 1 are not special.

    What torch logs and prints of an export that fails is left out: the error names the line.
    """
    with (
        warnings.catch_warnings(action="ignore"),
        unlogged("torch.fx.experimental.symbolic_shapes"),
        unlogged("torch._subclasses.fake_tensor"),
        redirect_stderr(StringIO()),
        symbolic.patch(backed_size_oblivious=True),  # type: ignore[attr-defined]
        sizes_as_text(),
        torch.random.fork_rng(),
        torch.no_grad(),
    ):
        shapes = export_shapes(network, dict(dynamic))
        return torch.export.export(network, (images,), dynamic_shapes=shapes, strict=False)


@contextmanager
def unlogged(name: str) -> Iterator[None]:
    """Nothing is logged under this name."""
    logger = logging.getLogger(name)
    logger.disabled, before = True, logger.disabled
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def sizes_as_text() -> Iterator[None]:
    """While active, a size that the user's code turns into text is that of the images, and the graph is for it alone.

    Otherwise the key of a cache, such as f"{height}x{width}", is one that no call without export has.
    """

    def fixed(method: str) -> Any:
        original = getattr(torch.SymInt, method)

        def text(size: Any, *rest: Any) -> Any:
            file = sys._getframe(1).f_code.co_filename
            own = file.startswith(OWN) or "sympy" in file
            return original(size, *rest) if own else getattr(int, method)(int(size), *rest)

        return text

    methods = ("__str__", "__repr__", "__format__")
    with ExitStack() as stack:
        for method in methods:
            own = method in vars(torch.SymInt)
            before = getattr(torch.SymInt, method)
            stack.callback(*((setattr, torch.SymInt, method, before) if own else (delattr, torch.SymInt, method)))
            setattr(torch.SymInt, method, fixed(method))
        yield


def constants_of(program: ExportedProgram) -> dict[str, tuple[Tensor, str]]:
    """The constants of a program by the names of their nodes, with the names that the network has for them.

    Raises:
        NotImplementedError: one is sparse, quantised or nested, or of a transform of torch.func.
    """
    signature, tensors = program.graph_signature, {**program.state_dict, **program.constants}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    constants = {node: (tensors[name], name) for node, name in names.items() if isinstance(tensors.get(name), Tensor)}
    for tensor, name in constants.values():
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            raise NotImplementedError(f"{name} is a sparse, quantised or nested tensor")
        if is_functorch_wrapped_tensor(tensor):
            raise NotImplementedError(f"{name} is computed by a transform of torch.func")
    return constants


def flatten(graph: fx.Graph) -> None:
    """Puts the operators of each block without gradients where the block stands: they compute the same numbers."""
    for node in list(graph.nodes):
        if node.target is not NO_GRADIENTS:
            continue
        inner: Any = node.args[1]
        inputs = node.args[2:]
        block = getattr(graph.owning_module, inner.target)
        flatten(block.graph)
        places = [each for each in block.graph.nodes if each.op == "placeholder"]
        with graph.inserting_before(node):
            results = graph.graph_copy(block.graph, dict(zip(places, inputs, strict=True)))
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index]
            graph.erase_node(user)
        graph.erase_node(node)
        if not inner.users:
            graph.erase_node(inner)


def join_pads(graph: fx.Graph, layers: list[Layer]) -> None:
    """Makes zeros around an image that a function alone reads, at once, part of the function."""
    for node in (each for each in graph.nodes if each.target is OPAQUE and each.args[1] is not None):
        layer, pad = layers[number_of(node)], node.args[0]
        if pad.target not in PAD_OPERATORS or pad is not node.prev or pad.kwargs or {*pad.users} != {node}:
            continue
        image, amounts, *rest = pad.args
        zeros = all(each in ("constant", None, 0) for each in rest)
        grid = 0 < len(amounts) <= 2 * (node.args[1].meta["val"].ndim - 2) and all(
            type(each) is int for each in amounts
        )
        if zeros and grid and min(amounts) >= 0 and "transpose" not in layer.name:
            layer.pad = (pad.target, amounts, *rest)
            node.replace_input_with(pad, image)
            graph.erase_node(pad)


def read_calls(graph: fx.Graph, layers: list[Layer], constants: Mapping[str, tuple[Tensor, str]]) -> None:
    """Names the functions after the modules that call them, and reads their weights where these are constants.

    Calls of one function in one module, with the same arguments and the same constants, are one layer.
    """
    numbers: dict[Any, int] = {}
    for node in (each for each in graph.nodes if each.target is OPAQUE and each.args[1] is not None):
        number = number_of(node)
        layer, tensors = layers[number], tuple[Any, Any](node.args[1:3])
        owner = enclosing_module(node).partition(CHILD)[0].rstrip(".") or "(root)"
        values: list[Any] = [each and constants.get(each.name, (None, ""))[0] for each in tensors]
        fixed = all((each is None) == (tensor is None) for each, tensor in zip(tensors, values, strict=True))
        shape = tuple(tensors[0].meta["val"].shape)
        key = (
            owner,
            layer.name,
            repr(layer.options),
            shape,
            id(layer.module),
            [id(each) for each in values if fixed],
            layer.pad,
        )
        first = numbers.setdefault(repr(key), number)
        node.update_arg(3, first)
        if first == number:
            layer.like, layer.name = tensors[0].meta["val"], f"{owner}:{layer.name}"
            same = sum(each.name.partition("#")[0] == layer.name for each in layers[:number])
            layer.name += f"#{same + 1}" if same else ""
            if fixed:
                layer.tensors = values[0], values[1]
                layer.basis = layer.basis_with(*values)


def enclosing_module(node: fx.Node) -> str:
    """The name of the innermost module that an operator runs in; empty for the network itself."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next((path for path, _ in reversed(list(stack.values())) if path), ""))
    wrapped = any(str(kind).endswith(Root.__qualname__) for path, kind in stack.values() if not path)
    return path.removeprefix("network").removeprefix(".") if wrapped else path


def guards_of(program: ExportedProgram, images: Tensor, dynamic: Mapping[int, Any]) -> tuple[str, ...]:
    """The conditions of the code on sizes, in words: fixed sizes, guards, and axes that a squeeze may remove."""
    count = images.ndim
    sizes = [SIZE_OF_INPUT.sub(lambda each: axis_name(int(each[1]), count), guard) for guard in conditions_of(program)]
    if not dynamic:
        sizes.append("inputs " + "x".join(map(str, images.shape)) + " only")
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            shape = getattr(node.meta.get("val"), "shape", ())
            fixed = [(axis, side) for axis, side in enumerate(shape) if axis in dynamic and isinstance(side, int)]
            sizes += [f"{axis_name(axis, count)} == {side}" for axis, side in fixed]
        if "aten.squeeze" in str(node.target) and squeezes_unknown(node):
            sizes.append("sizes above 1 where they are squeezed")
    return tuple(dict.fromkeys(sizes))


def conditions_of(program: ExportedProgram) -> Iterator[str]:
    """The conditions that the code sets on sizes, as Python expressions.

    An operator of torch fails on a map that is empty; its condition that none is empty is left out. Code that asks the
    same itself may take another way, so that its condition counts.
    """
    environment = _get_shape_env(program.graph_module)
    if environment is None:
        return
    names = environment.var_to_sources
    printer = ShapeGuardPythonPrinter(names, lambda source: source.name, names)
    for guard in environment.guards:
        if guard.expr.free_symbols <= {*names}:
            code, place = printer.doprint(guard.expr), guard.sloc.framework_loc
            of_operator = str(getattr(place, "filename", "")).startswith(OWN)
            if not (of_operator and NONEMPTY.fullmatch(code)) and "L['self']" not in code:
                yield code


def axis_name(axis: int, count: int) -> str:
    """The name of an axis of the images."""
    if axis == 0:
        return "batch"
    return AXES[count - 2][axis - 2] if count - 2 in AXES else f"axis {axis}"


def squeezes_unknown(node: fx.Node) -> bool:
    """Whether a squeeze may remove an axis or not, as the size of the input decides."""
    axes, sides = node.args[1:], getattr(node.args[0].meta.get("val"), "shape", ())  # type: ignore[union-attr]
    joined: Any = axes[0] if axes else range(len(sides))
    return any(not isinstance(sides[axis], int) for axis in ([joined] if isinstance(joined, int) else joined))


def own_line(node: fx.Node) -> str:
    """The line of the user's code that a node comes from, as ` (file:line: code)`; empty if it is not known."""
    return line_in(str(node.meta.get("stack_trace") or ""))


def line_in(trace: str) -> str:
    """The last line of a printed stack that is neither torch's nor this package's."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', trace)
    own = [frame for frame in frames if not frame[0].startswith(OWN)]
    if not own:
        return ""
    file, number, code = own[-1]
    return f" ({Path(file).name}:{number}: {code.strip()[:60]})"


def reason_of(error: Exception) -> str:
    """The reason why a network could not be exported, and the line of its code."""
    text = str(error)
    why = f"{type(error).__name__}: {text.strip().partition(chr(10))[0][:160]}"
    if "data-dependent" in text:
        why = "its code branches on values"
    return f"{why}{line_in(text) or line_in(''.join(traceback.format_tb(error.__traceback__)))}"
