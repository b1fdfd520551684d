"""The files that command lines of this folder name."""

import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from attentions import gated
from torch import nn

import conv2attn

NETWORK = nn.Sequential(
    OrderedDict(stem=nn.Conv2d(3, 4, 3), relu=nn.ReLU(), body=nn.Conv2d(4, 3, 3, stride=2), flat=nn.Flatten())
)


def write_files() -> None:
    """The files that the calls name, in the current folder."""
    torch.save(NETWORK, "net.pt")
    plain = nn.Sequential(NETWORK.stem, NETWORK.relu, NETWORK.body)
    torch.export.save(torch.export.export(plain, (torch.ones(1, 3, 12, 12),)), "net.pt2")
    conv2attn.save(conv2attn.convert(plain), "net.attn.pt")
    torch.save(nn.Sequential(nn.Linear(3, 4)), "linear.pt")
    np.savez("heads.npz", heads=np.full((9, 25, 25), 1 / 25))
    arrays = {
        "pixels": np.zeros((2, 3, 12, 12), np.float32),
        "nan": np.full((2, 3, 12, 12), np.nan, np.float32),
        "words": np.array(["no", "image"]),
        "object": np.array([{}], dtype=object),
        "complex": np.zeros((1, 3, 8, 8), np.complex64),
        "none": np.zeros((0, 3, 8, 8), np.float32),
        "flat": np.zeros((8, 8), np.float32),
        "odd": np.zeros((1, 1, 9, 9), np.float32),
    }
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    torch.save(gated().state_dict(), "gated.pt")
    for name, example in (("resnet18.pt", "resnet18.pt"), ("trained.pt", "attention-quadratic.pt")):
        Path(name).symlink_to(Path(__file__).parents[2] / "examples" / example)
    torch.save({"images": torch.zeros(8, 8)}, "flat.pt")
    torch.save({"a": torch.zeros(1, 3, 8, 8), "b": torch.zeros(1, 3, 8, 8)}, "two.pt")
    for name in ("notes.txt", "notes.npz", "notes.safetensors"):
        Path(name).write_text("hello")
    Path("empty").mkdir()
    Path("loop.pt").symlink_to("loop.pt")
    os.mkfifo("pipe.pt")
