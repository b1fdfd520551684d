"""Programs of torch.export (.pt2), read as JSON and bytes into a graph of torch's own operators.

torch.export.load evaluates texts of the file (sizes, guards) and unpickles its example inputs, so it is not used.
"""

import json
import math
import operator
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from conv2attn.errors import CheckpointError, UsageError

OPERATOR = re.compile(r"torch\.ops\.aten\.(_?[A-Za-z]\w*)\.([A-Za-z]\w*)")
NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
ARITHMETIC = ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "getitem")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_")
HOMES: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("_operator", operator, ARITHMETIC + COMPARISONS),
    ("torch", torch, ("sym_max", "sym_min", "sym_not", "sym_int", "sym_float")),
    ("math", math, ("ceil", "floor", "trunc")),
)
NUMBERS = {f"{home}.{name}": getattr(library, name) for home, library, names in HOMES for name in names}
"""Operators on sizes that a program may use."""
DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    12: torch.bool,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    13: torch.bfloat16,
}
FORMATS = (None, torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)
STRIDED = 7
MISFITS = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError, StopIteration)
SYMBOL = re.compile(r"Symbol\('(\w+)'(?:, \w+=True)*\)")
ASSUMED = 2
"""The least size that torch.export writes where it knows none; programs run below it."""
Ranges = tuple[tuple[int, int | None], ...]
Parts = tuple[Mapping[str, Any], list[str], dict[str, Tensor]]


def read_program(path: Path) -> fx.GraphModule:
    """The program in a .pt2 file that was inspected before, as a module of one image.

    Raises:
        CheckpointError: it names other operators than torch's on tensors and sizes, or does not fit together (C2A303).
    """
    model, _, tensors = parts(path)
    try:
        return built(model, tensors)
    except MISFITS as error:
        found = f"{path}: its program is not whole ({type(error).__name__}: {str(error)[:80]})"
        raise CheckpointError("C2A303", found, "Export the network again.") from error


def parts(path: Path) -> Parts:
    """The model in a .pt2 file (graph, signature, ranges of sizes), the names of its operators, and its tensors.

    Raises:
        CheckpointError: it does not fit together, or has another layout than that of torch 2.8 and later (C2A303).
    """
    try:
        with zipfile.ZipFile(path) as archive:
            models = [name for name in archive.namelist() if re.fullmatch(r"[^/]+/models/[^/]+\.json", name)]
            if len(models) != 1:
                found = f"{path} holds {len(models)} programs in the layout of torch 2.8 and later, not one"
                raise CheckpointError("C2A303", found, "Export the network again, to one file.")
            model = json.loads(archive.read(models[0]))
            names = [str(node["target"]) for node in model["graph_module"]["graph"]["nodes"]]
            tensors = {name: each for kind in ("weights", "constants") for name, each in stored(archive, kind).items()}
    except (*MISFITS, RecursionError) as error:
        found = f"{path}: its program is not whole ({type(error).__name__}: {str(error)[:80]})"
        raise CheckpointError("C2A303", found, "Export the network again.") from error
    return model, names, tensors


def stored(archive: zipfile.ZipFile, kind: str) -> dict[str, Tensor]:
    """The weights or constants of an archive, those that are plain bytes."""
    config = next((each for each in archive.namelist() if each.endswith(f"_{kind}_config.json")), "")
    found = {}
    for name, entry in (json.loads(archive.read(config))["config"] if config else {}).items():
        if entry["use_pickle"]:
            raise ValueError(f"{name!r} is pickled")
        meta = entry["tensor_meta"]
        sizes, strides = ([each["as_int"] for each in meta[key]] for key in ("sizes", "strides"))
        first, dtype = meta["storage_offset"]["as_int"], DTYPES[meta["dtype"]]
        if min([*sizes, *strides, first], default=0) < 0 or meta["layout"] != STRIDED:
            raise ValueError(f"{name!r} is not a plain dense tensor")
        data = archive.read(f"{config.rpartition('/')[0]}/{entry['path_name']}")
        held = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        last = sum((side - 1) * stride for side, stride in zip(sizes, strides, strict=True)) + first
        if math.prod(sizes) > len(held) or (math.prod(sizes) and last >= len(held)):
            raise ValueError(f"{name!r} claims more elements than are stored")
        found[name] = held.as_strided(sizes, strides, first).clone()
    return found


