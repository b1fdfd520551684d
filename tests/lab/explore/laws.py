"""The numbers on a page give the attention of the layer, and the page is one small file that loads nothing."""

import base64
import re
from copy import deepcopy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call, refused
from lab.explore.cases import Transformer, converted, image, originals, trained
from PIL import Image

from conv2attn.cli import main
from conv2attn.errors import UnsupportedError
from conv2attn.lab.explore import captured_layers, explore_page, explored_layers
from conv2attn.lab.explore.packing import CODES, Budget
from conv2attn.networks import attention_layers, layer_inputs
from conv2attn.theory.basis import Padding

ROOT = Path(__file__).parents[3]


def unpack(packed: dict[str, str]) -> np.ndarray:
    """The numbers in `{code: base64}` as a flat array."""
    ((code, text),) = packed.items()
    return np.frombuffer(base64.b64decode(text), CODES[code])


def attention_from(layer: dict) -> np.ndarray:
    """(heads, queries, keys) from the JSON of a layer, by loops over pixels."""
    rows, columns = layer["keys"]
    keys = [(row, column) for row in range(rows) for column in range(columns)]
    sites = [
        tuple(
            before + stride * place for before, stride, place in zip(layer["before"], layer["stride"], at, strict=True)
        )
        for at in np.ndindex(*layer["queries"])
    ]
    if layer["kind"] == "stored":
        codes = unpack(layer["attention"]).reshape(layer["heads"], len(sites), len(keys))
        return np.array(layer["largest"])[:, None, None] * (codes / 255) ** 2
    scores = np.empty((layer["heads"], len(sites), len(keys)))
    table = unpack(layer["scores"]).reshape(-1, 2 * rows - 1, 2 * columns - 1) if layer["kind"] == "scores" else None
    for (head, query, key), _ in np.ndenumerate(scores):
        down, right = (keys[key][axis] - sites[query][axis] for axis in (0, 1))
        if table is not None:
            scores[head, query, key] = table[head, down + rows - 1, right + columns - 1]
        else:
            center = layer["centers"][head]
            scores[head, query, key] = -layer["alphas"][head] * ((down - center[0]) ** 2 + (right - center[1]) ** 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def cases():
    """Each layer of both networks: its JSON, the layer, and its input."""
    for network in (converted(), trained()):
        found = explored_layers(network, image())
        assert found.left_out == ()
        layers = attention_layers(network)
        inputs = layer_inputs(network, partial(network, image()))
        assert [each["name"] for each in found.layers] == [*layers]
        yield from ((each, layers[each["name"]], inputs[each["name"]]) for each in found.layers)


CASES = [pytest.param(*case, id=f"{place}-{case[0]['kind']}") for place, case in enumerate(cases())]


@pytest.mark.parametrize(("shown", "layer", "given"), CASES)
def test_the_numbers_give_the_attention(shown, layer, given):
    exact = deepcopy(layer).double()
    attention = exact.attention(given.double())[0].detach().numpy()
    tolerance = 4e-3 * attention.max() if shown["kind"] == "stored" else 1e-13
    assert np.abs(attention_from(shown) - attention).max() <= tolerance
    wrong = shown | {"before": [shown["before"][0] + 1, shown["before"][1]]}
    if shown["kind"] == "quadratic":
        assert np.abs(attention_from(wrong) - attention).max() > 1e-3


@pytest.mark.parametrize(("shown", "layer", "given"), CASES[:3])
def test_the_weights_and_the_input_give_the_output_of_the_convolution(shown, layer, given):
    convolution, output = originals()[int(shown["name"])], shown["output"]
    with torch.no_grad():
        expected = convolution(given)[0, output["channel"]].double().numpy()
    keys, queries = shown["keys"], shown["queries"]
    entering = unpack(output["input"]).reshape(output["width"], *keys).astype(float)
    taps = unpack(output["taps"]).reshape(shown["heads"], output["width"])
    found = np.full(queries, output["bias"])
    for at in np.ndindex(*queries):
        site = [b + s * a for b, s, a in zip(shown["before"], shown["stride"], at, strict=True)]
        for tap, center in zip(taps, shown["centers"], strict=True):
            found[at] += tap @ entering[:, int(site[0] + center[0]), int(site[1] + center[1])]
    assert np.abs(found - expected).max() <= 1e-5


@pytest.mark.parametrize("shown", [case.values[0] for case in CASES[:3]], ids=lambda shown: shown["name"])
def test_the_thumbnail_of_a_shift_is_brightest_at_its_offset(shown):
    for thumbnail, center in zip(shown["facts"]["thumbnails"], shown["centers"], strict=True):
        place = np.unravel_index(np.argmax(thumbnail["values"]), thumbnail["sides"])
        assert [at - side // 2 for at, side in zip(place, thumbnail["sides"], strict=True)] == center


def test_layers_that_tend_to_a_convolution_are_told_from_others():
    assert [case.values[0]["converted"] for case in CASES] == [True] * 3 + [False] * 5
    off_the_grid = converted()
    off_the_grid[0].image_padding = Padding.none(2)
    off_the_grid[0].sites = off_the_grid[0].sites.everywhere(2)
    assert not explored_layers(off_the_grid, image()).layers[0]["converted"]


@torch.no_grad()
@pytest.mark.parametrize("extra", [0, 1])
def test_captured_attention_is_that_of_its_grid(extra):
    network = Transformer(extra)
    (shown,) = captured_layers(network, image()).layers
    attention = network.attention_of(image())
    assert (shown["keys"], shown["extra"]) == ([7, 9], extra)
    assert np.abs(attention_from(shown) - attention[0, :, extra:, extra:].numpy()).max() <= 4e-3
    outside = unpack(shown["outside"]).reshape(2, 63)
    assert np.abs(outside - attention[0, :, extra:, :extra].sum(-1).numpy()).max() <= 1e-6


def test_the_page_is_one_small_file_that_loads_nothing():
    page = explore_page({"the image": explored_layers(converted(), image())}, "a <b> & TITLE", "an image")
    assert len(page) < 100_000
    assert not re.search(r"https?:|\bsrc=|\bhref=|url\(|@import|fetch\(|XMLHttpRequest|import\(", page)
    assert "<b>" not in page
    assert "a &lt;b&gt; &amp; TITLE" in page


def test_the_documented_commands_name_what_is_there():
    text = (ROOT / "docs" / "explore.md").read_text()
    known = {option for each in main.commands["explore"].params for option in each.opts}
    assert set(re.findall(r"(?<=\s)--?[a-z]+", "\n".join(re.findall(r"^conv2attn .*", text, re.M)))) <= known
    assert all((ROOT / "docs" / link).exists() for link in re.findall(r"\]\((?!http)([^)#]+)\)", text))


def test_arrays_beyond_the_budget_are_left_out():
    budget = Budget(10)
    assert budget.pack(torch.zeros(2), "f32") is not None
    assert budget.pack(torch.zeros(1), "f32") is None
    assert budget.pack(torch.zeros(2), "u8") is not None
    assert budget.free == 0


def test_layers_that_are_not_shown_are_named():
    network = converted().append(torch.nn.Conv2d(4, 4, 1))
    network.unused = deepcopy(network[0])
    network.forward = lambda given: network[2](network[1](network[0](input=given)))
    assert explored_layers(network, image()).left_out == ("unused: the network did not run it",)
    network[1].weight.data[0] = torch.nan
    assert explored_layers(network, image()).left_out[1:] == ("1: its weights are not finite",)
    content = trained()[-1:]
    with pytest.raises(UnsupportedError, match="4: its attention is not finite"):
        explored_layers(content, torch.nan * image())


def test_only_layers_that_fit_a_pattern_are_shown():
    assert [each["name"] for each in explored_layers(converted(), image(), ["[02]"]).layers] == ["0", "2"]
    assert [each["name"] for each in captured_layers(Transformer(1), image(), ["att*"]).layers] == ["attention"]


@pytest.fixture
def weights(tmp_path):
    """A file with a converted network, and a file with an image that it takes."""
    from conv2attn import save

    torch.manual_seed(0)
    save(converted()[0], tmp_path / "layer.pt")
    np.save(tmp_path / "image.npy", image().numpy())
    return tmp_path


def test_the_command_writes_the_page(weights):
    page, taken = weights / "page.html", ["explore", weights / "layer.pt", "-o", weights / "page.html", "--inputs"]
    np.save(weights / "other.npy", np.zeros((1, 5, 7, 9), np.float32))
    refused(*taken, weights / "other.npy", match="C2A120")
    assert not page.exists()
    told = [call(*taken, weights / "image.npy", *more).exit_code for more in ([], [], ["--force"])]
    assert told == [0, 2, 0]
    assert "1 image of image.npy" in page.read_text()


def test_the_command_captures_the_attention_of_other_libraries(weights):
    torch.save(Transformer(1).state_dict(), weights / "transformer.pt")
    (weights / "factory.py").write_text(
        "from lab.explore.cases import Transformer\n\n\ndef build():\n    return Transformer(1)\n"
    )
    read = ["explore", weights / "transformer.pt", "--arch", f"{weights / 'factory.py'}:build"]
    told = call(*read, "--inputs", weights / "image.npy", "-o", weights / "page.html")
    assert told.exit_code == 0, told.output
    assert '"kind":"stored"' in (weights / "page.html").read_text()


def test_the_command_takes_a_picture(tmp_path):
    page, picture = tmp_path / "page.html", tmp_path / "dot.png"
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(picture)
    taken = ["explore", ROOT / "examples" / "attention-quadratic.pt", "--inputs", picture, "-o", page]
    assert call(*taken).exit_code == 0
    assert "1 image of dot.png resized to 28x28, pixels 0..1 (no mean and std known: --mean, --std)" in page.read_text()
    picture.write_bytes(b"no picture")
    refused(*taken, "--force", match="C2A303")


@pytest.mark.parametrize("name", ["resnet18", "attention-quadratic", "attention-learned", "attention-generalised"])
def test_the_examples_have_a_page(name, tmp_path):
    page = tmp_path / "page.html"
    told = call("explore", ROOT / "examples" / f"{name}.pt", "-o", page)
    assert told.exit_code == 0, told.output
    assert "not shown" not in told.output
    assumed = name == "resnet18"
    assert told.stderr.startswith("read as resnet18 (") == ("read as resnet18 (" in page.read_text()) == assumed
    assert page.stat().st_size < 5e6


def test_attention_that_is_spread_over_many_tokens_keeps_its_shape():
    """Heads of an untrained transformer differ by a few percent of 1 / 197."""
    exact = torch.softmax(torch.linspace(0, 0.1, 197), 0).expand(1, 1, -1)
    for bits, allowed, attention in ((8, 4e-3, exact), (4, 7e-2, exact), (8, 4e-3, exact.bfloat16())):
        packed = Budget().pack_attention(attention, bits)
        codes = unpack(packed["attention"])
        codes = codes if bits == 8 else np.stack([codes & 15, codes >> 4], -1).ravel()[:197]
        shown = packed["largest"][0] * (codes / (2**bits - 1)) ** 2
        assert np.abs(shown - attention[0, 0].double().numpy()).max() <= allowed * attention.max().item()
        assert bits == 4 or attention is not exact or len({*shown}) > 10
