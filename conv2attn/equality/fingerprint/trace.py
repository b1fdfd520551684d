"""The operators of a call, written down: names, numbers, and which storages they read and make.

Both a plain call and the run over the field leave a trace. They must be the same: code that behaves otherwise on
tensors without memory is noticed. The plain trace also has the strides that torch gives to new tensors.

An example: `x.relu()` of a new x leaves one entry, whose first part is the operator, the second its operands and the
third its results. x was made first (storage 0), and the result is the next storage; each has its size, strides, dtype
and offset.

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
"""Where torch.library may replace a kernel."""


SPOKEN = {"_local_scalar_dense": "item", "_to_copy": "to", "_unique2": "unique"}
"""Operators of torch that users call by another name."""


def spoken(operator: object) -> str:
    """An operator as users call it: "sort" for aten.sort.default; one that is not torch's by its full name."""
    space, _, name = str(operator).partition(".")
    base = name.partition(".")[0]
    return SPOKEN.get(base, base.strip("_")) if space == "aten" else str(operator)


def hash_of_numbers(tensor: Tensor) -> str:
    """A hash of the numbers of a dense tensor and, so that weights are not copied, of whether they lie in columns."""
    columns = tensor.dim() == 2 and tensor.mT.is_contiguous() and not tensor.is_contiguous()
    return f"{sha256_of(tensor.mT if columns else tensor)}{' in columns' * columns}"


class Trace:
    """The operators of one call; storages are numbered in the order of their making.

    Args:
        digest: a hash of the numbers of a tensor.
    """

    def __init__(self, digest: Callable[[Tensor], str] = hash_of_numbers) -> None:
        self.digest = digest
        self.made: dict[Any, int] = {}
        self.log: list[tuple[Any, ...]] = []

    def owner(self, tensor: Tensor) -> Any:
        """What holds the numbers of a tensor, by a reference that does not keep them in memory."""
        # The numbers of a whole call would take more memory than anything else. While there is a weak reference no
        # other storage gets its address, so that a number names one storage for good.
        return ref(tensor.field_store) if isinstance(tensor, FieldTensor) else StorageWeakRef(tensor.untyped_storage())

    def reference(self, value: Any) -> Any:
        """A tensor by its storage and form, or its numbers if made elsewhere; any other value by its `repr`.

        Raises:
            Undecided: it is no dense tensor of torch, or was made where this trace could not see it.
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
            raise Undecided("a tensor made out of sight, as in a thread")
        if value.numel() and not value.untyped_storage().data_ptr():
            raise Undecided("a tensor without memory")
        return (self.digest(value), *form[:3])

    def make(self, tensor: Tensor, anew: bool = False) -> None:
        """Gives the storage of a tensor its number."""
        key = self.owner(tensor)
        if anew or key not in self.made:
            self.made[key] = len(self.made)

    def entry(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """An operator and its operands.

        Raises:
            Undecided: its kernel was replaced.
        """
        # Rules are those of the kernels that torch installs: one that torch.library put there may compute anything.
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
        """Writes an operator down with its results."""
        # A storage that came from outside is no result, even if an operator returns it: it has no number of its own,
        # but
        # its numbers stand for it. What is lifted is a constant of the code, new at each call.
        lifted = func.__name__.startswith("lift_fresh")
        for each in tree_leaves(out):
            if isinstance(each, Tensor) and (lifted or self.owner(each) not in sources):
                self.make(each, lifted)
        self.log.append((*inputs, tree_map(self.reference, out)))


class Log(TorchDispatchMode):
    """A plain call, written down; what cannot be written down is kept, since the code may swallow the exception."""

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
