"""The source line of the network's own code that is running."""

import sys
from pathlib import Path

import torch

OWN = str(Path(__file__).parent)
PACKAGE = Path(__file__).parents[2]
WITHOUT_LINES = str(Path(torch.__file__).parent), str(PACKAGE / "files"), str(PACKAGE / "equality")
"""Code that is nobody's network: torch's, our readers' of programs (a node has a name), and the wrappers around one."""
START = "followed_call"
"""The function that calls the network; frames outside it are the caller's."""


def source_of() -> str:
    """File and line of the innermost code of a network; empty if there is none, as in a node of an ONNX model."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_back is not None:
        file, own = frame.f_code.co_filename, frame.f_code.co_filename.startswith(OWN)
        if own and frame.f_code.co_name == START:
            return ""
        if not own and not file.startswith(WITHOUT_LINES):
            return f"{'/'.join(file.split('/')[-3:])}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
