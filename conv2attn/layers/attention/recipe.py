"""Decide once: what is known of the values of a layer's operators, and the recipe that is decided from it.

A recipe is a function of tensors alone: an engine with its integers filled in. An eager call on a CPU compares the
present values with those that were read, and decides again if they differ. Elsewhere, and while a graph is traced, the
comparison is an assertion inside the graph, so that a stale recipe fails and never answers wrongly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.layers.attention.features import longest_side
from conv2attn.layers.attention.hardness import first_stray, targets, within_margins
from conv2attn.layers.attention.lattice import Lattice, lattice, taps_of_heads
from conv2attn.layers.attention.probes import backend_flags, indirect_convolution
from conv2attn.layers.attention.storage import output_format, stored
from conv2attn.theory.basis import AttentionGrid, Basis, HeadNumbers, Offset, Operator, Padding, Sites
from conv2attn.torch_internals import assert_async

POSITIONS_UNREAD = "its centres and sharpness are trained where they cannot be read without waiting; freeze them"
DEPENDS_ON_CONTENT = "its attention depends on the content"
MOVED = "centres or sharpness moved: decide the engine again"
MOST_RECIPES = 32  # chosen: the sizes of a data loader that crops at will have no end, those that come back are few
DROPS_WEIGHTS = "it drops weights of its attention in training, each for itself"
Evaluation = Callable[[Basis, Tensor], Tensor]


@final
@dataclass(frozen=True, eq=False)
class Recipe:
    """How a layer of this padding and these queries is evaluated: a function of its basis and an image alone.

    `engine` is the name of the engine that evaluates it.
    """

    padding: Padding
    sites: Sites
    evaluation: Evaluation
    engine: str

    def run(self, basis: Basis, image: Tensor) -> Tensor:
        """The output, stored as the convolution's, which `conv` does of itself."""
        result = self.evaluation(basis, image)
        return result if self.engine == "conv" else stored(result, output_format(basis, image))

    def serves(self, basis: Basis) -> bool:
        """Whether it was decided for this padding and these queries."""
        same = self.padding is basis.padding and self.sites is basis.sites
        return same or (self.padding == basis.padding and self.sites == basis.sites)


@final
@dataclass(frozen=True, eq=False)
class OperatorFacts:
    """Facts read off the operators of a layer, for one dtype and device, and the values they were read from.

    `joined` holds all values of `snapshot`; `trained_recipes` are those of heads that train. `lattice` is that of the
    targets of one-hot heads, `taps` that of the centres of heads of one sharpness.
    """

    dtype: torch.dtype
    snapshot: tuple[Tensor, ...]
    joined: Tensor
    numbers: HeadNumbers
    targets: tuple[Offset, ...] | str
    lattice: Lattice | None
    taps: Lattice | None
    indirect: str | None
    flags: tuple[Any, ...]
    recipes: dict[Any, "Recipe"] = field(default_factory=dict)
    trained_recipes: dict[Any, "Recipe"] = field(default_factory=dict)

    @cached_property
    def longest_side(self) -> int:
        """The longest side of a key grid on which absolute features of these heads are accurate enough."""
        return longest_side(self.numbers, score_dtype(self.dtype))

    def is_current(self, operators: Operator) -> bool:
        """Whether the operators' values are bitwise those that were read."""
        return all(map(torch.equal, operators.values, self.snapshot))

    def assert_current(self, operators: Operator) -> None:
        """Asserts the same inside a graph, or on an accelerator without waiting for it: there as one tensor."""
        pairs = zip(operators.values, self.snapshot, strict=True)
        if not torch.compiler.is_compiling():
            pairs = zip([as_one_tensor(operators.values)], [self.joined], strict=True)
        for value, read in pairs:
            same = (value.detach() == read).all()
            try:
                assert_async(same, MOVED)
            except NotImplementedError:  # MPS before it had assertions
                if not same:
                    raise RuntimeError(MOVED) from None

    def moved(self, device: torch.device) -> "OperatorFacts":
        """These facts for a copy of the layer on a device whose values cannot be read."""
        snapshot = tuple(static(value.to(device)) for value in self.snapshot)
        return replace(self, snapshot=snapshot, joined=self.joined.to(device), recipes={}, trained_recipes={})


def keep_recent(recipes: dict[Any, Recipe], key: Any, recipe: Recipe) -> None:
    """Keeps `recipe` as the one used last, and forgets those used longest ago: softened heads hold profiles."""
    # Threads of torch.nn.DataParallel share these recipes, so nothing here may mind that another one changed them.
    recipes.pop(key, None)
    recipes[key] = recipe
    for oldest in list(recipes)[:-MOST_RECIPES]:
        recipes.pop(oldest, None)