def built(model: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> fx.GraphModule:
    """A module with the tensors of a program, which runs its nodes."""
    root, graph, values = nn.Module(), fx.Graph(), dict[str, fx.Node]()
    constraints, model = model["range_constraints"], model["graph_module"]
    images = []
    for spec in model["signature"]["input_specs"]:
        ((kind, told),) = spec.items()
        if kind == "user_input":
            images.append(told["arg"]["as_tensor"]["name"])
            ranges = ranges_of(model["graph"]["tensor_values"][images[-1]]["sizes"], constraints)
            values[images[-1]] = graph.call_function(within, (graph.placeholder("image"), ranges))
            continue
        name = told["parameter_name" if kind == "parameter" else "buffer_name" if kind == "buffer" else kind + "_name"]
        register(root, name, tensors[name], kind == "parameter")
        values[told["arg"]["name"]] = graph.get_attr(name)
    if len(images) != 1:
        raise ValueError(f"{len(images)} inputs, not one")
    for node in model["graph"]["nodes"]:
        add(graph, node, values)
    outputs = model["signature"]["output_specs"]
    if len(outputs) != 1:
        raise ValueError(f"{len(outputs)} outputs, not one")
    graph.output(values[outputs[0]["user_output"]["arg"]["as_tensor"]["name"]])
    graph.lint()
    return fx.GraphModule(root, graph).eval()


def register(root: nn.Module, name: str, tensor: Tensor, trained: bool) -> None:
    """A parameter or buffer under a dotted name."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name")
    *parents, own = name.split(".")
    for parent in parents:
        if parent not in root._modules:
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    if trained:
        root.register_parameter(own, nn.Parameter(tensor, tensor.is_floating_point()))
    else:
        root.register_buffer(own, tensor)


def add(graph: fx.Graph, node: Mapping[str, Any], values: dict[str, fx.Node]) -> None:
    """A node of the program, and names for what it gives."""
    target = callable_named(node["target"])
    given = [(each["name"], each["kind"] == 2, argument(each["arg"], values)) for each in node["inputs"]]
    positional = tuple(value for _, keyword, value in given if not keyword)
    made = graph.call_function(target, positional, {name: value for name, keyword, value in given if keyword})
    if isinstance(target, torch._ops.OpOverload) and len(target._schema.returns) > 1:
        for index, output in enumerate(node["outputs"]):
            values[name_of(output)] = graph.call_function(operator.getitem, (made, index))
        return
    for output in node["outputs"]:
        if "as_tensors" in output:
            for index, each in enumerate(output["as_tensors"]):
                values[each["name"]] = graph.call_function(operator.getitem, (made, index))
        elif "as_none" not in output:
            values[name_of(output)] = made


def callable_named(name: str) -> Callable[..., Any]:
    """The operator of torch on tensors, or the arithmetic on sizes, of that name, and nothing else."""
    if name in NUMBERS:
        return NUMBERS[name]
    if not (parts := OPERATOR.fullmatch(name)):
        raise ValueError(f"{name!r} is not an operator of torch")
    found = getattr(getattr(torch.ops.aten, parts[1]), parts[2])
    if not isinstance(found, torch._ops.OpOverload) or any("file" in each.name for each in found._schema.arguments):
        raise ValueError(f"{name!r} does more than compute")
    return found


def name_of(output: Mapping[str, Any]) -> str:
    """The name of a tensor or a size."""
    ((kind, told),) = output.items()
    return told["name"] if kind == "as_tensor" else told["as_name"]


def argument(given: Mapping[str, Any], values: Mapping[str, fx.Node]) -> Any:
    """An argument of a node: a value computed before, or a plain one."""
    ((kind, told),) = given.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return values[told["name"]]
        case "as_tensors":
            return [values[each["name"]] for each in told]
        case "as_optional_tensor":
            return argument(told, values)
        case "as_optional_tensors":
            return [argument(each, values) for each in told]
        case "as_bool" | "as_int" | "as_string" | "as_bools" | "as_ints":
            return told
        case "as_float":
            return float(told)
        case "as_floats":
            return [float(each) for each in told]
        case "as_sym_int" | "as_sym_bool" | "as_sym_float":
            return values[told["as_name"]] if "as_name" in told else next(iter(told.values()))
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
            return [values[each["as_name"]] if "as_name" in each else next(iter(each.values())) for each in told]
        case "as_scalar_type":
            return DTYPES[told]
        case "as_memory_format":
            return FORMATS[told]
        case "as_layout" if told == STRIDED:
            return torch.strided
        case "as_device":
            return torch.device("cpu")
    raise ValueError(f"arguments {kind} are not read")


def ranges_of(sizes: Sequence[Mapping[str, Any]], constraints: Mapping[str, Mapping[str, Any]]) -> Ranges:
    """For each axis the least and the greatest size, None where there is no greatest.

    A size that is an expression of several symbols has no range here.

    Args:
        sizes: those of the image, as integers or texts of symbols.
        constraints: ranges by symbol.
    """
    found: list[tuple[int, int | None]] = []
    for size in sizes:
        if "as_int" in size:
            found.append((size["as_int"], size["as_int"]))
            continue
        symbol = SYMBOL.fullmatch(size["as_expr"]["expr_str"])
        known = constraints.get(symbol[1], {}) if symbol else {}
        low, high = known.get("min_val"), known.get("max_val")
        found.append((low if isinstance(low, int) and low > ASSUMED else 0, high if isinstance(high, int) else None))
    return tuple(found)


def within(image: Tensor, ranges: Ranges) -> Tensor:
    """`image`, if it has a size that the program takes.

    Raises:
        UsageError: it has not (C2A120).
    """
    inside = image.ndim == len(ranges) and all(
        low <= side and (high is None or side <= high) for side, (low, high) in zip(image.shape, ranges, strict=True)
    )
    if not torch.compiler.is_compiling() and not inside:
        found = f"the program takes images {in_words(ranges)}, not {'x'.join(map(str, image.shape))}"
        raise UsageError("C2A120", found, "Pass --input-size or --inputs within these ranges.")
    return image


def in_words(ranges: Ranges) -> str:
    """The ranges as in "(2 to 16, 3, any, at least 8)"."""
    words = []
    for low, high in ranges:
        least = f"at least {low}" if low else "any"
        words.append(least if high is None else f"{low}" if low == high else f"{low} to {high}")
    return f"({', '.join(words)})"
