"""Objects that a pickle names, as inert records of their class names and attributes; unpickling one runs nothing."""

from collections.abc import Iterable
from typing import Any

DATA = (
    "argparse.Namespace",
    "types.SimpleNamespace",
    "datetime.date",
    "datetime.datetime",
    "datetime.timedelta",
    "datetime.timezone",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.dtype",
    "_codecs.encode",
)
"""Globals that training scripts store beside weights as arguments, dates, paths and measures; no weight is in them."""


class Held:
    """An object as its pickle describes it: its class by name, and its attributes."""

    name = ""

    def __init__(self, *_: Any) -> None:
        self.state: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        self.state = dict(state) if isinstance(state, dict) else {}


def stand_ins(names: Iterable[str]) -> list[Any]:
    """A class of records for each name, as `torch.serialization.safe_globals` takes them."""
    return [(type("Held", (Held,), {"name": name}), name) for name in names]


def is_data(value: Any) -> bool:
    """Whether something is a record of a class that holds no weights."""
    return isinstance(value, Held) and value.name in DATA
