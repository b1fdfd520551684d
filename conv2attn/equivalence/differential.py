"""Differential tests: both layers, and both networks, on the same inputs; the largest difference and the range."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.equivalence.outputs import largest_difference, other_kind
from conv2attn.errors import UsageError
from conv2attn.models.conversion.discovery import copy_network
from conv2attn.models.conversion.replacement import reparametrisations

FAILURES = (Exception,)  # a network's own code may raise anything


@final
@dataclass
class Measured:
    """The measurements of one pair of layers.

    Args:
        max_error: NaN if an output of the first is not finite; infinite if only that of the second is not, if shapes or
            dtypes differ, or if the second did not run, for the reason in `trouble`.
        spread: above 0 where the first is no direct sum.
        shape, earlier: the shape of the last input, and those of the others.
    """

    max_error: float = 0.0
    input_range: float = 0.0
    sides: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    calls: int = 0
    trouble: str = ""
    like: Tensor | None = None
    shape: tuple[int, ...] = ()
    spread: float = 0.0
    earlier: tuple[tuple[int, ...], ...] = ()

    def add(self, error: float, trouble: str, image: Tensor, output: Tensor, axes: int) -> None:
        """Counts one more call on images of so many axes, in a batch or not."""
        self.trouble = trouble or self.trouble
        self.max_error = error if not error <= self.max_error else self.max_error
        largest = image.abs().max().item() if image.numel() else 0.0
        self.input_range = self.input_range if largest <= self.input_range else largest
        if self.calls and self.shape not in self.earlier:
            self.earlier = (*self.earlier, self.shape)
        sides, grid = tuple(image.shape[-axes:]), tuple(output.shape[-axes:])
        self.sides, self.grid = (
            tuple(map(max, old or new, new)) for old, new in ((self.sides, sides), (self.grid, grid))
        )
        self.calls, self.like, self.shape = self.calls + 1, image.new_empty(0), tuple(image.shape)


@final
@dataclass
class Watch:
    """Runs the second layer on whatever the first is called on."""

    other: nn.Module
    seen: Measured = field(default_factory=Measured)

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        """A forward hook that comes before the layer's own; those before the call have changed `args` already."""
        error, trouble, _ = difference_from(output, lambda: alone(self.other, *args, **kwargs))
        if output.numel() or trouble:  # otherwise both return nothing, which shows nothing
            image = args[0] if args else kwargs["input"]
            self.seen.add(error, trouble, image, output, axes_of(module))


def difference_from(output: Tensor, compute: Callable[[], Tensor]) -> tuple[float, str, Tensor | None]:
    """The largest difference from `output` of what is computed, why it is no number, and what was computed."""
    try:
        theirs = compute()
        kind = other_kind(output, theirs)
        return largest_difference(output, theirs), kind and f"an output {kind}", theirs
    except FAILURES as failure:
        if out_of_memory(failure):
            raise
        return math.inf, reason(failure), None


def alone(layer: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    """The output of a layer without its hooks, except for those that compute a weight."""
    for hook in reparametrisations(layer).values():
        hook(layer, ())
    output: Tensor = layer.forward(*args, **kwargs)
    return output


def refusal(layer: nn.Module, seen: Measured) -> str:
    """Why the engine that attention is set to refuses inputs like the measured ones; empty where it takes them."""
    if not isinstance(layer, MultiHeadSelfAttention) or layer.engine == "auto" or seen.like is None:
        return ""
    why = layer.why_engine(seen.like.new_zeros(1, layer.d_in, *seen.sides))[layer.engine]
    return "" if why == "exact" else f"the second refuses by its engine {layer.engine}: {why}"


def axes_of(layer: nn.Module) -> int:
    """The number of axes of the images of a convolution or attention layer."""
    return layer.dimensions if isinstance(layer, MultiHeadSelfAttention) else len(layer.kernel_size)  # type: ignore


def by_true_softmax(network: nn.Module) -> nn.Module:
    """A copy whose quadratic, position-only heads are evaluated as softmaxes, not compiled back to convolutions."""
    network = copy_network(network)
    for layer in network.modules():
        if isinstance(layer, MultiHeadSelfAttention):
            separable = isinstance(layer.encoding, QuadraticEncoding) and not layer.has_content
            layer.engine = "separable" if separable else "auto"
    return network


def run(network: nn.Module, images: Any) -> Any:
    """`network` on `images`, without gradients and with the same random numbers each time."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        return network(images)


def measure(original: nn.Module, layers: Mapping[str, nn.Module], images: Any) -> tuple[dict[str, Measured], Any]:
    """The measurements of each of `layers`, by its name in `original`, and the output of `original`.

    A copy of `original` is run, so that layers which count their calls stay as they are.
    """
    trial = copy_network(original)
    watches = {name: Watch(layer) for name, layer in layers.items()}
    for name, watch in watches.items():
        trial.get_submodule(name).register_forward_hook(watch, prepend=True, with_kwargs=True)
    first = run(trial, images)
    return {name: watch.seen for name, watch in watches.items()}, first


def out_of_memory(failure: Exception) -> bool:
    """Whether there was not enough memory, which says nothing about a network."""
    return isinstance(failure, torch.OutOfMemoryError) or "allocate memory" in str(failure)


def reason(failure: Exception) -> str:
    """The first line of what an error says, or its kind if it says nothing."""
    return str(failure).partition("\n")[0] or type(failure).__name__


def run_second(network: nn.Module, images: Any) -> tuple[Any, str]:
    """The output of `network`, or why it does not run.

    Raises:
        UsageError: there is not enough memory (C2A202).
    """
    try:
        return run(network, images), ""
    except FAILURES as failure:
        if out_of_memory(failure):
            raise UsageError(
                "C2A202", "the second needs more memory than there is", "Pass smaller images."
            ) from failure
        return None, f"{type(failure).__name__}: {reason(failure)}"