def as_one_tensor(values: Sequence[Tensor]) -> Tensor:
    """All values as one tensor: the memory that they share, where they lie side by side in it, or a copy."""
    if not values:
        return torch.empty(0)
    if lie_side_by_side(values):
        return values[0].detach().as_strided((sum(value.numel() for value in values),), (1,))
    return one_after_another(values)


def one_after_another(values: Sequence[Tensor]) -> Tensor:
    """A copy of all values as one tensor."""
    return torch.cat([value.detach().reshape(-1) for value in values]) if values else torch.empty(0)


def lie_side_by_side(values: Sequence[Tensor]) -> bool:
    """Whether the values follow one another in one memory."""
    first, end = values[0], values[0].storage_offset()
    for value in values:
        alike = value.dtype == first.dtype and value.is_contiguous() and value.storage_offset() == end
        if not alike or value.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return False
        end += value.numel()
    return True


def static(tensor: Tensor) -> Tensor:
    """`tensor` as a parameter, whose sizes torch.compile never takes for those of an image."""
    return torch.nn.Parameter(tensor, requires_grad=False)


def read_operators(operators: Operator, image: Tensor) -> OperatorFacts:
    """Reads the values of `operators`, for images of the dtype and device of `image`."""
    numbers = operators.numbers()
    offsets = targets(numbers, image.dtype, image.device.type)
    snapshot = tuple(static(value.detach().clone()) for value in operators.values)
    points = None if isinstance(offsets, str) else lattice(offsets)
    taps = taps_of_heads(numbers.centers, numbers.alphas)
    indirect, flags = indirect_convolution(image), backend_flags(image.device.type)
    together = one_after_another(operators.values)
    return OperatorFacts(image.dtype, snapshot, together, numbers, offsets, points, taps, indirect, flags)


@final
@dataclass(frozen=True, eq=False)
class Question:
    """Question to an engine: whether it is exact for this basis on images of this shape, and how it would run.

    Engines read shapes, numbers and kinds from it, never the value of a tensor.

    Args:
        basis: the layer.
        facts: what was read of its operators.
        shape: (batch, d_in, *sides) of the image; symbolic while a graph is traced.
        dtype, device: of the image.
        memory_limit: bytes that temporary tensors may take; not observed while a graph is traced, whose loops would
            fix the size of the image.
        traced: whether a graph is being traced.
        free: whether the values may change without being read again, so that only what holds for all values is exact.
        dropout: probability with which each weight of attention is dropped in this call.
        few_features: whether attention that reads this image has accurate features of few numbers for its positions.
    """

    basis: Basis
    facts: OperatorFacts
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    memory_limit: int
    name: str = "attention"
    traced: bool = False
    free: bool = False
    dropout: float = 0.0
    few_features: bool = False

    @property
    def grid(self) -> AttentionGrid:
        """The keys and queries."""
        return AttentionGrid(self.basis.padding.sides(tuple(self.shape[2:])), self.basis.sites, self.device)

    @property
    def trained(self) -> bool:
        """Whether this call computes gradients of centres or sharpness."""
        return torch.is_grad_enabled() and any(value.requires_grad for value in self.basis.operators.values)

    @property
    def is_smoothed(self) -> bool:
        """Whether all heads read pixels of one smoothed image: frozen ones of one alpha, with centres on a lattice."""
        frozen = not (self.free or self.trained)
        return frozen and self.facts.taps is not None and self.basis.operators.is_stationary

    @property
    def keeps_profiles(self) -> bool:
        """Whether a recipe may hold softmaxes of the heads: they are frozen, and have numbers."""
        frozen = not (self.free or self.trained or self.traced)
        return frozen and self.device.type != "meta" and bool(self.basis.operators.values)

    @property
    def score_dtype(self) -> torch.dtype:
        """Scores and softmax are computed in float64 for float64 images, otherwise in float32."""
        return score_dtype(self.dtype)

    def offsets(self) -> tuple[Offset, ...] | str:
        """The offset of each head if every head is one-hot on its target, otherwise why not."""
        if self.basis.operators.reads_content:
            return DEPENDS_ON_CONTENT
        if self.dropout:
            return DROPS_WEIGHTS
        if self.free:
            return POSITIONS_UNREAD
        return self.facts.targets

    def stray(self, offsets: tuple[Offset, ...]) -> str:
        """Which head has a target beyond the grid, or "": while a graph is traced, beyond the grid of any size."""
        if within_margins(self.basis.sites, offsets):
            return ""
        if self.traced:
            return "a head leaves the grid, by an amount that depends on the size of the image"
        head = first_stray(self.grid, offsets)
        return "" if head is None else f"head {head} leaves the grid at offset {offsets[head]}"


def score_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of scores and softmax for images of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32
