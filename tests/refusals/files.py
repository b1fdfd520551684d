"""Files that hold no network, no images or no labels, and files that cannot be written."""

import json
import os
from pathlib import Path

import torch
from files.edges.architectures import SOURCE
from files.edges.damaged import STATE
from files.edges.pictures import PIXELS, deep, different, empty, put, text, truncated
from files.edges.resnets import resnet_state
from networks.networks import Calls
from safetensors.torch import save_file
from torch import nn

from conv2attn import convert, load, save
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.files import Reading, architecture, read_dict, read_images, read_labels, write_text_atomically
from conv2attn.networks.zoo import ResNet, ResNetPlan

CONV = nn.Conv2d(3, 4, 3)


def loaded(content, **options):
    """Loads a file of the content."""
    torch.save(content, "net.pt")
    load("net.pt", **options)


def factory(arch, change=lambda state: state, **options):
    """Loads the weights of a network of the folder as another one."""
    Path("netfile.py").write_text(SOURCE)
    loaded(change(architecture("netfile.py:Net", options or None).build().state_dict()), arch=arch)


def renamed(state):
    state["tail.bias"] = state.pop("head.bias")
    return state


class Picky(nn.Conv2d):
    def _load_from_state_dict(self, *_):
        raise KeyError("versions")


def functional():
    """Loads attention in place of functional convolutions as another class."""
    save(convert(Calls().eval(), example_input=torch.ones(1, 3, 9, 8)), "net.pt")
    load("net.pt", model=CONV)


def hooked():
    chain = convert(nn.Sequential(CONV, nn.ReLU()))
    chain.register_forward_hook(lambda module, inputs, output: 2 * output)
    save(chain, "chain.pt")
    load("chain.pt")


def stage(*first):
    """Loads a chain with another first stage."""
    save(convert(nn.Sequential(CONV, nn.ReLU())), "chain.pt")
    content = torch.load("chain.pt", weights_only=True)
    stages = content["architecture"][1]["stages"]
    content["architecture"] = ["chain", {"stages": (first, *stages[1:])}]
    loaded(content)


def within_itself():
    content: dict = {**STATE}
    content["self"] = content
    torch.save(content, "net.pt")
    read_dict("net.pt")


def labels(table):
    """Labels of two images from the text of a table."""
    if table is not None:
        Path("labels.csv").write_bytes(table.encode("latin-1"))
    read_labels("labels.csv", "images.npy", 2)


