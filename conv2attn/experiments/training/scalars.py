"""Metrics for TensorBoard, where it is installed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol


class ScalarWriter(Protocol):
    """Takes a number of a step."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


class Nowhere:
    """Drops what it is given."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Nothing."""


@contextmanager
def scalar_writer(folder: Path, step: int, wanted: bool, report: Callable[[str], None]) -> Iterator[ScalarWriter]:
    """Writes event files into `folder`, in place of what they hold beyond `step`; without tensorboard says so once."""
    if not wanted or find_spec("tensorboard") is None:
        if wanted:
            report("no event files: tensorboard is not installed (pip install 'conv2attn[train]')")
        yield Nowhere()
        return
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=step)
    try:
        yield writer
    finally:
        writer.close()
