"""Pictures as files."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from conv2attn.errors import UsageError
from conv2attn.extras import optional
from conv2attn.files.atomic_files import write_bytes_atomically
from conv2attn.suffixes import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_drawable(path: str | Path) -> None:
    """Refuses a picture that could not be written, before it is drawn.

    Raises:
        UsageError: no matplotlib (C2A003), or a suffix that is not a picture's (C2A308).
    """
    if Path(path).suffix.lower() not in PICTURE_SUFFIXES:
        raise UsageError(
            "C2A308", f"--plot {path} does not end in {', '.join(PICTURE_SUFFIXES)}", "Name one of these suffixes."
        )
    optional("matplotlib", "a picture")


def write(figure: "Figure", path: str | Path, force: bool = False) -> None:
    """Writes the figure whole or not at all, in the format that the suffix names.

    Raises:
        CheckpointError: it exists and `force` is false (C2A305), or cannot be written (C2A301).
    """
    buffer = BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lower().removeprefix("."), dpi=150)
    write_bytes_atomically(path, buffer.getvalue(), force)
