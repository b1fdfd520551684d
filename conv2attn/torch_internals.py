"""The private parts of torch in use, each with the feature that is lost in a version of torch without it.

Importing the package never fails for a missing part: it is replaced by one for the general case, or by a function that
raises an error with the lost feature. Private attributes of torch objects are read where they are needed, and listed in
tests/test_torch_internals.py.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from conv2attn.errors import UsageError

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

GONE: dict[str, str] = {}
"""Parts that this torch lacks, as module.name, each with the lost feature."""


def internal(module: str, name: str, lost: str, instead: Any = None) -> Any:
    """The private part `name` of a module of torch; if it is gone, `instead`, or a function that raises C2A003."""
    try:
        return attrgetter(name)(import_module(module))
    except (ImportError, AttributeError):
        GONE[f"{module}.{name}"] = lost
        return partial(refuse, f"{module}.{name}", lost) if instead is None else instead


def refuse(name: str, lost: str, *arguments: Any, **options: Any) -> NoReturn:
    """Raises an error that names the missing part of torch and the lost feature (C2A003)."""
    raise UsageError(
        "C2A003", f"this torch has no {name}, which is needed for {lost}", "Install another version of torch."
    )


def undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return function


def not_batched(tensor: Any) -> bool:
    """Replacement: no tensor is batched by torch.vmap."""
    return False


def no_mode(key: Any) -> None:
    """Replacement: no mode of this kind is active."""


def no_context() -> AbstractContextManager[None]:
    """Does nothing."""
    return nullcontext()


FUNCTORCH = "torch._C._functorch"
is_batchedtensor = internal(FUNCTORCH, "is_batchedtensor", "torch.vmap over layers", not_batched)
is_functorch_wrapped_tensor = internal(FUNCTORCH, "is_functorch_wrapped_tensor", "torch.func over layers", not_batched)
get_unwrapped = internal(FUNCTORCH, "get_unwrapped", "torch.vmap over layers")
maybe_get_bdim = internal(FUNCTORCH, "maybe_get_bdim", "torch.vmap over layers")
peek_interpreter_stack = internal(FUNCTORCH, "peek_interpreter_stack", "torch.func over layers")
FakeTensor = internal("torch._subclasses.fake_tensor", "FakeTensor", "layers in memory planners", ())
fake_mode = internal("torch._C", "_get_dispatch_mode", "layers in memory planners", no_mode)
FAKE = internal("torch._C", "_TorchDispatchModeKey.FAKE", "layers in memory planners", "FAKE")
mkldnn_enabled = internal("torch._C", "_get_mkldnn_enabled", "probes asked again when oneDNN is switched", no_context)
enable_mkldnn = internal("torch._C", "_set_mkldnn_enabled", "sections of networks")
DisableTorchFunction = internal("torch._C", "DisableTorchFunction", "the capture of attention")
StorageWeakRef = internal("torch.multiprocessing.reductions", "StorageWeakRef", "the comparison of formulas")
check_size = internal("torch", "_check", "the engine sdpa in graphs")
unsafe_view = internal("torch", "ops.aten._unsafe_view", "results of layers that are written to in place")
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
tree_flatten = internal(TREES, "tree_flatten", "sections of networks")
tree_unflatten = internal(TREES, "tree_unflatten", "sections of networks")
tree_map_only = internal(TREES, "tree_map_only", "networks that take or return more than one tensor")
if not TYPE_CHECKING:
    TorchDispatchMode = internal("torch.utils._python_dispatch", "TorchDispatchMode", "fingerprints", object)
DisableTorchFunctionSubclass = internal("torch._C", "DisableTorchFunctionSubclass", "fingerprints")
DisableTorchDispatch = internal("torch._C", "_DisableTorchDispatch", "fingerprints")
TensorBase = internal("torch._C", "TensorBase", "fingerprints", torch.Tensor)
without_modes = internal("torch.utils._python_dispatch", "_disable_current_modes", "sections of networks")
is_wrapper = internal(
    "torch.utils._python_dispatch", "is_traceable_wrapper_subclass", "trained positions in wrapper tensors", not_batched
)
storage_users = internal("torch._C", "_storage_Use_Count", "sections of networks")
has_kernel = internal("torch._C", "_dispatch_has_kernel_for_dispatch_key", "fingerprints")
decomposition_table = internal("torch._decomp", "decomposition_table", "fingerprints of norms and gates", {})
registered_operators = internal("torch.library", "_impls", "fingerprints where operators of torch were replaced", set())

TRACED = "torch._subclasses."
"""Modules of torch's tracing tensor classes; elsewhere these would count as a user's own."""
COMPILED = "torch._dynamo.eval_frame"
"""The module of the class of compiled modules; elsewhere these would count as plain ones."""


def view_in_place(operator: Any) -> Any:
    """The view operator for an in-place one: `transpose` for `transpose_`, as GRU calls it; None for others."""
    if torch.Tag.inplace_view not in operator.tags:
        return None
    views = getattr(torch.ops.aten, operator._schema.name.partition("::")[2].rstrip("_"), None)
    names = views.overloads() if views is not None else []
    # Named axes have another overload; `transpose_` has only one, without a name of its own.
    shared_names = [name for name in (operator._overloadname, "int") if name in names]
    view = getattr(views, shared_names[0]) if shared_names else None
    return view if view is not None and any(each.alias_info for each in view._schema.returns) else None
