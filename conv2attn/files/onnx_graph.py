"""A model of ONNX as a module of torch: one submodule a node, under the node's name, so that a place can be named."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.errors import CheckpointError, UnsupportedError, UsageError, first_line
from conv2attn.extras import optional
from conv2attn.files.onnx_operators import OPERATORS
from conv2attn.files.onnx_table import Plain, sized

OF_NO_TENSOR = ("ConstantOfShape", "Range", "SequenceAt")
"""Operators that are computed by their rows though no operand is a tensor."""
DOMAINS = ("", "ai.onnx")
STATISTICS = (("BatchNormalization", 3), ("BatchNormalization", 4))
"""Operands that do not train."""


@final
class OnnxNode(nn.Module):
    """One node: its operator, attributes, and the operands that the file stores.

    Args:
        stored: operands by position, as parameters; as plain arrays where they are settings.
    """

    def __init__(
        self, node: Any, attributes: Mapping[str, Any], opset: int, stored: Mapping[int, nn.Parameter | Plain]
    ):
        super().__init__()
        self.operator, self.attributes, self.opset = node.op_type, dict(attributes), opset
        self.inputs, self.outputs = list(node.input), list(node.output)
        self.settings = {place: value for place, value in stored.items() if not isinstance(value, nn.Parameter)}
        for place, value in stored.items():
            if isinstance(value, nn.Parameter):
                self.register_parameter(f"input_{place}", value)
        self.proto = node.SerializeToString()

    def forward(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs, by the values of all tensors computed so far."""
        operands = [self.operand(place, name, values) for place, name in enumerate(self.inputs)]
        if self.operator not in OF_NO_TENSOR and not any(isinstance(each, Tensor) for each in operands):
            return self.of_plain(operands)
        entry = OPERATORS[self.operator]
        device = next((each.device for each in operands if isinstance(each, Tensor)), None)
        arguments = (
            as_plain(each) if place in entry.settings else with_axes_as_tensor(each, device)
            for place, each in enumerate(operands)
        )
        given = {"name": self.operator, "opset": self.opset, "count": len(self.outputs), **self.attributes}
        result = entry.compute(*arguments, **{name: given[name] for name in entry.parameters if name in given})
        return result if isinstance(result, tuple) else (result,)

    def operand(self, place: int, name: str, values: Mapping[str, Any]) -> Any:
        """An operand: stored here, or computed; None where the node has none."""
        if place in self.settings:
            return self.settings[place]
        parameter = self._parameters.get(f"input_{place}")
        return parameter if parameter is not None else values[name] if name else None

    def of_plain(self, operands: Sequence[Plain | None]) -> tuple[Plain, ...]:
        """The outputs of plain arrays, computed by onnx itself."""
        if self.operator in ("Expand", "Tile") and operands[1] is not None:
            sized(operands[1])
        onnx = optional("onnx")
        node = onnx.NodeProto.FromString(self.proto)
        names = {name: value for name, value in zip(self.inputs, operands, strict=True) if name}
        inputs, outputs = (
            [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in each] for each in (names, self.outputs)
        )
        graph = onnx.helper.make_graph([node], "node", inputs, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)])
        return tuple(map(np.asarray, optional("onnx.reference").ReferenceEvaluator(model).run(None, names)))

    def extra_repr(self) -> str:
        return self.operator


def with_axes_as_tensor(value: Any, device: torch.device | None) -> Any:
    """A plain array as a tensor; one without axes stays, since torch takes a number there and keeps the dtype."""
    return tensor_of(value).to(device) if isinstance(value, np.ndarray) and value.ndim else value


