"""Orders of evaluation of one formula. An engine is given a basis and an image, and never the layer."""

from collections.abc import Callable
from typing import Literal

from conv2attn.attention.engines import convolution, dense, gather, sdpa, separable
from conv2attn.attention.engines.cost import cheapest
from conv2attn.attention.recipe import Question, Run
from conv2attn.errors import EngineError

DECIDE: dict[str, Callable[[Question], Run | str]] = {
    "conv": convolution.decide,
    "gather": gather.decide,
    "separable": separable.decide,
    "sdpa": sdpa.decide,
    "dense": dense.decide,
}
ENGINES = ("auto", *DECIDE)
EngineName = Literal["auto", "conv", "gather", "separable", "sdpa", "dense"]


def explain_engines(question: Question) -> dict[str, str]:
    """For each engine: "exact", or why it is not for this question."""
    answers = {name: decide(question) for name, decide in DECIDE.items()}
    return {name: answer if isinstance(answer, str) else "exact" for name, answer in answers.items()}


def choose_engine(question: Question) -> str:
    """The cheapest engine that equals `dense` within rounding for this layer, dtype, device and size.

    The convolution of a device that rounds otherwise than a plain sum does, such as Winograd's, is left out.
    """
    if question.known.indirect is None and not isinstance(convolution.decide(question), str):
        return "conv"
    if not isinstance(gather.decide(question), str):
        return "gather"
    if not isinstance(separable.decide(question), str):
        return cheapest(question)
    fits = question.traced or dense.bytes_of_formula(question) <= question.memory_limit
    return "dense" if fits or isinstance(sdpa.decide(question), str) else "sdpa"


def recipe_for(name: str, question: Question) -> Run:
    """How the engine `name`, or the cheapest exact one for "auto", evaluates the layer.

    Raises:
        EngineError: the engine is not exact for this layer as it is now (C2A201).
        GeometryError: the image is too small to have a query (C2A121).
    """
    _ = question.grid.queries
    decided = DECIDE[choose_engine(question) if name == "auto" else name](question)
    if isinstance(decided, str):
        raise EngineError("C2A201", f"{question.name}: engine {name!r} is not exact here: {decided}")
    return decided
