"""A layer under the tracers and function transforms of torch, which follow no values."""

from dataclasses import fields, replace
from typing import Any, NoReturn

import torch
from torch import Tensor, fx, nn

from conv2attn.errors import EngineError
from conv2attn.theory.basis import Basis
from conv2attn.torch_internals import get_unwrapped, is_batchedtensor, maybe_get_bdim


def as_node(layer: nn.Module, image: fx.Proxy, *rest: Any) -> fx.Proxy:
    """The call of `layer` as one node of a symbolic trace, as that of a convolution of torch is.

    Raises:
        EngineError: the layer itself is traced, and is no module of a network (C2A203).
    """
    if path := image.tracer.path_of_module(layer):  # type: ignore[attr-defined]
        return image.tracer.create_proxy("call_module", path, (image, *rest), {})
    reason = "torch.fx follows no values, by which a layer that is traced by itself chooses its engine"
    raise EngineError("C2A203", reason, "Trace a network that holds it, in which it is one node, or use torch.export.")


def refuse_script(layer: nn.Module) -> NoReturn:
    """Refuses torch.jit.script, which compiles no choice of an engine (C2A203)."""
    reason = "torch.jit.script does not follow how a layer chooses its engine"
    raise EngineError("C2A203", reason, "Use torch.export, torch.compile or torch.jit.trace.")


def unstacked(basis: Basis, name: str) -> Basis:
    """A layer of which `torch.vmap` stacks several, with the operators of one: they are the same in all.

    Raises:
        EngineError: they differ, or train (C2A203).
    """
    operators: Any = basis.operators
    if not any(map(is_batchedtensor, operators.values)):
        return basis
    one = {part.name: first(getattr(operators, part.name), name) for part in fields(operators)}
    return replace(basis, operators=replace(operators, **one))


def first(value: Any, name: str) -> Any:
    """The first of stacked tensors that are all the same; anything else as it is."""
    while isinstance(value, Tensor) and is_batchedtensor(value):
        stack = get_unwrapped(value).movedim(maybe_get_bdim(value), 0)
        if stack.requires_grad or not torch.equal(stack, stack[:1].expand_as(stack)):
            reason = f"{name}: vmap stacks networks whose centres or sharpness train or differ: no engine serves all"
            raise EngineError("C2A203", reason, "Run these networks one by one, or convert with trainable=False.")
        value = stack[0]
    return value


def readable(image: Tensor) -> bool:
    """Whether values on the device of `image` can be read here: no device sync, and not baked into a traced graph."""
    return image.is_cpu and not torch.compiler.is_compiling()


def refuse_unread(name: str) -> EngineError:
    """The error of a layer that is traced before its values were ever read."""
    return EngineError(
        "C2A203",
        f"{name}: its centres and sharpness were not read before tracing, and a graph cannot read them",
        "Call the layer once on an image of this dtype and device before you compile or export it.",
    )
