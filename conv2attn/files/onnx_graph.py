"""An ONNX model as a torch module: one submodule per node, under the node's name, so that places have names."""

import inspect
import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from types import FunctionType
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.errors import CheckpointError, UnsupportedError, UsageError, first_line
from conv2attn.extras import optional
from conv2attn.files.onnx_operators import HONOURED, OPERATORS
from conv2attn.files.onnx_shapes import MADE, SHAPES, Plain, sized
from conv2attn.torch_internals import tree_leaves

OPSET = 18
"""The opset of the table; onnx converts older files to it."""
DOMAINS = ("", "ai.onnx")


@final
class OnnxNode(nn.Module):
    """One node: its operator and the attributes of its row. Trainable operands are parameters."""

    def __init__(self, node: Any, attributes: Mapping[str, Any]):
        super().__init__()
        self.operator, self.attributes = node.op_type, attributes
        self.inputs, self.outputs = list(node.input), list(node.output)
        self.proto = node.SerializeToString()

    def forward(self, *operands: Any) -> tuple[Any, ...]:
        """The outputs; an operand stored here replaces the passed one."""
        operands = tuple(self._parameters.get(f"input_{place}", value) for place, value in enumerate(operands))
        device = next((part.device for part in tree_leaves(operands) if isinstance(part, Tensor)), None)
        if device is None or self.operator not in OPERATORS:
            return self.of_plain([value.numpy() if isinstance(value, Tensor) else value for value in operands])
        arguments = (
            as_operand(value, device, self.operator in SHAPES and place > 0) for place, value in enumerate(operands)
        )
        result = OPERATORS[self.operator](*arguments, **self.attributes)
        return result if isinstance(result, tuple) else (result,)

    def of_plain(self, arrays: Sequence[Plain | None]) -> tuple[Plain, ...]:
        """The outputs of plain arrays, computed by onnx itself."""
        if self.operator in MADE:
            sized(MADE[self.operator](*arrays))
        return tuple(map(np.asarray, evaluator(self.proto).run(*arrays)))

    def extra_repr(self) -> str:
        return self.operator


@lru_cache(maxsize=1 << 14)
def evaluator(proto: bytes) -> Any:
    """Runs one node by onnx's reference implementation; cached, since building takes longer than running."""
    onnx = optional("onnx")
    opsets = {"": onnx.defs.onnx_opset_version()}
    return optional("onnx.reference").ReferenceEvaluator(onnx.NodeProto.FromString(proto), opsets=opsets).rt_nodes_[0]


def as_operand(value: Any, device: torch.device, plain: bool) -> Any:
    """An array as an operand of a row: a number if it has no axes, since torch then keeps the other operand's dtype."""
    if not isinstance(value, np.ndarray):
        return value
    return value.tolist() if plain or not value.ndim else tensor_of(value).to(device)


@final
class OnnxGraph(nn.Module):
    """An ONNX model with operators of torch, which can be traced like those of any network.

    Args:
        sizes: for each input, the sides fixed by the file; None for free ones.
        plain: arrays by name that are not parameters of a node.
    """

    def __init__(self, sizes: Mapping[str, tuple[int | None, ...]], plain: dict[str, Plain], outputs: Sequence[str]):
        super().__init__()
        self.sizes, self.plain, self.outputs = sizes, plain, outputs

    @property
    def input_size(self) -> tuple[int | None, ...] | None:
        """Channels and sides of the one input, if the file fixes them."""
        shapes = [sides[1:] for sides in self.sizes.values()]
        return shapes[0] if len(shapes) == 1 and len(shapes[0]) > 1 and None not in shapes[0] else None

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor | dict[str, Tensor]:
        """The output on inputs in the order of the file, or by name; several outputs by name.

        Raises:
            UsageError: an input is missing, or has another shape than the file fixes (C2A120).
        """
        values: dict[str, Any] = {**self.plain, **dict(zip(self.sizes, inputs, strict=False)), **named}
        for name, sides in self.sizes.items():
            shape = getattr(values.get(name), "shape", ())
            if len(shape) != len(sides) or any(a not in (None, b) for a, b in zip(sides, shape, strict=True)):
                taken, passed = ("x".join(map(str, each)).replace("None", "?") for each in (sides, shape))
                reason = f"the ONNX model does not take {name} {passed or 'without a shape'}"
                raise UsageError("C2A120", reason, f"Pass --input-size or --inputs of {taken}.")
        for node in self.children():
            assert isinstance(node, OnnxNode)
            values.update(zip(node.outputs, node(*map(values.get, node.inputs)), strict=False))
        results = {
            name: tensor_of(values[name]) if isinstance(values[name], np.ndarray) else values[name]
            for name in self.outputs
        }
        return results if len(results) > 1 else results[self.outputs[0]]


