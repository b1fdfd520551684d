"""For which sizes of input an exported graph is what runs, and the line of the user's code behind a node, in words."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

AXES = {0: (), 1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
OWN = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
SIZE = re.compile(r"L\['?\w+'?\](?:\['?\w+'?\])*\.size\(\)\[(\d+)\]")


NONEMPTY = re.compile(
    r"((?!==|!=|<|>| and | or ).)+ (>= 0|>= 1|!= 0)( and ((?!==|!=|<|>| and | or ).)+ (>= 0|>= 1|!= 0))*"
)
NOT_EMPTY = "no map in between empty"


def sizes_in(guard: str, count: int) -> str:
    """A guard with the sizes of the input by the names of their axes."""
    return SIZE.sub(lambda found: axis_name(int(found[1]), count), guard)


def axis_name(axis: int, count: int) -> str:
    """The name of an axis of the images."""
    if axis == 0:
        return "batch"
    return AXES[count - 2][axis - 2] if count - 2 in AXES else f"axis {axis}"


def conditions_of(program: ExportedProgram, images: Tensor, dynamic: Mapping[int, Any]) -> tuple[str, ...]:
    """The conditions of the code on the sizes, in words: fixed sizes, guards, and axes that a squeeze may remove."""
    count = images.ndim
    guards = list(getattr(program, "_guards_code", None) or [])
    sizes = [NOT_EMPTY if NONEMPTY.fullmatch(guard) else sizes_in(guard, count) for guard in guards]
    if not dynamic:
        sizes.append("inputs " + "x".join(map(str, images.shape)) + " only")
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            shape = getattr(node.meta.get("val"), "shape", ())
            sizes += [
                f"{axis_name(axis, count)} == {side}"
                for axis, side in enumerate(shape)
                if axis in dynamic and isinstance(side, int)
            ]
        if "squeeze" in str(node.target) and "unsqueeze" not in str(node.target) and squeezes_unknown(node):
            sizes.append("sizes above 1 where they are squeezed")
    return tuple(dict.fromkeys(sizes))


def squeezes_unknown(node: Any) -> bool:
    """Whether a squeeze may remove an axis or not, as the size of the input decides."""
    given = node.args[0].meta.get("val") if node.args and hasattr(node.args[0], "meta") else None
    sides = getattr(given, "shape", ())
    axes = node.args[1] if len(node.args) > 1 else range(len(sides))
    chosen = [axes] if isinstance(axes, int) else axes
    return any(not isinstance(sides[axis], int) for axis in chosen)


def own_line(meta: Mapping[str, Any]) -> str:
    """The line of the user's code that a node comes from, as ` (file:line: code)`; empty if it is not known."""
    return line_in(str(meta.get("stack_trace") or ""))


def line_in(trace: str) -> str:
    """The last line of a printed stack that is neither torch's nor this package's."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', trace)
    own = [frame for frame in frames if not frame[0].startswith(OWN)]
    if not own:
        return ""
    file, number, code = own[-1]
    return f" ({Path(file).name}:{number}: {code.strip()[:60]})"


def reason_of(error: Exception) -> str:
    """Why a network could not be exported, and at which of its lines."""
    text = str(error)
    if "data-dependent" in text:
        why = "its code branches on values"
    else:
        why = f"{type(error).__name__}: {text.strip().partition(chr(10))[0][:160]}"
    here = line_in(text) or line_in(trace_of(error))
    return f"{why}{here}"


def trace_of(error: BaseException) -> str:
    """The stack of an error as text, without what led to the export."""
    import traceback

    return "".join(traceback.format_tb(error.__traceback__))
