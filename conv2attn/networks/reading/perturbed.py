"""One image of the inputs of a network in float64, to which small noise is added: the image, or embeddings of ids."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import argument, call_network
from conv2attn.networks.copies import evaluating
from conv2attn.networks.reading.watch import Watch
from conv2attn.torch_internals import tree_map_only


@final
class Embeddings(TorchFunctionMode):
    """While active, noise is added to the embeddings of some ids."""

    def __init__(self, ids: Tensor, noise: Tensor | None = None):
        super().__init__()
        self.ids, self.noise, self.shape = ids, noise, tuple[int, ...]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`; the embeddings of these ids are perturbed."""
        result = func(*args, **(kwargs or {}))
        if func is F.embedding:
            looked_up = argument(args, kwargs or {}, 0, "input")
            if looked_up.shape == self.ids.shape and torch.equal(looked_up, self.ids):
                self.shape = tuple(result.shape)
                return result if self.noise is None else result + self.noise
        return result


@final
class Perturbed:
    """A copy of a network on the CPU in float64, and one image of its inputs: along their `batch` axis, or all of them.

    `shape` is that of the tensor that is perturbed: the first of floats with a batch and an axis of positions, else the
    embeddings of the first ids; None where there is neither.
    """

    def __init__(self, network: nn.Module, inputs: Any, batch: int | None = 0):
        tensors: list[Tensor] = []
        tree_map_only(Tensor, tensors.append, inputs)
        axis = 0 if batch is None else batch
        images = next((each.shape[axis] for each in tensors if each.ndim > axis + 1 and each.numel()), 0)

        def alone(tensor: Tensor) -> Tensor:
            fits = batch is not None and tensor.ndim > axis + 1 and images > 0 and tensor.shape[axis] == images
            one = tensor.narrow(axis, 0, 1) if fits else tensor
            return one.cpu().double() if one.is_floating_point() else one.cpu()

        self.batch = axis
        self.network = deepcopy(network).cpu().double()
        self.inputs = tree_map_only(Tensor, alone, inputs)
        singles: list[Tensor] = []
        tree_map_only(Tensor, singles.append, self.inputs)
        self.base = next((each for each in singles if each.is_floating_point() and each.ndim > 1), None)
        self.ids = next((each for each in singles if not each.is_floating_point() and each.ndim == 2), None)
        self.shape: tuple[int, ...] | None = None if self.base is None else tuple(self.base.shape)
        if self.base is None and self.ids is not None:
            with torch.no_grad(), evaluating(self.network), Embeddings(self.ids) as embeddings:
                call_network(self.network, self.inputs)
            self.shape = embeddings.shape or None

    def run(self, watch: Watch, noise: Tensor | None = None, base: Tensor | None = None) -> Any:
        """The result of a run with `noise` added; on other numbers than those of the image where there is a `base`."""
        call: Callable[[], Any]
        if self.base is None:
            ids = self.ids
            assert ids is not None

            def call() -> Any:
                with Embeddings(ids, noise):
                    return call_network(self.network, self.inputs)
        else:
            own, other = self.base, self.base if base is None else base
            moved = other if noise is None else other + noise

            def call() -> Any:
                return call_network(
                    self.network, tree_map_only(Tensor, lambda each: moved if each is own else each, self.inputs)
                )

        return watch.run(call)
