"""A configuration that is out of proportion to the weights beside it is refused, and its network is not built."""

import json
import resource

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.errors import CheckpointError
from conv2attn.files import load, save

LARGE = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 12_000,
    "intermediate_size": 48_000,
    "num_hidden_layers": 24,
    "num_attention_heads": 12,
}


@pytest.mark.parametrize("change", [{}, {"hidden_size": 12, "intermediate_size": 12, "num_hidden_layers": 10**9}])
def test_a_configuration_out_of_proportion_to_its_weights_builds_nothing(tmp_path, change):
    (tmp_path / "config.json").write_text(json.dumps(LARGE | change))
    torch.save({"embeddings.LayerNorm.weight": torch.zeros(4)}, tmp_path / "pytorch_model.bin")
    refused_small(tmp_path)


def refused_small(path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError) as caught:
        load(path)
    assert (caught.value.code, caught.value.exit_code) == ("C2A307", 2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10  # KiB, transformers itself included


def test_a_plan_that_names_a_large_configuration_builds_nothing(tmp_path):
    save(conv2attn.convert(nn.Sequential(nn.Conv2d(3, 4, 3))), tmp_path / "net.pt")
    foreign = {"kind": "transformers.BertModel", "name": "transformers:x", "arguments": {}, "config": LARGE}
    plan = torch.load(tmp_path / "net.pt", weights_only=True)
    torch.save({**plan, "architecture": ["foreign", foreign]}, tmp_path / "large.pt")
    refused_small(tmp_path / "large.pt")
