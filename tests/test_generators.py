"""No public name moves a generator of the caller's, on any device, and neither does a network that it runs."""

import ast
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from imitated_device import DEVICE, Module, imitated
from public_calls import CALLS, Noisy

import conv2attn
from conv2attn.generators import devices_of, generators_kept

DRAWING_LAYERS = {"AttentionConvolution", "BasisConvolution", "MultiHeadSelfAttention"}
"""Layers, which draw their parameters as those of torch do."""


def states():
    return [
        torch.get_rng_state(),
        Module.generator.get_state(),
        torch.tensor([hash(random.getstate())]),
        torch.from_numpy(np.random.get_state()[1].astype(np.int64)),
        torch.tensor(np.random.get_state()[2]),
    ]


def unmoved(before):
    return all(map(torch.equal, before, states()))


@pytest.fixture(params=["cpu", "imitated"])
def place(request):
    with imitated():
        yield torch.device("cpu") if request.param == "cpu" else DEVICE


def test_each_public_name_is_called():
    assert set(conv2attn.__all__) - CALLS.keys() == DRAWING_LAYERS


@pytest.mark.parametrize("name", CALLS)
def test_a_public_name_moves_no_generator(name, place, tmp_path):
    build, call = CALLS[name]
    made = build().to(place)
    before = states()
    call(made, place, tmp_path / "network.pt")
    assert unmoved(before)


def test_a_generator_that_moves_is_seen():
    """Planted: a draw from each, and a seed."""
    with imitated():
        for call in (
            lambda: torch.rand(1),
            lambda: torch.rand(1, device=DEVICE),
            lambda: torch.manual_seed(5),
            random.random,
            np.random.rand,
        ):
            before = states()
            call()
            assert not unmoved(before)


def test_draws_begin_at_the_seed_on_each_device_and_errors_move_nothing():
    with imitated():
        network = Noisy().to(DEVICE)
        assert devices_of(network, torch.ones(1), "text") == {DEVICE, torch.device("cpu")}
        drawn = []

        @generators_kept([DEVICE], seed=3)
        def fail():
            drawn.append([torch.rand(2), torch.rand(2, device=DEVICE).cpu()])
            raise ValueError("planted")

        before = states()
        for _ in range(2):
            with pytest.raises(ValueError, match="planted"):
                fail()
        assert unmoved(before)
        assert all(map(torch.equal, *drawn))
        assert not torch.equal(torch.rand(2, device=DEVICE).cpu(), drawn[0][1])


def reseedings(source):
    """Lines that seed every device of the process, or read the generator of every GPU."""
    if not re.search(r"\b(fork_rng|manual_seed)\b", source):  # parsing takes longer
        return []
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    return [node.lineno for node in nodes if ast.unparse(node) in ("torch.random.fork_rng", "torch.manual_seed")]


def test_nothing_in_the_package_seeds_or_reads_every_device():
    files = sorted(Path(conv2attn.__file__).parent.rglob("*.py"))
    assert {str(file): lines for file in files if (lines := reseedings(file.read_text()))} == {}
    assert reseedings("with torch.random.fork_rng():\n    torch.manual_seed(0)\n") == [1, 2]