def shards(*files, config='{"model_type": "no such model"}', **options):
    """Loads a folder with one tensor in each of these files."""
    Path("config.json").write_text(config)
    weight_map = {f"tensor{number}": name for number, name in enumerate(files)}
    Path("model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    load(".", **options)


def stored_twice(**options):
    for name in ("one", "two"):
        save_file({"a": torch.ones(2)}, f"{name}.safetensors")
    shards("one.safetensors", "two.safetensors", **options)


def diffusers():
    """It has a config.json without a model_type; the nearest name of transformers was offered."""
    save_file({"conv_in.weight": torch.ones(2, 2)}, "diffusion_pytorch_model.safetensors")
    shards(config='{"_class_name": "UNet2DConditionModel"}')


def replaced(make, force=False):
    make("old")
    write_text_atomically("old", "text", force=force)


def in_a_file():
    Path("file").touch()
    write_text_atomically("file/new.txt", "text")


REFUSALS = {
    CheckpointError: {
        r"C2A304 .* 3 of another shape: stem.weight 7x3x3x3 for 4x3x3x3": lambda: factory("netfile.py:Net", width=7),
        "1 missing: head.bias; 1 unexpected: tail.bias": lambda: factory("netfile.py:Net", renamed),
        "C2A304 .*net.pt does not fit Picky: load_state_dict raises KeyError": lambda: loaded(
            CONV.state_dict(), model=Picky(3, 4, 3)
        ),
        "which is not in its folder": lambda: shards("../other.safetensors"),
        "does not exist": [lambda: shards("one.safetensors"), lambda: read_images("missing.png")],
        "has no weight_map of file names": lambda: shards(),
        "holds 'a' in two of its files": stored_twice,
        "C2A307 the weights in . have more bytes than the limit": lambda: stored_twice(max_size=100),
        "C2A303 config.json is not JSON": lambda: stored_twice(config="{"),
        "C2A303 config.json holds a list, not an object": lambda: stored_twice(config="[]"),
        "C2A307 config.json has 16,777,217 bytes": lambda: stored_twice(config=" " * (2**24 + 1)),
        "C2A30[346]": functional,
        "of diffusers, for the class UNet2DConditionModel(?!.*Did you mean).*file.py:factory": diffusers,
        "C2A304 .*: the converted network is a ": hooked,
        "C2A303": [
            lambda: stage("PixelShuffle", {"upscale_factor": 2}),
            lambda: stage("Linear", {}),
            lambda: stage("ReLU", {"slope": 1}),
            *(lambda make=make: read_images(make()) for make in (truncated, deep, text, empty)),
        ],
        "within itself": within_itself,
        "C2A308": [
            lambda suffix=suffix: save(convert(nn.Conv2d(2, 3, 3)), f"new{suffix}")
            for suffix in (".onx", ".txt", "", ".bin")
        ],
        "C2A301": lambda: labels(None),
        "does not begin with the line file,label": [lambda: labels(""), lambda: labels("0,5\n1,6\n")],
        "has no label for 1 of images.npy": lambda: labels("file,label\n0,5\n"),
        "'1,cat' is not a file and a whole number": lambda: labels("file,label\n0,5\n1,cat\n"),
        "'1,-1' is not a file and a whole number": lambda: labels("file,label\n0,5\n1,-1\n"),
        "'1' is not a file and a whole number": lambda: labels("file,label\n0,5\n1\n"),
        "has two labels for 0": lambda: labels("file,label\n0,5\n1,6\n0,7\n"),
        "is not a table": lambda: labels("file,label\n0,\xff5"),
        r"begins with the keys '0\.weight'": lambda: loaded(nn.Sequential(CONV), arch="resnet50"),
        "C2A304 .* holds resnet18, not resnet34": lambda: loaded(
            ResNet(ResNetPlan(width=2, classes=3)).state_dict(), arch="resnet34"
        ),
        r"C2A304 .* '0\.weight', '0\.bias', and does not fit .*ResNet": lambda: loaded(
            nn.Sequential(CONV).state_dict()
        ),
        r"C2A303 .*'fc\.weight' is torch\.int8": lambda: loaded(
            (state := resnet_state()) | {"fc.weight": state["fc.weight"].to(torch.int8)}
        ),
        "C2A305 .* is not a regular file": [
            lambda make=make, force=force: replaced(make, force)
            for make in (os.mkdir, os.mkfifo)
            for force in (False, True)
        ],
        "C2A301 .* cannot be written: N": [lambda: write_text_atomically("missing/new.txt", "text"), in_a_file],
    },
    (UsageError, CheckpointError): {
        "Did you mean netfile.py:Net": lambda: factory("netfile.py:Nett"),
        "cannot be imported": lambda: factory("nofile.py:Net"),
        "names no architecture": lambda: factory("netfile.py:"),
        "is a str, not a function": lambda: factory("netfile.py:nn.ReLU.__name__"),
    },
    UsageError: {
        "not a JSON object": lambda: Reading(arch_args="[10]").options(),
        "C2A004 arch and model both name": lambda: load("net.pt", "resnet18", model=CONV),
        "C2A004 arguments are passed without an architecture": lambda: load("net.pt", arch_args={"width": 7}),
        "C2A006 example_input is neither": lambda: save(convert(CONV), "new.pt2", example_input={}),
        "C2A004 example_input is for .pt2 and .onnx, not for .pt": lambda: save(
            convert(CONV), "new.pt", example_input=(3, 8, 8)
        ),
        "C2A005 the image size of the exported network": lambda: save(convert(nn.Sequential(CONV)), "new.pt2"),
        "C2A005": lambda: read_images(different()),
        "C2A004 a mean without a deviation": lambda: read_images(put("a.npy", PIXELS), mean=(0.5,)),
        "C2A007 .*2 and 2 numbers, the images 3 channels": lambda: read_images(
            put("a.npy", PIXELS), mean=(0.5, 0.5), std=(1.0, 1.0)
        ),
        "C2A001 .*is not positive": lambda: read_images(put("a.npy", PIXELS), mean=(0.5,), std=(0.0,)),
        "C2A007 .*3 channels, and the network takes 7": lambda: read_images(put("a.npy", PIXELS), size=(7, 4, 4)),
        "C2A009 Sequential does not run on images of 2x3x6x5": lambda: save(
            convert(nn.Sequential(nn.Linear(6, 6), CONV)), "new.pt2", example_input=(3, 6, 5)
        ),
    },
}
