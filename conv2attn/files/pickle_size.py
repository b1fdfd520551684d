"""What the pickles in a file of `torch.save` would make, counted before they make it.

Four bytes, `]]]]`, are four lists, which take 320.
"""

import io
import itertools
import pickletools
import zipfile
from pathlib import Path
from typing import IO

from conv2attn.errors import CheckpointError
from conv2attn.files.budget import Budget

OBJECT_BYTES = {
    **dict.fromkeys(("REDUCE", "NEWOBJ"), 600),
    "EMPTY_SET": 240,
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_DICT", "MARK", "BINPUT", "LONG_BINPUT", "MEMOIZE"), 100),
}
"""What an instruction of a pickle makes, in bytes, with its place on the unpickler's stack; most others make 32."""
MOST_OBJECT_BYTES = max(OBJECT_BYTES.values())
LEGACY_PICKLES = 5
"""A magic number, the version, the sizes of integers, the content, and the keys of its storages."""


def draw_pickles(path: Path, file: IO[bytes]) -> None:
    """Draws what the pickles in an open file of `torch.save` would make; its tensors draw from a budget of their own.

    Raises:
        CheckpointError: they make more than is in proportion to the file (C2A307).
    """
    budget = Budget.of(path)
    file.seek(0)
    if not zipfile.is_zipfile(file):
        file.seek(0)
        for _ in range(LEGACY_PICKLES):
            draw_objects(file, budget)
        return
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            # Counting takes a second for some megabytes: only a pickle that could make too much is counted.
            if entry.filename.endswith("data.pkl") and MOST_OBJECT_BYTES * entry.file_size > budget.bytes:
                draw_objects(io.BytesIO(archive.read(entry)), budget)


def draw_objects(pickle: IO[bytes], budget: Budget) -> None:
    """Draws the objects of one pickle, and leaves the file behind it. One that is damaged is torch.load's to refuse."""
    try:
        for (code, _, start), (_, _, end) in itertools.pairwise(pickletools.genops(pickle)):
            # Four bytes for each byte of a text, since one letter can widen all others.
            budget.draw(OBJECT_BYTES.get(code.name, 32) + 4 * ((end or 0) - (start or 0)), "its pickle")
    except CheckpointError:
        raise
    except (ValueError, EOFError):
        return
