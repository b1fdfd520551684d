"""Supports layers under torch's tracers and function transforms, which have no values."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn

import torch
from torch import Tensor, fx, nn

from conv2attn.errors import EngineError
from conv2attn.theory.basis import Basis
from conv2attn.torch_internals import (
    FAKE,
    FakeTensor,
    fake_mode,
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    is_wrapper,
    maybe_get_bdim,
    peek_interpreter_stack,
)


def as_node(layer: nn.Module, image: fx.Proxy, *rest: Any) -> fx.Proxy:
    """The call of `layer` as one node of a symbolic trace, like the call of a torch convolution.

    Raises:
        EngineError: the layer itself is traced, not as a module of a network (C2A203).
    """
    if path := image.tracer.path_of_module(layer):  # type: ignore[attr-defined]
        return image.tracer.create_proxy("call_module", path, (image, *rest), {})
    reason = "a layer traced by itself chooses its engine from values, which torch.fx does not have"
    raise EngineError("C2A203", reason, "Trace a network that holds it, in which it is one node, or use torch.export.")


def refuse_script(layer: nn.Module) -> NoReturn:
    """Refuses torch.jit.script, which cannot compile the choice of an engine (C2A203)."""
    reason = "torch.jit.script does not follow how a layer chooses its engine"
    raise EngineError("C2A203", reason, "Use torch.export, torch.compile or torch.jit.trace.")


def unstacked(basis: Basis, name: str) -> Basis:
    """A layer stacked by `torch.vmap`, with the operators of one, which must be equal in all.

    Raises:
        EngineError: the operators differ, or train (C2A203).
    """
    operators: Any = basis.operators
    if not any(map(is_batchedtensor, operators.values)):
        return basis
    one = {part.name: first(getattr(operators, part.name), name) for part in fields(operators)}
    return replace(basis, operators=replace(operators, **one))


def first(value: Any, name: str) -> Any:
    """The first of stacked tensors that are all the same; other values unchanged."""
    while isinstance(value, Tensor) and is_batchedtensor(value):
        stack = get_unwrapped(value).movedim(maybe_get_bdim(value), 0)
        if stack.requires_grad or not torch.equal(stack, stack[:1].expand_as(stack)):
            reason = f"{name}: vmap stacks networks whose centres or sharpness train or differ: no engine serves all"
            raise EngineError("C2A203", reason, "Run these networks one by one, or convert with trainable=False.")
        value = stack[0]
    return value


def readable(tensor: Tensor) -> bool:
    """Whether values of `tensor` can be read here: no device sync, not baked into a traced graph, and there are any."""
    if torch.compiler.is_compiling() or is_faked(tensor):
        return False
    # A wrapper, such as a distributed tensor, is on the CPU too, but its numbers are distributed and cannot be listed.
    return tensor.is_cpu and not is_wrapper(tensor)


def is_faked(tensor: Tensor) -> bool:
    """Whether `tensor`, or all tensors of this call, have a shape but no values, as in runs of memory planners."""
    return isinstance(tensor, FakeTensor) or fake_mode(FAKE) is not None


def is_transient(tensor: Tensor) -> bool:
    """Whether tensors created now must not be cached: they belong to a function transform, or have no values."""
    return is_faked(tensor) or peek_interpreter_stack() is not None


def read_values(tensors: Sequence[Tensor]) -> list[Any] | None:
    """The values of parameters as numbers; None where one cannot be read."""
    return [unwrapped(each).tolist() for each in tensors] if all(map(readable, tensors)) else None


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor inside the wrappers of function transforms; the first of stacked ones."""
    while is_functorch_wrapped_tensor(tensor):
        stacked, inner = is_batchedtensor(tensor), get_unwrapped(tensor)
        tensor = inner.movedim(maybe_get_bdim(tensor), 0)[0] if stacked else inner
    return tensor.detach()


def refuse_unread(name: str) -> EngineError:
    """The error for a layer that is traced before facts were derived for this dtype and device."""
    return EngineError(
        "C2A203",
        f"{name}: no facts were derived from its centres and sharpness before tracing, and a graph cannot derive them",
        "Call the layer once on an image of this dtype and device before you compile or export it.",
    )