def graph_of(model: Any) -> OnnxGraph:
    """The module of a model.

    Raises:
        UnsupportedError: the model has an operator or an attribute that no row of the table supports (C2A110).
    """
    onnx, model = optional("onnx"), inlined(model)
    if model.graph.sparse_initializer:
        raise unread("sparse weights")
    stored = {tensor.name: array_of(tensor) for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in stored]
    outputs = [value.name for value in model.graph.output]
    used = {name for node in model.graph.node for name in node.input} | {*outputs}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in inputs}
    sizes = {
        name: tuple(side.dim_value if side.HasField("dim_value") else None for side in shape)
        for name, shape in shapes.items()
    }
    graph, parameters = OnnxGraph(sizes, {}, outputs), dict[int, nn.Parameter]()
    typed = onnx.shape_inference.infer_shapes(model).graph
    types = {each.name: each.type.tensor_type.elem_type for each in (*typed.input, *typed.value_info)}
    for number, node in enumerate(model.graph.node):
        # Exporters write a cast for `x.to(dtype)`, which would keep the rest of a float64 network in float32.
        if node.op_type == "Cast" and onnx.helper.get_node_attr_value(node, "to") == types.get(node.input[0]):
            node.op_type = "Identity"
            node.ClearField("attribute")
        if node.op_type == "Constant":
            if not node.attribute:
                raise unread("a constant without a value")
            stored[node.output[0]] = constant(node.attribute[0])
            continue
        if node.op_type == "Identity" and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
            continue
        module, name = OnnxNode(node, honoured(node, used)), re.sub("[./]", "_", node.name.strip("/"))
        graph.add_module(name if name and not hasattr(graph, name) else f"{name or node.op_type}_{number}", module)
        alone = all(operand in stored or not operand for operand in node.input)
        for place, operand in enumerate(node.input):
            array = stored.get(operand)
            if array is None:
                continue
            if alone or (node.op_type in SHAPES and place) or not array.ndim or array.dtype.kind in "biuOUS":
                graph.plain[operand] = array
                continue
            # The statistics of a norm are not trained.
            trained = array.dtype.kind == "f" and (node.op_type != "BatchNormalization" or place < 3)
            parameter = parameters.setdefault(id(array), nn.Parameter(tensor_of(array), requires_grad=trained))
            module.register_parameter(f"input_{place}", parameter)
    graph.plain.update((name, stored[name]) for name in outputs if name in stored)
    return graph.eval()


def inlined(model: Any) -> Any:
    """The model at the table's opset, with inlined functions: its own, and onnx's that have no row."""
    inliner = optional("onnx.inliner")
    try:
        # The file is converted before onnx's own operators are inlined: older opsets define fewer of them as functions.
        model = inliner.inline_local_functions(model)
        if max((each.version for each in model.opset_import if each.domain in DOMAINS), default=1) < OPSET:
            model = optional("onnx.version_converter").convert_version(model, OPSET)
        write_defaults(model)
        return inliner.inline_selected_functions(model, [("", name) for name in (*OPERATORS, *MADE)], True, True)
    except (RuntimeError, ValueError, TypeError) as error:
        raise unread(f"functions or an opset that onnx does not convert ({type(error).__name__})") from error


def write_defaults(model: Any) -> None:
    """Writes attributes that nodes leave at onnx's default.

    The body of a function refers to the attributes of its call. Inlining drops those that the call leaves out, so their
    defaults are written first.
    """
    defs = optional("onnx").defs
    for node in model.graph.node:
        if node.domain in DOMAINS and node.op_type not in OPERATORS and defs.has(node.op_type, OPSET):
            written = {each.name for each in node.attribute}
            attributes = defs.get_schema(node.op_type, OPSET).attributes.items()
            defaults = [each.default_value for key, each in attributes if key not in written]
            node.attribute.extend(each for each in defaults if each.type)


