"""The engine `measured`: exact engines timed on the image of a call."""

import math
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from conv2attn.layers.attention.recipe import Evaluation, Question
from conv2attn.theory.basis import Basis
from conv2attn.torch_internals import peek_interpreter_stack

T = TypeVar("T")
ROUNDS, SLOWER = 3, 3.0  # chosen: how often each is timed, and by what factor its first time rules an engine out


def may_be_timed(question: Question) -> bool:
    """Whether the engines can be run now: not in a graph or a function transform, nor where there are no values."""
    plain = question.device.type != "meta" and peek_interpreter_stack() is None
    return plain and not (question.traced or question.free)


def fastest(runs: Mapping[str, Evaluation], basis: Basis, image: Tensor) -> str:
    """The name of the run that takes the least time on `image`; with gradients enabled, forward and backward."""
    if len(runs) == 1:
        return next(iter(runs))
    basis = replace(basis, weights=as_leaves(basis.weights), operators=as_leaves(basis.operators))
    image = leaf(image)
    kept: list[str] = list(runs)
    times: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name in kept:
            times[name] = min(times.get(name, math.inf), seconds(runs[name], basis, image))
        kept = [name for name in kept if times[name] <= SLOWER * min(times.values())]
    return min(kept, key=times.__getitem__)


def as_leaves(holder: T) -> T:
    """A copy of a dataclass whose tensors are the same numbers, and leaves of the graph of gradients."""
    record: Any = holder
    tensors = {part.name: getattr(record, part.name) for part in fields(record)}
    return replace(record, **{name: leaf(each) for name, each in tensors.items() if isinstance(each, Tensor)})


def leaf(tensor: Tensor) -> Tensor:
    """A leaf with the numbers of `tensor`, and gradients where it has them: no hook of the caller runs."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def seconds(run: Evaluation, basis: Basis, image: Tensor) -> float:
    """The time of one run, and of its gradients where they are enabled."""
    weights = basis.weights
    parameters = (weights.value, weights.output, weights.bias, *basis.operators.values)
    inputs = [each for each in (image, *parameters) if each is not None and each.requires_grad]
    synchronise(image)
    start = time.perf_counter()
    result = run(basis, image)
    if torch.is_grad_enabled() and inputs:
        torch.autograd.grad(result.sum(), inputs, allow_unused=True)
    synchronise(image)
    return time.perf_counter() - start


def synchronise(image: Tensor) -> None:
    """Waits for the accelerator of `image`, if it is on one."""
    if image.device.type != "cpu":
        torch.accelerator.synchronize(image.device)
