"""ONNX models, read by onnx; operators of torch compute them, or onnxruntime if an operator has no rule here."""

from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.errors import CheckpointError, UnsupportedError, UsageError, first_line
from conv2attn.extras import optional
from conv2attn.files.budget import Budget
from conv2attn.files.kinds import open_file
from conv2attn.files.onnx_graph import array_of, graph_of

LARGEST_MODEL = (1 << 31) - 1  # bytes: the limit of protobuf
DOMAINS = ("", "ai.onnx", "com.microsoft")


def open_session(model: str | bytes) -> Any:
    """A session of onnxruntime on the CPU, of a file or its bytes, which reports errors but no warnings.

    Constants are not folded: a node of a few bytes can be a constant of gigabytes, which opening would compute.
    """
    runtime = optional("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
    )


@lru_cache(maxsize=2)
def session_of(model: bytes) -> Any:
    """The cached session of a model. The network itself stores only the bytes, which can be copied and compared."""
    return open_session(model)


@final
class OnnxNetwork(nn.Module):
    """An ONNX model of one image as a module: its operators are onnxruntime's, invisible to torch.

    Args:
        model: the bytes of the file.
        unread: the reason why the model could not be built from operators of torch.
    """

    operators_of = "onnxruntime"
    """The library that computes it, if not torch."""

    def __init__(self, model: bytes, unread: str = ""):
        super().__init__()
        self.model, self.unread = model, unread
        session_of(model)

    def forward(self, image: Tensor) -> Tensor:
        """The first output on an image (batch, channels, *sides).

        Raises:
            UsageError: onnxruntime refuses the image (C2A120), or torch compiles or exports (C2A010).
        """
        if torch.compiler.is_compiling():
            reason = "the operators of an ONNX model are onnxruntime's, which torch cannot trace"
            raise UsageError("C2A010", reason, "Call it outside torch.compile and torch.export.")
        session = session_of(self.model)
        (input_node, *_), (output_node, *_) = session.get_inputs(), session.get_outputs()
        try:
            (output,) = session.run([output_node.name], {input_node.name: image.detach().cpu().numpy()})
        except Exception as error:
            reason = f"the ONNX model does not take images {'x'.join(map(str, image.shape))} of {image.dtype}"
            sizes = "x".join(str(side) if isinstance(side, int) else "?" for side in input_node.shape)
            raise UsageError(
                "C2A120", reason, f"Pass --input-size or --inputs of {sizes}, {input_node.type}."
            ) from error
        return torch.from_numpy(output).to(image.device)


def read_onnx(path: Path) -> nn.Module:
    """The network in an .onnx file: with operators of torch if all are supported, otherwise run by onnxruntime.

    Raises:
        CheckpointError: see `parse_model`. A model that needs onnxruntime has several inputs or outputs, or onnxruntime
            refuses it (C2A303).
        UsageError: onnx is not installed, or onnxruntime if needed (C2A003).
    """
    model = parse_model(path)
    try:
        return graph_of(model)
    except UnsupportedError as error:
        unread = error.found
    weights = {each.name for each in model.graph.initializer}
    inputs = [each.name for each in model.graph.input if each.name not in weights]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        reason = f"{path} takes {len(inputs)} inputs and gives {len(model.graph.output)} outputs, and {unread}"
        raise CheckpointError("C2A303", reason, "Export a network of one image and one tensor.")
    try:
        return OnnxNetwork(model.SerializeToString(), unread)
    except UsageError:
        raise
    except Exception as error:
        refusal = f"{path}: onnxruntime refuses it ({first_line(error)[:120]})"
        raise CheckpointError("C2A303", refusal, "Export the network again.") from error


def onnx_parts(path: Path) -> tuple[list[str], dict[str, Tensor]]:
    """The operators of an .onnx file, one for each node, and its weights by name.

    Raises:
        CheckpointError: see `parse_model`; or a weight does not have the elements that it claims (C2A303).
    """
    graph = parse_model(path).graph
    arrays = {each.name: array_of(each) for each in graph.initializer}
    tensors = {name: torch.from_numpy(np.array(each)) for name, each in arrays.items() if each.dtype.kind in "fiub"}
    return [node.op_type for node in graph.node], tensors


def stored_model(path: Path) -> tuple[Any, list[Any], list[Any]]:
    """The stored model of a file, its nodes, and its tensors in other files.

    Raises:
        CheckpointError: the file is damaged (C2A302).
        UsageError: onnx is not installed (C2A003).
    """
    onnx = optional("onnx")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise CheckpointError(
            "C2A302", f"{path} is truncated or damaged ({type(error).__name__})", "Copy or export it again."
        ) from error
    nodes, tensors = list[Any](), list[Any]()
    for holder in (model.graph, *model.functions):
        collect_nodes(holder, nodes, tensors)
    return model, nodes, [each for each in tensors if each.data_location == onnx.TensorProto.EXTERNAL]


