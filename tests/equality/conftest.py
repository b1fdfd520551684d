"""Networks that tests compare others with are exported once, and commands read a file once."""

import copy
from contextlib import nullcontext
from pathlib import Path

import pytest
from equality.pairs import exported_once, once
from torch import nn

from conv2attn.checkpoints.reading_options import Reading
from conv2attn.cli import network_files
from conv2attn.equality import matching


@pytest.fixture(autouse=True)
def originals_exported_once(monkeypatch):
    monkeypatch.setattr(matching, "graph_of", exported_once)
    yield
    nn.modules.module._global_forward_hooks.clear()


@pytest.fixture(scope="module")
def files_read_once():
    """While active, a file of one content, read with the same options, is one network, which is exported once."""
    networks, load, prepared = {}, Reading.load, network_files.prepared

    def load_once(reading, path):
        key = reading, path, Path(path).read_bytes() if Path(path).is_file() else path
        if key not in networks:
            networks[key] = once(load(reading, path))
        return networks[key]

    def prepared_apart(network, running, *remedy):
        return prepared(copy.deepcopy(network) if running.dtype else network, running, *remedy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reading, "load", load_once)
        patch.setattr(network_files, "prepared", prepared_apart)
        patch.setattr(network_files, "certifying_progress", lambda *_: nullcontext())  # whose hook is on all modules
        yield
