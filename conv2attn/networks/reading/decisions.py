"""Data-dependent decisions of a network (orders, top-k, comparisons), recorded in one run and repeated in others."""

from collections.abc import Callable
from typing import Any, final

from torch import Tensor

from conv2attn.networks.reading.trails import tensors_in

TO_PYTHON = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__"}


@final
class Decisions:
    """The decisions of a first run in order; an instance made by `again` repeats them in a later run.

    Without this, a run with silenced attention could sort or prune tokens differently from the true run, and their
    places would be those of other tokens.
    """

    def __init__(self) -> None:
        self.taken, self.number, self.first = list[Any](), 0, True

    def again(self) -> "Decisions":
        """The recorded decisions, to be repeated in the next run."""
        other = Decisions()
        other.taken, other.first = self.taken, False
        return other

    def decided(self, function: Callable[..., Any], result: Any, args: Any, kwargs: Any) -> Any:
        """The first run's value of a non-float result computed from floats (an order, an index, a comparison)."""
        parts = list(result) if isinstance(result, tuple | list) else [result]
        chosen = [at for at, each in enumerate(parts) if isinstance(each, Tensor) and not each.is_floating_point()]
        to_python = function.__name__ in TO_PYTHON
        if not (chosen or to_python) or not any(each.is_floating_point() for each in tensors_in((args, kwargs))):
            return result
        if to_python:
            return self.next(result)
        taken = self.next([parts[at].clone() for at in chosen])
        if not isinstance(taken, list) or [each.shape for each in taken] != [parts[at].shape for at in chosen]:
            return result
        for at, each in zip(chosen, taken, strict=True):
            parts[at] = each.clone()
        # Functions such as topk and sort return values with their indices: the values are taken anew at the first run's
        # indices.
        if len(parts) == 2 and chosen == [1] and isinstance(args[0], Tensor) and not self.first:
            place = 2 if function.__name__ in ("topk", "kthvalue") else 1
            axis = kwargs.get("dim", args[place] if len(args) > place else -1)
            index = parts[1] if parts[1].ndim == args[0].ndim else parts[1].unsqueeze(axis)
            values = args[0].gather(axis, index)
            parts[0] = values if parts[1].ndim == args[0].ndim else values.squeeze(axis)
        if isinstance(result, Tensor):
            return parts[0]
        return tuple(parts) if type(result) in (tuple, list) else type(result)(parts)

    def next(self, own: Any) -> Any:
        """The next recorded decision; `own` in the first run, or if this run makes more decisions."""
        if self.first:
            self.taken.append(own)
        self.number += 1
        return self.taken[self.number - 1] if self.number <= len(self.taken) else own
