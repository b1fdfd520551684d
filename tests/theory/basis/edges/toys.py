"""A member added to an open set is found by everything that reads the set."""

import math
import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar, final, get_args

import numpy as np
import pytest
import torch
from hypothesis import find, settings
from hypothesis.errors import NoSuchExample
from suite import LAWS, convolutions, paddings
from suite.operator_laws import rows_are_probabilities
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.cli import main
from conv2attn.errors import ERROR_RULES, EngineError, GeometryError, UnsupportedError, UsageError
from conv2attn.layers.attention import ENGINES, Encoding, EngineName, MultiHeadSelfAttention, arithmetics, set_engine
from conv2attn.layers.attention.engines import Engine
from conv2attn.theory.basis import FAMILIES, MODES, Centered, Composition, Padding, as_matrix
from conv2attn.theory.basis.padding import Mode
from conv2attn.verdicts import Verdict
from tests.equality.reports import decisive


def backwards(place, side):
    return torch.where(place < 0, -1 - place, place).minimum(2 * side - 1 - place)


@pytest.fixture
def mirror(monkeypatch):
    """A padding mode that torch has not: the pixels of an axis once more, backwards, its last one twice."""
    monkeypatch.setitem(MODES, "mirror", Mode(backwards, 0))


def test_a_padding_mode_is_one_line_of_its_table(mirror):
    image = torch.arange(12.0).reshape(1, 1, 3, 4)
    padded = torch.from_numpy(np.pad(image.numpy(), ((0, 0), (0, 0), (1, 3), (2, 4)), "symmetric"))
    assert torch.equal(Padding((1, 2), (3, 4), "mirror").pad(image), padded)
    with pytest.raises(GeometryError, match=r"C2A121 mirror padding by \(1, 4\) needs a longer axis"):
        Padding((1, 2), (4, 4), "mirror").pad(image)
    assert find(paddings((3, 4)), lambda padding: padding.mode == "mirror")


def test_a_convolution_of_a_new_padding_mode_converts_and_is_compared(mirror):
    convolution = nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect").double()
    convolution.padding_mode = "mirror"
    layer, image = conv2attn.convert(convolution), torch.randn(2, 2, 5, 6).double()
    padded = torch.from_numpy(np.pad(image.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), "symmetric"))
    plain = F.conv2d(padded, convolution.weight, convolution.bias)
    for engine in ("auto", "separable", "dense"):
        layer.engine = engine
        torch.testing.assert_close(layer(image), plain, rtol=1e-12, atol=1e-12)
    reflected = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect").double())
    reflected.load_state_dict(layer.state_dict())
    assert conv2attn.certify(layer, reflected, input_size=(2, 5, 6)).verdict is Verdict.REFUTED
    assert conv2attn.certify(layer, conv2attn.convert(convolution), input_size=(2, 5, 6)).verdict is Verdict.HOLDS


def test_a_padding_mode_that_torch_lacks_has_no_way_back(mirror):
    few = settings(max_examples=50, database=None)
    with pytest.raises(NoSuchExample):
        find(convolutions(transposed=[False]), lambda drawn: drawn.padding_mode == "mirror", settings=few)
    convolution = nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect")
    convolution.padding_mode = "mirror"
    for back, given in ((conv2attn.to_torch, conv2attn.as_basis), (conv2attn.recover, conv2attn.convert)):
        with pytest.raises(UnsupportedError, match=r"C2A101 .*torch\.nn has no mirror padding"):
            back(given(convolution))


@pytest.mark.parametrize("mode", MODES)
def test_a_padding_mode_is_known_to_its_error(mode):
    assert mode in ERROR_RULES["C2A104"].why


@final
@dataclass(frozen=True, eq=False)
class Cone(Centered):
    """Scores fall with the distance from the centre, not with its square: `-alpha |k - q - center|`."""

    name: ClassVar[str] = "cone"
    is_stationary: ClassVar[bool] = True
    d_position: ClassVar[int] = 1

    def scores(self, grid, queries, dtype, image=None):
        away = grid.displacement_rows(queries)[None] - self.center.to(dtype)[:, None, None]
        return -self.alpha.to(dtype)[:, None, None] * away.norm(dim=-1)[None]

    def directed_scores(self, toward, grid, queries):
        return toward * grid.displacement_rows(queries).to(toward).norm(dim=-1)


