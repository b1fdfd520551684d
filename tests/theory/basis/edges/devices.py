"""Layers are read and evaluated where they are; laws.py has the operators."""

import torch
from forks import run_apart
from torch import nn

from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import (
    as_affine_map,
    as_basis,
    evaluate,
)


def test_layers_are_read_from_a_device(device):
    conv = nn.Conv2d(2, 3, 3, padding=1).to(device)
    basis = as_basis(conv)
    image = torch.randn(1, 2, 4, 5, device=device)
    assert evaluate(basis, image).device == image.device
    matrix, vector = as_affine_map(basis, (4, 5))
    expected = (matrix @ image.cpu().double().flatten() + vector).reshape(1, 3, 4, 5)
    assert_same_output(conv(image).detach().cpu().double(), expected.detach(), 1e-5)


def test_convolutions_and_classes_below_them_are_read_without_another_import():
    code = (
        "import torch\n"
        "from conv2attn.theory.basis import as_basis, terms\n"
        "class Mine(torch.nn.Conv2d): pass\n"
        "for kind in (torch.nn.Conv2d, Mine):\n"
        "    assert terms(as_basis(kind(1, 1, 3)).operators) == 9\n"
    )
    assert run_apart(exec, code) == 0
