"""Types for the effects of replacing the attention of heads."""

from typing import Literal

from conv2attn.report.result import Part

ReplacedBy = Literal["position", "shift", "mean", "uniform"]
"""The map that replaces the attention of a head; `conv2attn.span.graded_facts.replacing` defines the maps."""
NOT_REPLACED = "its heads were not replaced: "
"""Begins the note on a layer whose heads could not be replaced; the reason follows."""


class Effect(Part, frozen=True):
    """The effect of replacing attention: means, with standard errors, over images that did not measure the replacement.

    `change` is `|y' - y| / |y|` for the output y of the network. `loss` is the increase of the cross entropy, and
    `accuracy` the increase of the share of images that are classified right; both are None without labels.
    """

    change: float
    change_error: float
    loss: float | None = None
    loss_error: float | None = None
    accuracy: float | None = None
    accuracy_error: float | None = None


class Replaced(Part, frozen=True):
    """The effect of replacing the attention of one head by the map `by`, and by uniform attention.

    `lost` is the change under the head's mean attention over images, as a share of the change under uniform attention.
    It is the part of the head's effect that depends on differences between images. It is None if an earlier rule
    decides the kind of the head, or if uniform attention changes nothing.
    """

    by: ReplacedBy
    effect: Effect
    uniform: Effect
    lost: float | None = None
    lost_error: float | None = None


class ReplacedHead(Part, frozen=True):
    """A replaced head: the name of its layer, and its number."""

    layer: str
    head: int


class ReplacedTogether(Part, frozen=True):
    """The effect of replacing several heads at once, by the map `by` and by uniform attention; and of random heads.

    `random` is the mean effect of replacing as many random heads by the same map, over several draws. The heads are
    drawn from all heads that can be replaced, and the errors are standard errors over the draws. It is None if every
    head that can be replaced is replaced.
    """

    by: ReplacedBy
    heads: tuple[ReplacedHead, ...]
    effect: Effect
    uniform: Effect
    random: Effect | None
    draws: int
    seed: int
