"""Which of several exact engines is the cheapest: a small model of cost, measured in benchmarks/."""

import math

from conv2attn.layers.attention.recipe import Question


def cheapest(question: Question) -> str:
    """ "separable" or "dense", whichever moves and multiplies less for this batch, these widths and this grid."""
    if question.traced:
        return "separable"
    return "dense" if dense_cost(question) < separable_cost(question) else "separable"


DENSE_PASSES = 12.0  # per attention weight: its scores, exponentials and casts, in multiply-adds of a large product
SEPARABLE_PASSES = 64.0  # per mixed number: small products and copies, in multiply-adds of a large product


def dense_cost(question: Question) -> float:
    """Multiply-adds of mixing by the whole attention matrix, and passes over it."""
    queries, keys = question.grid.shape
    return question.basis.operators.heads * queries * keys * (question.shape[0] * question.shape[1] + DENSE_PASSES)


def separable_cost(question: Question) -> float:
    """Multiply-adds of mixing along one axis after the other, and passes over what is mixed."""
    grid, images = question.grid, 1 if question.is_smoothed else question.basis.operators.heads
    done, total = 1.0, 0.0
    for axis, (queries, keys) in enumerate(zip(grid.queries, grid.keys, strict=True)):
        done *= queries
        total += done * math.prod(grid.keys[axis + 1 :]) * (keys + SEPARABLE_PASSES)
    return images * question.shape[0] * question.shape[1] * total