def parse_model(path: Path) -> Any:
    """The model in a file, with its weights in other files of the folder.

    Raises:
        CheckpointError: the file is damaged (C2A302), refers to another folder (C2A303) or a missing file (C2A301), has
            foreign operators (C2A303), or is too large (C2A307).
    """
    model, nodes, outside = stored_model(path)
    places = [place_of(path, each) for each in outside]
    budget = Budget.of(path, *{path.parent / each.name for each in places})
    # A message copies the bytes of each tensor, even if two refer to the same bytes of another file; the model is then
    # written and parsed once more.
    budget.draw(2 * sum(each.length for each in places), "its weights in other files")
    budget.draw(bytes_of_functions(path, model), "its graph with every call replaced by its function")
    if outside and path.stat().st_size + sum(each.length for each in places) > LARGEST_MODEL:
        reason = f"{path} and the files of its weights have more than {LARGEST_MODEL:,} bytes"
        raise CheckpointError("C2A307", reason, "Export the network in half precision, or a part of it.")
    for tensor, place in zip(outside, places, strict=True):
        tensor.raw_data = read_place(path, place)
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    if foreign_domains := {node.domain for node in nodes} - {*DOMAINS} - {each.domain for each in model.functions}:
        raise CheckpointError(
            "C2A303",
            f"{path} has operators of {min(foreign_domains)!r}, which are foreign code",
            "Export the network with operators of ONNX alone.",
        )
    return model


def bytes_of_functions(path: Path, model: Any) -> int:
    """The bytes of a model's nodes with the bodies of its functions in place of their calls.

    Thirty functions that each call the next one twice fit into 2 KB, and make a billion nodes.

    Raises:
        CheckpointError: a function calls itself, perhaps by way of others (C2A302).
    """

    def name_of(called: Any) -> tuple[str, str, str]:
        return called.domain, getattr(called, "op_type", "") or called.name, called.overload

    bodies: dict[tuple[str, str, str], list[Any]] = {}
    for function in model.functions:
        collect_nodes(function, bodies.setdefault(name_of(function), []), [])
    calls = {key: {name_of(node) for node in nodes} & bodies.keys() for key, nodes in bodies.items()}
    nodes, sizes = list[Any](), dict[tuple[str, str, str], int]()
    collect_nodes(model.graph, nodes, [])

    def total(nodes: list[Any]) -> int:
        return sum(sizes.get(name_of(node), node.ByteSize()) for node in nodes)

    try:
        for key in TopologicalSorter(calls).static_order():
            sizes[key] = total(bodies[key])
    except CycleError as error:
        reason = f"{path} has a function that calls itself, {error.args[1][0][1]}"
        raise CheckpointError("C2A302", reason, "Export it again.") from error
    return total(nodes)


@final
@dataclass(frozen=True)
class Place:
    """Bytes of a tensor in another file of the same folder."""

    name: str
    offset: int
    length: int


def place_of(path: Path, tensor: Any) -> Place:
    """The location of a tensor stored outside the model file.

    Raises:
        CheckpointError: the bytes are not within a file of the same folder (C2A303), or that file is missing (C2A301).
    """
    entries = {each.key: each.value for each in tensor.external_data}
    name, file = entries.get("location", ""), path.parent / entries.get("location", "")
    if not name or Path(name).name != name or "\\" in name or file.is_symlink():
        reason = f"{path} keeps {tensor.name!r} in {name!r}, which is not a file in its folder"
        raise CheckpointError("C2A303", reason, "Save it with all data inside, or in a file beside it.")
    with open_file(file):
        size = file.stat().st_size
    start, count = entries.get("offset", "0"), entries.get("length", "")
    offset = int(start) if start.isdecimal() else size + 1
    length = int(count) if count.isdecimal() else size - offset
    if length < 0 or offset + length > size:
        reason = f"{path} keeps {tensor.name!r} at bytes {start} to {offset + length} of {name}, which has {size}"
        raise CheckpointError("C2A303", reason, "Copy both files again.")
    return Place(name, offset, length)


def read_place(path: Path, place: Place) -> bytes:
    """The bytes at a place."""
    with open_file(path.parent / place.name) as file:
        file.seek(place.offset)
        return file.read(place.length)


def outside_files(path: Path) -> list[Path]:
    """The files in which an ONNX model keeps weights, sorted.

    Raises:
        CheckpointError: see `parse_model`.
    """
    _, _, outside = stored_model(path)
    return sorted({path.parent / place_of(path, each).name for each in outside})


def collect_nodes(holder: Any, nodes: list[Any], tensors: list[Any]) -> None:
    """Adds the nodes and stored tensors of a graph or function, and of the graphs inside their attributes."""
    tensors += getattr(holder, "initializer", ())
    for sparse in getattr(holder, "sparse_initializer", ()):
        tensors += (sparse.values, sparse.indices)
    for node in holder.node:
        nodes.append(node)
        for each in node.attribute:
            tensors += (each.t, *each.tensors)
            for sparse in (each.sparse_tensor, *each.sparse_tensors):
                tensors += (sparse.values, sparse.indices)
            for graph in (each.g, *each.graphs):
                collect_nodes(graph, nodes, tensors)
