"""The private parts of torch that the package uses, each with what is lost in a version of torch without it.

Importing the package never fails for a part that is gone: the part answers for the general case, where there is one,
or raises an error that says what is lost, when it is called.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from conv2attn.errors import UsageError

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

GONE: dict[str, str] = {}
"""Parts that this torch lacks, as module.name, each with what is lost."""


def internal(module: str, name: str, lost: str, instead: Any = None) -> Any:
    """The private part `name` of a module of torch; if it is gone, `instead`, or a function that raises C2A003."""
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        GONE[f"{module}.{name}"] = lost
        return partial(refuse, f"{module}.{name}", lost) if instead is None else instead


def refuse(name: str, lost: str, *arguments: Any, **options: Any) -> NoReturn:
    """Says which part of torch is gone, and what is lost with it (C2A003)."""
    raise UsageError(
        "C2A003", f"this torch has no {name}, which is needed for {lost}", "Install another version of torch."
    )


def undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return function


def not_batched(tensor: Any) -> bool:
    """No tensor is one of torch.vmap."""
    return False


def no_context() -> AbstractContextManager[None]:
    """Does nothing."""
    return nullcontext()


FUNCTORCH = "torch._C._functorch"
is_batchedtensor = internal(FUNCTORCH, "is_batchedtensor", "torch.vmap over layers", not_batched)
get_unwrapped = internal(FUNCTORCH, "get_unwrapped", "torch.vmap over layers")
maybe_get_bdim = internal(FUNCTORCH, "maybe_get_bdim", "torch.vmap over layers")
peek_interpreter_stack = internal(FUNCTORCH, "peek_interpreter_stack", "engines chosen by their time")
mkldnn_enabled = internal("torch._C", "_get_mkldnn_enabled", "probes asked again when oneDNN is switched", no_context)
DisableTorchFunction = internal("torch._C", "DisableTorchFunction", "the capture of flex_attention")
assert_async = internal("torch", "_assert_async", "converted layers in graphs and on accelerators")
check_size = internal("torch", "_check", "the engine sdpa in graphs")
any_convolution = internal("torch", "_convolution", "conversion of calls of torch._convolution")
disable_dynamo: Callable[[Callable[..., Any]], Callable[..., Any]] = internal(
    "torch._compile", "_disable_dynamo", "torch.compile of graph attention", undecorated
)
OpOverload = internal("torch._ops", "OpOverload", "reading files of torch.export", ())
function_mode_stack = internal(
    "torch.overrides", "_get_current_function_mode_stack", "functional convolutions under a function mode"
)
ParametrisedSpectralNorm = internal(
    "torch.nn.utils.parametrizations", "_SpectralNorm", "conversion of layers with spectral normalisation", type(None)
)

TREES = "torch.utils._pytree"
tree_leaves = internal(TREES, "tree_leaves", "networks that return more than one tensor")
tree_map = internal(TREES, "tree_map", "fingerprints")
tree_map_only = internal(TREES, "tree_map_only", "networks that take or return more than one tensor")
if not TYPE_CHECKING:
    TorchDispatchMode = internal("torch.utils._python_dispatch", "TorchDispatchMode", "fingerprints", object)
DisableTorchFunctionSubclass = internal("torch._C", "DisableTorchFunctionSubclass", "fingerprints")
DisableTorchDispatch = internal("torch._C", "_DisableTorchDispatch", "fingerprints")
TensorBase = internal("torch._C", "TensorBase", "fingerprints", torch.Tensor)
has_kernel = internal("torch._C", "_dispatch_has_kernel_for_dispatch_key", "fingerprints")
registered_operators = internal("torch.library", "_impls", "fingerprints where operators of torch were replaced", set())
decomposition_table = internal("torch._decomp", "decomposition_table", "error bounds of composed operators", {})
