"""Data sets as their files are: read right, and refused where they are damaged, pickled or of another kind.

Each format can be damaged in ways of its own, so that no single law covers them.
"""

import numpy as np
import pytest
import torch
from lab.cases import archive, cifar_files, drawn, write_idx
from PIL import Image

from conv2attn.errors import CheckpointError
from conv2attn.lab.data import Augmentation, normalised_images, read_fashion_mnist, read_idx, read_images_of


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("packed", [True, False])
def test_cifar_is_read_from_its_binary_version(tmp_path, classes, packed):
    files, pixels, labels = cifar_files(classes)
    if packed:
        path = archive(tmp_path / "cifar.tar.gz", files)
    else:
        path = tmp_path
        for name, content in files.items():
            (path / name).write_bytes(content)
    images = read_images_of(str(path))
    *training, test = pixels
    assert images.name == f"cifar-{classes}"
    assert images.shape == (3, 32, 32)
    assert len(images.classes) == classes
    assert np.array_equal(images.pixels, np.concatenate([pixels[name] for name in training]))
    assert images.labels.tolist() == np.concatenate([labels[name] for name in training]).tolist()
    assert np.array_equal(images.test_pixels, pixels[test])
    assert images.test_labels.tolist() == labels[test].tolist()


@pytest.mark.parametrize("grey", [True, False])
def test_a_folder_of_images_is_read_by_class(tmp_path, grey):
    pixels = drawn(6, 5, 7) if grey else drawn(6, 5, 7, 3)
    for place, array in enumerate(pixels):
        file = tmp_path / ("train", "train", "test")[place % 3] / ("cat", "dog")[place // 3] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(file)
    images = read_images_of(str(tmp_path))
    planes = pixels[:, None] if grey else pixels.transpose(0, 3, 1, 2)
    assert images.classes == ("cat", "dog")
    assert images.labels.tolist() == [0, 0, 1, 1]
    assert images.test_labels.tolist() == [0, 1]
    assert np.array_equal(images.pixels, planes[[0, 1, 3, 4]])
    assert np.array_equal(images.test_pixels, planes[[2, 5]])
    Image.fromarray(drawn(1, 7, 5)[0]).save(tmp_path / "test" / "dog" / "other.png")
    with pytest.raises(CheckpointError, match=r"other\.png is 7x5, and"):
        read_images_of(str(tmp_path))
    (tmp_path / "test" / "dog" / "other.png").write_text("no image")
    with pytest.raises(CheckpointError, match=r"other\.png (is not an image|cannot be read)"):
        read_images_of(str(tmp_path))


def test_idx_files_keep_their_shape_and_their_length(tmp_path):
    array = drawn(3, 4, 5)
    write_idx(tmp_path / "a.gz", array)
    assert np.array_equal(read_idx(tmp_path / "a.gz"), array)


def test_fashion_mnist_from_its_four_files(tmp_path):
    for part, array in (
        ("train-images-idx3", drawn(6, 28, 28)),
        ("train-labels-idx1", np.arange(6, dtype=np.uint8)),
        ("t10k-images-idx3", drawn(2, 28, 28)),
        ("t10k-labels-idx1", np.arange(2, dtype=np.uint8)),
    ):
        write_idx(tmp_path / f"{part}-ubyte.gz", array)
    images = read_fashion_mnist(tmp_path)
    assert images.shape == (1, 28, 28)
    assert images.labels.tolist() == [0, 1, 2, 3, 4, 5]
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.arange(5, dtype=np.uint8))
    with pytest.raises(CheckpointError, match="with 5 labels"):
        read_fashion_mnist(tmp_path)


@pytest.mark.needs("images")
def test_the_packaged_fashion_mnist_has_its_published_sizes():
    images = read_images_of("fashion-mnist")
    assert (len(images.pixels), len(images.test_pixels), images.shape) == (60_000, 10_000, (1, 28, 28))
    mean, deviation = images.statistics()
    assert mean.item() == pytest.approx(0.2860, abs=1e-4)
    assert deviation.item() == pytest.approx(0.3530, abs=1e-4)


def test_normalised_pixels_have_mean_0_and_deviation_1():
    images = read_images_of("digits")
    inputs = normalised_images(images.pixels, *images.statistics()).double()
    assert inputs.mean().item() == pytest.approx(0, abs=1e-6)
    assert inputs.std(correction=0).item() == pytest.approx(1, abs=1e-6)


def test_augmented_images_are_crops_of_padded_ones_and_mirror_images():
    pixels = torch.from_numpy(drawn(50, 2, 5, 6))
    augmented = Augmentation(padding=2, mirror=True)(pixels, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(pixels, [2] * 4)
    seen = set()
    for image, source in zip(augmented, padded, strict=True):
        places = [
            (down, right, flip)
            for flip, whole in ((False, source), (True, source.flip(-1)))
            for down in range(5)
            for right in range(5)
            if torch.equal(image, whole[:, down : down + 5, right : right + 6])
        ]
        assert len(places) == 1
        seen |= set(places)
    assert {flip for *_, flip in seen} == {False, True}
    assert len({down for down, _, _ in seen}) == len({right for _, right, _ in seen}) == 5
    again = Augmentation(padding=2, mirror=True)(pixels, torch.Generator().manual_seed(0))
    assert torch.equal(again, augmented)
    assert torch.equal(Augmentation(0, False)(pixels, torch.Generator()), pixels)
