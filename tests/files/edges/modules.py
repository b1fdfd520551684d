"""Whole pickled modules of known classes are read; what a pickle adds to a class is refused, and none runs."""

import argparse
import datetime
import importlib
import os
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call
from files.hostile import Runs
from torch import nn

from conv2attn.errors import CheckpointError
from conv2attn.files import load
from conv2attn.networks import provenance_of


class Own(nn.Module):
    """A class of the user's."""

    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Conv2d(3, 4, 3), 2.0

    def forward(self, image):
        return self.scale * self.inner(image)


OWN = f"{Own.__module__}.Own"


def network():
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.LeakyReLU(0.2), nn.Dropout(0.5)
    )
    tail = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(5), nn.LayerNorm(5, bias=False), nn.Softmax(-1))
    whole = nn.Sequential(body, nn.Dropout(0.5), tail)
    whole(torch.randn(2, 3, 6, 4))
    return whole.eval()


@pytest.mark.parametrize("wrapper", [None, "model", "ema"])
def test_a_module_of_torch_is_read_and_computes_the_same(wrapper):
    net, image = network(), torch.randn(3, 3, 6, 4)
    torch.save({"epoch": 3, wrapper: net} if wrapper else net, "net.pt")
    loaded = load("net.pt")
    assert torch.equal(loaded(image), net(image))
    assert loaded is not net
    assert "read from its pickle, which names torch.nn.modules.activation.LeakyReLU" in provenance_of(loaded).to_text()


def test_shared_modules_and_tied_weights_stay_so():
    layer = nn.Linear(3, 3)
    tied = nn.Linear(3, 3)
    tied.weight = layer.weight
    torch.save(nn.Sequential(layer, layer, tied), "net.pt")
    loaded = load("net.pt")
    assert loaded[0] is loaded[1]
    assert loaded[0].weight is loaded[2].weight


def test_a_class_of_the_user_needs_to_be_allowed_by_name():
    net, image = Own().eval(), torch.randn(1, 3, 5, 6)
    torch.save(net, "net.pt")
    assert torch.equal(load("net.pt", allow=[OWN])(image), net(image))
    assert torch.equal(load("net.pt", model=Own(), allow=[OWN])(image), net(image))


MODULE = """
from torch import nn
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv2d(3, 4, 3)
    def forward(self, image):
        return self.inner(image)
"""


def test_a_class_in_the_working_folder_is_found_where_it_is_allowed(folder, monkeypatch):
    (folder / "in_the_working_folder.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    torch.save(importlib.import_module("in_the_working_folder").Own(), "net.pt")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "in_the_working_folder")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(folder))])
    done = call("convert", "net.pt", "--input-size", "3x6x7", "--allow", "in_the_working_folder.Own")
    assert done.exit_code == 0, done.output
    monkeypatch.delitem(sys.modules, "in_the_working_folder")


def test_an_allowed_class_that_cannot_be_imported_is_named(monkeypatch):
    torch.save(Own(), "net.pt")
    monkeypatch.delattr(sys.modules[Own.__module__], "Own")
    with pytest.raises(CheckpointError, match=f"net.pt names {re.escape(OWN)}, and there is no such class"):
        load("net.pt", allow=[OWN])


@pytest.mark.parametrize("legacy", [False, True])
def test_plain_records_beside_the_weights_are_not_read_and_other_objects_are_named(legacy, monkeypatch):
    beside = {
        "args": argparse.Namespace(lr=0.1),
        "more": types.SimpleNamespace(path=Path("x")),
        "when": [datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC), datetime.timedelta(3)],
        "best": np.float64(0.5),
    }
    module = nn.Conv2d(3, 4, 3)
    torch.save({"state_dict": module.state_dict(), **beside}, "net.pt", _use_new_zipfile_serialization=not legacy)
    assert torch.equal(load("net.pt", model=nn.Conv2d(3, 4, 3)).weight, module.weight)
    monkeypatch.setattr("conv2attn.files.registries.MODEL_LIBRARIES", {})  # a search of all models is slow
    assert "architecture" in call("inspect", "net.pt").stdout
    torch.save({"model": module, **beside}, "whole.pt")
    assert torch.equal(load("whole.pt").weight, module.weight)
    torch.save({"state_dict": module.state_dict(), **beside, "odd": Runs(os.mkdir, "made")}, "bad.pt")
    with pytest.raises(CheckpointError, match=r"C2A303 .* names posix.mkdir, which is code"):
        load("bad.pt")
    assert not os.path.exists("made")
    module.args = beside["args"]
    torch.save(module, "attribute.pt")
    with pytest.raises(CheckpointError, match=r"C2A303 .* has an attribute args"):
        load("attribute.pt")
