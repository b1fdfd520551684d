"""The classes of images, from a table `file,label`."""

import csv
from pathlib import Path

from conv2attn.errors import CheckpointError
from conv2attn.files.input_images import PICTURE_ENDINGS, picture_files

HEADER = ["file", "label"]
EXAMPLE = "Write a line file,label and one for each image, such as dog/1.png,207; images of an array are 0, 1, ..."


def read_labels(path: str, inputs: str, count: int) -> list[int]:
    """The label of each of `count` images, in the order in which `read_images` reads `inputs`.

    A picture is named by its path below the folder, an image of an array by its index from 0. Lines for other files are
    ignored.

    Raises:
        CheckpointError: C2A301: the table does not exist. C2A303: not a table, a label that is not an integer >= 0, or
            an image with zero or two labels.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            lines = [line for line in csv.reader(file) if line]
    except FileNotFoundError as error:
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CheckpointError("C2A303", f"{path} is not a table ({error})", EXAMPLE) from error
    if not lines or [each.strip() for each in lines[0]] != HEADER:
        raise CheckpointError("C2A303", f"{path} does not begin with the line file,label", EXAMPLE)
    labels: dict[str, int] = {}
    for line in lines[1:]:
        name, label = line if len(line) == 2 else ("", "")
        if not name or not label.strip().isdecimal():
            raise CheckpointError("C2A303", f"{path}: {','.join(line)!r} is not a file and a whole number", EXAMPLE)
        if labels.setdefault(name.strip(), int(label)) != int(label):
            raise CheckpointError("C2A303", f"{path} has two labels for {name}", EXAMPLE)
    names = names_of_images(inputs, count)
    missing = [name for name in names if name not in labels]
    if missing:
        raise CheckpointError("C2A303", f"{path} has no label for {missing[0]} of {inputs}", EXAMPLE)
    return [labels[name] for name in names]


def names_of_images(inputs: str, count: int) -> list[str]:
    """The names of the images of a folder, a picture, or an array."""
    place = Path(inputs)
    if place.is_dir():
        return [each.relative_to(place).as_posix() for each in picture_files(place)]
    return [place.name] if place.suffix.lower() in PICTURE_ENDINGS else [str(number) for number in range(count)]
