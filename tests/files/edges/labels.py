"""Tables of labels are read in the order of the images, and refused where they say no class of one."""

import numpy as np
from PIL import Image

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
