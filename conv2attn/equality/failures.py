"""Describes failures: errors that networks raise, the code that raised them, and objects of a wrong kind."""

import sys
import traceback
from pathlib import Path

import torch

PACKAGE, TORCH = Path(__file__).parents[1], Path(torch.__file__).parent
NETWORKS = PACKAGE / "networks" / "zoo"
WITHOUT_LINES = tuple(map(str, (TORCH, PACKAGE / "files", Path(__file__).parent)))
"""Code that belongs to no network: torch's, our readers of programs, and callers of networks.
"""
FOLLOWING = ("followed_call", "fingerprint")
"""Functions that call a network while its operators are traced: frames outside them are the caller's."""
OURS_THAT_CALL = (Path(__file__).parent / "calls.py", PACKAGE / "networks" / "conversion" / "redirection.py")


def without_memory(failure: BaseException) -> bool:
    """Whether memory ran out, which shows nothing about a network."""
    return isinstance(failure, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(failure)


def reason(failure: BaseException) -> str:
    """The first line of an error's message, or its class if that is empty."""
    return str(failure).partition("\n")[0] or type(failure).__name__


def blame(failure: BaseException) -> str:
    """The code that raised an error, in words; empty if it is the network's own, since only that is evidence about it.

    An error that torch raises for wrong arguments counts as the network's; one raised by this package does not.
    """
    files = [Path(frame.filename) for frame in traceback.extract_tb(failure.__traceback__)]
    innermost = next((file for file in reversed(files) if not file.is_relative_to(TORCH)), None)
    ours = innermost is not None and innermost.is_relative_to(PACKAGE) and not innermost.is_relative_to(NETWORKS)
    return "conv2attn" if ours and innermost not in OURS_THAT_CALL else ""


def a_kind(thing: object) -> str:
    """The class of something, with its article."""
    name = type(thing).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def network_line() -> str:
    """File and line of the innermost code of a network; empty if there is none, as in a node of an ONNX model."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_back is not None:
        file = frame.f_code.co_filename
        if not file.startswith(WITHOUT_LINES):
            return f"{'/'.join(file.split('/')[-3:])}:{frame.f_lineno}"
        if frame.f_code.co_name in FOLLOWING:
            return ""
        frame = frame.f_back
    return ""
