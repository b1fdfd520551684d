"""Layers as single operators of a graph: what they compute is compared apart, as values of `Basis`.

While a network is exported, each layer that can be read is one opaque node, so that its graph holds everything else;
hooks stay, and are in the graph. This is the only place that assigns the forward of a user's module.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Basis, Form, Padding, Weights
from conv2attn.equality.bases import comparable_basis
from conv2attn.errors import Conv2AttnError, UnsupportedError
from conv2attn.models.conversion.functional import FUNCTIONS, convolution_of_call
from conv2attn.models.conversion.redirection import CHILD, AttendingCalls
from conv2attn.models.conversion.replacement import reparametrisations, weight_changes
from conv2attn.theorem import STOCK, Convolution

LIBRARY = torch.library.Library("conv2attn", "FRAGMENT")
LIBRARY.define(
    "opaque(Tensor x, Tensor? weight, Tensor? bias, int number, int[] stride, int[] room, int[] spacing, int d_out, "
    "SymInt[]? output_size=None) -> Tensor"
)
CONVOLUTION_ARGUMENTS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
TRANSPOSED_ARGUMENTS = (*CONVOLUTION_ARGUMENTS[:5], "output_padding", "groups", "dilation")
GENERAL_ARGUMENTS = (*CONVOLUTION_ARGUMENTS[:6], "transposed", "output_padding", "groups")
BATCH_NORM = inspect.signature(functional.batch_norm)
OPERATORS = {getattr(torch.ops.aten, name): function for function, (name, _) in FUNCTIONS.items()}
REPLACED_FUNCTIONS = {functional.batch_norm, torch.convolution, *FUNCTIONS}
LOCK = threading.RLock()
"""Held while anything global is changed: torch.export keeps state in the process, and layers are shared by threads."""


def blank(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    number: int,
    stride: Sequence[int],
    room: Sequence[int],
    spacing: Sequence[int],
    d_out: int,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """A tensor in the shape of the output: `floor((spacing (side - 1) + room) / stride) + 1` along each axis."""
    axes = len(stride)
    sides = [
        (p * (n - 1) + r) // s + 1 if s * p > 1 else n + r if r else n  # the fewer operations on sizes, the faster
        for n, s, r, p in zip(x.shape[-axes:], stride, room, spacing, strict=True)
    ]
    sides = sides if output_size is None else list(output_size)[-axes:]
    return x.new_empty([*x.shape[: x.ndim - axes - 1], d_out, *sides])


LIBRARY.impl("opaque", blank, "CompositeExplicitAutograd")
torch.library.register_fake("conv2attn::opaque", blank)
OPAQUE = torch.ops.conv2attn.opaque.default

LIBRARY.define(
    "normalised(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, "
    "float momentum, float eps, bool cudnn_enabled) -> Tensor"
)
torch.library.register_fake("conv2attn::normalised", lambda input, *_: input.new_empty(input.shape))
NORM = torch.ops.conv2attn.normalised.default  # in place of torch's own, of which an export makes many operators


@final
@dataclass(eq=False)
class Layer:
    """A convolution or an attention in the graph of a network.

    Args:
        name: the dotted path of a module; `owner:function` for a convolution that is called as a function.
        module: the layer, or the attention in place of the function; None where the function itself is called.
        basis: None where the weight of a function is computed, so that it is known at each call only.
        function: what was called, of an image, a weight and a bias; `options` are its other arguments, by name, and
            `like` a weight that it was called with, without numbers.
        tensors: its weight and bias, where these are constants.
        pad: the operator that puts zeros around the image of the function, and its other arguments, amounts first.
    """

    name: str
    module: nn.Module | None = None
    basis: Basis | None = None
    function: Callable[..., Tensor] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    like: Tensor | None = None
    tensors: tuple[Tensor, Tensor | None] | None = None
    pad: tuple[Any, ...] = ()

    @property
    def label(self) -> str:
        """The name in reports."""
        return self.name or "(root)"

    @cached_property
    def softened(self) -> nn.Module | None:
        """The module; of attention a copy with the same parameters, whose quadratic heads are softmaxes."""
        if not isinstance(self.module, MultiHeadSelfAttention):
            return self.module
        module = object.__new__(type(self.module))  # a copy of parametrized modules is refused
        module.__setstate__(dict(vars(self.module)))
        separable = module.operators().isotropic is not None
        module.engine = "separable" if separable else "auto"
        return module

    def convolution(self, weight: Tensor, bias: Tensor | None) -> Convolution:
        """The convolution that the function computes with these tensors.

        Raises:
            UnsupportedError: as `convolution_of_call`.
        """
        assert self.function is not None
        convolution = convolution_of_call(self.function, (None, weight, bias), self.options)
        return replace(convolution, padding=self.widened(convolution.padding))

    def basis_with(self, weight: Tensor, bias: Tensor | None) -> Basis:
        """The basis of a function, or of the attention in its place, with these tensors.

        Raises:
            UnsupportedError: the attention cannot be read.
        """
        convolution = self.convolution(weight, bias)
        if self.module is None:
            return comparable_basis(convolution)
        basis = comparable_basis(self.module, tap_weights(convolution))
        return replace(basis, padding=self.widened(basis.padding))

    def padded(self, image: Tensor) -> Tensor:
        """The image as the function, or the attention in its place, reads it."""
        return self.pad[0](image, *self.pad[1:]) if self.pad else image

    def widened(self, padding: Padding) -> Padding:
        """The padding of the function or of the attention, and the zeros that stand around the image before it."""
        if not self.pad:
            return padding
        amounts = [*self.pad[1], *[0] * (2 * len(padding.before) - len(self.pad[1]))]
        before, after = (
            tuple(map(sum, zip(own, reversed(amounts[end::2]), strict=True)))
            for end, own in enumerate((padding.before, padding.after))
        )
        return replace(padding, before=before, after=after)

    def sizes(self, *tensors: Any) -> tuple[Any, ...]:
        """The arguments of the opaque operator that give channels and sides of the output.

        Raises:
            UnsupportedError: as `convolution`.
        """
        if self.basis is not None:
            form, d_out = self.basis.form, self.basis.weights.d_out
        else:
            with _disable_current_modes():  # else what only sizes need would be operators of the graph
                shapes: list[Any] = [
                    each if each is None else each.new_empty(each.shape, device="meta") for each in tensors
                ]
                convolution = self.convolution(*shapes)
            form, d_out = Form.of(convolution.padding, convolution.sites), convolution.d_out
        return list(form.stride), list(form.room), list(form.spacing), d_out

    def node(self, number: int, image: Tensor, *tensors: Any, output_size: Sequence[int] | None = None) -> Tensor:
        """The opaque node of this layer on an image, with the weight and the bias of a function."""
        result: Tensor = OPAQUE(image, *(tensors or (None, None)), number, *self.sizes(*tensors), output_size)
        return result


def tap_weights(convolution: Convolution) -> Weights:
    """The channel matrices of a convolution, as attention in its place takes them."""
    return Weights(None, convolution.taps(), convolution.bias, convolution.groups)


def readable_layers(network: nn.Module) -> tuple[list[Layer], dict[str, Conv2AttnError]]:
    """The convolutions and attentions of `network` that can be read, and by name why others cannot.

    Convolutions that attend by themselves are none: the function that they call is.
    """
    layers, refused = list[Layer](), dict[str, Conv2AttnError]()
    for name, module in network.named_modules():
        within = {*name.split("."), *module._modules}
        if not isinstance(module, (*STOCK, MultiHeadSelfAttention)) or CHILD in within:
            continue
        try:
            if weight_changes(module):
                why = "in training mode each call of a spectral norm changes the weight: compare in evaluation mode"
                raise UnsupportedError("C2A106", why, "Call eval() on both networks first.")
            layers.append(Layer(name, module, comparable_basis(module)))
        except Conv2AttnError as error:
            refused[name] = error
    return layers, refused


@contextmanager
def opaque(network: nn.Module, layers: list[Layer]) -> Iterator[None]:
    """While active, the `layers` of `network` are opaque nodes, and so is attention that stands for functions.

    Attention met on the way is added to `layers`. The network is the caller's own: code may look at what its objects
    are.
    """
    with ExitStack() as stack:
        for number, layer in enumerate(layers):
            assert layer.module is not None
            stack.enter_context(replaced_forward(layer.module, partial(node_of_layer, layer, number)))
            stack.enter_context(without_hooks(layer.module, reparametrisations(layer.module)))
        for module in list(network.modules()):
            if isinstance(module, AttendingCalls):
                stack.enter_context(replaced_forward(module, partial(node_of_attended, layers, module)))
        stack.enter_context(OpaqueCalls(layers))
        yield


def node_of_layer(layer: Layer, number: int, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
    """The forward of a layer while it is opaque."""
    return layer.node(number, input, output_size=output_size)


def node_of_attended(
    layers: list[Layer], attending: AttendingCalls, convolution: Convolution, image: Tensor, plain: Any
) -> Tensor:
    """The forward of `attending` while the attention in it is opaque; hooks of that attention run."""
    attention = attending.layer_for(convolution)
    with replaced_forward(attention, lambda image, **_: node_of_call(layers, plain, image, attention)):
        result: Tensor = attention(image)
    return result


def node_of_call(layers: list[Layer], call: "partial[Tensor]", image: Tensor, module: nn.Module | None) -> Tensor:
    """One more layer, and the opaque node of a call of torch.nn.functional.conv* on this image.

    Raises:
        UnsupportedError: as `convolution_of_call`.
    """
    name = FUNCTIONS[call.func][0]
    names = TRANSPOSED_ARGUMENTS if "transpose" in name else CONVOLUTION_ARGUMENTS
    options = dict(zip(names, call.args, strict=False)) | call.keywords
    tensors = options.pop("weight"), options.pop("bias", None)
    options.pop("input", None)
    layer = Layer(name, module, function=call.func, options=options, like=tensors[0])
    result = layer.node(len(layers), image, *tensors)
    layers.append(layer)
    return result


class OpaqueCalls(TorchFunctionMode):
    """While active, convolutions that are called as functions, or as operators, are opaque nodes."""

    def __init__(self, layers: list[Layer]):
        super().__init__()
        self.layers = layers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The opaque node for a convolution that can be read, anything else as it is."""
        if func not in REPLACED_FUNCTIONS and not isinstance(func, OpOverload):
            return func(*args, **(kwargs or {}))
        call = called(func, args, kwargs or {})
        if func is functional.batch_norm:
            return normalised(*args, **(kwargs or {}))
        if call is None:
            return func(*args, **(kwargs or {}))
        try:
            return node_of_call(self.layers, call, call.args[0] if call.args else call.keywords["input"], None)
        except UnsupportedError:
            return func(*args, **(kwargs or {}))


