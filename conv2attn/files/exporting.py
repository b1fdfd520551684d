"""Exports a network as a program that runs without this project (.pt2 or .onnx), and compares a run of the file."""

import json
import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from operator import attrgetter
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from conv2attn.arguments import FAILURES, export_shapes, running
from conv2attn.errors import CheckpointError, Conv2AttnError, UsageError, first_line
from conv2attn.extras import optional
from conv2attn.files.atomic_files import open_for_torch
from conv2attn.files.onnx_attention import ATTENTION_OPERATOR, attention_nodes, with_whole_layers
from conv2attn.files.onnx_models import open_session
from conv2attn.layers.attention import set_engine
from conv2attn.networks import attention_layers
from conv2attn.networks.provenance import input_size_of, provenance_of
from conv2attn.suffixes import EXPORTS

OPSET = 18
MOST_ROUNDOFFS = 4096.0
"""A file may differ by this many roundoffs of the largest output.

Chosen: networks of 100 layers differed by less than 100, a wrong head, tap or side by far more than 4096.
"""
SIZE_STEP = 8
"""Pixels by which the second test image is larger."""


def export(
    network: nn.Module,
    path: Path,
    suffix: str,
    *,
    engine: Any = None,
    input_size: Sequence[int] | None = None,
    notes: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Writes `network` as a program with free batch and sides, runs the file, and returns notes on its sizes and its
    error.

    Args:
        suffix: the format of the file, a key of `EXPORTS`.
        engine: the engine to export. The default is the network's own for .pt2, and "separable" for .onnx, which
            exports attention; "conv" exports convolutions.
        input_size: channels and sides to trace with; the architecture's own by default.
        notes: text stored with the program.
    Raises:
        CheckpointError: the network cannot be exported, or a run of the file gives another output (C2A309).
        UsageError: the image size is unknown (C2A005), the network does not run on the images (C2A009), or a library is
            missing (C2A003).
    """
    network = deepcopy(network).eval()
    # Parameters in a copy of compiled code are not leaves, and torch refuses to change their gradients.
    for tensor in filter(attrgetter("is_leaf"), network.parameters()):
        tensor.requires_grad_(False)
    for layer in attention_layers(network).values():
        # Engines that read the centres as constants are exact only for centres that are not trained.
        layer.encoding.learn(False)
    way = EXPORTS[suffix]
    engine_name: Any = engine or way.engine
    if engine_name and attention_layers(network):
        set_engine(network, engine_name)
    size = tuple(input_size or input_size_of(network) or ())
    if not size:
        reason = "the image size of the exported network is unknown"
        raise UsageError("C2A005", reason, "Pass --input-size, such as 3x224x224.")
    parameter = next((each for each in network.parameters() if each.is_floating_point()), torch.empty(0))
    images = [noise((2, *size), parameter)]
    with torch.no_grad():
        with running(network, images[0]):
            expected = [run_network(network, images[0])]
        # The second images differ in number and size: they reveal a size that tracing fixed by mistake.
        images.append(noise((3, size[0], *(side + SIZE_STEP for side in size[1:])), parameter))
        try:
            expected.append(run_network(network, images[1]))
        except FAILURES:
            images[1] = noise((3, *size), parameter)
            expected.append(run_network(network, images[1]))
        with warnings.catch_warnings(action="ignore"):
            whole_layers = bool(way.whole_layers) and engine_name == way.whole_layers
            example = images[1] if 1 in size[1:] else images[0]  # torch.export would fix a side of 1
            program = trace_program(with_whole_layers(network) if whole_layers else network, example)
            metadata = {**program_metadata(network), **(notes or {})}
            resolve_name(way.write)(program, path, metadata)
            for image, expected_output in zip(images, expected, strict=True):
                check_exported_file(partial(resolve_name(way.run), path), image, expected_output)
    sizes = " and ".join("x".join(map(str, image.shape)) for image in images)
    return (
        f"free sizes: {free_sizes(program)}",
        f"run from the file on {sizes}: within {allowed_difference(*expected):.2g}",
    )


def noise(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Seeded numbers within +-1."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(0), device="cpu") * 2 - 1).to(like)


def run_network(network: Any, image: Tensor) -> Tensor:
    """The output of a network that returns one tensor."""
    output = network(image)
    if not isinstance(output, Tensor):
        reason = f"the network returns a {type(output).__name__}, but only one tensor can be exported"
        raise CheckpointError("C2A309", reason, "Save it as .pt, or export the part that returns one tensor.")
    return output


def trace_program(network: nn.Module, image: Tensor) -> ExportedProgram:
    """The program of a network, with free batch and sides if the network allows it."""
    free = {0: Dim.AUTO, **dict.fromkeys(range(2, image.ndim), Dim.AUTO)}
    try:
        return torch.export.export(network, (image,), dynamic_shapes=export_shapes(network, free))
    except Exception as error:
        raise CheckpointError(
            "C2A309",
            f"torch.export cannot trace it ({first_line(error)[:200]})",
            "Save it as .pt, or change its code so that torch.export can trace it.",
        ) from error


def free_sizes(program: ExportedProgram) -> str:
    """The free sizes of the image in a program: "batch and sides", "batch", or "none"."""
    name = program.graph_signature.user_inputs[0]
    value = next(node.meta["val"] for node in program.graph.nodes if node.name == name)
    batch, *sides = [not isinstance(each, int) for each in (value.shape[0], *value.shape[2:])]
    return " and ".join(["batch"] * batch + ["sides"] * (bool(sides) and all(sides))) or "none"


def program_metadata(network: nn.Module) -> dict[str, str]:
    """The metadata of a file: versions, sharpness of the heads, the hash of the original."""
    layers, source = attention_layers(network), provenance_of(network)
    heads: list[Any] = [getattr(each.encoding, "alpha", None) for each in layers.values()]
    alphas = {f"{alpha.flatten()[0].item():g}" for alpha in heads if alpha is not None}
    metadata = {"torch": torch.__version__, "attention layers": str(len(layers)), "alpha": ", ".join(sorted(alphas))}
    return metadata | ({"source sha256": source.sha256, "read as": source.to_text()} if source else {})


def write_program(program: ExportedProgram, path: Path, notes: Mapping[str, str]) -> None:
    """Writes a .pt2 file."""
    with open_for_torch(path) as file:
        torch.export.save(program, file, extra_files={"conv2attn.json": json.dumps(dict(notes), sort_keys=True)})


def run_program(path: Path, image: Tensor) -> Tensor:
    """The output of the program in a .pt2 file."""
    with path.open("rb") as file:
        return run_network(torch.export.load(file).module(), image)


def why_not_onnx(error: BaseException) -> str:
    """The operator that torch.onnx does not translate, if its report names one; otherwise the error's first line."""
    operator = re.search(r"\[target=torch\.ops\.([\w.]+)\]", str(error))
    return f"it cannot translate {operator[1]}" if operator else re.sub(r"\x1b\[\d*m", "", first_line(error))[:200]


def write_onnx(program: ExportedProgram, path: Path, notes: Mapping[str, str]) -> None:
    """Writes an .onnx file."""
    optional("onnxscript")
    # Its log concerns operators outside this network, such as torchvision's if that is not installed.
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        translations: Any = {ATTENTION_OPERATOR: attention_nodes}
        onnx_program = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            external_data=False,
            verbose=False,
            optimize=False,
            custom_translation_table=translations,
        )
        assert onnx_program is not None
        onnx_program.model.metadata_props.update(notes)
        onnx_program.save(str(path), external_data=False)
    # A full disk is not the network's fault, and its message is the clearer one.
    except OSError:
        raise
    except Exception as error:
        refusal = f"torch.onnx does not export it ({why_not_onnx(error)})"
        raise CheckpointError("C2A309", refusal, "Save it as .pt or .pt2, or with another --engine.") from error
    finally:
        log.setLevel(level)


