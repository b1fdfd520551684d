"""Orders of evaluation of one formula. An engine takes a basis and an image, never the layer."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor

from conv2attn.errors import EngineError
from conv2attn.layers.attention.engines import compiled, dense, gather, sdpa, separable
from conv2attn.layers.attention.recipe import Evaluation, Question, Recipe

EngineName = Literal["auto", "conv", "gather", "separable", "sdpa", "dense"]
Rounding = Literal["separable", "sdpa", "dense"]
"""The engines with their own rounding bound for soft heads."""


@final
@dataclass(frozen=True)
class Engine:
    """An order of evaluation, or a rule that chooses one.

    Args:
        rounds_as: the engines whose rounding bounds cover this one.
        decide: returns the recipe for a question, or the reason why the engine is not exact; None for a rule.
        choose: returns the name of the engine that a rule selects.
        exports: whether a network may be exported with it by name.
        refuses_sizes: whether it may refuse inputs of some sizes for any layer.
        refuses_strays: whether it refuses inputs of some sizes if a head may have its target off the grid.
    """

    rounds_as: tuple[Rounding, ...]
    decide: Callable[[Question], Evaluation | str] | None = None
    choose: Callable[[Question, Tensor], str] | None = None
    exports: bool = True
    refuses_sizes: bool = False
    refuses_strays: bool = False


def explain_engines(question: Question) -> dict[str, str]:
    """For each engine: "exact", or the reason why it is not."""
    answers = {name: engine.decide(question) for name, engine in ENGINES.items() if engine.decide is not None}
    return {name: answer if isinstance(answer, str) else "exact" for name, answer in answers.items()}


def choose_engine(question: Question) -> str:
    """`conv` if it is exact, otherwise the cheapest engine that equals `dense` within rounding.

    `conv` makes the same call as the convolution, so it computes the same numbers as long as the device selects the
    same algorithm for both. The costs of other engines are a model, measured in benchmarks/.
    """
    # A string is the reason why an engine is not exact, and a function is its recipe.
    if not isinstance(compiled.decide(question), str):
        return "conv"
    if not isinstance(gather.decide(question), str):
        return "gather"
    if not isinstance(separable.decide(question), str):
        return cheapest(question)
    if question.basis.operators.reads_content and not question.traced:
        return "dense" if isinstance(sdpa.decide(question), str) else "sdpa"
    return "dense" if dense.fits(question) or isinstance(sdpa.decide(question), str) else "sdpa"


def recipe_for(name: str, question: Question, image: Tensor) -> Recipe:
    """The recipe of the engine `name`, or of the one that "auto" selects, for the layer on `image`.

    Raises:
        EngineError: the engine is not exact for the layer's present parameters (C2A201).
        GeometryError: the image is too small for any query (C2A121).
    """
    # Raises for an image without any query before an engine reads it.
    _ = question.grid.queries
    choose = ENGINES[name].choose
    engine = name if choose is None else choose(question, image)
    decide = ENGINES[engine].decide
    assert decide is not None, f"{engine} chooses among engines, and is chosen itself"
    decided = decide(question)
    if isinstance(decided, str):
        raise EngineError(
            "C2A201",
            f"{question.name}: engine {name!r} is not exact here: {decided}",
            "Take auto or dense, which are exact for all, by --engine or set_engine.",
        )
    return Recipe(question.basis.padding, question.basis.sites, decided, engine)


CHOSEN: tuple[Rounding, ...] = ("separable", "dense")
"""The engines that "auto" takes for heads that are not one-hot."""
ENGINES: dict[str, Engine] = {
    "auto": Engine(CHOSEN, choose=lambda question, image: choose_engine(question), exports=False),
    "conv": Engine(CHOSEN, compiled.decide, refuses_strays=True),
    "gather": Engine(CHOSEN, gather.decide),
    "separable": Engine(("separable",), separable.decide),
    "sdpa": Engine(("sdpa",), sdpa.decide, exports=False, refuses_sizes=True),
    "dense": Engine(("dense",), dense.decide, refuses_sizes=True),
}
"""All engines, those that are exact for fewer layers first."""


def cheapest(question: Question) -> str:
    """ "separable" or "dense", whichever moves and multiplies less for this batch, these widths and this grid."""
    # A graph has no costs: the sizes of its images are symbols.
    if question.traced:
        return "separable"
    return "dense" if dense_cost(question) < separable_cost(question) else "separable"


DENSE_PASSES = 12.0  # per attention weight: its scores, exponentials and casts, in multiply-adds of a large product
SEPARABLE_PASSES = 64.0  # per mixed number: small products and copies, in multiply-adds of a large product


def dense_cost(question: Question) -> float:
    """The cost of mixing by the whole attention matrix: multiply-adds, and passes over it."""
    queries, keys = question.grid.shape
    return question.basis.operators.heads * queries * keys * (question.shape[0] * question.shape[1] + DENSE_PASSES)


def separable_cost(question: Question) -> float:
    """The cost of mixing axis by axis: multiply-adds, and passes over the mixed numbers."""
    grid, images = question.grid, 1 if question.is_smoothed else question.basis.operators.heads
    done, total = 1.0, 0.0
    for axis, (queries, keys) in enumerate(zip(grid.queries, grid.keys, strict=True)):
        done *= queries
        total += done * math.prod(grid.keys[axis + 1 :]) * (keys + SEPARABLE_PASSES)
    return images * question.shape[0] * question.shape[1] * total
