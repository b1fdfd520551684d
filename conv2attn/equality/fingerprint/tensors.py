"""Tensors without memory: views of a store, which holds real numbers while constant and residues once they depend on
the input. Any read of their memory (numpy, tolist, pickling, a data pointer) makes the run undecided.

An example: for an input `x` of shape (2, 3), the store holds 6 residues for each prime. `x.T` is another view of the
same store, with size (3, 2), stride (1, 3) and offset 0, so a write to it changes `x`. `torch.ones(3)` has a store of
three real numbers; once 2 x is written into it, the store holds residues instead.
"""

from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.torch_internals import DisableTorchDispatch, DisableTorchFunctionSubclass, TensorBase, tree_leaves

CODE = (FunctionType, BuiltinFunctionType, MethodType, CodeType)
PLAIN = {Tensor, torch.nn.Parameter}
Geometry = tuple[tuple[int, ...], tuple[int, ...], int]
"""Size, stride and offset of a view."""
MEMORY = {
    *("numpy", "__array__", "__array_wrap__", "data_ptr", "const_data_ptr", "untyped_storage", "storage"),
    *("_typed_storage", "storage_type", "__reduce_ex__", "__reduce__", "__deepcopy__", "__dlpack__", "__copy__"),
    *("__dlpack_device__", "apply_", "map_", "map2_", "set_", "resize_", "resize_as_", "share_memory_", "is_shared"),
    *("__setstate__", "register_hook", "backward", "_make_subclass", "as_subclass", "__cuda_array_interface__"),
    *("to_sparse", "_to_sparse", "swap_tensors", "_view_func"),
}
"""Functions that read or change the memory of a tensor."""
WORDS = ("tolist", "__repr__", "__format__", "__str__")
"""Functions that convert numbers to Python's: allowed while these are real."""


DATA: Any = vars(TensorBase)["data"].__get__
"""The getter of `tensor.data`."""


class Store:
    """The flat numbers of tensors: real while constant, residues (k, n) once they depend on the input."""

    def __init__(self, dtype: torch.dtype, real: Tensor | None = None, residues: Residues | None = None):
        self.dtype, self.real, self.residues = dtype, real, residues
        if residues is not None:  # a rule may return a slice of shared residues
            values, mark = owned(residues.values), owned(residues.mark)
            if values is not residues.values or mark is not residues.mark:
                self.residues = residues.but(values=values, mark=mark)

    def numel(self) -> int:
        """The number of elements."""
        if self.residues is not None:
            return self.residues.values.shape[1]
        assert self.real is not None
        return self.real.numel()


def owned(tensor: Tensor | None) -> Any:
    """A tensor that shares no memory: itself if it covers its whole storage, otherwise a copy."""
    if tensor is None or (tensor.is_contiguous() and not tensor.storage_offset()):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


class FieldTensor(Tensor):
    """A view of a store."""

    field_run: Any
    field_store: Store
    field_view: Geometry

    @staticmethod
    def __new__(cls, run: Any, store: Store, size: Any, stride: Any, offset: Any = 0) -> "FieldTensor":
        """Makes a tensor of this size without memory."""
        tensor: FieldTensor = Tensor._make_wrapper_subclass(
            cls,
            tuple(size),
            strides=tuple(stride),
            storage_offset=offset,
            dtype=store.dtype,
            device=torch.device("cpu"),
        )
        tensor.field_run, tensor.field_store, tensor.field_view = run, store, (tuple(size), tuple(stride), int(offset))
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Handles an operator outside the run's mode, such as on another thread."""
        run = next(each.field_run for each in tree_leaves((args, kwargs)) if isinstance(each, FieldTensor))
        return run.guarded(func, args, kwargs or {}, main=False)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Handles a Python function; functions that read memory are refused."""
        run = next((each.field_run for each in tree_leaves((args, kwargs)) if isinstance(each, FieldTensor)), None)
        name, kwargs = getattr(func, "__name__", str(func)), kwargs or {}
        try:
            with DisableTorchFunctionSubclass():
                if name == "__get__" and func == DATA:
                    return FieldTensor(run, args[0].field_store, *args[0].field_view)
                if name == "__set__" or name in MEMORY:
                    raise Undecided(f"Tensor.{name}: the memory of a tensor")
                if name in WORDS:
                    if args[0].field_store.residues is not None:
                        raise Undecided(f"{name} of numbers that depend on the input")
                    return getattr(args[0].field_run.real(args[0]), name)(*args[1:], **kwargs)
                if isinstance(func, CODE) and not (getattr(func, "__module__", "") or "torch").startswith("torch"):
                    raise Undecided("a function with the torch function protocol that is not torch's")
                out = func(*args, **kwargs)
                if func is torch.nn.functional.scaled_dot_product_attention and type(out) is FieldTensor:
                    assert run is not None
                    return run.attention(out, *args, **kwargs)
                return out
        except BaseException as error:
            if run is not None:
                run.fail(error, name)
            raise


def without_numbers(tensor: Any) -> Any:
    """A tensor of the same form on the meta device; any other value unchanged."""
    if not isinstance(tensor, Tensor):
        return tensor
    with DisableTorchDispatch():
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def laid(size: Any, stride: Any) -> tuple[int, ...]:
    """Strides, with 0 for axes of length one, whose strides are arbitrary."""
    return tuple(0 if side == 1 else step for side, step in zip(size, stride, strict=True))
