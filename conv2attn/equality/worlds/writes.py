"""Writing in place: into the copies of a shadow, so that views of them see it as views of the tensor do."""

from typing import Any

from torch import Tensor

from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.shadows import COPIES, Shadow, Unfollowed
from conv2attn.torch_internals import storage_users


def every_copy(shadow: Shadow, oracles: Oracles) -> list[Tensor]:
    """Copies of a constant to write into, in every world; what no shaking moves stays one tensor a world."""
    step = COPIES if oracles.still else 1
    return [t for i in range(0, oracles.worlds * COPIES, step) for t in [shadow.of(i).clone()] * step]


def widen(target: Shadow, most: int, oracles: Oracles) -> None:
    """Gives what others see too, and is written into, as many worlds as what is written."""
    if len(target.copies) == COPIES:
        target.copies = every_copy(target, oracles)
        target.state["stale"] = True
    if len(target.copies) < most:
        raise Unfollowed("a maximum is written into a part of a tensor")


def write(target: Shadow, result: Any, seen: bool) -> None:
    """Writes a result into the copies of the target, or puts it in their place where nothing else sees them."""
    if isinstance(result, Shadow) and result.copies[0] is not target.copies[0]:
        if not seen and not result.constant:
            target.copies = result.copies
        elif len(result.copies) > len(target.copies):
            raise Unfollowed("a maximum is written into a tensor")
        else:
            for i, mine in enumerate(target.copies):
                mine.copy_(result.of(i))
    target.state["constant"] = False


def is_seen_elsewhere(shadow: Shadow) -> bool:
    """Whether other tensors share the memory of its copies."""
    return storage_users(shadow.copies[0].untyped_storage()._cdata) > 2
