"""Programs of torch.export (.pt2), read from JSON and bytes as a graph of torch's own operators.

torch.export.load is not used, since it evaluates texts of the file (sizes, guards) and unpickles example inputs.
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
from conv2attn.files.budget import DEEPEST, JSON_TIMES, Budget
from conv2attn.torch_internals import OpOverload

ATEN_OPERATOR = re.compile(r"torch\.ops\.aten\.(_?[A-Za-z]\w*)\.([A-Za-z]\w*)")
DOTTED_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
ARITHMETIC = ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "getitem")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_")
SIZE_LIBRARIES: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("_operator", operator, ARITHMETIC + COMPARISONS),
    ("torch", torch, ("sym_max", "sym_min", "sym_not", "sym_int", "sym_float")),
    ("math", math, ("ceil", "floor", "trunc")),
)
SIZE_OPERATORS = {f"{home}.{name}": getattr(library, name) for home, library, names in SIZE_LIBRARIES for name in names}
"""Operators on sizes that a program may use."""
SCALAR_TYPES = {
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
MEMORY_FORMATS = (None, torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)
STRIDED = 7
LISTS = {
    f"as_{part}s" for part in ("tensor", "optional_tensor", "bool", "int", "float", "sym_int", "sym_float", "sym_bool")
}
"""Kinds of arguments that are lists of supported arguments."""
# Raised by reading a field that is missing or has a wrong type. A file is not checked against a schema beforehand.
DAMAGES = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    RuntimeError,
    OverflowError,
    StopIteration,
)
SYMBOL = re.compile(r"Symbol\('(\w+)'(?:, \w+=True)*\)")
ASSUMED = 2
"""The lower limit that torch.export assumes for every free size; programs also run below it."""
Ranges = tuple[tuple[int, int | None], ...]
ProgramParts = tuple[Mapping[str, Any], list[str], dict[str, Tensor]]


def read_program(path: Path) -> fx.GraphModule:
    """The program in a .pt2 file that was inspected before, as a module of one image.

    Raises:
        CheckpointError: the program uses operators other than torch's on tensors and sizes, or is inconsistent
            (C2A303).
    """
    model, _, tensors = program_parts(path)
    try:
        return build_program(model, tensors)
    except DAMAGES as error:
        reason = f"{path}: its program is incomplete ({type(error).__name__}: {str(error)[:80]})"
        raise CheckpointError("C2A303", reason, "Export the network again.") from error


def program_parts(path: Path) -> ProgramParts:
    """The model in a .pt2 file (graph, signature, ranges of sizes), the names of its operators, and its tensors.

    Raises:
        CheckpointError: the program is inconsistent, or has another layout than that of torch 2.8 and later (C2A303).
    """
    try:
        with zipfile.ZipFile(path) as archive:
            models = [name for name in archive.namelist() if re.fullmatch(r"[^/]+/models/[^/]+\.json", name)]
            if len(models) != 1:
                reason = f"{path} holds {len(models)} programs in the layout of torch 2.8 and later, not one"
                raise CheckpointError("C2A303", reason, "Export the network again, to one file.")
            budget = Budget.of(path)
            model = read_entry(archive, models[0], budget)
            names = [str(node["target"]) for node in model["graph_module"]["graph"]["nodes"]]
            tensors = {
                name: each
                for kind in ("weights", "constants")
                for name, each in archive_tensors(archive, kind, budget).items()
            }
    except CheckpointError:
        raise
    except (*DAMAGES, RecursionError) as error:
        reason = f"{path}: its program is incomplete ({type(error).__name__}: {str(error)[:80]})"
        raise CheckpointError("C2A303", reason, "Export the network again.") from error
    return model, names, tensors


def read_entry(archive: zipfile.ZipFile, name: str, budget: Budget) -> Any:
    """The JSON of an entry; an empty list of three bytes takes 64 bytes of memory."""
    budget.draw(JSON_TIMES * archive.getinfo(name).file_size, name)
    return json.loads(archive.read(name))


def archive_tensors(archive: zipfile.ZipFile, kind: str, budget: Budget) -> dict[str, Tensor]:
    """The weights or constants of an archive, stored as plain bytes; an entry with several names is read once."""
    config = next((each for each in archive.namelist() if each.endswith(f"_{kind}_config.json")), "")
    tensors, storages, views = dict[str, Tensor](), dict[str, bytearray](), dict[Any, Tensor]()
    for name, entry in (read_entry(archive, config, budget)["config"] if config else {}).items():
        # Unpickling runs code that the file names.
        if entry["use_pickle"]:
            raise ValueError(f"{name!r} is pickled")
        meta = entry["tensor_meta"]
        sizes, strides = ([each["as_int"] for each in meta[key]] for key in ("sizes", "strides"))
        first, dtype = meta["storage_offset"]["as_int"], SCALAR_TYPES[meta["dtype"]]
        if min([*sizes, *strides, first], default=0) < 0 or meta["layout"] != STRIDED:
            raise ValueError(f"{name!r} is not a plain dense tensor")
        place = f"{config.rpartition('/')[0]}/{entry['path_name']}"
        if place not in storages:
            budget.draw(archive.getinfo(place).file_size, name)
            storages[place] = bytearray(archive.read(place))
        data = storages[place]
        elements = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        # Otherwise `as_strided` would read beyond the bytes of the entry.
        last = sum((side - 1) * stride for side, stride in zip(sizes, strides, strict=True)) + first
        if math.prod(sizes) > len(elements) or (math.prod(sizes) and last >= len(elements)):
            raise ValueError(f"{name!r} claims more elements than are stored")
        view = place, dtype, tuple(sizes), tuple(strides), first
        # Every view is a copy, so many views of one small entry count against the budget.
        if view not in views:
            budget.draw(math.prod(sizes) * elements.element_size(), name)
            views[view] = elements.as_strided(sizes, strides, first).clone()
        tensors[name] = views[view]
    return tensors


def build_program(model: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> fx.GraphModule:
    """A module with the tensors of a program, which runs its nodes."""
    root, graph, values = nn.Module(), fx.Graph(), dict[str, fx.Node]()
    constraints, model = model["range_constraints"], model["graph_module"]
    images = []
    for spec in model["signature"]["input_specs"]:
        ((kind, spec_fields),) = spec.items()
        if kind == "user_input":
            images.append(spec_fields["arg"]["as_tensor"]["name"])
            # The nodes alone would accept sizes for which the program was not exported.
            ranges = ranges_of(model["graph"]["tensor_values"][images[-1]]["sizes"], constraints)
            values[images[-1]] = graph.call_function(check_ranges, (graph.placeholder("image"), ranges))
            continue
        name = spec_fields[f"{kind}_name"]
        register_tensor(root, name, tensors[name], kind == "parameter")
        values[spec_fields["arg"]["name"]] = graph.get_attr(name)
    if len(images) != 1:
        raise ValueError(f"{len(images)} inputs, not one")
    for node in model["graph"]["nodes"]:
        add_node(graph, node, values)
    outputs = model["signature"]["output_specs"]
    if len(outputs) != 1:
        raise ValueError(f"{len(outputs)} outputs, not one")
    graph.output(values[outputs[0]["user_output"]["arg"]["as_tensor"]["name"]])
    graph.lint()
    return fx.GraphModule(root, graph).eval()


def register_tensor(root: nn.Module, name: str, tensor: Tensor, trained: bool) -> None:
    """A parameter or buffer under a dotted name."""
    # A name of many thousand dots would create as many nested modules.
    if not DOTTED_NAME.fullmatch(name) or name.count(".") > DEEPEST:
        raise ValueError(f"{name!r} is not a name")
    *parents, attribute = name.split(".")
    for parent in parents:
        if parent not in root._modules:
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    if trained:
        root.register_parameter(attribute, nn.Parameter(tensor, tensor.is_floating_point()))
    else:
        root.register_buffer(attribute, tensor)


def add_node(graph: fx.Graph, node: Mapping[str, Any], values: dict[str, fx.Node]) -> None:
    """Adds a node of the program, and its outputs to `values` by name."""
    target = callable_named(node["target"])
    arguments = [(each["name"], each["kind"] == 2, node_argument(each["arg"], values)) for each in node["inputs"]]
    positional = tuple(value for _, keyword, value in arguments if not keyword)
    call = graph.call_function(target, positional, {name: value for name, keyword, value in arguments if keyword})
    # A node with several results has one name per result, or, for an operator that returns a list, one list of names.
    if isinstance(target, OpOverload) and len(target._schema.returns) > 1:
        for index, output in enumerate(node["outputs"]):
            values[output_name(output)] = graph.call_function(operator.getitem, (call, index))
        return
    for output in node["outputs"]:
        if "as_tensors" in output:
            for index, each in enumerate(output["as_tensors"]):
                values[each["name"]] = graph.call_function(operator.getitem, (call, index))
        elif "as_none" not in output:
            values[output_name(output)] = call


def callable_named(name: str) -> Callable[..., Any]:
    """The operator of torch on tensors, or on sizes, with this name; other names are refused."""
    if name in SIZE_OPERATORS:
        return SIZE_OPERATORS[name]
    if not (match := ATEN_OPERATOR.fullmatch(name)):
        raise ValueError(f"{name!r} is not an operator of torch")
    overload = getattr(getattr(torch.ops.aten, match[1]), match[2])
    # Some operators, such as `from_file`, open files.
    if not isinstance(overload, OpOverload) or any("file" in each.name for each in overload._schema.arguments):
        raise ValueError(f"{name!r} does more than compute")
    return overload


def output_name(output: Mapping[str, Any]) -> str:
    """The name of a tensor or a size."""
    ((kind, fields),) = output.items()
    return fields["name"] if kind == "as_tensor" else fields["as_name"]


def node_argument(entry: Mapping[str, Any], values: Mapping[str, fx.Node]) -> Any:
    """An argument of a node: the value of an earlier node, or a plain value."""
    ((kind, value),) = entry.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return values[value["name"]]
        case "as_optional_tensor":
            return node_argument(value, values)
        case "as_bool" | "as_int" | "as_string":
            return value
        case "as_float":
            return float(value)
        case "as_sym_int" | "as_sym_bool" | "as_sym_float":
            return values[value["as_name"]] if "as_name" in value else next(iter(value.values()))
        case "as_scalar_type":
            return SCALAR_TYPES[value]
        case "as_memory_format":
            return MEMORY_FORMATS[value]
        case "as_layout" if value == STRIDED:
            return torch.strided
        case "as_device":
            # Tensors are read on the CPU, whichever device the program was exported on.
            return torch.device("cpu")
        case _ if kind in LISTS:
            return [node_argument({kind.removesuffix("s"): each}, values) for each in value]
    raise ValueError(f"arguments {kind} are not read")


def ranges_of(sizes: Sequence[Mapping[str, Any]], constraints: Mapping[str, Mapping[str, Any]]) -> Ranges:
    """For each axis, the least and the greatest size; None if unbounded.

    A size that is an expression of several symbols has no range here.

    Args:
        sizes: sizes of the image, as integers or texts of symbols.
        constraints: ranges by symbol.
    """
    ranges: list[tuple[int, int | None]] = []
    for size in sizes:
        if "as_int" in size:
            ranges.append((size["as_int"], size["as_int"]))
            continue
        symbol = SYMBOL.fullmatch(size["as_expr"]["expr_str"])
        constraint = constraints.get(symbol[1], {}) if symbol else {}
        low, high = constraint.get("min_val"), constraint.get("max_val")
        ranges.append((low if isinstance(low, int) and low > ASSUMED else 0, high if isinstance(high, int) else None))
    return tuple(ranges)


def check_ranges(image: Tensor, ranges: Ranges) -> Tensor:
    """Checks the size of `image` against the program's ranges, and returns the image.

    Raises:
        UsageError: the size is out of range (C2A120).
    """
    inside = image.ndim == len(ranges) and all(
        low <= side and (high is None or side <= high) for side, (low, high) in zip(image.shape, ranges, strict=True)
    )
    # In a traced graph this comparison would become a condition on its sizes.
    if not torch.compiler.is_compiling() and not inside:
        reason = f"the program takes images {ranges_text(ranges)}, not {'x'.join(map(str, image.shape))}"
        raise UsageError("C2A120", reason, "Pass --input-size or --inputs within these ranges.")
    return image


def ranges_text(ranges: Ranges) -> str:
    """The ranges as in "(2 to 16, 3, any, at least 8)"."""
    words = []
    for low, high in ranges:
        least = f"at least {low}" if low else "any"
        words.append(least if high is None else f"{low}" if low == high else f"{low} to {high}")
    return f"({', '.join(words)})"
