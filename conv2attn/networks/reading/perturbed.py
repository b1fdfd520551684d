"""A float64 copy of a network with one image of its inputs, to which small noise is added, or to embeddings of ids."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from copy import copy
from functools import wraps
from typing import Any, ParamSpec, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.arguments import argument, call_network, tensors_in
from conv2attn.networks.copies import evaluating
from conv2attn.networks.reading.decisions import Decisions
from conv2attn.networks.reading.double_precision import double_copy, in_double, precise
from conv2attn.networks.reading.watch import Watch
from conv2attn.torch_internals import tree_map_only

Params = ParamSpec("Params")
Result = TypeVar("Result")


@final
class Embeddings(TorchFunctionMode):
    """While active, noise is added to the embeddings of some ids (batch, tokens) or (tokens, batch).

    `noise` and `shape` are (batch, tokens, channels).
    """

    def __init__(self, ids: Tensor, noise: Tensor | None = None):
        super().__init__()
        self.ids, self.noise, self.shape = ids, noise, tuple[int, ...]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`; the embeddings of these ids are perturbed."""
        result = func(*args, **(kwargs or {}))
        if func is F.embedding:
            looked_up = argument(args, kwargs or {}, 0, "input")
            for ids, axes in ((self.ids, (0, 1, 2)), (self.ids.mT, (1, 0, 2))):
                if looked_up.shape == ids.shape and torch.equal(looked_up, ids):
                    self.shape = tuple(result.permute(axes).shape)
                    return result if self.noise is None else result + self.noise.permute(axes)
        return result


def on_the_cpu(function: Callable[Params, Result]) -> Callable[Params, Result]:
    """The function run with the CPU as default device, where the float64 copies live."""

    @wraps(function)
    def there(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        # A network that sets the default device itself inside a torch.device block would end that block.
        with nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"):
            return function(*args, **kwargs)

    return there


@final
class Perturbed:
    """A float64 copy of a network on the CPU, and `images` of its inputs along the axis `batch`, or all of them.

    `shape` is that of the tensor that is perturbed: the first float tensor with a batch and an axis of positions,
    otherwise the embeddings of the first ids; None without either.
    """

    def __init__(self, network: nn.Module, inputs: Any, batch: int | None = 0, share: bool = True):
        self.batch = 0 if batch is None else batch
        self.network = double_copy(network, share)
        self.take(inputs, 0, None if batch is None else 1)

    def others_of(self, inputs: Any, start: int, stop: int) -> "Perturbed | None":
        """The same network on other images of these inputs; None if there are too few."""
        other = copy(self)
        return other if other.take(inputs, start, stop) >= stop else None

    def take(self, inputs: Any, start: int, stop: int | None) -> int:
        """Takes some images of these inputs, all of them if `stop` is None; returns the number of images of the
        inputs."""
        self.decisions: Decisions | None = None
        self.maps, self.noisy = dict[int, Tensor | None](), set[int]()
        self.images, images = 1 if stop is None else stop - start, self.images_in(inputs)

        part = inputs if stop is None else self.part(inputs, start, stop)
        self.inputs = tree_map_only(Tensor, precise, part)
        singles = tensors_in(self.inputs)
        self.base = next((each for each in singles if each.is_floating_point() and each.ndim > 1), None)
        self.ids = next((each for each in singles if not each.is_floating_point() and each.ndim == 2), None)
        self.shape: tuple[int, ...] | None = None if self.base is None else tuple(self.base.shape)
        if self.base is None:
            self.shape = self.embedded()
        return images

    def images_in(self, inputs: Any) -> int:
        """The number of images of these inputs."""
        tensors = tensors_in(inputs)
        return next((each.shape[self.batch] for each in tensors if each.ndim > self.batch + 1 and each.numel()), 0)

    def part(self, inputs: Any, start: int, stop: int) -> Any:
        """The inputs for some images; tensors without an axis of images stay whole."""
        axis, images = self.batch, self.images_in(inputs)

        def taken(tensor: Tensor) -> Tensor:
            fits = tensor.ndim > axis + 1 and images > 0 and tensor.shape[axis] == images
            return tensor[(slice(None),) * axis + (slice(start, stop),)] if fits else tensor

        return tree_map_only(Tensor, taken, inputs)

    @property
    def has_images(self) -> bool:
        """Whether the perturbed tensor has one entry per image."""
        return self.shape is not None and (self.images == 1 or self.shape[self.batch] == self.images)

    def embedded(self) -> tuple[int, ...] | None:
        """The shape of the embeddings of the first ids; None without ids."""
        if self.ids is None:
            return None
        with torch.no_grad(), evaluating(self.network), in_double(self.network), Embeddings(self.ids) as embeddings:
            call_network(self.network, self.inputs)
        return embeddings.shape or None

    def others(self) -> "Iterator[Perturbed]":
        """Copies that perturb other inputs: other float tensors, and embeddings of ids if there are floats."""
        if self.base is None:
            return
        for each in tensors_in(self.inputs):
            if each.is_floating_point() and each.ndim > 1 and each is not self.base:
                other = copy(self)
                other.base, other.shape = each, tuple(each.shape)
                yield other
        other = copy(self)
        other.base, other.shape = None, self.embedded()
        if other.shape is not None:
            yield other

    def shuffled(self, generator: torch.Generator) -> Tensor | None:
        """The perturbed tensor with the numbers of each image shuffled; None for ids."""
        if self.base is None:
            return None
        images = self.base.movedim(self.batch, 0)
        order = torch.randperm(images[0].numel(), generator=generator, device="cpu")
        return images.flatten(1)[:, order].reshape(images.shape).movedim(0, self.batch)

    def at_maps(self, maps: Iterable[int], shape: tuple[int, ...]) -> "Perturbed":
        """A copy that perturbs feature maps of this shape, given their values in a run."""
        other, numbers = copy(self), sorted(maps)
        # Maps between two of these are held fixed: after a convolution, noise on the first map would blur the second.
        other.maps = dict.fromkeys(range(numbers[0], numbers[-1] + 1))
        other.noisy, other.shape, other.batch = set(numbers), shape, 0
        return other

    def run(self, watch: Watch, noise: Tensor | None = None, base: Tensor | None = None) -> Any:
        """The result of a run with `noise` added to the image, or to `base` if it is passed.

        Data-dependent decisions are those of an unperturbed run.
        """
        if self.decisions is None:
            self.decisions = watch.decisions = Decisions()
            if noise is not None or base is not None or watch.changes:
                watch.decisions = None
                self.run(Watch(self.network, decisions=self.decisions))
        if watch.decisions is None:
            watch.decisions = self.decisions.again()
        if self.maps:
            watch.injected = self.maps
            if noise is not None:
                watch.injected = {
                    at: each + noise if at in self.noisy and each is not None else each
                    for at, each in self.maps.items()
                }
            noise = None
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