def honoured(node: Any, used: Set[str]) -> dict[str, Any]:
    """The attributes for the node's row, including those with onnx's default.

    Args:
        used: the names of tensors that some node reads.
    Raises:
        UnsupportedError: no row of the table supports the node (C2A110).
    """
    name, row = node.op_type, OPERATORS.get(node.op_type)
    if node.domain not in DOMAINS or (row is None and name not in MADE):
        raise unread(f"the operator {name}")
    if name not in ("LSTM", "Split") and used & {*node.output[1:]}:
        raise unread(f"output 2 of {name}")
    if name == "LSTM" and any((*node.input[4:5], *node.input[7:])):
        raise unread("LSTM with lengths or peepholes")
    defaults = {
        key: plain_attribute(each.default_value)
        for key, each in optional("onnx").defs.get_schema(name).attributes.items()
        if each.default_value.type
    }
    attributes = defaults | {each.name: plain_attribute(each) for each in node.attribute}
    if attributes.get("auto_pad") == "SAME_UPPER" and max(attributes.get("strides", [1])) > 1:
        raise unread(f"{name} with auto_pad=SAME_UPPER")
    taken = inspect.signature(row).parameters if isinstance(row, FunctionType) else {}
    for key, value in attributes.items() if row else ():
        if value not in (HONOURED.get(key, [value]) if key in taken else [defaults.get(key)]):
            raise unread(f"{name} with {key}={value}")
    pads = attributes.get("pads", [])
    if (
        name == "AveragePool"
        and not attributes["count_include_pad"]
        and pads[: len(pads) // 2] != pads[len(pads) // 2 :]
    ):
        raise unread("AveragePool with other pads before an axis than behind it")
    mode, places = attributes.get("mode"), attributes.get("coordinate_transformation_mode")
    if name == "Resize" and (mode == "nearest") != (places == "asymmetric"):
        raise unread(f"Resize by {mode}, {places}")
    return {key: attributes[key] for key in taken if key in attributes}


def tensor_of(array: Plain) -> Tensor:
    """An array as a tensor with its own memory; NumPy has no bfloat16 type."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def array_of(tensor: Any) -> Plain:
    """A stored tensor as an array.

    Raises:
        CheckpointError: the tensor does not have the elements that it claims, or an unknown type (C2A303).
    """
    try:
        array: Plain = optional("onnx.numpy_helper").to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        reason = f"the weight {tensor.name[:80]} claims other elements than are stored ({first_line(error)[:80]})"
        raise CheckpointError("C2A303", reason, "Export the network again.") from error
    return array


def constant(attribute: Any) -> Plain:
    """The array of a Constant, from its only attribute."""
    if attribute.name == "sparse_value":
        raise unread("a Constant of sparse numbers")
    return np.array(plain_attribute(attribute), dtype=np.float32 if "float" in attribute.name else None)


def plain_attribute(attribute: Any) -> Any:
    """An array of a tensor, a dtype of torch, a text, or numbers.

    A float32 number is read as the shortest decimal that rounds to it: 1e-5, not 9.99999975e-06.
    """
    onnx = optional("onnx")
    value, kinds = onnx.helper.get_attribute_value(attribute), onnx.AttributeProto
    if attribute.type == kinds.TENSOR:
        return array_of(value)
    if attribute.name == "to":
        name = onnx.TensorProto.DataType.Name(value)
        dtype = getattr(torch, name.lower(), None)
        if not isinstance(dtype, torch.dtype):
            raise unread(f"a Cast to {name}")
        return dtype
    if isinstance(value, float):
        return float(str(np.float32(value)))
    return value.decode() if isinstance(value, bytes) else value


def unread(what: str) -> UnsupportedError:
    """The error for a model with a part that the table does not have."""
    return UnsupportedError("C2A110", f"{what} is not read as an operator of torch", "Run the file by onnxruntime.")
