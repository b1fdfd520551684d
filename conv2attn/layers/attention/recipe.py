"""The recipe of a layer: its engine, decided once from the numbers of its operators instead of at every call.

A recipe is a function of tensors alone: an engine with its integers filled in. Frozen positions are plain numbers, and
changing them drops the recipes decided from them. Parameters are compared with their last values in an eager call on a
CPU; elsewhere, and while a graph is traced, no recipe depends on their values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.layers.attention.features import longest_side
from conv2attn.layers.attention.hardness import first_stray, targets, within_margins
from conv2attn.layers.attention.lattice import Lattice, lattice, taps_of_heads
from conv2attn.layers.attention.probes import backend_flags, indirect_convolution
from conv2attn.layers.attention.storage import output_format, stored
from conv2attn.theory.basis import AttentionGrid, Basis, HeadNumbers, Offset, Padding, Positions, Sites

POSITIONS_UNREAD = (
    "its centres and sharpness are parameters, which cannot be read here without a sync; "
    "freeze them with encoding.learn(False)"
)
DEPENDS_ON_CONTENT = "its attention depends on the content"
MOST_RECIPES = 32  # chosen: random crops have endless sizes, recurring sizes are few
DROPS_WEIGHTS = "it drops attention weights independently in training"
Evaluation = Callable[[Basis, Tensor], Tensor]


@final
@dataclass(frozen=True, eq=False)
class Recipe:
    """The evaluation of a layer with this padding and these queries: a function of its basis and an image alone.

    `engine` is the name of the engine that evaluates it.
    """

    padding: Padding
    sites: Sites
    evaluation: Evaluation
    engine: str

    def run(self, basis: Basis, image: Tensor) -> Tensor:
        """The output in the convolution's memory format, which `conv` returns by itself."""
        result = self.evaluation(basis, image)
        return result if self.engine == "conv" else stored(result, output_format(basis, image))

    def serves(self, basis: Basis) -> bool:
        """Whether the recipe was decided for this padding and these queries."""
        # Identity first: a comparison of equal tuples at every call costs more.
        same = self.padding is basis.padding and self.sites is basis.sites
        return same or (self.padding == basis.padding and self.sites == basis.sites)


@final
@dataclass(frozen=True, eq=False)
class OperatorFacts:
    """Facts derived from the numbers of heads for one dtype and device.

    `operators` are the tensors of frozen heads, `values` the numbers read from trained ones, None if unread. `lattice`
    is the lattice of the targets of one-hot heads, `taps` that of the centres of heads of one sharpness.
    """

    dtype: torch.dtype
    operators: Positions | None
    values: list[Any] | None
    numbers: HeadNumbers
    targets: tuple[Offset, ...] | str
    lattice: Lattice | None
    taps: Lattice | None
    indirect: str | None
    flags: tuple[Any, ...]

    @cached_property
    def longest_side(self) -> int:
        """The longest side of a key grid on which absolute features of these heads are accurate enough."""
        return longest_side(self.numbers, score_dtype(self.dtype))


@final
@dataclass(frozen=True, eq=False)
class Decisions:
    """The recipes of one layer that were decided from these facts, for one dtype and device."""

    facts: OperatorFacts
    recipes: dict[Any, Recipe] = field(default_factory=dict)


def keep_recent(recipes: dict[Any, Recipe], key: Any, recipe: Recipe) -> None:
    """Caches `recipe` as the most recent one, and drops the least recent: recipes of soft heads store profiles."""
    # Threads of torch.nn.DataParallel share these recipes, so concurrent changes must be harmless.
    recipes.pop(key, None)
    recipes[key] = recipe
    for oldest in list(recipes)[:-MOST_RECIPES]:
        recipes.pop(oldest, None)


def facts_from(
    numbers: HeadNumbers, image: Tensor, operators: Positions | None, values: list[Any] | None
) -> OperatorFacts:
    """The facts derived from the numbers of heads, for images with the dtype and device of `image`."""
    # Derived once, since each call would otherwise read numbers from the device.
    offsets = targets(numbers, image.dtype, image.device.type)
    points = None if isinstance(offsets, str) else lattice(offsets)
    taps = taps_of_heads(numbers.centers, numbers.alphas)
    indirect, flags = indirect_convolution(image), backend_flags(image.device.type)
    return OperatorFacts(image.dtype, operators, values, numbers, offsets, points, taps, indirect, flags)


@final
@dataclass(frozen=True, eq=False)
class Question:
    """A question to an engine: whether it is exact for this basis on images of this shape, and with which recipe.

    Engines read shapes, numbers and kinds from it, never the value of a tensor.

    Args:
        basis: the layer.
        facts: the facts of its operators.
        shape: (batch, d_in, *sides) of the image; symbolic while a graph is traced.
        dtype, device: dtype and device of the image.
        memory_limit: bytes allowed for temporary tensors; ignored while a graph is traced, since its loops would fix
            the image size.
        traced: whether a graph is being traced.
        free: whether values may change without being read again, so that exactness must hold for all values.
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
        """Whether all heads read one smoothed image: frozen heads of one alpha, with centres on a lattice."""
        frozen = not (self.free or self.trained)
        return frozen and self.facts.taps is not None and self.basis.operators.is_stationary

    @property
    def keeps_profiles(self) -> bool:
        """Whether a recipe may store softmaxes of the heads: they are frozen, and their numbers are known."""
        frozen = not (self.free or self.trained or self.traced)
        return frozen and self.device.type != "meta" and bool(self.basis.operators.values)

    @property
    def score_dtype(self) -> torch.dtype:
        """Scores and softmax are computed in float64 for float64 images, otherwise in float32."""
        return score_dtype(self.dtype)

    def offsets(self) -> tuple[Offset, ...] | str:
        """The offset of each head if every head is one-hot on its target, otherwise the reason why not."""
        if self.basis.operators.reads_content:
            return DEPENDS_ON_CONTENT
        if self.dropout:
            return DROPS_WEIGHTS
        if self.free:
            return POSITIONS_UNREAD
        return self.facts.targets

    def stray(self, offsets: tuple[Offset, ...]) -> str:
        """The reason why a head has a target beyond the grid (of any size while a graph is traced), or ""."""
        if within_margins(self.basis.sites, offsets):
            return ""
        # In a graph the size is a symbol, and a head may leave some of its grids.
        if self.traced:
            return "a head leaves the grid, by an amount that depends on the size of the image"
        head = first_stray(self.grid, offsets)
        return "" if head is None else f"head {head} leaves the grid at offset {offsets[head]}"


def score_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of scores and softmax, and of centres and sharpness, for images and weights of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32
