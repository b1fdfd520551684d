"""Orders of evaluation of one formula. An engine is given a basis and an image, and never the layer."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from conv2attn.attention.engines import convolution, dense, gather, sdpa, separable
from conv2attn.attention.engines.cost import cheapest, dense_may_win, writes_long_columns
from conv2attn.attention.engines.timing import fastest, may_be_timed
from conv2attn.attention.recipe import Question, Recipe, Run
from conv2attn.errors import EngineError

DECIDE: dict[str, Callable[[Question], Run | str]] = {
    "conv": convolution.decide,
    "gather": gather.decide,
    "separable": separable.decide,
    "sdpa": sdpa.decide,
    "dense": dense.decide,
}
ENGINES = ("auto", *DECIDE, "measured")
EngineName = Literal["auto", "conv", "gather", "separable", "sdpa", "dense", "measured"]


def explain_engines(question: Question) -> dict[str, str]:
    """For each engine: "exact", or why it is not for this question."""
    answers = {name: decide(question) for name, decide in DECIDE.items()}
    return {name: answer if isinstance(answer, str) else "exact" for name, answer in answers.items()}


def choose_engine(question: Question) -> str:
    """The cheapest engine that equals `dense` within rounding for this layer, dtype, device and size.

    Costs are a model, measured in benchmarks/; `measured` times the engines instead. The convolution of a device that
    rounds otherwise than a plain sum does, such as Winograd's, is left out.
    """
    if question.known.indirect is None and not isinstance(convolution.decide(question), str):
        return "gather" if writes_long_columns(question) else "conv"
    if not isinstance(gather.decide(question), str):
        return "gather"
    if not isinstance(separable.decide(question), str):
        return cheapest(question)
    fits = question.traced or dense.bytes_of_formula(question) <= question.memory_limit
    return "dense" if fits or isinstance(sdpa.decide(question), str) else "sdpa"


def measure_engines(question: Question, image: Tensor) -> str:
    """The fastest on `image` of the engines that `auto` chooses from; its choice where nothing can be timed."""
    chosen = choose_engine(question)
    if not may_be_timed(question):
        return chosen
    names = [chosen, *(name for name in ("conv", "gather", "separable", "dense") if name != chosen)]
    if question.known.indirect is not None:
        names.remove("conv")
    if chosen != "dense" and not dense_may_win(question):
        names.remove("dense")
    decided = {name: DECIDE[name](question) for name in names}
    return fastest({name: run for name, run in decided.items() if not isinstance(run, str)}, question.basis, image)


def recipe_for(name: str, question: Question, image: Tensor) -> Recipe:
    """How the engine `name`, or the one that is chosen for "auto" and "measured", evaluates the layer on `image`.

    Raises:
        EngineError: the engine is not exact for this layer as it is now (C2A201).
        GeometryError: the image is too small to have a query (C2A121).
    """
    _ = question.grid.queries
    match name:
        case "auto":
            engine = choose_engine(question)
        case "measured":
            engine = measure_engines(question, image)
        case _:
            engine = name
    decided = DECIDE[engine](question)
    if isinstance(decided, str):
        raise EngineError(
            "C2A201",
            f"{question.name}: engine {name!r} is not exact here: {decided}",
            'Use set_engine(layer, "auto"), or "dense", which is exact for all.',
        )
    return Recipe(question.basis.padding, question.basis.sites, decided, engine)
