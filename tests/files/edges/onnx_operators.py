"""Each row of the table of ONNX's operators against onnxruntime on drawn numbers; what no row honours is refused.

A case is an operator, its operands (arrays are stored in the file, strings name inputs x, y and i of drawn numbers) and
attributes, and the opsets at which it is asked.
"""

import numpy as np
import onnx
import pytest
import torch
from files.by_onnxruntime import outputs_of
from onnx import helper

from conv2attn.errors import CheckpointError, UnsupportedError, UsageError
from conv2attn.files import OPERATORS, graph_of

DRAWN = np.random.default_rng(0)
NEW, OLD = (13, 18, 21), (7, 9, 11)
X = (2, 4, 6, 5)
IMAGES = {1: (2, 4, 9), 2: (2, 4, 6, 5), 3: (2, 4, 4, 5, 3)}


def numbers(*sides):
    return DRAWN.standard_normal(sides).astype(np.float32)


def whole(*values):
    return np.array(values, dtype=np.int64)


def single(value, dtype=np.float32):
    return np.array(value, dtype=dtype)


CASES = []


def case(operator, operands, opsets=NEW, outputs=1, x=X, whole_numbers=False, positive=False, **attributes):
    CASES.append((operator, operands, opsets, outputs, x, whole_numbers, positive, attributes))