def run_onnx(path: Path, image: Tensor) -> Tensor:
    """The output of the model in an .onnx file, in onnxruntime."""
    session = open_session(str(path))
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: image.numpy()})[0])


def allowed_difference(*expected: Tensor) -> float:
    """The largest difference attributed to rounding: a number of roundoffs of the largest output."""
    largest = max(float(each.abs().max()) for each in expected)
    return MOST_ROUNDOFFS * torch.finfo(expected[0].dtype).eps / 2 * largest


def check_exported_file(run_file: Callable[[Tensor], Tensor], image: Tensor, expected: Tensor) -> None:
    """Runs a file on an image, and refuses an output of another shape, or one that differs by more than rounding can.

    Raises:
        CheckpointError: the output is wrong, or the file does not run (C2A309).
    """
    sides = "x".join(map(str, image.shape))
    try:
        output = run_file(image)
    except Conv2AttnError:
        raise
    except Exception as error:
        reason = f"the file does not run on {sides} ({first_line(error)[:120]})"
        raise CheckpointError("C2A309", reason, "Pass another --input-size, or save it as .pt.") from error
    if output.shape != expected.shape or output.dtype != expected.dtype:
        reason = f"the file gives {tuple(output.shape)} on {sides}, not {tuple(expected.shape)}"
        raise CheckpointError("C2A309", reason, "Save it as .pt, or with another --engine.")
    difference, limit = float((output.double() - expected.double()).abs().max()), allowed_difference(expected)
    # Also refuses NaN, which `difference > limit` would let pass.
    if not difference <= limit:
        reason = f"the file differs by {difference:.2g} on {sides}, more than {limit:.2g}"
        raise CheckpointError("C2A309", reason, "Save it as .pt, or with another --engine.")
