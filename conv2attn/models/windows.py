"""Layers that attend within windows of the image: what is found of a window says nothing across its borders."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn


def said_of_windows(sides: Sequence[int] | None = None) -> str:
    """The note on a layer that attends in windows, of these sides where they are known."""
    of_sides = "" if sides is None else f" of {'x'.join(map(str, sides))}"
    return f"in windows{of_sides}: judged inside one, and at its borders, beyond which no head reads"


def notes_on_windows(network: nn.Module, captured: Mapping[str, Any], inputs: Any) -> dict[str, str]:
    """The note on each captured layer that cuts an image into windows: its module, or the holder of that, names a
    `window_size`, and its attention has more parts than `inputs` has images."""
    given = list(inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else [inputs])
    images = next((len(each) for each in given if isinstance(each, Tensor)), None)
    found = {}
    for name, attention in captured.items():
        parts = [] if name in ("", "(root)") else name.split("#")[0].split(".")
        holders = [".".join(parts[:count]) for count in range(len(parts), 0, -1)][:2]
        named = any(getattr(network.get_submodule(each), "window_size", None) for each in holders)
        if named and isinstance(attention, Tensor) and images is not None and len(attention) > images:
            found[name] = said_of_windows()
    return found