for name in ("Abs", "Cos", "Erf", "Exp", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sin"):
    case(name, "x")
for name in ("Tanh", "Softplus", "Identity"):
    case(name, "x", (*OLD, *NEW))
for name in ("Sqrt", "Log"):
    case(name, "x", positive=True)
case("HardSwish", "x", (14, 18))
case("Mish", "x", (18,))
for name in ("Add", "Sub", "Mul", "Div"):
    case(name, "xy", (7, *NEW))
    case(name, ["x", numbers(5)], (7, *NEW))
    case(name, [single(2.5), "x"], (7, *NEW))
    case(name, "ij", (7, *NEW), whole_numbers=True)
for name in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"):
    case(name, "xy")
    case(name, ["x", single(0.5)])
case("Mod", "ij", whole_numbers=True)
case("Pow", ["x", single(2)])
case("Pow", ["i", single(1.5)], whole_numbers=True)
case("Pow", ["x", numbers(5)], positive=True)
case("Clip", ["x", single(-0.5), single(0.25)])
case("Clip", ["x", "", single(0.25)])
case("Clip", "x")
case("Clip", "x", (7,), min=-0.5, max=0.25)
case("LeakyRelu", "x", alpha=0.3)
case("Elu", "x", alpha=0.7)
case("Gelu", "x", (20,))
case("Gelu", "x", (20,), approximate="tanh")
case("HardSigmoid", "x")
for name in ("LeakyRelu", "Celu", "Selu", "Shrink", "MeanVarianceNormalization"):
    case(name, "x", (18,))  # onnx leaves out of their bodies the attributes that the call leaves out
case("HardSigmoid", "x", alpha=1 / 6, beta=0.5)
for slope in ((1,), (4, 1, 1), (5,), (4, 6, 5), (1, 1, 1)):
    case("PRelu", ["x", numbers(*slope)])
for axis in (0, 1, 2, 3):
    case("Softmax", "x", (7, 11, 13), axis=axis)
    case("LogSoftmax", "x", (7, 11, 13), axis=axis)
case("Softmax", "x", (7, 11, 13))
case("MatMul", ["x", numbers(5, 3)])
case("Gemm", ["x", numbers(5, 3), numbers(3)], x=(4, 5))
case("Gemm", ["x", numbers(3, 5), numbers(3)], x=(4, 5), transB=1)
case("Gemm", ["x", numbers(3, 5), numbers(1, 3)], x=(4, 5), transB=1)
for axes, size in IMAGES.items():
    kernel, pads = (3, 2, 3)[:axes], (1, 0, 2)[:axes]
    weight, bias = numbers(6, 2, *kernel), numbers(6)
    case("Conv", ["x", weight, bias], x=size, group=2, pads=[*pads, *pads], strides=[2, 1, 1][:axes])
    case("Conv", ["x", weight], x=size, group=2, pads=[1] * axes + [2] * axes, dilations=[1, 2, 1][:axes])
    case("Conv", ["x", weight], x=size, group=2, auto_pad="SAME_UPPER")
    weight = numbers(4, 3, *kernel)
    more = {"strides": [2] * axes, "output_padding": [1] * axes}
    case("ConvTranspose", ["x", weight], x=size, group=2, pads=[1] * axes + [0] * axes, **more)
    case("ConvTranspose", ["x", weight, numbers(6)], x=size, group=2, dilations=[2] * axes)
    case("MaxPool", "x", x=size, kernel_shape=[2] * axes, strides=[2] * axes, ceil_mode=1)
    case("MaxPool", "x", x=size, kernel_shape=[3] * axes, pads=[0] * axes + [1] * axes, dilations=[1] * axes)
    case("AveragePool", "x", x=size, kernel_shape=[2] * axes, strides=[2] * axes, pads=[1] * 2 * axes)
    case("AveragePool", "x", x=size, kernel_shape=[3] * axes, pads=[0] * axes + [1] * axes, count_include_pad=1)
    case("GlobalAveragePool", "x", x=size)
    case("InstanceNormalization", ["x", numbers(4), numbers(4)], x=size, epsilon=1e-3)
    statistics = [numbers(4), numbers(4), numbers(4), abs(numbers(4))]
    case("BatchNormalization", ["x", *statistics], (9, *NEW), x=size, epsilon=1e-3)
    case("BatchNormalization", ["x", *statistics], (15, 18), x=size, training_mode=1, unread=2)
case("LayerNormalization", ["x", numbers(6, 5), numbers(6, 5)], (18,), axis=2)
case("LayerNormalization", ["x", numbers(5)], (18,), epsilon=1e-2)
for name in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"):
    case(name, ["x", whole(1, -1)], (18, 21), keepdims=0)
    case(name, ["x"], (18,))
    if name != "ReduceSum":
        case(name, "x", (11, 13), axes=[2, 0], keepdims=1)
case("Reshape", ["x", whole(0, -1, 5)])
case("Flatten", "x", axis=2)
case("Flatten", "x", axis=-1)
case("Flatten", "x")
case("Flatten", "x", axis=0)
case("Squeeze", ["x", whole(1)], x=(3, 1, 4))
case("Squeeze", "x", (11,), x=(3, 1, 4), axes=[1])
case("Squeeze", "x", x=(3, 1, 4))
# An axis without brackets, as torch writes it for grouped queries.
case("Unsqueeze", ["x", single(0, np.int64)], (18,), x=(3, 4))
case("Unsqueeze", ["x", whole(0, -1)])
case("Tile", ["x", whole(1, 2, 1, 3)])
case("Unsqueeze", "x", (11,), axes=[0, 2])
case("Transpose", "x", perm=[2, 0, 3, 1])
case("Transpose", "x")
case("Expand", ["x", whole(3, 1, 5)], x=(2, 1, 1, 5))
case("Concat", ["x", "y", numbers(2, 4, 6, 1)], axis=3)
case("ScatterND", ["x", np.array([[0, 1], [1, 3]]), numbers(2, 6, 5)], (16, 18))
case("Split", ["x", whole(1, 3)], outputs=2, axis=1)
case("Split", "x", (11,), outputs=2, axis=1, split=[3, 1])
case("Split", "x", (18,), outputs=3, axis=2, num_outputs=3)
case("Split", "x", (13,), outputs=2, axis=1)
case("Slice", "x", (7, 9), starts=[1, -3], ends=[100, -1], axes=[0, 2])
case("Slice", ["x", whole(1, -1), whole(4, -100), whole(2, 3), whole(2, -2)])
case("Slice", ["x", whole(-1), whole(np.iinfo(np.int64).min), whole(3), whole(-1)])
case("Slice", ["x", whole(0, 1), whole(-1, 3)])
case("Gather", ["x", whole(1, -1)], axis=1)
case("Gather", ["x", single(-1, np.int64)], axis=2)
case("Gather", [numbers(3, 4), "i"], x=(2, 3), whole_numbers=True)
case("Where", [np.array([True, False, True, True, False]), "x", "y"])
case("Where", [np.array([True, False, True, True, False]), "x", single(-7)])
case("Cast", "x", to=onnx.TensorProto.DOUBLE)
case("Cast", "x", to=onnx.TensorProto.INT64)
case("CastLike", ["x", single(0, np.float64)], (18,))
for mode in ("constant", "reflect", "edge"):
    case("Pad", ["x", whole(0, 0, 1, 2, 0, 0, 3, 0)], mode=mode)
    case("Pad", ["x", whole(0, 0, 0, 2, 0, 0, 0, 1)], mode=mode)
case("Pad", ["x", whole(0, 0, 1, 2, 0, 0, 3, 0)], (19,), mode="wrap")
case("Pad", ["x", whole(1, 0, -1, 2, 0, 1, 0, -2), single(0.5)])
case("Pad", ["x", whole(1, 2), single(0.5), whole(-1)], (18, 21))
case("Pad", "x", (7,), pads=[0, 0, 1, 2, 0, 0, 3, 0], value=0.5)
for mode in ("DCR", "CRD"):
    case("DepthToSpace", "x", x=(2, 8, 3, 2), blocksize=2, mode=mode)
where = "coordinate_transformation_mode"
case("Resize", ["x", "", single([1, 1, 2, 1.7])], nearest_mode="floor", **{where: "asymmetric"})
case("Resize", ["x", "", "", whole(2, 4, 9, 3)], nearest_mode="floor", **{where: "asymmetric"})
for corners in ("half_pixel", "align_corners"):
    case("Resize", ["x", "", single([1, 1, 2, 1.7])], nearest_mode="floor", mode="linear", **{where: corners})
    case("Resize", ["x", "", "", whole(2, 4, 9, 3)], nearest_mode="floor", mode="linear", **{where: corners})
cubic = {"mode": "cubic", "cubic_coeff_a": -0.75, "nearest_mode": "floor", where: "half_pixel"}
case("Resize", ["x", "", "", whole(2, 4, 9, 3)], **cubic)
for sides, direction in ((1, "forward"), (2, "bidirectional")):
    parts = [numbers(sides, 12, 5), numbers(sides, 12, 3), numbers(sides, 24)]
    recurrent = {"x": (7, 2, 5), "outputs": 3, "hidden_size": 3, "direction": direction}
    case("LSTM", ["x", *parts], **recurrent)
    case("LSTM", ["x", *parts, "", numbers(sides, 2, 3), numbers(sides, 2, 3)], **recurrent)
    case("LSTM", ["x", *parts[:2], "", "", "", numbers(sides, 2, 3)], **recurrent)


def model_of(operator, operands, opset, outputs, x, whole_numbers, positive, attributes):
    """A model of one node, and drawn inputs."""
    names, stored, inputs = [], [], {}
    for place, operand in enumerate(operands):
        if isinstance(operand, str) and operand:
            values = DRAWN.integers(1, 3, x) if whole_numbers else numbers(*x)
            inputs.setdefault(operand, abs(values) + 0.1 if positive else values)
            inputs[operand] = inputs[operand].astype(np.int64 if whole_numbers else np.float32)
            names.append(operand)
        elif isinstance(operand, str):
            names.append("")
        else:
            names.append(f"stored{place}")
            stored.append(onnx.numpy_helper.from_array(operand, names[-1]))
    results = [f"out{n}" for n in range(outputs)]
    unread = [f"unread{n}" for n in range(attributes.pop("unread", 0))]
    node = helper.make_node(operator, names, [*results, *unread], **attributes)
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()
    ]
    values = [helper.make_value_info(n, onnx.TypeProto()) for n in results]
    graph = helper.make_graph([node], "g", declared, values, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), inputs


