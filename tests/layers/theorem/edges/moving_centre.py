"""The example that trains a moving centre, in small: the ten images of the repository, and 80 steps."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("train_moving_centre", EXAMPLES / "train_moving_centre.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def images(example):
    with np.load(EXAMPLES / "images.npz", allow_pickle=False) as arrays:
        return example.shrunk(torch.from_numpy(arrays["pixels"])[:, None])


def test_a_centre_learns_to_undo_shifts_that_a_fixed_one_cannot(example, images):
    result = example.run(images, images.repeat(20, 1, 1, 1), steps=80)
    assert result.moving < result.fixed < result.untouched
    assert result.slope > 0.3


def test_an_untrained_centre_does_not_move(example, images):
    result = example.run(images, images, steps=0)
    assert result.slope == 0
    assert result.moving == result.fixed


def test_the_centre_that_is_reported_is_where_the_head_looks(example):
    """A sharp head moved by twice its channels of place reads that pixel."""
    head = example.one_head(alpha=50.0)
    with torch.no_grad():
        head.query[0, 1:, 1:] = 2 * 50 * 2 * torch.eye(2)
    tokens = torch.rand(1, 3, 11, 11)
    tokens[:, 1:] = torch.tensor([1.0, -1.0])[:, None, None]
    assert torch.allclose(example.centres(head, tokens), torch.tensor([[2.0, -2.0]]), atol=1e-4)
    assert torch.allclose(head(tokens)[0, 0, 5, 5], tokens[0, 0, 7, 3], atol=1e-3)
