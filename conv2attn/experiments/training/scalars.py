"""Metrics for TensorBoard, where it is installed."""

from collections.abc import Iterator
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
def scalar_writer(folder: Path, step: int, wanted: bool) -> Iterator[ScalarWriter]:
    """Writes event files into `folder`, in place of what they hold beyond `step`; nothing without tensorboard."""
    if not wanted or find_spec("tensorboard") is None:
        yield Nowhere()
        return
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=step)
    try:
        yield writer
    finally:
        writer.close()
