"""The districts of the package and the ways of three calls through its files, for `docs/house.md`."""

import ast
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import conv2attn

PACKAGE = Path(conv2attn.__file__).parent
ABOVE = ("cli", "lab", "files", "span", "equality", "networks", "layers", "theory")
BESIDE = ("plots", "report", "testing")


def says(file: Path) -> str:
    """The first line of the docstring of a file."""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def picture() -> str:
    """One box per district, from the top down: its name, its files and lines, and the first line of its docstring."""
    boxes = []
    for room in (*ABOVE, *BESIDE):
        files = sorted((PACKAGE / room).rglob("*.py"))
        lines = sum(len(file.read_text().splitlines()) for file in files)
        size = f"{len(files)} files, {lines:,} lines"
        boxes.append(f"{room:<9}| {size:<23}| {says(PACKAGE / room / '__init__.py')}")
    return "\n".join(["```text", *boxes[: len(ABOVE)], "", *boxes[len(ABOVE) :], "```"])


def entered(call: Callable[[], object]) -> list[str]:
    """The files of the package that a call enters, in the order of the first function called in each."""
    seen: dict[str, None] = {}

    def note(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            seen.setdefault(str(file.relative_to(PACKAGE)))

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(seen)


def walk(call: Callable[[], object]) -> str:
    """The files that a call enters, in that order."""
    files = [name for name in entered(call) if name != "__init__.py"]
    return textwrap.fill(f"{len(files)} files: " + ", ".join(f"`{name}`" for name in files) + ".", 124)


def parts() -> dict[str, str]:
    """The picture, and three walks: `convert` and `certify` of one convolution, and `check_span` of an array."""
    convolution = torch.nn.Conv2d(3, 4, 3)
    layer = conv2attn.convert(convolution)
    attention = np.stack([np.eye(16)] * 2)
    return {
        "picture": picture(),
        "convert": walk(lambda: conv2attn.convert(convolution)),
        "certify": walk(lambda: conv2attn.certify(convolution, layer, input_size=(3, 6, 6))),
        "check_span": walk(lambda: conv2attn.check_span(attention, grid=(4, 4))),
    }
