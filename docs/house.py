"""The rooms of the package and the ways of four calls through its files, for `docs/house.md`."""

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import conv2attn

PACKAGE = Path(conv2attn.__file__).parent
ROOMS = (
    *("cli", "explore", "experiments", "callbacks", "plots", "examples", "checkpoints", "testing", "equality", "span"),
    *("models", "theorem", "framework", "attention", "bounds", "basis", "report", "arguments", "score_terms"),
    *("verdicts", "choices", "ecosystems", "torch_internals", "errors", "generators", "suffixes"),
)
"""From the top down."""


def says(file: Path) -> str:
    """The first line of the docstring of a file."""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def files_of(room: str) -> list[Path]:
    """The files of a room: those of a folder, or one."""
    return sorted((PACKAGE / room).rglob("*.py")) or [PACKAGE / f"{room}.py"]


def imported(room: str) -> list[str]:
    """The rooms that a room imports, in their order."""
    found = set()
    for file in files_of(room):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("conv2attn"):
                found |= {node.module.split(".")[1]} if "." in node.module else {each.name for each in node.names}
    return [each for each in ROOMS if each in found and each != room]


def rooms() -> str:
    """The table of rooms, from the top down: files, lines, what a room is, and which rooms it imports."""
    rows = ["| room | files | lines | what it is | imports |", "| --- | ---: | ---: | --- | --- |"]
    for room in ROOMS:
        files = files_of(room)
        lines = sum(len(file.read_text().splitlines()) for file in files)
        told = says(files[0]).replace("|", "\\|")
        rows.append(f"| `{room}` | {len(files)} | {lines:,} | {told} | {', '.join(imported(room))} |")
    return "\n".join(rows)


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
    """The files that a call enters, numbered, with the first line of each."""
    return "\n".join(f"{place}. `{name}`: {says(PACKAGE / name)}" for place, name in enumerate(entered(call), 1))


def parts() -> dict[str, str]:
    """The rooms, and four walks: `convert` and `certify` of one convolution, `check_span` and `heads` of an array."""
    convolution = torch.nn.Conv2d(3, 4, 3)
    layer = conv2attn.convert(convolution)
    attention = np.stack([np.eye(16)] * 2)
    return {
        "rooms": rooms(),
        "convert": walk(lambda: conv2attn.convert(convolution)),
        "certify": walk(lambda: conv2attn.certify(convolution, layer, input_size=(3, 6, 6)).to_text()),
        "check_span": walk(lambda: conv2attn.check_span(attention, grid=(4, 4)).to_text()),
        "heads": walk(lambda: conv2attn.heads(attention, grid=(4, 4)).to_text()),
    }
