"""Beside every function of torch that a running network calls, the rule for its bounds."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.attention.hardness import FORMATS
from conv2attn.bounds import format_of
from conv2attn.certificates.computed.outputs import leaves
from conv2attn.certificates.propagation import (
    activation_rules,
    arithmetic_rules,
    layer_rules,
    moving_rules,
    pooling_rules,
)
from conv2attn.certificates.propagation.carried import SLACK, Carried, LayerRule, Stop
from conv2attn.certificates.propagation.memory import Memory
from conv2attn.certificates.propagation.rules import RULES, Call, functions_called, tensors_in
from conv2attn.errors import UsageError

WITH_RULES = (activation_rules, arithmetic_rules, layer_rules, moving_rules, pooling_rules)
FACTS = (
    *("shape", "ndim", "dtype", "device", "layout", "is_cuda", "is_sparse", "is_quantized", "requires_grad", "is_leaf"),
    *("size", "dim", "ndimension", "numel", "nelement", "stride", "element_size", "get_device", "__len__"),
    *("is_contiguous", "is_floating_point", "is_complex", "is_nested"),
)
SHAPES = frozenset(function for name in FACTS for function in functions_called(name))
MAKING = frozenset(
    function
    for name in ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
    for function in functions_called(name)
)


class Carrier(TorchFunctionMode):
    """Carries bounds along as a network runs; keeps the first reason to stop, whatever the network makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.known = Memory()
        self.running: list[str] = []
        self.inside = False
        self.stopped: Stop | None = None

    def watch(self, name: str, module: nn.Module, rules: list[LayerRule]) -> None:
        """Makes `module` tell when it runs, and carries bounds over it by `rules`, if there are any."""
        forward = module.forward
        for tensor in tensors_in(vars(module)):
            self.known.note(tensor, None)

        def noted(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return forward(*args, **kwargs)
            self.running.append(name)
            try:
                return self.over(forward, rules, args, kwargs) if rules else forward(*args, **kwargs)
            finally:
                self.running.pop()

        vars(module)["forward"] = noted

    def over(self, forward: Any, rules: list[LayerRule], args: Any, kwargs: Any) -> Any:
        """A compared layer, inside of which nothing is carried."""
        self.inside = True
        try:
            value = forward(*args, **kwargs)
            given = self.bounds(next(tensors_in((args, kwargs))))
            passed = [rule(given) for rule in rules]
            self.note(value, Carried(largest(each.size for each in passed), largest(each.error for each in passed)))
            return value
        except Stop as stop:
            raise self.stop(stop.where) from None
        finally:
            self.inside = False

    def note(self, tensor: Tensor, bounds: Carried) -> None:
        """Keeps the bounds of a tensor, as long as they are numbers and the tensor does not overflow."""
        if not math.isfinite(bounds.reach):
            raise Stop("an infinite bound")
        if tensor.dtype in FORMATS and bounds.reach > format_of(FORMATS[tensor.dtype]).largest:
            raise Stop(f"numbers of up to {bounds.reach:.3g}, beyond {FORMATS[tensor.dtype]}")
        self.known.note(tensor, bounds)

    def stop(self, reason: str) -> Stop:
        """The first reason to stop, with the module that was running."""
        place = f" in {self.running[-1]}" if self.running and self.running[-1] else ""
        self.stopped = self.stopped or Stop(f"{reason}{place}")
        return self.stopped

    def bound(self, network: nn.Module, image: Tensor, input_range: float) -> float:
        """The largest error of all that the network returns for an image within +-input_range."""
        shape = (1,) * image.ndim
        size = torch.full(shape, input_range, dtype=torch.float64)
        self.known.note(image, Carried(size, torch.zeros_like(size)))
        with self:
            output = network(image)
        errors = [self.bounds(tensor).error.max().item() * SLACK for _, tensor in leaves(output)]
        if not errors:
            raise Stop("an output without tensors")
        return math.inf if any(map(math.isnan, errors)) else max(errors)

    def bounds(self, tensor: Tensor) -> Carried:
        """What is known of a tensor."""
        found = self.known.of(tensor)
        return Carried.of_constant(tensor) if found is None else found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """`func` of the arguments; its bounds are noted."""
        kwargs = kwargs or {}
        if self.inside or func in SHAPES:
            return func(*args, **kwargs)
        try:
            return self.carry(func, args, kwargs)
        except Stop as stop:
            raise self.stop(stop.where) from None
        except UsageError:
            raise self.stop(f"the roundings of {name_of(func)}") from None

    def carry(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`func` of the arguments, with its bounds."""
        tensors = list(tensors_in((args, kwargs)))
        shaped = func in MAKING and len(tensors) == 1
        known = {id(tensor): self.known.of(tensor) for tensor in tensors}
        versions, noise = [tensor._version for tensor in tensors], noise_drawn(tensors)
        value = func(*args, **kwargs)
        changed = [tensor for tensor, version in zip(tensors, versions, strict=True) if tensor._version != version]
        if shaped or not any(bounds is not None for bounds in known.values()):
            if not all(map(torch.equal, noise, noise_drawn(tensors))):
                raise Stop(f"{name_of(func)}, which is random")
            self.known.see_changes(changed)
            for tensor in tensors_in(value):
                self.known.note(tensor, None)
            return value
        if any(known[id(tensor)] is None for tensor in changed):
            raise Stop("a change in place of what does not come from the image")
        self.known.forget_views(changed, value)
        if func not in RULES:
            raise Stop(name_of(func))

        def bounds(tensor: Tensor) -> Carried:
            found = known[id(tensor)]
            return Carried.of_constant(tensor) if found is None else found

        def computed(tensor: Tensor) -> bool:
            return known[id(tensor)] is not None

        found = RULES[func](Call(func, args, kwargs, value, bounds, computed))
        for tensor, piece in zip(tensors_in(value), found if isinstance(found, list) else [found], strict=False):
            if not (fits(piece.size, tensor) and fits(piece.error, tensor)):
                raise Stop(f"{name_of(func)}, whose bounds have another shape")
            self.note(tensor, piece.with_axes(tensor.ndim))
        return value


def fits(bound: Tensor, tensor: Tensor) -> bool:
    """Whether a bound broadcasts to the shape of a tensor."""
    missing = tensor.ndim - bound.ndim
    return missing >= 0 and all(
        side in (1, whole) for side, whole in zip(bound.shape, tensor.shape[missing:], strict=True)
    )


def noise_drawn(tensors: list[Tensor]) -> list[Tensor]:
    """The states of the generators that a function of these tensors may draw from."""
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def name_of(function: Any) -> str:
    """What to call a function, or an attribute by its getter."""
    name = getattr(function, "__name__", str(function))
    return getattr(function.__self__, "__name__", name) if name == "__get__" else name


def largest(tensors: Iterable[Tensor]) -> Tensor:
    """The largest of each number."""
    return torch.stack(list(tensors)).amax(0)
