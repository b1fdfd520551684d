"""The relative positions of a layer: parameters if they train, plain numbers otherwise."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from conv2attn.errors import UsageError
from conv2attn.layers.attention.probes import backend_flags
from conv2attn.layers.attention.recipe import OperatorFacts, facts_from, score_dtype
from conv2attn.layers.attention.tracing import is_faked, is_transient, read_values, refuse_unread, unwrapped
from conv2attn.theory.basis import FAMILIES, HeadNumbers, Positions
from conv2attn.torch_internals import without_modes

Numbers = NDArray[np.float64] | tuple[NDArray[np.float64], ...]


@final
class Encoding(nn.Module):
    """Holds the fields of a family of heads under their names, and constructs the family from them.

    The v of Eq. (8) enters only through `W_hat_key^T v`, a vector of d_position numbers per head; a family stores it as
    a centre and a sharpness, so that scores avoid the cancellation of the expanded form. Positions that train are
    parameters, in float32 at least: bfloat16 cannot count past 256. Other positions are read-only float64 arrays of
    NumPy, the same for every dtype and device. Assigning to their name, `assign` and `learn` change them, and drop the
    tensors and the recipes that were derived from them.

    Args:
        operators: the heads; their tensors are copied, and train.
    Examples:
        >>> Encoding.of("quadratic", [[0.0, -1.0], [0.0, 1.0]], 2.0)
        Encoding(quadratic, heads=2, dimensions=2, alpha=2)
        >>> Encoding.of("quadratic", [[0.0, -1.0], [0.0, 1.0]], 2.0).learn(False).alpha
        array([2., 2.])
    """

    def __init__(self, operators: Positions):
        super().__init__()
        self.family = type(operators)
        self.names = tuple(field.name for field in fields(operators))  # type: ignore[arg-type]
        self.absent: tuple[str, ...] = ()
        self.frozen: dict[str, Numbers] = {}
        self.derived: dict[tuple[torch.dtype, torch.device], OperatorFacts] = {}
        for name in self.names:
            value = getattr(operators, name)
            setattr(self, name, nn.ParameterList(map(copied, value)) if isinstance(value, tuple) else copied(value))

    @classmethod
    def of(cls, family: str, *arguments: Any, **named: Any) -> Self:
        """Heads of the family with this name, made as its method `of` makes them."""
        return cls(FAMILIES[family].of(*arguments, **named))

    @classmethod
    def from_plan(cls, family: str, sizes: Sequence[int], fixed: dict[str, Any], vectors: bool = True) -> Self:
        """The encoding described by `family.name`, `sizes` and `fixed`; a state dict provides its parameters.

        Args:
            fixed: the numbers of the positions that do not train; empty if all train.
            vectors: whether its heads have vectors of their own.

        Raises:
            UsageError: numbers for other heads (C2A007).
            KeyError, TypeError, ValueError: there is no such family, or a value of the plan is of another type.
        """
        # Placeholders of the right shapes, which the plan's numbers and a state dict replace.
        encoding = cls(FAMILIES[family].of_sizes(sizes))
        if not vectors:
            encoding.drop_vectors()
        for name in [name for name in encoding.names if fixed and name not in encoding.absent]:
            encoding.freeze(name, fixed[name])
        return encoding

    def operators(self, like: Tensor | None = None) -> Positions:
        """The heads, over live parameters and new tensors of the frozen numbers.

        Args:
            like: the new tensors are on its device, and of the dtype of scores for it. By default those of a parameter
                of the encoding, otherwise float64 on the CPU.
        """
        like = next(self.parameters(), None) if like is None else like
        dtype, device = (torch.float64, "cpu") if like is None else (score_dtype(like.dtype), like.device)
        return self.family(*[self.tensors(name, dtype, device) for name in self.names])

    def tensors(self, name: str, dtype: torch.dtype, device: torch.device | str) -> Any:
        """The tensor with this name, or the tuple of them; looked up as `nn.Module` does, only faster."""
        if name in self.frozen:
            numbers = self.frozen[name]
            if isinstance(numbers, tuple):
                return tuple(made(each, dtype, device) for each in numbers)
            return made(numbers, dtype, device)
        parameter: Any = self._parameters.get(name)
        parameter = getattr(self, name) if parameter is None else parameter
        return tuple(parameter) if isinstance(parameter, nn.ParameterList) else parameter

    def operators_of_call(self, like: Tensor, name: str) -> Positions:
        """`operators(like)`, cached between calls if they do not train."""
        if not self.is_frozen or (not torch.compiler.is_compiling() and is_transient(like)):
            return self.operators(like)
        operators = self.facts(like, name).operators
        assert operators is not None, "facts of heads that do not train hold their tensors"
        return operators

    def facts(self, image: Tensor, name: str = "attention", reads: bool = True) -> OperatorFacts:
        """The facts derived from the numbers for images of this dtype and device, cached until they change.

        Args:
            name: name of the layer in an error.
            reads: whether the values of trained positions matter.
        Raises:
            EngineError: a graph is traced, and no facts were derived before (C2A203).
        """
        facts = self.derived.get((image.dtype, image.device))
        if torch.compiler.is_compiling():
            # Reading numbers while tracing would make them constants of the graph.
            if facts is None:
                raise refuse_unread(name)
            return facts
        # An optimiser changes parameters in place, and nothing reports it: the values are compared at each call.
        values = read_values(self.operators(image).values) if reads and not self.is_frozen else None
        if facts is None or facts.values != values or (image.is_cpu and facts.flags != backend_flags("cpu")):
            facts = self.derive(image, values)
            if not is_transient(image):
                self.derived[image.dtype, image.device] = facts
        return facts

    def derive(self, image: Tensor, values: list[Any] | None) -> OperatorFacts:
        """The facts for images like this one; `values` are those of parameters, if they were read."""
        faked, operators, numbers = is_faked(image), None, HeadNumbers()
        with without_modes() if faked else nullcontext(), torch.inference_mode(False), torch.no_grad():
            # Fake tensors have no arithmetic that could be measured, so that of the CPU is used.
            there = torch.empty(0, dtype=image.dtype, device="cpu") if faked or image.is_meta else image
            if self.is_frozen:
                numbers = self.operators(torch.empty(0, dtype=image.dtype, device="cpu")).numbers()
                operators = None if faked else with_each(static, self.operators(image))
            elif values is not None:
                numbers = with_each(unwrapped, self.operators()).numbers()
            return facts_from(numbers, there, operators, values)

    @property
    def is_frozen(self) -> bool:
        """Whether no position trains."""
        return len(self.frozen) == len(self.names)

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.operators().heads

    @property
    def dimensions(self) -> int:
        """Number of axes of the grid."""
        return self.operators().dimensions

    @property
    def d_position(self) -> int:
        """Width of r_delta."""
        return self.operators().d_position

    def learn(self, whether: bool = True, like: Tensor | None = None) -> Self:
        """Makes all positions parameters that train, or frozen numbers; a reparametrised one is unchanged.

        Args:
            like: new parameters are on its device, and of the dtype of scores for it; by default on the CPU, in float32
                if that holds all numbers, otherwise in float64.
        Raises:
            UsageError: positions to freeze are on the meta device (C2A006).
        """
        for name in [each for each in self.names if each not in self.absent]:
            if whether and name in self.frozen:
                device = "cpu" if like is None else like.device
                value = self.tensors(name, self.narrowest(name) if like is None else score_dtype(like.dtype), device)
                del self.frozen[name]
                setattr(self, name, nn.ParameterList(value) if isinstance(value, tuple) else nn.Parameter(value))
            elif not whether and (name in self._parameters or name in self._modules):
                self.freeze(name, getattr(self, name))
        self.derived.clear()
        return self.requires_grad_() if whether else self

    def narrowest(self, name: str) -> torch.dtype:
        """float32 if it holds the numbers with this name exactly, otherwise float64."""
        numbers = self.frozen[name]
        arrays = numbers if isinstance(numbers, tuple) else (numbers,)
        same = all(np.array_equal(each, each.astype(np.float32), equal_nan=True) for each in arrays)
        return torch.float32 if same else torch.float64

    def assign(self, **positions: Any) -> Self:
        """Assigns other numbers to positions, in their shape or broadcast to it.

        Raises:
            UsageError: they have another shape (C2A007), or are on the meta device (C2A006).
        """
        for name, numbers in positions.items():
            if name in self.frozen:
                self.freeze(name, numbers)
            else:
                number = numbers if isinstance(numbers, Tensor) else torch.tensor(numbers, device="cpu")
                self.get_parameter(name).data.copy_(number)
        return self

    def freeze(self, name: str, numbers: Any) -> None:
        """Makes the positions with this name numbers that do not train: these, broadcast to their shape."""
        present = getattr(self, name)
        several = isinstance(present, (tuple, nn.ParameterList))
        pairs = zip(numbers, present, strict=True) if several else [(numbers, present)]
        arrays = tuple(read_only(each, tuple(shaped.shape), name) for each, shaped in pairs)
        if name not in self.frozen:
            delattr(self, name)
        self.frozen[name] = arrays if several else arrays[0]
        self.derived.clear()

    def drop_vectors(self) -> None:
        """Makes the v of every head 0 permanently, without parameters or state; only r_delta is left."""
        for name in set(self.names) - self.family.shared - set(self.absent):
            self.freeze(name, 0.0)
            self.absent += (name,)

    def fixed(self) -> dict[str, Any]:
        """The positions that do not train, as plain numbers; those that are permanently 0 are left out."""
        kept = {name: numbers for name, numbers in self.frozen.items() if name not in self.absent}
        return {name: [*map(listed, each)] if isinstance(each, tuple) else listed(each) for name, each in kept.items()}

    def __getattr__(self, name: str) -> Any:
        frozen = vars(self).get("frozen", {})
        # `frozen` does not exist yet while a copy or a pickle is restored, and `self.frozen` would call this method
        # again.
        return frozen[name] if name in frozen else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self).get("frozen", {}):
            self.freeze(name, value)
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in vars(self).items() if key != "derived"}
        return {**state, "frozen": {name: listed(numbers) for name, numbers in self.frozen.items()}}  # plain values

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        vars(self).update(frozen={name: from_list(each) for name, each in state["frozen"].items()}, derived={})

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def no_lower(tensor: Tensor) -> Tensor:
            cast = fn(tensor)
            return cast if cast.dtype not in (torch.float16, torch.bfloat16) else tensor.float().to(cast.device)

        self.derived = {}  # a new dictionary: copies of a layer for several devices share the old one
        return super()._apply(no_lower, recurse)

    def extra_repr(self) -> str:
        """The family, its sizes, and the range of alpha."""
        return str(self.operators())


def copied(tensor: Tensor) -> nn.Parameter:
    """A parameter with these numbers."""
    return nn.Parameter(tensor.detach().clone(memory_format=torch.contiguous_format))


def static(tensor: Tensor) -> nn.Parameter:
    """`tensor` as a parameter, whose sizes torch.compile never confuses with those of an image."""
    return nn.Parameter(tensor, requires_grad=False)


def with_each(change: Callable[[Tensor], Tensor], operators: Positions) -> Positions:
    """The same heads with each of their tensors changed."""
    values = [getattr(operators, field.name) for field in fields(operators)]  # type: ignore[arg-type]
    return type(operators)(*[tuple(map(change, each)) if isinstance(each, tuple) else change(each) for each in values])


def made(numbers: NDArray[np.float64], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """A new tensor of these numbers that training may use, even if created in inference mode."""
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=dtype, device=device)


def read_only(numbers: Any, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """A float64 array of this shape with these numbers, over read-only memory.

    Raises:
        UsageError: they have another shape (C2A007), or are on the meta device (C2A006).
    """
    if isinstance(numbers, Tensor):
        if numbers.is_meta:
            reason = f"{name} is on the meta device, without numbers"
            raise UsageError("C2A006", reason, "Load its numbers first.")
        numbers = numbers.detach().cpu().double().numpy()
    try:
        array = np.broadcast_to(np.asarray(numbers, np.float64), shape)
    except ValueError as error:
        reason = f"{name} has the shape {shape}, and the numbers have another one ({error})"
        raise UsageError("C2A007", reason, "Pass one number, or numbers of this shape.") from error
    # Memory of `bytes` cannot be made writable, so no number changes without the derived facts being dropped.
    return np.frombuffer(array.tobytes(), np.float64).reshape(shape)


def listed(numbers: Numbers) -> Any:
    """The numbers as lists; a tuple of arrays stays a tuple."""
    return tuple(each.tolist() for each in numbers) if isinstance(numbers, tuple) else numbers.tolist()


def from_list(numbers: Any) -> Numbers:
    """The numbers that `listed` returns."""
    several = isinstance(numbers, tuple)
    arrays = [np.asarray(each, np.float64) for each in (numbers if several else [numbers])]
    frozen = [np.frombuffer(each.tobytes(), np.float64).reshape(each.shape) for each in arrays]
    return tuple(frozen) if several else frozen[0]
