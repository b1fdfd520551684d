"""A progress bar on stderr, if that is a terminal: steps done, their number, and the remaining time."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(enabled: bool = True) -> Iterator[Callable[[int, int, str], None]]:
    """A function to call before each layer or step, with its number from 1, the total, and a name."""
    if not (enabled and sys.stderr.isatty()):
        yield lambda number, count, name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(number: int, count: int, name: str) -> None:
            # The call comes before step `number`, so one step less is done.
            bar.update(task, completed=number - 1, total=count, description=name)

        yield show
