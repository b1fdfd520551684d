"""One reader for images of any form: bytes are pixels, prepared as the network says, numbers are taken as given."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call
from PIL import Image
from torch import nn

import conv2attn
from conv2attn.examples import demo_files
from conv2attn.files import Reading, read_images
from conv2attn.networks import Provenance, with_provenance

EXAMPLES = Path(__file__).parents[3] / "examples"
PIXELS = np.random.default_rng(0).integers(0, 256, (2, 6, 9, 3), dtype=np.uint8)


def network(size=None, mean=None, std=None):
    return with_provenance(nn.Conv2d(3, 4, 3), Provenance("f", "k", "timm:x", input_size=size, mean=mean, std=std))


def put(name, array):
    """Pixels in a file of each form; a folder holds one file per image."""
    match Path(name).suffix:
        case ".npy":
            np.save(name, array)
        case ".npz":
            np.savez(name, labels=np.arange(len(array)), pixels=array)
        case ".pt":
            torch.save({"images": torch.from_numpy(array)}, name)
        case "":
            Path(name).mkdir()
            for index, each in enumerate(array):
                Image.fromarray(each).save(f"{name}/{index}.png")
    return name


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.pt", "folder"])
def test_the_same_pixels_are_the_same_images_in_every_form(name):
    batch, words = read_images(put(name, PIXELS))
    assert torch.equal(batch, torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255)
    assert words == f"2 images of {name}, pixels 0..1 (no mean and std known: --mean, --std)"
    first, _ = read_images(put("first.npy", np.ascontiguousarray(PIXELS.transpose(0, 3, 1, 2))))
    assert torch.equal(first, batch)


def test_pictures_are_normalised_as_the_network_says_and_the_report_says_so():
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    batch, words = read_images(put("folder", PIXELS), network((3, 6, 9), mean, std))
    plain = torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255
    expected = torch.stack([(plain[:, c] - mean[c]) / std[c] for c in range(3)], 1)
    assert torch.allclose(batch, expected, atol=1e-6)
    assert words == "2 images of folder, normalised as timm:x says"
    other, words = read_images("folder", network((3, 6, 9), mean, std), mean=(0.5,), std=(0.25,))
    assert torch.allclose(other, (plain - 0.5) / 0.25, atol=1e-6)
    assert words == "2 images of folder, normalised as --mean and --std say"


def test_numbers_are_taken_as_they_are_whatever_the_network_says():
    array = np.random.default_rng(1).normal(size=(2, 3, 5, 4)).astype(np.float32)
    batch, words = read_images(put("a.npy", array), network((3, 8, 8), (0.5,) * 3, (0.5,) * 3))
    assert torch.equal(batch, torch.from_numpy(array))
    assert words == "2 images of a.npy"


@pytest.mark.parametrize("size", [None, (3, 6, 9)])
def test_an_array_with_the_channels_of_the_network_first_is_one_image(size):
    np.save("one.npy", np.ones((3, 6, 9), np.float32))
    batch, words = read_images("one.npy", network(size))
    assert (batch.shape, words) == ((1, 3, 6, 9), "1 image of one.npy")
    np.save("sounds.npy", np.ones((3, 1, 9), np.float32))
    assert len(read_images("sounds.npy", nn.Conv1d(1, 2, 3))[0]) == 3


def test_images_have_the_dtype_of_the_network():
    np.save("images.npy", np.ones((2, 3, 6, 9)))
    for dtype in (torch.float64, torch.bfloat16):
        assert Reading().images("images.npy", network().to(dtype), None)[0].dtype == dtype


def test_pictures_cover_the_sides_and_are_cropped_at_the_centre():
    array = np.zeros((8, 24, 3), np.uint8)
    array[:, 6:18] = 255  # a crop to a square keeps the middle third
    Image.fromarray(array).save("a.png")
    batch, words = read_images("a.png", network((3, 4, 4)))
    assert torch.equal(batch, torch.ones(1, 3, 4, 4))
    assert (
        words
        == "1 image of a.png resized to 4x4, the size of timm:x, pixels 0..1 (no mean and std known: --mean, --std)"
    )


def test_grey_becomes_three_channels_and_colour_becomes_grey():
    Image.fromarray(PIXELS[0, :, :, 0]).save("grey.png")
    batch, _ = read_images("grey.png", network())
    assert batch.shape == (1, 3, 6, 9)
    assert torch.equal(batch[:, 0], batch[:, 2])
    Image.fromarray(np.full((4, 5, 3), 51, np.uint8)).save("colour.png")
    grey, _ = read_images("colour.png", nn.Conv2d(1, 2, 3))
    assert torch.allclose(grey, torch.full((1, 1, 4, 5), 0.2))


def test_a_jpeg_lies_as_its_camera_meant():
    array = np.zeros((16, 32, 3), np.uint8)
    array[:, 16:] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.fromarray(array).save("a.jpg", exif=exif)
    batch, _ = read_images("a.jpg")
    assert batch.shape == (1, 3, 32, 16)
    assert batch[0, 0, 0, 0] < 0.1 < 0.9 < batch[0, 0, -1, 0]


def test_the_demonstration_runs_on_the_example_images():
    demo = demo_files()
    batch, _ = read_images(str(EXAMPLES / "images.npz"), size=(3, 56, 56), mean=(0.2860,), std=(0.3530,))
    assert torch.allclose(batch, demo.images, atol=1e-5)


def different():
    Path("folder").mkdir()
    for index, side in enumerate((5, 6)):
        Image.new("RGB", (side, side)).save(f"folder/{index}.png")
    return "folder"


def truncated():
    Image.fromarray(PIXELS[0]).save("whole.png")
    Path("a.png").write_bytes(Path("whole.png").read_bytes()[:60])
    return "a.png"


def deep():
    Image.fromarray(np.zeros((4, 4), np.uint16)).save("a.png")
    return "a.png"


def text():
    Path("a.png").write_text("no picture")
    return "a.png"


def empty():
    Path("folder").mkdir()
    return "folder"


@pytest.mark.parametrize("content", [b"hello", b"\x93NUMPY\x01\x00", b""])
def test_a_command_refuses_inputs_that_are_no_array(content):
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)), "net.pt")
    Path("inputs.npy").write_bytes(content)
    for command in ("heads", "check-span"):
        result = call(command, "net.pt", "--inputs", "inputs.npy")
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.output
        assert "inputs.npy" in result.stderr


def test_verify_runs_on_pictures_and_says_how_they_were_prepared():
    layer = nn.Conv2d(3, 4, 3)
    torch.save(layer.state_dict(), "conv.pt")
    Path("net.py").write_text("from torch import nn\ndef conv():\n    return nn.Conv2d(3, 4, 3)\n")
    conv2attn.save(conv2attn.convert(layer), "attn.pt")
    put("folder", PIXELS)
    options = ["--inputs", "folder", "--mean", "0.5", "--std", "0.25", "--format", "json", "--arch", "net.py:conv"]
    result = call("verify", "conv.pt", "attn.pt", *options)
    assert result.exit_code == 0, result.output
    description = json.loads(result.stdout)["outputs"]["images"]
    assert description == "2 images of folder, normalised as --mean and --std say"


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_converted_network_keeps_the_normalisation_that_was_passed(suffix):
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)), "net.pt")
    options = ["--mean", "0.5", "--std", "0.25", "--input-size", "3x6x9"]
    result = call("convert", "net.pt", "-o", f"attn{suffix}", *options)
    assert result.exit_code == 0, result.output
    batch, words = read_images(put("folder", PIXELS), conv2attn.load(f"attn{suffix}"))
    asked, _ = read_images("folder", mean=(0.5,), std=(0.25,))
    assert torch.equal(batch, asked)
    assert words == "2 images of folder, normalised as Sequential says"
