"""What the replacement of heads changes, as types."""

from typing import Literal

from conv2attn.report.result import Part

ReplacedBy = Literal["position", "shift", "mean", "uniform"]
"""What stands in for the attention of a head: see `conv2attn.span.graded_facts.replacement_maps`."""
NOT_REPLACED = "its heads were not replaced: "
"""So begins the note of a layer whose heads were to be replaced, before the reason."""


class Effect(Part, frozen=True):
    """What a replacement changes on the images that did not measure it: means over these, with standard errors.

    `change` is `|y' - y| / |y|`, y being the output of the network. `loss` is the cross entropy with the replacement
    less that without it, `accuracy` the same of the share of images that are classified right; None without labels.
    """

    change: float
    change_error: float
    loss: float | None = None
    loss_error: float | None = None
    accuracy: float | None = None
    accuracy_error: float | None = None


class Replaced(Part, frozen=True):
    """The effect of replacing the attention of one head, and of uniform attention in its place.

    `lost` is the change under the head's mean over images, as a share of that under uniform attention: what the head
    loses with what varies over the images. None where an earlier rule tells the kind of the head, or where uniform
    attention changes nothing.
    """

    by: ReplacedBy
    effect: Effect
    uniform: Effect
    lost: float | None = None
    lost_error: float | None = None


class ReplacedHead(Part, frozen=True):
    """A head that is replaced, by its layer and its number."""

    layer: str
    head: int


class ReplacedTogether(Part, frozen=True):
    """The effect of replacing several heads at once, of uniform attention in their place, and of random heads.

    `random` is the mean over draws of as many heads out of all that can be replaced, under the same replacement; its
    errors are those over the draws. None where all of these heads are replaced.
    """

    by: ReplacedBy
    heads: tuple[ReplacedHead, ...]
    effect: Effect
    uniform: Effect
    random: Effect | None
    draws: int
    seed: int
