"""Counts the objects that the pickles in a file of `torch.save` would create, before they are created.

The four bytes `]]]]` create four lists, which take 320 bytes.
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
"""Bytes created by an instruction of a pickle, including its slot on the unpickler's stack; most others create 32."""
MOST_OBJECT_BYTES = max(OBJECT_BYTES.values())
LEGACY_PICKLES = 5
"""A magic number, the version, the sizes of integers, the content, and the keys of its storages."""


def draw_pickles(path: Path, file: IO[bytes]) -> None:
    """Draws the objects in an open file of `torch.save` from a budget; tensors have another one.

    Raises:
        CheckpointError: the objects are out of proportion to the file (C2A307).
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
            # Counting takes a second per few megabytes, so only pickles that could create too much are counted.
            if entry.filename.endswith("data.pkl") and MOST_OBJECT_BYTES * entry.file_size > budget.bytes:
                draw_objects(io.BytesIO(archive.read(entry)), budget)


def draw_objects(pickle: IO[bytes], budget: Budget) -> None:
    """Draws the objects of one pickle, and moves the file after it; torch.load refuses a damaged one."""
    try:
        for (code, _, start), (_, _, end) in itertools.pairwise(pickletools.genops(pickle)):
            # Four bytes per byte of text: one letter beyond Latin-1 makes Python store every letter in up to four.
            budget.draw(OBJECT_BYTES.get(code.name, 32) + 4 * ((end or 0) - (start or 0)), "its pickle")
    except CheckpointError:
        raise
    except (ValueError, EOFError):
        return