@pytest.fixture
def cone(monkeypatch):
    """A family of heads that the package has not."""
    monkeypatch.setitem(FAMILIES, "cone", Cone)


def soft_layer():
    torch.manual_seed(0)
    encoding = Encoding.of("cone", [[0.3, -1.2], [1.0, 0.0]], torch.tensor([0.5, 2.0]).double())
    return MultiHeadSelfAttention(2, 3, encoding.double(), dtype=torch.float64)


def test_a_family_of_heads_is_one_line_of_its_table(cone):
    layer, image = soft_layer(), torch.randn(1, 2, 3, 4, dtype=torch.float64)
    assert repr(layer.encoding) == "Encoding(cone, heads=2, dimensions=2, alpha=0.5..2)"
    centers, alphas = layer.encoding.center.tolist(), layer.encoding.alpha.tolist()
    places = list(product(range(3), range(4)))
    for head, (center, alpha) in enumerate(zip(centers, alphas, strict=True)):
        for query, row in zip(places, layer.attention(sides=(3, 4))[0, head].tolist(), strict=True):
            away = [math.dist((key[0] - query[0], key[1] - query[1]), center) for key in places]
            weights = [math.exp(-alpha * (each - min(away))) for each in away]
            assert row == pytest.approx([weight / sum(weights) for weight in weights])
    mixed = torch.einsum("hqk,ck->hqc", layer.attention(sides=(3, 4))[0], image[0].flatten(1))
    expected = torch.einsum("hqc,hoc->oq", mixed, layer.weights.taps()) + layer.bias[:, None]
    assert layer.which_engine(image) == "dense"
    torch.testing.assert_close(layer(image)[0].flatten(1), expected)


def test_engines_that_do_not_know_a_family_refuse_it(cone):
    layer, image = soft_layer(), torch.randn(1, 2, 3, 4, dtype=torch.float64)
    reasons = {
        "conv": "alpha = 0.5 is not one-hot",
        "gather": "alpha = 0.5 is not one-hot",
        "separable": "not a sum over the axes",
        "sdpa": "not an inner product",
    }
    assert {*reasons} == {name for name, why in layer.why_engine(image).items() if why != "exact"}
    for engine, reason in reasons.items():
        with pytest.raises(EngineError, match=f"C2A201 attention: engine '{engine}' is not exact here: .*{reason}"):
            set_engine(layer, engine)(image)
    beyond = MultiHeadSelfAttention(1, 1, Encoding.of("cone", [[0.0, 2.0]], 256.0), engine="gather")
    with pytest.raises(EngineError, match=r"head 0 leaves the grid .* may not read the nearest key"):
        beyond(torch.ones(1, 1, 2, 3))


def test_a_layer_of_a_new_family_is_stored_and_loaded(cone, tmp_path):
    layer, image = soft_layer(), torch.randn(1, 2, 3, 4, dtype=torch.float64)
    for trains in (True, False):
        file = tmp_path / f"{trains}.safetensors"
        layer.encoding.learn(trains)
        conv2attn.save(layer, file)
        loaded = conv2attn.load(file)
        assert (loaded.encoding.family, loaded.encoding.is_frozen) == (Cone, not trains)
        assert torch.equal(loaded(image), layer(image))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_new_family_obeys_the_laws(law):
    for sides in ((4,), (3, 4), (2, 1, 3)):
        heads = Cone.of(torch.randn(2, len(sides), dtype=torch.float64), [0.5, 2.0])
        law(heads, sides, torch.randint(-8, 9, (2, *sides)).double())


def test_the_laws_reject_a_new_family_that_is_not_normalised(monkeypatch):
    monkeypatch.setattr("torch.softmax", lambda scores, dim: scores.exp())
    with pytest.raises(AssertionError, match="output differs in"):
        rows_are_probabilities(Cone.of([[0.0, 0.0]], 1.0), (3, 4), torch.ones(2, 3, 4).double())


