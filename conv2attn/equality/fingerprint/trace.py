"""Records the operators of a call: names, numbers, and the storages that they read and create.

Both a plain call and the run over the field leave a trace. They must be equal, which detects code that behaves
differently on tensors without memory. The plain trace also has the strides that torch gives to new tensors.

An example: `x.relu()` of a new x leaves one entry, whose first part is the operator, the second its operands and the
third its results. x was created first (storage 0), and the result is the next storage; each has its size, strides,
dtype and offset.

>>> with Log() as log:
...     x = torch.ones(2)
...     out = x.relu()
>>> operator, ((operand,), _), result = log.trace.log[-1]
>>> operator, operand[0], result[:3]
('aten.relu.default', 0, (1, (2,), (1,)))
"""

from collections.abc import Callable
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.tensors import PLAIN, FieldTensor, laid
from conv2attn.equality.twins.bits import sha256_of
from conv2attn.torch_internals import StorageWeakRef, TorchDispatchMode, registered_operators, tree_leaves, tree_map

KERNELS = (
    *("CPU", "AutogradCPU", "Autograd", "AutogradOther", "CompositeExplicitAutograd", "CompositeImplicitAutograd"),
    *("CompositeExplicitAutogradNonFunctional", "ADInplaceOrView", "AutocastCPU"),
)
"""Dispatch keys at which torch.library may replace a kernel."""


SPOKEN = {"_local_scalar_dense": "item", "_to_copy": "to", "_unique2": "unique"}
"""Operators that users call by another name."""


def spoken(operator: object) -> str:
    """An operator as users call it: "sort" for aten.sort.default; operators of other libraries by their full names."""
    space, _, name = str(operator).partition(".")
    base = name.partition(".")[0]
    return SPOKEN.get(base, base.strip("_")) if space == "aten" else str(operator)


def hash_of_numbers(tensor: Tensor) -> str:
    """A hash of the numbers of a dense tensor and of its column-major flag, which avoids copying transposed weights."""
    columns = tensor.dim() == 2 and tensor.mT.is_contiguous() and not tensor.is_contiguous()
    return f"{sha256_of(tensor.mT if columns else tensor)}{' in columns' * columns}"


class Trace:
    """The operators of one call; storages are numbered in order of creation.

    Args:
        digest: a hash of the numbers of a tensor.
    """

    def __init__(self, digest: Callable[[Tensor], str] = hash_of_numbers) -> None:
        self.digest = digest
        self.made: dict[Any, int] = {}
        self.log: list[tuple[Any, ...]] = []

    def owner(self, tensor: Tensor) -> Any:
        """A weak reference to the storage of a tensor, which does not keep it in memory."""
        # Keeping the numbers of a whole call would dominate memory. While a weak reference exists, no other storage
        # gets its address, so a number identifies one storage permanently.
        return ref(tensor.field_store) if isinstance(tensor, FieldTensor) else StorageWeakRef(tensor.untyped_storage())

    def reference(self, value: Any) -> Any:
        """A tensor by its storage and form, or by its numbers if created elsewhere; any other value by its `repr`.

        Raises:
            Undecided: the tensor is not a dense tensor of torch, or was created where this trace could not observe it.
        """
        if not isinstance(value, Tensor):
            return repr(value)
        if (type(value) not in PLAIN and type(value) is not FieldTensor) or value.layout != torch.strided:
            raise Undecided(f"a tensor of type {type(value).__name__}, {value.layout}")
        size = tuple(value.size())
        offset = value.storage_offset() if value.numel() else 0
        form = (size, laid(size, value.stride()), value.dtype, offset)
        key = self.owner(value)
        if key in self.made:
            return (self.made[key], *form)
        if isinstance(value, FieldTensor):
            raise Undecided("a tensor created unobserved, as in a thread")
        if value.numel() and not value.untyped_storage().data_ptr():
            raise Undecided("a tensor without memory")
        return (self.digest(value), *form[:3])

    def make(self, tensor: Tensor, anew: bool = False) -> None:
        """Numbers the storage of a tensor."""
        key = self.owner(tensor)
        if anew or key not in self.made:
            self.made[key] = len(self.made)

    def entry(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """The record of an operator and its operands.

        Raises:
            Undecided: its kernel was replaced.
        """
        # Rules describe the kernels that torch installs; a kernel put there by torch.library may compute anything.
        name = str(func).replace(".", "/", 1).split(".")
        names = (name[0], ".".join(name))
        if any(f"{each}/{key}" in registered_operators for each in names for key in KERNELS):
            raise Undecided("an operator with another kernel than torch's")
        return (str(func), tree_map(self.reference, (args, kwargs)))

    def sources(self, args: Any, kwargs: Any) -> set[Any]:
        """The storages of operands that this trace did not make."""
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        return {key for key in map(self.owner, tensors) if key not in self.made}

    def result(self, func: Any, inputs: tuple[Any, ...], out: Any, sources: set[Any]) -> None:
        """Records an operator with its results."""
        # A storage from outside is not a result, even if an operator returns it: it is identified by its numbers. A
        # lifted tensor is a constant of the code, created anew at each call.
        lifted = func.__name__.startswith("lift_fresh")
        for each in tree_leaves(out):
            if isinstance(each, Tensor) and (lifted or self.owner(each) not in sources):
                self.make(each, lifted)
        self.log.append((*inputs, tree_map(self.reference, out)))


class Log(TorchDispatchMode):
    """Records a plain call; a failure to record is kept, since the code may swallow the exception."""

    def __init__(self) -> None:
        super().__init__()
        self.trace, self.failures = Trace(), list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            inputs, sources = self.trace.entry(func, args, kwargs), self.trace.sources(args, kwargs)
            out = func(*args, **kwargs)
            self.trace.result(func, inputs, out, sources)
            return out
        except Exception as error:
            self.failures.append(f"{spoken(func)}: {error}")
            raise