@pytest.mark.rotated
@torch.no_grad()
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{n}-{each[0]}" for n, each in enumerate(CASES)])
def test_a_row_computes_what_onnxruntime_computes(number):
    operator, operands, opsets, *rest, attributes = CASES[number]
    for opset in opsets:
        model, inputs = model_of(operator, operands, opset, *rest, dict(attributes))
        wanted = outputs_of(model.SerializeToString(), *inputs.values())
        results = graph_of(model)(**{name: torch.from_numpy(value) for name, value in inputs.items()})
        results = list(results.values()) if isinstance(results, dict) else [results]
        assert len(results) == len(wanted)
        for ours, theirs in zip(results, wanted, strict=True):
            assert (tuple(ours.shape), ours.numpy().dtype) == (theirs.shape, theirs.dtype), opset
            np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=2e-5, atol=2e-6, err_msg=f"opset {opset}")


def test_every_row_has_a_case():
    # Of plain arrays, of booleans or of sequences: the graph below.
    rest = {"Shape", "Or", "Not", "SplitToSequence", "SequenceAt"}
    assert OPERATORS.keys() - {name for name, *_ in CASES} == rest


MASKED = """<ir_version: 8, opset_import: ["" : 18]>
masked (float[n, n] x) => (float[n, n] out)
<int64 zero = {0}, int64 one = {1}, int64[1] axis = {1}, int64[1] axis0 = {0}, float none = {0}, float half = {-0.5},
 SIZES>
{
    shape = Shape (x)
    side = Gather (shape, one)
    places = Range (zero, side, one)
    queries = Unsqueeze (places, axis)
    masked = Greater (places, queries)
    sides = Unsqueeze (side, axis0)
    square = Concat <axis = 0> (sides, sides)
    filled = ConstantOfShape <value = float[1] {-1}> (square)
    mixed = Where (masked, filled, x)
    positive = Greater (x, none)
    small = Less (x, half)
    outside = Or (positive, small)
    inside = Not (outside)
    whole = Where (inside, none, mixed)
    parts = SplitToSequence <axis = 1> (whole, sizes)
    out = SequenceAt (parts, one)
}"""
"""A causal mask made from the size of the input, as exporters write it."""


