"""Orders of evaluation of one formula. Each engine prepares a call, or says why it is not exact for this layer now."""

from collections.abc import Callable

from torch import Tensor

from conv2attn.attention.call import Call
from conv2attn.attention.engines import convolution, dense, gather, sdpa, separable
from conv2attn.errors import EngineError, UsageError

Prepare = Callable[[Call], Callable[[], Tensor] | str]

CHEAPEST_FIRST: dict[str, Prepare] = {
    "conv": convolution.prepare,
    "gather": gather.prepare,
    "separable": separable.prepare,
    "sdpa": sdpa.prepare,
    "dense": dense.prepare,
}
ENGINES = ("auto", *CHEAPEST_FIRST)


def check_engine(name: str) -> str:
    """`name`, if it is an engine.

    Raises:
        UsageError: it is not (C2A001).
    """
    if name not in ENGINES:
        raise UsageError("C2A001", f"engine {name!r} is not one of {', '.join(ENGINES)}")
    return name


def explain_engines(call: Call) -> dict[str, str]:
    """For each engine, cheapest first: "exact", or why it is not for this call."""
    answers = {name: prepare(call) for name, prepare in CHEAPEST_FIRST.items()}
    return {name: answer if isinstance(answer, str) else "exact" for name, answer in answers.items()}


def choose_engine(call: Call) -> str:
    """The cheapest engine that equals `dense` within rounding for this layer, dtype, device and size."""
    return next(name for name, answer in explain_engines(call).items() if answer == "exact")


def evaluate(name: str, call: Call) -> Tensor:
    """The layer's output (batch, d_out, *queries) by the engine `name`, or by the cheapest exact one for "auto".

    Raises:
        EngineError: the engine is not exact for this layer as it is now (C2A201).
    """
    if name == "auto":
        for prepare in CHEAPEST_FIRST.values():
            prepared = prepare(call)
            if not isinstance(prepared, str):
                return prepared()
    prepared = CHEAPEST_FIRST[name](call)
    if isinstance(prepared, str):
        raise EngineError("C2A201", f"{call.layer.name}: engine {name!r} is not exact here: {prepared}")
    return prepared()
