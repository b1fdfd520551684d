"""Rules of exp, softmax and attention: scores count up to a constant of their row."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import LEAST, MASKED, Shadow
from conv2attn.equality.worlds.steps import Step, shadow_rule


def softmax_of(step: Step, scores: Shadow, axis: int) -> Any:
    """The softmax of scores minus the mean of their row, which cancels."""
    exponentials = step.oracle("exp", step.across(centring(step, axis), scores), MASKED)
    return step.across(lambda e: e.div_(e.sum(axis, keepdim=True)), exponentials)  # no other tensor shares these copies


def centring(step: Step, axis: int) -> Callable[[Tensor], Tensor]:
    """Subtracts from each row the mean of its unmasked scores."""

    def centred(x: Tensor) -> Tensor:
        top = x.amax(axis, keepdim=True)
        if bool((x.amin(axis, keepdim=True) >= top + MASKED).all()):  # no score is masked
            return x - x.mean(axis, keepdim=True)
        if bool(((top < MASKED / 2) & top.isfinite()).any()):
            step.watch.oracles.refuse_quick("a row of scores that is masked from end to end")
        visible = x >= top + MASKED
        return x - torch.where(visible, x, 0.0).sum(axis, keepdim=True) / visible.sum(axis, keepdim=True)

    return centred


@shadow_rule("_softmax", "_safe_softmax")
def softmax(step: Step) -> Any:
    """A softmax."""
    result = softmax_of(step, step.x, step.bound["dim"])
    result.centre(step.x, step.bound["dim"], step.plain[0], step.out, by="softmax")
    return result


@shadow_rule("log")
def log_of_softmax(step: Step) -> Any:
    """log(softmax x) = x - log sum exp x, also in two operators."""
    softmaxed = step.x.centred_scores("softmax")
    return NotImplemented if softmaxed is None else step.across(torch.sub, softmaxed[0], logsumexp(step, *softmaxed))


def logsumexp(step: Step, scores: Shadow, axis: Any, keep: bool = True) -> Shadow:
    """log sum exp x along an axis, or several."""
    sums = step.across(lambda t: t.sum(axis, keepdim=keep), step.oracle("exp", scores, LEAST))
    return step.oracle("log", sums)


@shadow_rule("exp")
def exp_of_centred(step: Step) -> Any:
    """exp(x - max x) = e(x) / e(max x), a softmax by hand. A divisor that does not cancel shows in a later section."""
    if (normed := step.x.centred_scores("logsumexp")) is not None:  # exp(x - log sum exp x), the softmax itself
        return softmax_of(step, *normed)
    top = step.x.centred_scores()
    if top is None:
        return NotImplemented
    scores, axis = top
    scores = step.across(centring(step, axis), scores)
    largest = step.across(lambda t: t.amax(axis, keepdim=True), scores)
    # Without a place, since the other network may use one softmax operator and never take this maximum.
    divisor = step.watch.oracles.ask("exp of a maximum", largest, "", step.watch.second, MASKED)
    return step.across(torch.div, step.oracle("exp", scores, MASKED), divisor)


@shadow_rule("logsumexp")
def logarithm(step: Step) -> Any:
    """The logarithm of a sum of exponentials."""
    result = logsumexp(step, step.x, step.bound["dim"], step.bound["keepdim"])
    if step.bound["keepdim"] and len(step.bound["dim"]) == 1:
        result.centre(step.x, step.bound["dim"][0], step.plain[0], step.out, by="logsumexp")
    return result


@shadow_rule("_scaled_dot_product_flash_attention_for_cpu")
def attention(step: Step) -> Any:
    """Fused attention as scores, a softmax and a sum of values."""
    q, k, v = step.args[:3]
    shape = q.of(0).shape
    scale = step.bound.get("scale")
    scale = step.shadow(1 / math.sqrt(shape[-1]) if scale is None else scale)
    groups = shape[-3] // k.of(0).shape[-3] if len(shape) > 3 else 1
    if groups > 1:  # several query heads share keys and values
        k, v = (step.across(lambda t: t.repeat_interleave(groups, -3), t) for t in (k, v))
    scores = step.across(lambda q, k, c: (q @ k.mT).mul_(c), q, k, scale)
    mask = step.bound.get("attn_mask")
    if step.bound.get("is_causal"):
        mask = torch.ones(scores.of(0).shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = step.across(masked, scores, mask)
    return [step.across(torch.matmul, softmax_of(step, scores, -1), v), None]


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores under a mask of booleans or of numbers."""
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