def normalised(*args: Any, **kwargs: Any) -> Tensor:
    """`torch.nn.functional.batch_norm`; in evaluation mode one node."""
    call = BATCH_NORM.bind(*args, **kwargs)
    call.apply_defaults()
    numbers = call.arguments
    if numbers["training"] or numbers["running_mean"] is None or numbers["running_var"] is None:
        return functional.batch_norm(*args, **kwargs)
    tensors = (numbers[name] for name in ("input", "weight", "bias", "running_mean", "running_var"))
    result: Tensor = NORM(*tensors, False, numbers["momentum"], numbers["eps"], torch.backends.cudnn.enabled)
    return result


def called(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "partial[Tensor] | None":
    """A call of torch.nn.functional.conv*, of its operator or of the general one, as the first; None for others."""
    if func in FUNCTIONS:
        return partial(func, *args, **kwargs)
    packet = getattr(func, "overloadpacket", func)
    if packet in OPERATORS:
        return partial(OPERATORS[packet], *args, **kwargs)
    if packet not in (torch.convolution, torch.ops.aten.convolution):
        return None
    arguments = dict(zip(GENERAL_ARGUMENTS, args, strict=False)) | dict(kwargs)
    turned, axes = arguments.pop("transposed"), len(arguments["stride"])
    function = next(each for each, what in FUNCTIONS.items() if what == (f"conv{'_transpose' * turned}{axes}d", axes))
    return partial(function, **(arguments if turned else {k: v for k, v in arguments.items() if k != "output_padding"}))


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
def without_hooks(module: nn.Module, keys: Iterable[int]) -> Iterator[None]:
    """While active, some hooks before the forward of `module` are not registered."""
    hooks = module._forward_pre_hooks
    before = dict(hooks)
    for key in list(keys):
        del hooks[key]
    try:
        yield
    finally:
        hooks.clear()
        hooks.update(before)