def test_a_convolution_converts_into_a_new_family_that_sharpens(cone):
    convolution, image = nn.Conv2d(2, 3, 3, padding=1).double(), torch.randn(2, 2, 5, 6).double()
    layer = conv2attn.convert(convolution, encoding="cone")
    for engine in ("auto", "conv", "gather", "dense"):
        torch.testing.assert_close(set_engine(layer, engine)(image), convolution(image), rtol=1e-12, atol=1e-12)
    shifts = conv2attn.check_span(layer, grid=(4, 4))
    assert shifts.verdict is Verdict.HOLDS
    report = conv2attn.certify(convolution, layer, input_size=(2, 5, 6))
    assert (report.verdict, decisive(report.rows[0]).code) == (Verdict.UNSUPPORTED, "C2A106")


def by_formula(basis, image):
    """A layer one head after another, by its matrices."""
    keys = basis.padding.pad(image)
    matrix = as_matrix(Composition((basis.sites, basis.operators)), tuple(keys.shape[2:])).to(image)
    mixed = torch.einsum("hqk,bck->bhcq", matrix, keys.flatten(2))
    queries = basis.sites.count(tuple(keys.shape[2:]))
    bias = 0 if basis.weights.bias is None else basis.weights.bias[:, None]
    return (torch.einsum("hoc,bhcq->boq", basis.weights.dense(), mixed) + bias).unflatten(2, queries)


@pytest.fixture
def formula(monkeypatch):
    """An engine that the package has not; it refuses batches of more than two."""

    def decide(question):
        return by_formula if question.shape[0] <= 2 else "it takes no more than two images"

    monkeypatch.setitem(ENGINES, "formula", Engine(("dense",), decide, refuses_sizes=True))


@pytest.mark.parametrize("alpha", [2.0, 128.0])
def test_an_engine_is_one_line_of_its_table(formula, alpha):
    convolution, image = nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2).double(), torch.randn(2, 4, 5, 6).double()
    layer = conv2attn.convert(convolution, alpha=alpha)
    expected = set_engine(layer, "dense")(image)
    torch.testing.assert_close(set_engine(layer, "formula")(image), expected, rtol=1e-12, atol=1e-12)
    assert layer.why_engine(image)["formula"] == "exact"
    assert arithmetics("formula", torch.float64, "cpu") == arithmetics("dense", torch.float64, "cpu")
    with pytest.raises(EngineError, match="engine 'formula' is not exact here: it takes no more than two images"):
        layer(torch.cat([image, image]))
    with pytest.raises(UsageError, match=r"'other' is not one of .*formula"):
        layer.engine = "other"


def test_a_certificate_says_which_sizes_a_new_engine_may_refuse(formula):
    convolution = nn.Conv2d(2, 3, 3, padding=1)
    layer = set_engine(conv2attn.convert(convolution), "formula")
    text = " ".join(conv2attn.certify(convolution, layer, input_size=(2, 5, 6)).to_text().split())
    assert "of sizes that the engine formula does not refuse" in text


def test_the_command_line_offers_the_engines_that_export():
    (option,) = [option for option in main.commands["convert"].params if option.name == "engine"]
    assert {*option.type.choices} == {name for name, engine in ENGINES.items() if engine.exports}
    assert {*ENGINES} == {*get_args(EngineName)}


def test_the_command_line_offers_the_families_that_sharpen():
    (option,) = [option for option in main.commands["convert"].params if option.name == "encoding"]
    assert {*option.type.choices} == {name for name, family in FAMILIES.items() if family.sharpens}


def test_nothing_outside_of_the_operators_asks_for_the_class_of_heads():
    """What heads are, they say: another family would be forgotten where somebody asks for one of these."""
    kinds = "|".join([*(family.__name__ for family in FAMILIES.values()), "ContentSoftmax", "Encoding", "Positions"])
    of_class = rf"is(instance|subclass)\([^)]*\b({kinds}|Centered)\b"
    asks = re.compile(rf"{of_class}|type\(\S*\) (is|in|not in|==).* ({kinds})\b")
    package = Path(conv2attn.__file__).parent
    assert asks.search("    if isinstance(operators, QuadraticSoftmax | LearnedSoftmax):")
    found = [
        f"{file.relative_to(package)}: {line.strip()}"
        for file in package.rglob("*.py")
        if file.relative_to(package).parts[:2] != ("theory", "basis")
        for line in file.read_text().splitlines()
        if asks.search(line)
    ]
    assert not found, "\n".join(found)
