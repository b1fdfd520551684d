"""Layers shared out over the processes of torch.distributed, and their results given to all of them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from conv2attn.errors import Conv2AttnError

Result = TypeVar("Result")


def shared_out(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of all tasks, in order, in every process; process r of n does tasks r, r + n, r + 2n, ...

    A task that is refused is refused in every process: that of the first such task is raised. Without torch.distributed
    they are done one after the other.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return [task() for task in tasks]
    own: dict[int, Any] = {}
    for place in range(dist.get_rank(), len(tasks), dist.get_world_size()):
        try:
            own[place] = tasks[place]()
        except Conv2AttnError as refusal:
            own[place] = refusal
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, own)
    everything = {place: result for part in gathered for place, result in part.items()}
    for place in sorted(everything):
        if isinstance(everything[place], Conv2AttnError):
            raise everything[place]
    return [everything[place] for place in range(len(tasks))]
