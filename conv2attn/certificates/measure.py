"""Both layers, and both networks, on the same inputs: the largest difference seen, beside the range of the inputs."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.certificates.certificate import Outputs
from conv2attn.errors import UsageError


@final
@dataclass
class Measured:
    """What was seen of one layer: the error is NaN if any output was, and infinite if shapes or dtypes differ."""

    max_error: float = 0.0
    input_range: float = 0.0
    sides: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    calls: int = 0

    def add(self, error: float, image: Tensor, output: Tensor) -> None:
        """Counts one more call."""
        self.max_error = error if not error <= self.max_error else self.max_error
        self.input_range = max(self.input_range, image.abs().max().item())
        self.sides, self.grid, self.calls = tuple(image.shape[2:]), tuple(output.shape[2:]), self.calls + 1


@final
@dataclass
class Watch:
    """Runs the second layer on whatever the first is called on."""

    other: nn.Module
    seen: Measured = field(default_factory=Measured)

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        """A forward hook."""
        self.seen.add(largest_difference(output, self.other(*args, **kwargs)), args[0], output)


def largest_difference(first: Tensor, second: Tensor) -> float:
    """max |first - second|; infinite where shapes or dtypes differ or there is nothing to compare."""
    if first.shape != second.shape or first.dtype != second.dtype or first.numel() == 0:
        return float("inf")
    return (first.double() - second.double()).abs().max().item()


def by_true_softmax(network: nn.Module) -> nn.Module:
    """A copy whose quadratic heads are evaluated as softmaxes, not compiled back to convolutions."""
    network = copy.deepcopy(network)
    for layer in network.modules():
        if isinstance(layer, MultiHeadSelfAttention):
            layer.engine = "separable" if isinstance(layer.encoding, QuadraticEncoding) else "auto"
    return network


def measure(
    original: nn.Module, network: nn.Module, layers: Mapping[str, nn.Module], images: Tensor
) -> tuple[dict[str, Measured], Any, Any]:
    """What was seen of each of `layers` (of `network`, by name) on the activations of `original`; both outputs."""
    watches = {name: Watch(layer) for name, layer in layers.items()}
    handles = [
        original.get_submodule(name).register_forward_hook(watch, with_kwargs=True) for name, watch in watches.items()
    ]
    try:
        with torch.no_grad():
            first = original(images)
    finally:
        for handle in handles:
            handle.remove()
    with torch.no_grad():
        second = network(images)
    return {name: watch.seen for name, watch in watches.items()}, first, second


def compare_outputs(first: Any, second: Any, described: str, labels: Tensor | None) -> Outputs:
    """The outputs side by side; classes are compared where an output is (images, classes).

    Raises:
        UsageError: the network's output is not a tensor (C2A001).
    """
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        raise UsageError("C2A001", f"the network's output is a {type(first).__name__}, not a tensor")
    difference, count = largest_difference(first, second), len(first)
    same = correct = None
    if first.ndim == 2 and first.shape == second.shape and first.shape[1] > 1:
        classes = first.argmax(1), second.argmax(1)
        same = int((classes[0] == classes[1]).sum())
        if labels is not None:
            right = [int((found == labels.to(found.device)).sum()) for found in classes]
            correct = right[0], right[1]
    return Outputs(described, count, difference, first.abs().max().item(), same, correct)
