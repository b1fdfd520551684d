"""Runs a transformer that gets a start: the input tokens of each layer, with its weights restored on failure."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from conv2attn.arguments import call_network, is_size, running
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.copies import evaluating
from conv2attn.networks.fast_path import without_fast_path
from conv2attn.networks.provenance import input_size_of
from conv2attn.networks.starts.parts import StartLayer


@final
@dataclass(frozen=True, eq=False)
class Trial:
    """A network that gets a start, its layers by name, and the inputs of its runs."""

    network: nn.Module
    layers: Mapping[str, StartLayer]
    inputs: Any

    def run(self, action: Callable[[StartLayer, Tensor], None]) -> None:
        """Runs the network; before each layer, calls `action` with its input tokens, (images, tokens, width)."""

        def before(layer: StartLayer, module: nn.Module, args: Any, kwargs: Any) -> None:
            first = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
            batch_second = getattr(module, "batch_first", True) is False
            action(layer, first.transpose(0, 1) if batch_second else first)

        with ExitStack() as hooks:
            for layer in self.layers.values():
                hook = layer.module.register_forward_pre_hook(partial(before, layer), with_kwargs=True)
                hooks.enter_context(hook)
            call_network(self.network, self.inputs)

    def tokens(self) -> dict[str, Tensor]:
        """The input tokens of each layer, in the order of the run.

        Raises:
            UsageError: the network fails, or a layer's tokens are missing or not finite (C2A009).
            UnsupportedError: a layer runs twice (C2A604).
        """
        every = dict[str, Tensor]()

        def record(layer: StartLayer, tokens: Tensor) -> None:
            if layer.name in every:
                reason = f"{layer.name} runs twice, on tokens of two depths"
                raise UnsupportedError("C2A604", reason, "Take a network in which each layer runs once.")
            if not tokens.numel() or not tokens.isfinite().all():
                reason = f"{layer.name}: its tokens are not finite, or there are none"
                raise UsageError("C2A009", reason, "Pass a finite example_input.")
            every[layer.name] = tokens.detach().clone()

        with running(self.network, self.inputs):
            self.run(record)
        return every


def start_inputs(network: nn.Module, example: Any) -> Any:
    """The inputs for a run: the example, or two images of noise of its size or of the size read from the network.

    Raises:
        UsageError: the size is unknown (C2A005) or invalid (C2A001, C2A006).
    """
    if example is not None and not is_size(example):
        return example
    size = example or input_size_of(network)
    if not size:
        reason = f"{type(network).__name__} does not state the size of its images"
        raise UsageError("C2A005", reason, "Pass an example_input.")
    return torch.randn(2, *size, generator=torch.Generator().manual_seed(0), device="cpu").to(
        next(network.parameters())
    )


@contextmanager
def restored_on_failure(network: nn.Module) -> Iterator[None]:
    """Within the block `network` is in evaluation mode, without autocast and fast paths; an error restores its weights.

    Raises:
        UsageError: its weights are in half precision, on meta, or cannot be written in place (C2A006).
    """
    weights = [*network.parameters()]
    dtypes = {str(value.dtype).removeprefix("torch.") for value in weights} - {"float32", "float64"}
    for refused, reason, remedy in (
        (dtypes, ", ".join(sorted(dtypes)), "Start the network in float32, and cast it afterwards."),
        (any(each.is_meta for each in weights), "on meta", "Give them values first: network.to_empty(...)."),
        (any(each.is_inference() for each in weights), "of inference mode", "Build it outside of inference mode."),
    ):
        if refused:
            raise UsageError("C2A006", f"its parameters are {reason}", remedy)
    tensors = [each.detach() for each in (*weights, *network.buffers()) if not is_lazy(each)]
    state = [(tensor, tensor.clone()) for tensor in tensors]

    def restore() -> None:
        for tensor, value in state:
            tensor.copy_(value)

    device = tensors[0].device.type if tensors else "cpu"
    with ExitStack() as stack:
        stack.enter_context(without_fast_path())  # it rounds differently from captured attention
        try:
            restore()
            stack.enter_context(evaluating(network))
        except (RuntimeError, NotImplementedError) as error:
            reason = f"it cannot be written in place or put in evaluation mode ({str(error).partition('.')[0]})"
            remedy = "Pass a module whose weights are its own, and that has code of its own."
            raise UsageError("C2A006", reason, remedy) from error
        try:
            with torch.autocast(device, enabled=False):
                yield
        except BaseException:
            restore()
            raise