@pytest.mark.parametrize(("sizes", "sides"), [("int64 sizes = {1}", (3, 6)), ("int64[2] sizes = {1, 2}", (3,))])
def test_sizes_are_numbers_and_masks_of_them_are_constants(sizes, sides):
    model = onnx.parser.parse_model(MASKED.replace("SIZES", sizes))
    network = graph_of(model)
    for side in sides:
        image = numbers(side, side)
        (expected,) = outputs_of(model.SerializeToString(), image)
        np.testing.assert_array_equal(network(torch.from_numpy(image)).detach().numpy(), expected)


RECURRENT = ["x", numbers(1, 12, 5), numbers(1, 12, 3), numbers(1, 24)]


@pytest.mark.parametrize(
    ("operator", "operands", "attributes", "match"),
    [
        ("Resize", ["x", "", single([1, 1, 2, 2])], {}, "nearest_mode=round_prefer_floor"),
        (
            "Resize",
            ["x", "", single([1, 1, 2, 2])],
            {"mode": "linear", "nearest_mode": "floor", "antialias": 1},
            "antialias=1",
        ),
        (
            "Resize",
            ["x", "", single([1, 1, 2, 2])],
            {"nearest_mode": "floor", "coordinate_transformation_mode": "half_pixel"},
            "Resize by nearest, half_pixel",
        ),
        ("LSTM", [*RECURRENT, whole(3, 2)], {"hidden_size": 3}, "LSTM with lengths"),
        ("LSTM", [*RECURRENT, "", "", "", numbers(1, 9)], {"hidden_size": 3}, "LSTM with lengths or peepholes"),
        ("LSTM", RECURRENT, {"hidden_size": 3, "direction": "reverse"}, "direction=reverse"),
        ("Conv", ["x", numbers(3, 4, 2, 2)], {"auto_pad": "SAME_UPPER", "strides": [1, 2]}, "auto_pad=SAME_UPPER"),
        ("MaxPool", "x", {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}, "auto_pad=SAME_UPPER"),
        ("MaxPool", "x", {"kernel_shape": [2, 2], "outputs": 2}, "output 2 of MaxPool"),
        ("AveragePool", "x", {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}, "AveragePool with other pads"),
        ("Det", "x", {}, "the operator Det"),
        ("MaxPool", "x", {"kernel_shape": [2, 2], "storage_order": 1}, "storage_order=1"),
    ],
)
def test_what_no_row_honours_is_refused_when_the_file_is_read(operator, operands, attributes, match):
    outputs = attributes.pop("outputs", 1)
    model, _ = model_of(operator, operands, 18, outputs, X, False, False, attributes)
    with pytest.raises(UnsupportedError, match=match):
        graph_of(model)


