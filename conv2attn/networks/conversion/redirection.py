"""Replaces functional convolutions by attention at each call, with the weights of the call."""

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from conv2attn.errors import EngineError, UnsupportedError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import STOCK, Convolution, attention_for
from conv2attn.networks.conversion.functional import FUNCTIONS, FunctionalCall, convolution_of_call, geometry_of
from conv2attn.networks.conversion.outcomes import CONVERTED, SKIPPED, UNSUPPORTED, ConversionRow, leak_warning
from conv2attn.networks.conversion.replacement import Settings
from conv2attn.theory.basis import Weights
from conv2attn.torch_internals import function_mode_stack

CHILD = "attending_calls"


class AttendingCalls(nn.Module):
    """The attention layers that replace the functional convolutions of one module: one layer per geometry.

    The layers hold positions only; the weights are those of each call. Layers for geometries that first appear after
    the conversion are neither parameters nor in the state dict. `untouched` names functions that stay convolutions.
    """

    def __init__(self, settings: Settings, untouched: Sequence[str] = ()):
        super().__init__()
        self.settings, self.untouched = settings, tuple(untouched)
        self.geometries: list[tuple[Any, ...]] = []
        self.layers = nn.ModuleList()
        self.later_layers: dict[tuple[Any, ...], MultiHeadSelfAttention] = {}

    def expect(self, convolution: Convolution, name: str) -> None:
        """Registers the attention for the geometry of `convolution`."""
        if (geometry := geometry_of(convolution)) not in self.geometries:
            self.geometries.append(geometry)
            self.layers.append(positions_for(convolution, self.settings, name))

    def forward(self, convolution: Convolution, image: Tensor, plain: "partial[Tensor]") -> Tensor:
        """`convolution` of `image`, computed by multi-head self-attention; `plain` makes the original call."""
        weights = Weights(None, convolution.taps(), convolution.bias, convolution.groups)
        return self.layer_for(convolution)(image, weights=weights)

    def layer_for(self, convolution: Convolution) -> nn.Module:
        """The attention for the geometry of `convolution`, created at its first call.

        Raises:
            EngineError: the geometry is new while a graph is traced (C2A203).
        """
        geometry = geometry_of(convolution)
        if geometry in self.geometries:
            return self.layers[self.geometries.index(geometry)]
        if geometry not in self.later_layers:
            if torch.compiler.is_compiling():
                reason = f"a functional convolution of kernel {convolution.kernel_size} did not run before tracing"
                raise EngineError("C2A203", reason, "Call the network once on an input with these sides before that.")
            layer = positions_for(convolution, replace(self.settings, trainable=False), "a functional convolution")
            self.later_layers.setdefault(geometry, layer)
        layer, template = self.later_layers[geometry], self.layers[0]
        assert isinstance(template, MultiHeadSelfAttention)
        layer.engine, layer.memory_limit = template.engine, template.memory_limit
        return layer

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "AttendingCalls":
        super()._apply(fn, recurse)
        for layer in self.later_layers.values():
            layer._apply(fn)
        return self


def positions_for(convolution: Convolution, settings: Settings, name: str) -> MultiHeadSelfAttention:
    """The attention of `convolution` without its weights."""
    arguments = replace(settings, content="none", d_head=None).arguments()
    layer = attention_for(convolution, **arguments)
    layer.weight = layer.bias = None
    layer.name = name
    return layer


class Redirection(TorchFunctionMode):
    """While active, `calls` computes functional convolutions, except inside modules that pause it."""

    def __init__(self, calls: AttendingCalls):
        super().__init__()
        self.calls, self.pauses = calls, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func` by attention if it is a convolution to convert."""
        kwargs = kwargs or {}
        if self.pauses or func not in FUNCTIONS:
            return func(*args, **kwargs)
        image = args[0] if args else kwargs["input"]
        with paused():
            if FUNCTIONS[func][0] in self.calls.untouched:
                return func(*args, **kwargs)
            try:
                convolution = convolution_of_call(func, args, kwargs)
            except UnsupportedError:
                return func(*args, **kwargs)
            return self.calls(convolution, image, partial(func, *args, **kwargs))


def pause(*_: Any) -> None:
    """Stops all redirections that are active in this thread; a forward pre-hook of modules that are not converted."""
    for mode in function_mode_stack():
        if isinstance(mode, Redirection):
            mode.pauses += 1


def resume(*_: Any) -> None:
    """Ends `pause`; a forward hook, which is called after an error too."""
    for mode in function_mode_stack():
        if isinstance(mode, Redirection):
            mode.pauses -= 1


@contextmanager
def paused() -> Iterator[None]:
    """Pauses the active redirections within the block."""
    pause()
    try:
        yield
    finally:
        resume()


@final
class AttendedForward:
    """The forward of `owner`, its functional convolutions computed by its AttendingCalls."""

    def __init__(self, owner: nn.Module, replaced: Callable[..., Any] | None):
        self.owner, self.replaced = owner, replaced

    @property
    def inner(self) -> Callable[..., Any]:
        """The wrapped forward."""
        return self.replaced or type(self.owner).forward.__get__(self.owner)

    @property
    def __code__(self) -> CodeType:
        return self.inner.__code__

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the forward with its convolutions redirected, and returns its result."""
        with Redirection(self.owner.get_submodule(CHILD)):  # type: ignore[arg-type]
            return self.inner(*args, **kwargs)


def attend_in_calls(
    network: nn.Module, calls: Sequence[FunctionalCall], chosen: Container[FunctionalCall], settings: Settings
) -> list[ConversionRow]:
    """Converts the chosen functional convolutions of `network`; returns a row for each of `calls`."""
    untouched = [(call.owner, call.function) for call in calls if call not in chosen]
    owners, rows = dict[str, AttendingCalls](), list[ConversionRow]()
    for call in calls:
        outcome, reason = (UNSUPPORTED, call.reason) if call in chosen else (SKIPPED, "on request")
        if call in chosen and call.convolution is not None:
            if call.owner not in owners:
                functions = [function for owner, function in untouched if owner == call.owner]
                owners[call.owner] = AttendingCalls(settings, functions)
            owners[call.owner].expect(call.convolution, call.name)
            outcome, reason = CONVERTED, leak_warning(settings.alpha, len(call.convolution.kernel_size))
        rows.append(ConversionRow(call.name, call.signature, outcome, reason))
    redirect_owners(network, owners)
    if owners:
        leave_alone(network.get_submodule(call.owner) for call in calls if call.owner not in owners)
    return rows


def redirect_owners(network: nn.Module, owners: Mapping[str, AttendingCalls]) -> None:
    """Adds the attention of functional convolutions to the modules with these names."""
    for name, attending in owners.items():
        owner = network.get_submodule(name)
        attending.train(owner.training)
        forward = vars(owner).get("forward")
        replaced = forward.replaced if isinstance(forward, AttendedForward) else forward
        parts = {CHILD: attending, "forward": AttendedForward(owner, replaced)}
        owner.add_module(CHILD, attending)
        vars(owner)["forward"] = parts["forward"]
        # Copies of a GraphModule keep only the attributes that its graph reads.
        if isinstance(owner, fx.GraphModule):
            owner.meta.setdefault("_user_preserved_attributes", {}).update(parts)
    if owners:
        leave_alone(each for each in network.modules() if isinstance(each, STOCK) and CHILD not in each._modules)


def leave_alone(modules: Iterable[nn.Module]) -> None:
    """Excludes `modules` from redirection."""
    for module in modules:
        if pause not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(pause, prepend=True)
            module.register_forward_hook(resume, always_call=True)
