"""What a network decides by values (orders, largest ones, comparisons) in one run, decided the same way in others."""

from collections.abc import Callable
from typing import Any, final

from torch import Tensor

from conv2attn.networks.reading.trails import tensors_in

TO_PYTHON = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__"}


@final
class Decisions:
    """The decisions of a first run, in their order; those of `again` are taken in the runs that follow.

    Tokens that are sorted or pruned by what the true run shows would stand elsewhere in a run in which attention is
    silenced, and their places would be those of another network.
    """

    def __init__(self) -> None:
        self.taken, self.number, self.first = list[Any](), 0, True

    def again(self) -> "Decisions":
        """The same decisions, for a run that follows."""
        other = Decisions()
        other.taken, other.first = self.taken, False
        return other

    def decided(self, function: Callable[..., Any], result: Any, args: Any, kwargs: Any) -> Any:
        """What a function makes of floats that is no float (an order, an index, a comparison) as in the first run."""
        if not any(each.is_floating_point() for each in tensors_in((args, kwargs))):
            return result
        if function.__name__ in TO_PYTHON:
            return self.next(result)
        parts = list(result) if isinstance(result, tuple | list) else [result]
        chosen = [at for at, each in enumerate(parts) if isinstance(each, Tensor) and not each.is_floating_point()]
        if not chosen:
            return result
        taken = self.next([parts[at].clone() for at in chosen])
        if not isinstance(taken, list) or [each.shape for each in taken] != [parts[at].shape for at in chosen]:
            return result
        for at, each in zip(chosen, taken, strict=True):
            parts[at] = each.clone()
        # Largest values and sorted ones come with their indices: they are those at the indices of the first run.
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
        """The next decision: that of the run itself where it is the first, or decides more often."""
        if self.first:
            self.taken.append(own)
        self.number += 1
        return self.taken[self.number - 1] if self.number <= len(self.taken) else own
