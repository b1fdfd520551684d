"""Networks of sound and text: their library says what they are called with, and each command ends in an answer."""

import numpy as np
import pytest
import torch
from encoders import model_of

import conv2attn
from conv2attn.networks import specimen_of, specimen_size
from conv2attn.verdicts import Strength, Verdict
from tests.commands import call

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers
SMALL = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 2, "intermediate_size": 24}
CONVOLUTIONS = {"conv_dim": (8, 8), "conv_kernel": (5, 3), "conv_stride": (3, 2), "num_feat_extract_layers": 2}
POSITIONS = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
SPECTRA = {"num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 10, "d_model": 16}
LAYERS = {f"{part}_{key}": n for part in ("encoder", "decoder") for key, n in (("layers", 1), ("attention_heads", 2))}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def wav2vec2():
    return model_of("Wav2Vec2", **SMALL, **HEADS, **CONVOLUTIONS, **POSITIONS)


def whisper():
    return model_of("Whisper", vocab_size=40, **SPECTRA, **LAYERS, **IDS, decoder_start_token_id=1)


def mamba():
    return model_of("Mamba", **SMALL, state_size=4, pad_token_id=0)


def bert():
    return model_of("Bert", **SMALL, **HEADS, max_position_embeddings=32)


NETWORKS = {each.__name__: each for each in (wav2vec2, whisper, mamba, bert)}
INPUTS = {
    "wav2vec2": lambda draw: draw.standard_normal((2, 200)).astype("float32"),
    "whisper": lambda draw: draw.standard_normal((2, 8, 24)).astype("float32"),
    "mamba": lambda draw: draw.integers(0, 40, (2, 7)),
    "bert": lambda draw: draw.integers(0, 40, (2, 7)),
}
ANSWERS = {
    "wav2vec2": "a token depends on several blocks of the input, and on no single cell of a feature map",
    "whisper": "measured 4 heads",
    "mamba": "C2A501",
    "bert": "measured 2 heads",
}
CODES = {"wav2vec2": 3, "mamba": 2}


def made(name):
    torch.manual_seed(0)
    return NETWORKS[name]().eval()


@pytest.mark.rotated
@pytest.mark.parametrize("name", NETWORKS)
def test_commands_on_a_folder_end_in_an_answer(name, tmp_path):
    folder, inputs = tmp_path / name, tmp_path / "inputs.npy"
    made(name).save_pretrained(folder)
    np.save(inputs, INPUTS[name](np.random.default_rng(0)))
    converted = call("convert", folder, "-o", tmp_path / "new.pt")
    if name == "bert":
        assert "BertModel has no convolution" in converted.stderr
    else:
        assert (converted.exit_code, converted.stdout.split(";")[0]) == (0, "holds (proved)"), converted.output
    given = call("verify", folder, folder, "--inputs", inputs)
    assert (given.exit_code, given.stdout.split(";")[0]) == (0, "holds (proved)"), given.output
    heads = call("heads", folder, "--inputs", inputs)
    assert (heads.exit_code, ANSWERS[name] in heads.output) == (CODES.get(name, 0), True)


@pytest.mark.rotated
@pytest.mark.parametrize("name", NETWORKS)
def test_other_weights_are_not_certified(name):
    first, second = made(name), made(name)
    with torch.no_grad():
        for each in second.parameters():
            each += 0.2 * torch.randn_like(each)
    certificate = conv2attn.certify(first, second)
    assert certificate.verdict is not Verdict.HOLDS
    assert certificate.outputs is not None
    assert certificate.outputs.max_difference > 1e-2


def test_a_claim_names_the_further_arguments():
    certificate = conv2attn.certify(network := made("whisper"), conv2attn.convert(network))
    assert (certificate.verdict, certificate.strength) == (Verdict.HOLDS, Strength.PROVED)
    assert "called with decoder_input_ids and use_cache=False; " in certificate.claim


def test_ids_are_below_the_vocabulary_and_shapes_are_the_library_s():
    network = made("bert")
    specimen = specimen_of(network, specimen_size(network), 1.0, 0, torch.empty(0))
    assert specimen.main.dtype == torch.int64
    assert specimen.main.shape == (1, 5)  # of transformers' dummy_inputs
    assert 0 <= int(specimen.main.min()) <= int(specimen.main.max()) < 40
    assert specimen_size(made("wav2vec2")) == (125,)
    assert specimen_size(made("whisper")) == (8, 24)
    longer = conv2attn.certify(network, made("bert"), input_size=(9,))
    assert longer.state.sizes == ((9,),)


def test_timm_s_network_built_in_python_knows_its_size():
    timm = pytest.importorskip("timm")
    network = timm.create_model("resnet18", pretrained=False)
    assert specimen_size(network) == (3, 224, 224)


@pytest.mark.parametrize(("name", "word"), [("wav2vec2", "waves"), ("whisper", "spectra")])
def test_heads_without_inputs_say_what_to_pass(name, word, tmp_path):
    """Of other weights the one layer of wav2vec2 is read by its positions alone, and nothing is asked for."""
    made(name).save_pretrained(tmp_path / "folder")
    found = call("heads", tmp_path / "folder")
    assert found.exit_code in (0, 3)  # 0 where a first layer is read by its positions alone
    assert f"pass --inputs {word}.npy, and attention is captured" in " ".join(found.stdout.split())
