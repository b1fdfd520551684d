"""Limits the memory and the steps of reading one file: every reader draws from the budget before it uses them.

A file of 2 KB can claim a tensor of 10 GB, one storage under 300 names, or two lists within two lists within two lists,
30 deep. A reader's use is therefore limited by a multiple of the file's real size, not by what the file claims.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn
from torch.nn.modules import module as modules

from conv2attn.errors import CheckpointError

TIMES = 4
"""Bytes of memory per byte of the file: float32 weights for a bfloat16 file take twice its size, plus one copy."""
JSON_TIMES = 22  # "[]," is three bytes, and a list has 64
LEAST_BYTES = 1 << 26  # buffers of positions, and arrays of zeros and ones, which compress well
LEAST_VISITS = 20_000
DEEPEST = 64
SAVE_PLAINLY = "Save it again with every tensor stored once, uncompressed."


@final
class Budget:
    """The remaining bytes and container visits for the readers of one file.

    Args:
        path: the file, for the error.
        size: its bytes on disk; of a folder, those of its files.
    """

    def __init__(self, path: Path, size: int):
        self.path = path
        self.bytes = TIMES * size + LEAST_BYTES
        self.visits = size + LEAST_VISITS
        self.storages = set[int]()

    @classmethod
    def of(cls, path: Path, *others: Path) -> "Budget":
        """The budget of a file, or of the files in a folder, and of other files that it names."""
        files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
        return cls(path, sum(each.stat().st_size for each in (*files, *others)))

    def draw(self, count: int, name: str = "it") -> None:
        """Takes `count` bytes.

        Raises:
            CheckpointError: the budget is exceeded (C2A307).
        """
        if count > self.bytes:
            reason = f"{self.path}: {name[:80]} claims {count:,} bytes more, out of proportion to the file"
            raise CheckpointError("C2A307", reason, SAVE_PLAINLY)
        self.bytes -= count

    def draw_storage(self, tensor: Tensor, name: str = "it") -> None:
        """Takes the bytes of a tensor's storage, once for all tensors that share it."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages.add(storage._cdata)
            self.draw(storage.nbytes(), name)

    def visit(self, count: int = 1) -> None:
        """Takes the steps into `count` containers or values.

        Raises:
            CheckpointError: the budget is exceeded (C2A307).
        """
        if count > self.visits:
            reason = f"{self.path} has more containers, values or layers than its bytes can describe"
            raise CheckpointError("C2A307", reason, SAVE_PLAINLY)
        self.visits -= count

    @contextmanager
    def building(self) -> Iterator[None]:
        """Within the block, newly registered modules and tensors draw from this budget before they are filled."""

        def draw(module: nn.Module, name: str, part: Any) -> None:
            self.visit()
            if isinstance(part, Tensor):
                self.draw(part.numel() * part.element_size(), name)

        registries = ("parameter", "buffer", "module")
        handles = [getattr(modules, f"register_module_{each}_registration_hook")(draw) for each in registries]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def plain_content(content: Any, budget: Budget) -> Any:
    """`content` with containers of plain types only, and tensors without attributes; every container is walked once.

    An unpickled OrderedDict can have any attribute, even `items`, and a tensor a `shape` that is a text.

    Raises:
        CheckpointError: a container contains itself, or is deeper than in any file of weights (C2A303), or its entries,
            counted with repetitions, are out of proportion to the file (C2A307).
    """
    # Maps the id of a container to its copy and the size of its tree. The size counts repetitions, because many Python
    # functions do not remember which containers they have visited, and visit a repeated one again.
    copies = dict[int, tuple[Any, int]]()
    open_containers = set[int]()

    def walk(value: Any) -> tuple[Any, int]:
        if isinstance(value, Tensor):
            return Tensor.detach(value) if vars(value) else value, 1
        if not isinstance(value, (dict, list, tuple, set, frozenset)):
            return value, 1
        if id(value) in copies:
            budget.visit(copies[id(value)][1])
            return copies[id(value)]
        if id(value) in open_containers or len(open_containers) >= DEEPEST:
            reason = f"{budget.path} holds a container within itself, or more than {DEEPEST} within each other"
            raise CheckpointError("C2A303", reason, "Save its weights alone: torch.save(model.state_dict(), path).")
        open_containers.add(id(value))
        pairs = [walk(each) for each in (dict.values(value) if isinstance(value, dict) else iterated(value))]
        budget.visit()
        budget.visit(sum(1 for _, count in pairs if count == 1))
        copies[id(value)] = container_of(value, [each for each, _ in pairs]), 1 + sum(count for _, count in pairs)
        open_containers.remove(id(value))
        return copies[id(value)]

    return walk(content)[0]


def iterated(value: Any) -> Iterable[Any]:
    """The values of a list, tuple or set, by its built-in type."""
    kinds: tuple[Any, ...] = (list, tuple, set, frozenset)
    return next(kind.__iter__(value) for kind in kinds if isinstance(value, kind))


def container_of(value: Any, items: list[Any]) -> Any:
    """A container of the plain type of `value` with these items; a state dict keeps the versions of its modules."""
    if not isinstance(value, dict):
        return next(kind for kind in (list, tuple, set, frozenset) if isinstance(value, kind))(items)
    copy: Any = OrderedDict(zip(dict.keys(value), items, strict=True))
    if isinstance(metadata := getattr(value, "_metadata", None), Mapping):
        copy._metadata = metadata
    return copy
