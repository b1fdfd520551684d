"""Ctrl-C during training: noted, and obeyed between two steps."""

import signal
import threading
from types import FrameType
from typing import Any, Self, final


@final
class Interruption:
    """Within it, the first SIGINT or SIGTERM only sets `asked`; a second one ends the process as usual."""

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.ask)
        return self

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Notes the request and restores the usual handling."""
        self.asked = True
        signal.signal(number, self.before[signal.Signals(number)])

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
