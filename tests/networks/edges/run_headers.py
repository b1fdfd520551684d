"""What was run stands above what was measured: in the text, the JSON, the picture and the page."""

import re

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn import plots
from conv2attn.lab.explore import explore
from conv2attn.networks.run_header import run_header
from studies.transformer import TransformerPlan, VisionTransformer


def seeded(dtype=torch.float32):
    torch.manual_seed(0)
    network = VisionTransformer(TransformerPlan(side=8, channels=3, width=8, heads=2, layers=1))
    return network.to(dtype).eval(), torch.randn(2, 3, 8, 8).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_header_names_sizes_dtypes_devices_hash_seed_and_versions(dtype):
    network, images = seeded(dtype)
    name = str(dtype).removeprefix("torch.")
    found = run_header(network, images)
    wanted = rf"2x3x8x8 {name} on cpu \(sha256 [0-9a-f]{{12}}\); network in {name} on cpu; seed 0; "
    assert re.fullmatch(wanted + r"conv2attn \S+, torch \S+", found)


def test_a_hash_is_that_of_the_numbers():
    network, images = seeded()
    other = images.clone()
    other[1, 2, 7, 7] += 1e-6
    assert run_header(network, images) == run_header(
        network, images.clone().contiguous(memory_format=torch.channels_last)
    )
    assert run_header(network, images) != run_header(network, other)
    assert run_header(network, {"image": images}) == run_header(network, images)
    assert run_header(network, iter([images])).startswith("batches of a loader; ")


def test_all_reports_of_a_run_say_it(tmp_path):
    network, images = seeded()
    header = run_header(network, images)
    facts, span = conv2attn.heads(network, images), conv2attn.check_span(network, example_input=images)
    for report in (facts, span):
        assert report.inputs == header
        assert header in report.to_json()
        assert header in " ".join(report.to_text().split())
    (words,) = (each for each in [plots.draw_facts(facts)._supxlabel] if each is not None)
    assert header in " ".join(words.get_text().split())
    explore(network, images).save(tmp_path / "page.html")
    assert header.partition(";")[0] in (tmp_path / "page.html").read_text()


def test_what_did_not_run_has_no_header():
    layer = conv2attn.convert(nn.Conv2d(3, 4, 3, padding=1))
    assert conv2attn.heads(layer, grid=(4, 4)).inputs == conv2attn.check_span(layer, grid=(4, 4)).inputs == ""