def as_plain(value: Any) -> Plain | None:
    """A setting as a plain array: numbers of a tensor are read where a node computes them."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


@final
class OnnxGraph(nn.Module):
    """A model of ONNX whose operators are torch's, so that each is followed like those of any network.

    Args:
        sizes: of each input the sides that the file fixes; None where any may be.
    """

    def __init__(
        self,
        nodes: Mapping[str, OnnxNode],
        sizes: Mapping[str, Sequence[int | None]],
        stored: Mapping[str, Any],
        outputs: Sequence[str],
    ):
        super().__init__()
        self.sizes, self.outputs = {name: tuple(each) for name, each in sizes.items()}, tuple(outputs)
        for name, node in nodes.items():
            self.add_module(name, node)
        self.returned = {name: value for name, value in stored.items() if name in outputs}

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor | dict[str, Tensor]:
        """The output on inputs in the order of the file, or by name; several outputs by name.

        Raises:
            UsageError: an input has another shape than the file fixes (C2A120).
        """
        values: dict[str, Any] = {**dict(zip(self.sizes, inputs, strict=False)), **named, **self.returned}
        for name, sides in self.sizes.items():
            self.check(name, sides, values.get(name))
        for node in self.children():
            assert isinstance(node, OnnxNode)
            values.update(zip(node.outputs, node(values), strict=False))
        results = {
            name: values[name] if isinstance(values[name], Tensor) else torch.from_numpy(np.array(values[name]))
            for name in self.outputs
        }
        return results if len(results) > 1 else results[self.outputs[0]]

    def check(self, name: str, sides: Sequence[int | None], value: Any) -> None:
        """Refuses an input that is missing or of another shape than the file fixes."""
        shape = tuple(value.shape) if isinstance(value, Tensor) else ()
        fits = len(shape) == len(sides) and all(a in (None, b) for a, b in zip(sides, shape, strict=True))
        if not isinstance(value, Tensor) or not fits:
            taken = "x".join("?" if side is None else str(side) for side in sides)
            reason = f"the ONNX model does not take {name} {'x'.join(map(str, shape)) or 'of no shape'}"
            raise UsageError("C2A120", reason, f"Pass --input-size or --inputs of {taken}.")


def graph_of(model: Any) -> OnnxGraph:
    """The module of a model.

    Raises:
        UnsupportedError: it has an operator, an attribute or an opset that no row of the table honours (C2A110).
    """
    model = inlined(model)
    opset = max((each.version for each in model.opset_import if each.domain in DOMAINS), default=1)
    stored = {each.name: array_of(each) for each in model.graph.initializer}
    if model.graph.sparse_initializer:
        raise unread("sparse weights")
    used = {name for node in model.graph.node for name in node.input} | {each.name for each in model.graph.output}
    parameters, nodes, counts = dict[int, nn.Parameter](), dict[str, OnnxNode](), Counter[str]()
    unchanged = casts_without_effect(model)
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Constant":
            stored[node.output[0]] = constant(node.attribute[0])
            continue
        if node.op_type == "Identity" and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
            continue
        if node.op_type == "Cast" and node.output[0] in unchanged:
            node.op_type = "Identity"
            node.ClearField("attribute")
        if node.domain not in DOMAINS or node.op_type not in OPERATORS:
            raise unread(f"the operator {node.op_type}")
        attributes = dict(attributes_of(node, opset))
        check_node(node, attributes, opset, used)
        name = node.name.strip("/").replace(".", "_").replace("/", "_") or f"{node.op_type}_{number}"
        counts[name] += 1
        unique = name if counts[name] == 1 and not hasattr(nn.Module, name) else f"{name}_{number}"
        nodes[unique] = OnnxNode(node, attributes, opset, dict(stored_operands(node, stored, parameters)))
    inputs = [each for each in model.graph.input if each.name not in stored]
    sizes = {
        each.name: [side.dim_value if side.HasField("dim_value") else None for side in each.type.tensor_type.shape.dim]
        for each in inputs
    }
    return OnnxGraph(nodes, sizes, stored, [each.name for each in model.graph.output]).eval()


def inlined(model: Any) -> Any:
    """The model with functions in place of their calls: its own, and onnx's for operators without a row."""
    inliner = optional("onnx.inliner")
    try:
        return inliner.inline_selected_functions(model, [("", name) for name in OPERATORS], True, True)
    except (RuntimeError, ValueError, TypeError) as error:
        raise unread(f"functions that onnx does not inline ({type(error).__name__})") from error


def casts_without_effect(model: Any) -> set[str]:
    """The outputs of casts to the type that their operand has in the file.

    Exporters write one for `x.to(dtype)`. It would hold the rest of a network that was made float64 in float32.
    """
    casts = [node for node in model.graph.node if node.op_type == "Cast"]
    if not casts:
        return set()
    graph = optional("onnx.shape_inference").infer_shapes(model).graph
    types = {each.name: each.type.tensor_type.elem_type for each in (*graph.input, *graph.value_info)}
    wanted = {node.output[0]: each.i for node in casts for each in node.attribute if each.name == "to"}
    return {node.output[0] for node in casts if types.get(node.input[0]) == wanted.get(node.output[0], -1)}


