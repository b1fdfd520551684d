"""Progress on stderr, where that is a terminal: how many layers are done, of how many, and the time that remains."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """A function to call before each layer with its number from 1, the number of layers, and its name."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)

        def show(number: int, count: int, name: str) -> None:
            bar.update(task, completed=number - 1, total=count, description=name)

        yield show
