"""The benchmarks of graph layers run; nothing is asserted about time."""

import pytest
import torch

from benchmarks.graphs import LAYERS, function, measure, random_edges, table


@pytest.mark.parametrize("layer", LAYERS)
def test_both_sides_are_measured_on_the_same_layer(layer):
    found = [measure(layer, who, 20, 60) for who in ("theirs", "ours")]
    assert all(each["forward"] + each["backward"] > 0 for each in found)
    assert table(found).count("\n") >= 3
    edges, features, outputs = random_edges(20, 60), torch.randn(20, 64), []
    for who in ("theirs", "ours"):
        torch.manual_seed(0)
        outputs.append(function(layer, who, 20, edges)(features))
    torch.testing.assert_close(*outputs)
