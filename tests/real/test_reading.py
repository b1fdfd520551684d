"""What is read of whole architectures: the table of the documentation, and places known from their definitions."""

import numpy as np
import pytest
import timm
import torch
import transformers
from architectures import PAGE, TIMM, TRANSFORMERS, built, drawn, row_of
from timm.models.byobnet import ByoBlockCfg, ByobNet, ByoModelCfg

from conv2attn import capture
from conv2attn.report import show
from conv2attn.span import ask_attention
from conv2attn.theory.basis import Sites

QUICK = ("ViT", "DINOv2 with registers", "YOLOS", "ViT-MAE", "TimeSformer", "Swin", "PVT", "BERT", "ALBERT", "GPT-2")
QUICK += ("AST", "Whisper", "Llama, grouped", "BLOOM", "XLNet", "Longformer", "eva02_tiny_patch14_224", "convit_tiny")


def test_the_page_has_a_row_for_each_architecture():
    rows = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert rows[2:] == [*TRANSFORMERS, *TIMM]


@pytest.mark.rotated
@pytest.mark.parametrize("name", QUICK)
def test_the_row_of_an_architecture_is_what_is_read(name):
    cells = " | ".join(cell if isinstance(cell, str) else show(cell) for cell in row_of(name))
    assert f"| {cells} |" in PAGE.read_text().splitlines()


def windows(side, window, shift):
    """The cells of shifted windows, by the definition of Swin."""
    grid = np.roll(np.arange(side**2).reshape(side, side), (-shift, -shift), (0, 1))
    return grid.reshape(side // window, window, -1, window).swapaxes(1, 2).reshape(-1, window**2)


def test_windows_stand_where_they_are_by_definition():
    sizes = {"img_size": 112, "depths": (2, 2), "embed_dim": 24, "num_heads": (2, 2)}
    network = timm.create_model("swin_tiny_patch4_window7_224", **sizes).eval()
    for place, read in enumerate(ask_attention(network, torch.randn(1, 3, 112, 112)).reads()):
        side = (28, 14)[place // 2]
        assert np.array_equal(read.tokens.windows.places, windows(side, 7, 3 * (place % 2)))


def test_keys_of_a_halo_stand_around_the_queries_of_their_block():
    """Blocks of 8x8 queries, or of every second one of 16x16, have 12x12 keys; one block has the whole last map."""
    stages = [ByoBlockCfg("self_attn", d=depth, c=32, s=depth, gs=0, br=0.5) for depth in (1, 2)]
    halo = {"block_size": 8, "halo_size": 2, "num_heads": 2}
    plan = ByoModelCfg(stages, stem_chs=16, self_attn_layer="halo", self_attn_kwargs=halo)
    torch.manual_seed(0)
    images = torch.randn(1, 3, 64, 64)
    network = drawn(ByobNet(plan), images)
    for read, side, step in zip(ask_attention(network, images).reads(), (16, 16, 8), (1, 2, 1), strict=True):
        cells = torch.arange(side**2).reshape(1, 1, side, side)
        keys = torch.nn.functional.unfold(cells + 1.0, 12, padding=2, stride=8)[0].mT.long() - 1
        queries = cells[..., ::step, ::step]
        queries = torch.arange(queries.numel()).reshape(queries.shape[2:])
        blocks = queries.unfold(0, 8 // step, 8 // step).unfold(1, 8 // step, 8 // step).reshape(len(keys), -1)
        windows = read.tokens.windows
        assert np.array_equal(windows.places, blocks)
        assert np.array_equal(windows.keys, keys)
        assert windows.grid.sites.stride == (step, step)
        inside = Sites((step, step), (2, 2), (1 + step, 1 + step))
        assert (read.tokens.sides, read.tokens.sites) == ((12, 12), inside)


def test_the_quarter_of_a_masked_autoencoder_stands_where_it_was_taken():
    network, inputs = built("ViT-MAE")
    with torch.no_grad():
        kept = network(**inputs).ids_restore[0].argsort()[:49]
    for read in ask_attention(network, inputs).reads():
        assert read.tokens.windows.places[0].tolist() == [-1, *kept.tolist()]


def test_a_quarter_that_is_drawn_in_each_run_is_not_placed():
    network, inputs = built("ViT-MAE")
    assert all(
        "differs between runs" in read.unplaced for read in ask_attention(network, inputs["pixel_values"]).reads()
    )


def test_frames_of_a_video_are_an_axis():
    network, video = built("TimeSformer")
    space, time, *_ = ask_attention(network, video).reads()
    assert time.tokens.windows.grid.keys == space.tokens.windows.grid.keys == (4, 4, 4)
    assert np.array_equal(time.tokens.windows.places, np.arange(64).reshape(4, 16).T)
    assert np.array_equal(space.tokens.windows.places[:, 1:], np.arange(64).reshape(4, 16))


def test_queries_of_levit_stand_on_every_second_key_and_give_the_tokens_behind_them_their_places():
    """Three layers on an image of half the size: 7x7 tokens, then 4x4, then 2x2, which a hook puts in another order."""
    torch.manual_seed(0)
    sizes = {"depths": [1, 1, 1], "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4]}
    config = transformers.LevitConfig(**sizes, image_size=112)
    network, images = transformers.LevitModel(config).eval(), torch.rand(1, 3, 112, 112)
    order = torch.tensor([2, 0, 3, 1])
    network.encoder.stages[1].layers[2].register_forward_hook(lambda *of_layer: of_layer[-1][:, order])
    behind = "encoder.stages.2.layers.0.module"
    torch.nn.init.normal_(network.get_submodule(behind).attention_biases)
    halved = {
        "encoder.stages.0.layers.2": ((7, 7), Sites((2, 2), (0, 0), (0, 0))),
        "encoder.stages.1.layers.2": ((4, 4), Sites((2, 2), (0, 0), (1, 1))),
    }
    reads = {read.name: read for read in ask_attention(network, images, only=[*halved, behind]).reads()}
    read = reads.pop(behind)
    assert {name: (each.tokens.sides, each.tokens.sites) for name, each in reads.items()} == halved
    assert (read.tokens.sides, read.tokens.leading, read.tokens.windows) == ((2, 2), 0, None)
    row_by_row = order.argsort()
    captured = capture(network, images)[behind]
    assert torch.equal(read.attention, captured[..., row_by_row, :][..., row_by_row])
    assert not torch.equal(read.attention, captured)


def test_the_network_and_the_generator_are_left_as_they_were():
    network, inputs = built("ViT-MAE")
    images = inputs["pixel_values"]
    before, state = torch.random.get_rng_state(), {name: each.clone() for name, each in network.state_dict().items()}
    list(ask_attention(network.train(), images).reads())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert network.training
    assert all(torch.equal(each, state[name]) for name, each in network.state_dict().items())
    assert {each.dtype for each in network.parameters()} == {torch.float32}
