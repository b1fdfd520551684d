"""ONNX models: what is in one, read by onnx, and the map that it is, run by onnxruntime."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.errors import CheckpointError, UsageError, first_line

DOMAINS = ("", "ai.onnx", "com.microsoft")


def optional_library(library: str) -> Any:
    """A library for ONNX files.

    Raises:
        UsageError: it is not installed (C2A003).
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        remedy = "Install it: pip install 'conv2attn[onnx]'."
        raise UsageError("C2A003", f"{library} is not installed", remedy) from error


def open_session(model: str | bytes) -> Any:
    """A session of onnxruntime on the CPU, of a file or its bytes, which says errors and no warnings."""
    runtime = optional_library("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@final
class OnnxNetwork(nn.Module):
    """An ONNX model of one image as a module: its operators are onnxruntime's, so nothing inside it is seen by torch.

    Args:
        model: the bytes of the file.
    """

    def __init__(self, model: bytes):
        super().__init__()
        self.model = model
        self.session = open_session(model)

    def forward(self, image: Tensor) -> Tensor:
        """The first output on an image (batch, channels, *sides).

        Raises:
            UsageError: onnxruntime refuses the image (C2A120), or torch compiles or exports (C2A010).
        """
        if torch.compiler.is_compiling():
            reason = "the operators of an ONNX model are onnxruntime's, which torch does not see"
            raise UsageError("C2A010", reason, "Call it outside torch.compile and torch.export.")
        (input_node, *_), (output_node, *_) = self.session.get_inputs(), self.session.get_outputs()
        try:
            (output,) = self.session.run([output_node.name], {input_node.name: image.detach().cpu().numpy()})
        except Exception as error:
            reason = f"the ONNX model does not take images {'x'.join(map(str, image.shape))} of {image.dtype}"
            sizes = "x".join(map(str, input_node.shape))
            raise UsageError(
                "C2A120", reason, f"Pass --input-size or --inputs of {sizes}, {input_node.type}."
            ) from error
        return torch.from_numpy(output).to(image.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnnxNetwork":
        return OnnxNetwork(self.model)


def read_onnx(path: Path) -> OnnxNetwork:
    """The network in an .onnx file.

    Raises:
        CheckpointError: it reads other files or operators of others, does not have one image and one output, or
            onnxruntime refuses it (C2A303).
        UsageError: onnx or onnxruntime is not installed (C2A003).
    """
    model = parse_model(path)
    weights = {each.name for each in model.graph.initializer}
    inputs = [each.name for each in model.graph.input if each.name not in weights]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        reason = f"{path} takes {len(inputs)} inputs and gives {len(model.graph.output)} outputs"
        raise CheckpointError("C2A303", reason, "Export a network of one image and one tensor.")
    try:
        return OnnxNetwork(path.read_bytes())
    except UsageError:
        raise
    except Exception as error:
        refusal = f"{path}: onnxruntime refuses it ({first_line(error)[:120]})"
        raise CheckpointError("C2A303", refusal, "Export the network again.") from error


def onnx_parts(path: Path) -> tuple[list[str], dict[str, Tensor]]:
    """The operators of an .onnx file, one for each node, and its weights by name."""
    graph = parse_model(path).graph
    to_array = optional_library("onnx.numpy_helper").to_array
    arrays: Mapping[str, np.ndarray[Any, Any]] = {each.name: to_array(each) for each in graph.initializer}
    tensors = {name: torch.from_numpy(np.array(each)) for name, each in arrays.items() if each.dtype.kind in "fiub"}
    return [node.op_type for node in graph.node], tensors


def parse_model(path: Path) -> Any:
    """The model in a file; no other file is read.

    Raises:
        CheckpointError: it is damaged (C2A302), keeps weights in other files, or has operators of others (C2A303).
    """
    onnx = optional_library("onnx")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise CheckpointError(
            "C2A302", f"{path} is truncated or damaged ({type(error).__name__})", "Copy or export it again."
        ) from error
    nodes, tensors = list[Any](), list[Any]()
    for holder in (model.graph, *model.functions):
        collect_nodes(holder, nodes, tensors)
    if any(each.data_location == onnx.TensorProto.EXTERNAL for each in tensors):
        raise CheckpointError("C2A303", f"{path} keeps its weights in another file", "Save it with all data inside.")
    if foreign_domains := {node.domain for node in nodes} - {*DOMAINS} - {each.domain for each in model.functions}:
        raise CheckpointError(
            "C2A303",
            f"{path} has operators of {min(foreign_domains)!r}, which is code of others",
            "Export the network with operators of ONNX alone.",
        )
    return model


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
