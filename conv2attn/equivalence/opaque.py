"""Operators that stand for what is compared apart: a compared layer, and a convolution called as a function.

While a network is exported, each compared layer is one opaque node, so that the graph holds everything else. Both
networks are given the same node for the same pair, with the geometry of the first: the layers themselves, their
geometry too, are compared by `layers`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from conv2attn.basis import Form
from conv2attn.errors import UnsupportedError
from conv2attn.models.conversion.functional import FUNCTIONS, as_convolution
from conv2attn.models.conversion.redirection import AttendingCalls, geometry_of
from conv2attn.models.conversion.replacement import reparametrisations
from conv2attn.theorem import Convolution

LIBRARY = torch.library.Library("conv2attn", "FRAGMENT")
FORM = "int[] stride, int[] room, int[] spacing, int d_out"
LIBRARY.define(f"layer(Tensor x, int pair, {FORM}, SymInt[]? output_size=None) -> Tensor")
LIBRARY.define(f"call(Tensor x, Tensor weight, Tensor? bias, int geometry, {FORM}) -> Tensor")


def sides_of(x: Tensor, stride: Sequence[int], room: Sequence[int], spacing: Sequence[int]) -> list[Any]:
    """The sides of the output: `floor((spacing (side - 1) + room) / stride) + 1` along each axis."""
    first = x.ndim - len(stride)
    return [(p * (n - 1) + r) // s + 1 for n, s, r, p in zip(x.shape[first:], stride, room, spacing, strict=True)]


def blank(
    x: Tensor,
    pair: int,
    stride: Sequence[int],
    room: Sequence[int],
    spacing: Sequence[int],
    d_out: int,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros in the shape of what a layer makes of `x`, (batch, d_in, *sides) or (d_in, *sides)."""
    sides = sides_of(x, stride, room, spacing) if output_size is None else list(output_size)[-len(stride) :]
    return x.new_zeros([*x.shape[: x.ndim - len(stride) - 1], d_out, *sides])


def blank_call(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: int, *form: Any) -> Tensor:
    """Zeros in the shape of what a functional convolution makes of `x`."""
    return blank(x, geometry, *form)


for _name, _function in (("layer", blank), ("call", blank_call)):
    LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"conv2attn::{_name}", _function)

LAYER, CALL = torch.ops.conv2attn.layer.default, torch.ops.conv2attn.call.default


def normalised(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Batch normalisation in evaluation mode: export takes this operator as it is, and would decompose torch's own."""
    return torch.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)


LIBRARY.define(
    "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, "
    "float momentum, float eps, bool cudnn_enabled) -> Tensor"
)
LIBRARY.impl("batch_norm", normalised, "CompositeExplicitAutograd")
torch.library.register_fake("conv2attn::batch_norm", lambda input, *_: input.new_empty(input.shape))


def form_arguments(form: Form, d_out: int) -> tuple[list[int], list[int], list[int], int]:
    """The arguments of the operators that give the channels and the sides of the output."""
    return list(form.stride), list(form.room), list(form.spacing), d_out


@final
@dataclass
class Calls:
    """The geometries of all convolutions that either network calls as functions, and the attention used for each.

    `used` are the modules of either network that evaluate a geometry by attention.
    """

    geometries: list[tuple[Any, ...]] = field(default_factory=list)
    convolutions: list[Convolution] = field(default_factory=list)
    used: dict[int, list[AttendingCalls]] = field(default_factory=dict)

    def index(self, convolution: Convolution) -> int:
        """The number of a geometry, the next one where it is new."""
        key = geometry_of(convolution)
        if key not in self.geometries:
            self.geometries.append(key)
            self.convolutions.append(convolution)
        return self.geometries.index(key)

    def node(self, convolution: Convolution, image: Tensor) -> Tensor:
        """The opaque node of one call."""
        form = form_arguments(Form.of(convolution.padding, convolution.sites), convolution.d_out)
        result: Tensor = CALL(image, convolution.weight, convolution.bias, self.index(convolution), *form)
        return result


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.batch_norm`; in evaluation mode one node."""
    if training or running_mean is None or running_var is None:
        return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    known, enabled = (weight, bias, running_mean, running_var), torch.backends.cudnn.enabled
    result: Tensor = torch.ops.conv2attn.batch_norm(input, *known, False, momentum, eps, enabled)
    return result


class Plain(TorchFunctionMode):
    """While active, functional convolutions that are not attended to become opaque nodes."""

    def __init__(self, calls: Calls):
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The opaque node for a convolution, anything else as it is."""
        kwargs = kwargs or {}
        if func is functional.batch_norm:
            return batch_norm(*args, **kwargs)
        if func not in FUNCTIONS:
            return func(*args, **kwargs)
        try:
            convolution = as_convolution(func, args, kwargs)
        except UnsupportedError:
            return func(*args, **kwargs)
        return self.calls.node(convolution, args[0] if args else kwargs["input"])


def layer_node(pair: int, form: Sequence[Any]) -> Callable[..., Tensor]:
    """The forward of a layer while it is opaque."""

    def forward(input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        result: Tensor = LAYER(input, pair, *form, output_size)
        return result

    return forward


def call_node(attending: AttendingCalls, calls: Calls) -> Callable[..., Tensor]:
    """The forward of `attending` while what it computes is opaque."""

    def forward(convolution: Convolution, image: Tensor, plain: Any) -> Tensor:
        users = calls.used.setdefault(calls.index(convolution), [])
        if attending not in users:
            users.append(attending)
        return calls.node(convolution, image)

    return forward


@contextmanager
def hidden(network: nn.Module, layers: Mapping[str, tuple[int, Sequence[Any]]], calls: Calls) -> Iterator[None]:
    """While active, the `layers` of `network` and its functional convolutions are opaque nodes; their hooks stay.

    The network is the caller's own, not a copy: code may look at what its objects are.

    Args:
        layers: for each name of a layer, its pair and its form.
    """
    with ExitStack() as stack:
        known: set[int] = set()
        for name, (pair, form) in layers.items():
            layer = network.get_submodule(name)
            if id(layer) not in known:
                known.add(id(layer))
                stack.enter_context(replaced_forward(layer, layer_node(pair, form)))
                stack.enter_context(hooks_removed(layer._forward_pre_hooks, reparametrisations(layer)))
        for module in list(network.modules()):
            if isinstance(module, AttendingCalls):
                stack.enter_context(replaced_forward(module, call_node(module, calls)))
        stack.enter_context(Plain(calls))
        yield


@contextmanager
def replaced_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """While active, `module` has another forward."""
    before = vars(module).get("forward")
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = before


@contextmanager
def hooks_removed(hooks: dict[int, Any], keys: Iterable[int]) -> Iterator[None]:
    """While active, some hooks are not registered."""
    before = dict(hooks)
    for key in list(keys):
        del hooks[key]
    try:
        yield
    finally:
        hooks.clear()
        hooks.update(before)