def test_stored_parts_that_no_tensor_of_torch_has_are_refused():
    sparse = onnx.SparseTensorProto(dims=[3])
    for attributes, match in (({}, "a constant without a value"), ({"sparse_value": sparse}, "Constant of sparse")):
        model = model_of("Relu", "x", 18, 1, X, False, False, {})[0]
        model.graph.node.insert(0, helper.make_node("Constant", [], ["unused"], **attributes))
        with pytest.raises(UnsupportedError, match=match):
            graph_of(model)
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(UnsupportedError, match="sparse weights"):
        graph_of(model)
    model, _ = model_of("Cast", "x", 18, 1, X, False, False, {"to": onnx.TensorProto.FLOAT8E5M2})
    with pytest.raises(UnsupportedError, match="a Cast to FLOAT8E5M2"):
        graph_of(model)
    model, _ = model_of("Add", ["x", numbers(5)], 18, 1, X, False, False, {})
    model.graph.initializer[0].dims[0] = 7
    with pytest.raises(CheckpointError, match="C2A303 the weight stored1 claims other elements"):
        graph_of(model)
    with pytest.raises(UsageError, match="C2A202 a node of the ONNX model creates 9000x9000 numbers"):
        graph_of(model_of("Expand", ["x", whole(9000, 9000)], 18, 1, (1, 1), False, False, {})[0])(torch.ones(1, 1))


def test_the_axis_of_a_squeeze_may_come_without_brackets():
    """As torch writes it for grouped queries; onnxruntime does not take it."""
    model, _ = model_of("Squeeze", ["x", single(0, np.int64)], 18, 1, (1, 3, 4), False, False, {})
    assert graph_of(model)(torch.zeros(1, 3, 4)).shape == (3, 4)


CAST = """<ir_version: 8, opset_import: ["" : 19]>
cast (float[1, 2, 4, 5] x) => (float[1, 2, 4, 5] y)
{
    c = Abs (x)
    d = Cast <to = TYPE> (c)
    f = Cast <saturate = 1, to = 1> (d)
    y = Relu (f)
}"""


@pytest.mark.parametrize(
    ("kind", "dtype"), [(onnx.TensorProto.FLOAT, torch.float64), (onnx.TensorProto.DOUBLE, torch.float32)]
)
def test_a_cast_to_the_type_of_its_operand_follows_a_network_to_float64_and_another_does_not(kind, dtype):
    """Exporters write `x.to(dtype)` as a cast; heads of a network in a file are read in float64."""
    model = onnx.parser.parse_model(CAST.replace("TYPE", str(kind)))
    before = model.SerializeToString()
    network = graph_of(model)
    assert model.SerializeToString() == before
    image = numbers(1, 2, 4, 5)
    (expected,) = outputs_of(before, image)
    np.testing.assert_allclose(network(torch.from_numpy(image)).numpy(), expected, rtol=1e-6)
    assert network.double()(torch.from_numpy(image).double()).dtype == dtype
