"""Libraries that are not always installed: each is imported here alone, and its absence names the extra to install."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from conv2attn.errors import UsageError, first_line

EXTRAS = {
    "matplotlib": "plot",
    "PIL": "train",
    "sklearn": "train",
    "tensorboard": "train",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "transformers": "hf",
    "timm": "timm",
    "torchvision": "torchvision",
    "torch_geometric": "graph",
    "pandas": "notebook",
}
"""The extra of `pip install 'conv2attn[extra]'` that brings each library."""


def optional(module: str, needed: str = "") -> Any:
    """Imports a module of an optional library.

    Args:
        needed: the feature that needs it, as the subject of a sentence: "a picture".
    Raises:
        UsageError: the module cannot be imported (C2A003); the remedy names its extra.
    Examples:
        >>> from conv2attn.extras import optional
        >>> optional("json").__name__
        'json'
    """
    try:
        return import_module(module)
    except (ImportError, RuntimeError, OSError) as error:
        raise missing(module, needed, first_line(error)) from error


def is_installed(library: str) -> bool:
    """Whether a library is installed, without importing it."""
    return find_spec(library) is not None


def missing(module: str, needed: str = "", reason: str = "") -> UsageError:
    """The error for a library that cannot be imported (C2A003)."""
    library = module.partition(".")[0]
    why = f" ({reason})" if reason and is_installed(library) else ""
    subject = f"{needed} needs {library}, which" if needed else library
    remedy = f"Install it: pip install 'conv2attn[{EXTRAS[library]}]'." if library in EXTRAS else f"Install {library}."
    return UsageError("C2A003", f"{subject} cannot be imported{why}", remedy)
