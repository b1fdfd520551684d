"""Tables of labels are read in the order of the images, and refused where they say no class of one."""

import numpy as np
import pytest
from PIL import Image

from conv2attn.errors import CheckpointError
from conv2attn.files import read_images, read_labels


def test_labels_follow_the_order_of_the_pictures(tmp_path):
    shades = {"b/1.png": 10, "a/2.png": 200, "c.jpg": 90}
    for name, shade in shades.items():
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), shade, np.uint8)).save(tmp_path / "photos" / name)
    lines = [f"{name},{shade}" for name, shade in shades.items()] + ["elsewhere.png,3"]
    (tmp_path / "labels.csv").write_text("file,label\n" + "\n".join(lines))
    images, _ = read_images(str(tmp_path / "photos"))
    labels = read_labels(str(tmp_path / "labels.csv"), str(tmp_path / "photos"), len(images))
    assert labels == [round(float(image.mean()) * 255) for image in images]


def test_images_of_an_array_are_numbered(tmp_path):
    (tmp_path / "labels.csv").write_text("file,label\n2,7\n0,5\n1,6\n")
    assert read_labels(str(tmp_path / "labels.csv"), "images.npy", 3) == [5, 6, 7]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "C2A301"),
        ("", "does not begin with the line file,label"),
        ("0,5\n1,6\n", "does not begin with the line file,label"),
        ("file,label\n0,5\n", "has no label for 1 of images.npy"),
        ("file,label\n0,5\n1,cat\n", "'1,cat' is no file and whole number"),
        ("file,label\n0,5\n1,-1\n", "'1,-1' is no file and whole number"),
        ("file,label\n0,5\n1\n", "'1' is no file and whole number"),
        ("file,label\n0,5\n1,6\n0,7\n", "has two labels for 0"),
        ("file,label\n0,\xff5", "is no table"),
    ],
)
def test_tables_that_label_no_images_are_refused(text, said, tmp_path):
    path = tmp_path / "labels.csv"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=said):
        read_labels(str(path), "images.npy", 2)
