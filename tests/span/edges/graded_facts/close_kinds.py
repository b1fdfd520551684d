"""A head whose number is near to the threshold of a kind has two kinds in the table of heads."""

import pytest
import torch

import conv2attn
from conv2attn.span.graded_facts.facts import other_kind

FAR = {"extra": 0.0, "sink": 0.1, "itself": 0.1, "peak_mass": 0.1, "around": 0.1, "bar": 0.1, "evenness": 0.2}


@pytest.mark.parametrize(
    ("kind", "numbers", "other"),
    [
        ("mixed", {}, None),
        ("mixed", {"bar": 0.46}, "bar"),
        ("mixed", {"bar": 0.46, "sink": 0.48}, "sink"),
        ("local", {"around": 0.52, "bar": 0.9}, "bar"),
        ("local", {"around": 0.52}, "mixed"),
        ("local", {"around": 0.9, "bar": 0.49}, None),
        ("local", {"around": 0.9, "itself": 0.47}, "itself"),
        ("one query", {"sink": 0.49}, None),
    ],
)
def test_the_other_kind_is_that_of_the_nearest_threshold(kind, numbers, other):
    assert other_kind(kind, (FAR | numbers).get) == other


def test_both_kinds_are_printed():
    own = torch.full((1, 1, 9, 9), 0.48 / 8)
    own[..., range(9), range(9)] = 0.52
    report = conv2attn.heads(own, grid=(3, 3))
    assert report.layers[0].heads[0].kind == "itself"
    assert "itself or local" in report.to_text(verbose=True)
