"""Writing in place: into the copies of a shadow, so that views of them see it as views of the tensor do."""

from typing import Any

from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.shadows import COPIES, Shadow, Unfollowed
from conv2attn.torch_internals import storage_users


def widen(target: Shadow, most: int, oracles: Oracles) -> None:
    """Gives what is written into as many worlds as what is written."""
    if len(target.copies) == COPIES:
        target.copies = [target.of(i).clone() for _, i in oracles.copies]
        target.state["stale"] = True
    if len(target.copies) < most:
        if is_seen_elsewhere(target):
            raise Unfollowed("a maximum is written into a part of a tensor")
        target.copies = [target.of(i).clone() for i in range(most)]


def write(target: Shadow, result: Any, oracles: Oracles) -> None:
    """Writes a result into the copies of the target."""
    if isinstance(result, Shadow) and result.copies[0] is not target.copies[0]:
        if len(result.copies) > len(target.copies):
            raise Unfollowed("a maximum is written into a tensor")
        if not is_seen_elsewhere(target):
            target.copies = target.copies[: max(len(result.copies), len(oracles.copies))]
        for i, mine in enumerate(target.copies):
            mine.copy_(result.of(i))
    target.state["constant"] = False


def is_seen_elsewhere(shadow: Shadow) -> bool:
    """Whether other tensors share the memory of its copies."""
    return storage_users(shadow.copies[0].untyped_storage()._cdata) > 2
