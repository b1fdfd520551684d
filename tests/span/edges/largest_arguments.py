"""The largest arguments that are not refused, and how layers are counted; what is refused: refusals/span.py."""

import numpy as np
import pytest
import torch

from conv2attn import check_span, heads

EYE = np.eye(9)[None]
LARGEST = [
    {"offsets": [(2**31 - 1, 0)]},
    {"offsets": [(0, 1 - 2**31)]},
    {"dilation": 2**30 - 1},
    {"kernel_size": 64},
    {"kernel_size": (1, 4096)},
    {"eps": 0, "max_phi": 1e100},
    {"eps": 1 - 2.0**-53, "max_phi": 1e-100},
    {"kernel_size": 1, "grid": 1, "extra_tokens": 8},
]


@pytest.mark.parametrize("options", LARGEST, ids=repr)
def test_the_largest_argument_that_is_not_refused_is_answered(options):
    (row,) = check_span(EYE, **options).rows
    assert row.deciding.targets or "no query has its whole neighbourhood" in row.deciding.sentence


@pytest.mark.parametrize("command", [check_span, heads])
def test_progress_counts_the_layers_from_one(command):
    calls = []
    command({"first": EYE, "second": EYE}, progress=lambda *given: calls.append(given))
    assert calls == [(1, 2, "first"), (2, 2, "second")]


def test_attention_of_as_many_windows_is_counted():
    """As `outputs.attentions` of Swin has them: one image is 16 windows in one layer and 4 in the next."""
    windows = torch.full((16, 2, 9, 9), 1 / 9)
    assert "16" in heads([windows, windows.mT]).to_json()