def stored_operands(
    node: Any, stored: Mapping[str, Plain], parameters: dict[int, nn.Parameter]
) -> Iterator[tuple[int, Any]]:
    """The operands of a node that the file stores, by position; numbers of the map as parameters, each made once."""
    settings, alone = OPERATORS[node.op_type].settings, all(name in stored or not name for name in node.input)
    for place, name in enumerate(node.input):
        if name not in stored:
            continue
        array = stored[name]
        if place in settings or alone or array.ndim == 0 or array.dtype.kind in "biuOUS":
            yield place, array
        else:
            if id(array) not in parameters:
                trained = array.dtype.kind == "f" and (node.op_type, place) not in STATISTICS
                parameters[id(array)] = nn.Parameter(tensor_of(array), requires_grad=trained)
            yield place, parameters[id(array)]


def tensor_of(array: Plain) -> Tensor:
    """An array as a tensor of its own memory; NumPy's bfloat16 is no type of its own."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def array_of(tensor: Any) -> Plain:
    """A stored tensor as an array.

    Raises:
        CheckpointError: it does not have the elements that it claims, or their type is none (C2A303).
    """
    try:
        array: Plain = optional("onnx.numpy_helper").to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        reason = f"the weight {tensor.name[:80]} claims other elements than are stored ({first_line(error)[:80]})"
        raise CheckpointError("C2A303", reason, "Export the network again.") from error
    return array


def constant(attribute: Any) -> Plain:
    """The array of a Constant, by its one attribute."""
    value = plain_attribute(attribute)
    dtypes: dict[str, Any] = {"value": None, "value_int": np.int64, "value_ints": np.int64}
    dtypes |= {"value_float": np.float32, "value_floats": np.float32}
    if attribute.name not in dtypes:
        raise unread(f"a Constant with {attribute.name}")
    return np.array(value, dtype=dtypes[attribute.name])


def attributes_of(node: Any, opset: int) -> Iterator[tuple[str, Any]]:
    """The attributes of a node as plain values, those included that its operator has where the node says nothing."""
    defs = optional("onnx").defs
    defaults = {n: each.default_value for n, each in defs.get_schema(node.op_type, opset).attributes.items()}
    for name, each in {**{n: v for n, v in defaults.items() if v.type}, **{a.name: a for a in node.attribute}}.items():
        yield name, plain_attribute(each)


def plain_attribute(attribute: Any) -> Any:
    """An array of a tensor, a dtype of torch, a text, or numbers.

    What a file keeps in float32 is read as the shortest decimal that rounds to it: 1e-5, not 9.99999975e-06.
    """
    onnx = optional("onnx")
    value, kinds = onnx.helper.get_attribute_value(attribute), onnx.AttributeProto
    if attribute.type == kinds.TENSOR:
        return array_of(value)
    if attribute.name == "to":
        name = onnx.TensorProto.DataType.Name(value)
        if name not in DTYPES:
            raise unread(f"a Cast to {name}")
        return DTYPES[name]
    plain: dict[Any, Any] = {kinds.STRINGS: bytes.decode, kinds.FLOATS: decimal}
    if attribute.type in plain:
        return [plain[attribute.type](each) for each in value]
    return value.decode() if isinstance(value, bytes) else decimal(value) if isinstance(value, float) else value


def decimal(value: float) -> float:
    """The shortest decimal that rounds to this number in float32."""
    return float(str(np.float32(value)))


DTYPES = {
    "FLOAT": torch.float32,
    "DOUBLE": torch.float64,
    "FLOAT16": torch.float16,
    "BFLOAT16": torch.bfloat16,
    "INT64": torch.int64,
    "INT32": torch.int32,
    "INT16": torch.int16,
    "INT8": torch.int8,
    "UINT8": torch.uint8,
    "BOOL": torch.bool,
}


def check_node(node: Any, attributes: Mapping[str, Any], opset: int, used: Set[str]) -> None:
    """Refuses a node that no row of the table honours.

    Args:
        used: the names of tensors that something reads.
    Raises:
        UnsupportedError: C2A110.
    """
    entry = OPERATORS[node.op_type]
    if opset < entry.least:
        raise unread(f"{node.op_type} of opset {opset}")
    if given := [place for place in entry.absent if place < len(node.input) and node.input[place]]:
        raise unread(f"operand {given[0] + 1} of {node.op_type}")
    if used & {*node.output[entry.outputs :]}:
        raise unread(f"output {entry.outputs + 1} of {node.op_type}")
    for name, value in attributes.items():
        if name not in entry.parameters or value not in entry.only.get(name, [value]):
            raise unread(f"{node.op_type} with {name}={value}")


def unread(what: str) -> UnsupportedError:
    """The error for a model with a part that the table does not have."""
    return UnsupportedError("C2A110", f"{what} is not read as an operator of torch", "Run the file by onnxruntime.")
