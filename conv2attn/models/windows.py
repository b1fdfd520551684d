"""The note on layers that attend within windows of the image."""

from collections.abc import Sequence


def said_of_windows(sides: Sequence[int] | None = None, placed: bool = False) -> str:
    """The note on a layer that attends in windows, of these sides where they are known."""
    of_sides = "" if sides is None else f" of {'x'.join(map(str, sides))}"
    where = (
        "measured where its windows stand in the image; check-span judges one window"
        if placed
        else ("judged inside one, and at its borders, beyond which no head reads")
    )
    return f"in windows{of_sides}: {where}"
