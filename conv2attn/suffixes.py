"""The suffixes of all written files. A suffix selects the format."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Export:
    """A format of programs that run without this project.

    Functions are named "module:function" to avoid a torch import.

    Args:
        engine: the default order of evaluation; empty keeps that of the network.
        write: takes a program of torch.export, a path and notes by name, and writes the file.
        run: takes the path and an image, and returns what the file computes.
        whole_layers: whether a layer is one operator of the program, which `write` translates, under this engine.
    """

    engine: str
    write: str
    run: str
    whole_layers: str = ""


EXPORTS = {
    ".pt2": Export("", "conv2attn.files.exporting:write_program", "conv2attn.files.exporting:run_program"),
    ".onnx": Export(
        "separable", "conv2attn.files.exporting:write_onnx", "conv2attn.files.exporting:run_onnx", "separable"
    ),
}
"""The formats of exported programs, by suffix; all code about formats reads this table."""
TENSOR_SUFFIXES = (".pt", ".pth")
NETWORK_SUFFIXES = (*TENSOR_SUFFIXES, ".safetensors", *EXPORTS)
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
PAGE_SUFFIXES = (".html", ".png")
REPORT_SUFFIXES = {
    ".json": "json",
    ".md": "markdown",
    ".html": "html",
    ".svg": "svg",
    ".tex": "latex",
    ".csv": "csv",
    ".txt": "text",
}
"""The suffixes of a report, each with its format."""
CERTIFICATE_SUFFIXES = (".txt",)
"""The suffix of a span certificate."""
