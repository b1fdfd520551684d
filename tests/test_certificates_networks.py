"""Whole networks: what is compared with what, and what is said where nothing can be."""

from functools import wraps

import pytest
import torch
from planted import Small, image, network, taps, ulp
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.attention import EnumeratedEncoding, MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.basis import Padding, Sites
from conv2attn.equivalence import certify
from conv2attn.equivalence.readings.genuine import foreign
from conv2attn.errors import UsageError
from conv2attn.verdicts import Strength, Verdict


def outcome(report):
    return report.verdict, report.strength


PROVED = (Verdict.HOLDS, Strength.PROVED)


def test_a_network_computes_itself():
    report = certify(network(), network(), images=image())
    assert outcome(report) == PROVED
    assert [row.max_error for row in report.rows] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.filterwarnings("ignore:C2A132")
def test_two_conversions_compute_each_other(seed):
    first = conv2attn.convert(network(seed))
    second = conv2attn.convert(network(seed), encoding="enumerated", stride_by="pooling", trainable=True)
    assert outcome(certify(first, second, images=image())) == PROVED
    ulp(taps(second.oblong), (0, 1, 2))
    report = certify(first, second, images=image())
    assert [row.name for row in report.rows if row.verdict is Verdict.REFUTED] == ["oblong"]


def test_zeros_are_zeros_whatever_their_sign():
    first, second = network(), network()
    with torch.no_grad():
        first.square.weight[0], second.square.weight[0] = 0.0, -0.0
    assert outcome(certify(first, second, images=image())) == PROVED


def test_weights_that_are_not_finite_are_refused_by_name():
    original = network()
    original.oblong.weight.data[0, 0, 0, 0] = torch.nan
    report = certify(original, conv2attn.convert(original), images=image())
    assert report.exit_code == 3
    found = [row for row in report.rows if row.verdict is Verdict.UNSUPPORTED]
    assert [(row.name, row.decisive.code) for row in found] == [("oblong", "C2A408")]
    assert Verdict.UNDECIDED in {finding.verdict for finding in report.between}


@pytest.mark.parametrize(("alpha", "expected"), [(128, PROVED), (60, (Verdict.HOLDS, Strength.BOUNDED))])
def test_strength_follows_alpha(alpha, expected):
    original = network()
    assert outcome(certify(original, conv2attn.convert(original, alpha=alpha), images=image())) == expected


def test_random_inputs_do_not_tell_alpha_46_from_128():
    original = network()
    reports = [certify(original, conv2attn.convert(original, alpha=alpha), images=image()) for alpha in (46, 128)]
    errors = [[row.max_error for row in report.rows] for report in reports]
    assert errors[0] == errors[1]
    assert [report.strength for report in reports] == [Strength.BOUNDED, Strength.PROVED]


class Shared(nn.Module):
    """One convolution under two names, used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.again = self.first

    def forward(self, image):
        return self.again(torch.relu(self.first(image)))


def test_a_shared_layer_is_one_row_and_may_be_two_layers():
    original = Shared()
    converted = conv2attn.convert(original)
    assert converted.first is converted.again
    report = certify(original, converted, images=image())
    assert outcome(report) == PROVED
    assert [row.name for row in report.rows] == ["first"]
    converted.again = conv2attn.convert(original.first)
    report = certify(original, converted, images=image())
    assert outcome(report) == PROVED
    assert [row.name for row in report.rows] == ["first", "again"]
    ulp(taps(converted.again), (0, 0, 0))
    assert certify(original, converted, images=image()).verdict is Verdict.REFUTED


class Calls(nn.Module):
    """Functional convolutions of two geometries, and outputs in a dictionary."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 2))
        self.layer = nn.Conv2d(6, 6, 3)

    def forward(self, image):
        near = F.conv2d(image, self.weight, padding=(1, 0))
        far = F.conv2d(near, self.weight.repeat(1, 2, 1, 1)[:, :6], stride=2, dilation=(1, 2))
        return {"near": near, "rest": [self.layer(far), far.mean()]}


def test_functional_calls_are_proved_by_the_graphs():
    torch.manual_seed(0)
    original = Calls()
    converted = conv2attn.convert(original, example_input=image())
    report = certify(original, converted, images=image())
    assert outcome(report) == (Verdict.HOLDS, Strength.PROVED), report.to_text()
    rows = {row.name: row for row in report.rows}
    assert list(rows) == ["layer", "(root):conv2d", "(root):conv2d#2"]
    assert [row.strength for row in rows.values()] == [Strength.PROVED] * 3
    assert all(0 <= row.max_error <= row.bound for row in rows.values())
    assert (report.outputs.count, report.outputs.same_top1) == (2, None)


class Padded(nn.Conv2d):
    """A convolution with a forward of its own, which attends in its place."""

    def forward(self, image):
        return F.conv2d(F.pad(image, (1, 1, 1, 1)), self.weight, self.bias)


def test_a_layer_that_attends_in_its_place_has_one_row():
    torch.manual_seed(0)
    for original, names in (
        (nn.Sequential(Padded(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1)), ["2", "0:conv2d"]),
        (Tied(), ["b", "a:conv2d", "(root):conv2d"]),
    ):
        converted = conv2attn.convert(original, example_input=image())
        report = certify(original, converted, images=image())
        assert [row.name for row in report.rows] == names
        assert outcome(report) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


class Tied(nn.Module):
    """A convolution whose weight is read once more."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, image):
        return F.conv2d(self.a(image), self.a.weight, self.a.bias, padding=1) + self.b(image)


def test_a_layer_in_its_place_that_no_input_met_has_a_row_that_says_so():
    original = Tied()
    converted = conv2attn.convert(original, example_input=image())
    original.forward = converted.forward.replaced = original.b.forward
    report = certify(original, converted, images=image())
    assert report.verdict is not Verdict.HOLDS


class Unbatched(nn.Module):
    """Image after image, each without a batch."""

    def __init__(self):
        super().__init__()
        self.weight, self.layer = nn.Parameter(torch.randn(5, 4, 3, 2)), nn.Conv2d(4, 5, (3, 2))

    def forward(self, images):
        return torch.stack([F.conv2d(each, self.weight, stride=2).sum() + self.layer(each) for each in images])


def test_images_without_a_batch_are_compared_too():
    torch.manual_seed(0)
    original = Unbatched()
    converted = conv2attn.convert(original, example_input=image())
    report = certify(original, converted, images=image())
    assert outcome(report) == (Verdict.HOLDS, Strength.PROVED), report.to_text()
    assert {row.name: row.grid for row in report.rows} == {"layer": (12, 10), "(root):conv2d": (6, 5)}
    assert all(row.attention_avoided for row in report.rows)


def test_an_error_in_a_functional_call_is_refuted_there():
    torch.manual_seed(0)
    original = Calls()
    converted = conv2attn.convert(original, example_input=image())
    converted.attending_calls.layers[0].encoding.center.data[0, 0] += 1
    report = certify(original, converted, images=image())
    assert {row.name for row in report.rows if row.verdict is Verdict.REFUTED} == {"(root):conv2d"}


class Returning(nn.Module):
    """What `change` makes of the pixels of a convolution."""

    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Conv2d(4, 3, 3), change

    def forward(self, given):
        return self.change(self.layer(given).sum((2, 3)))


OTHER_OUTPUTS = {
    "truth values": lambda pixels: pixels > 0,
    "whole numbers": lambda pixels: (pixels / 100).round().long(),
    "complex numbers": lambda pixels: torch.complex(pixels, -pixels),
}


@pytest.mark.parametrize("kind", OTHER_OUTPUTS)
def test_outputs_that_are_no_floats_are_compared(kind):
    torch.manual_seed(0)
    original = Returning(OTHER_OUTPUTS[kind])
    report = certify(original, conv2attn.convert(original), images=image())
    assert outcome(report) == PROVED, report.to_text()
    assert (report.outputs.max_difference < 1e-3, report.outputs.same_top1) == (True, None)
    other = conv2attn.convert(original)
    other.register_forward_hook(lambda module, args, output: output[:1])
    assert "outputs" in {each.part for each in certify(original, other, images=image()).between if each.sentence}


@pytest.mark.parametrize("change", ["dropped", "renamed", "reordered", "retyped", "emptied"])
def test_nested_outputs_are_compared_by_their_places(change):
    torch.manual_seed(0)
    original = Calls()
    converted = conv2attn.convert(original, example_input=image())
    changes = {
        "dropped": lambda out: {"near": out["near"]},
        "renamed": lambda out: {"far": out["near"], "rest": out["rest"]},
        "reordered": lambda out: {"near": out["near"], "rest": out["rest"][::-1]},
        "retyped": lambda out: {**out, "rest": [out["rest"][0].double(), out["rest"][1]]},
        "emptied": lambda out: {**out, "near": out["near"][:0]},
    }
    converted.register_forward_hook(lambda module, args, output: changes[change](output))
    report = certify(original, converted, images=image())
    found = {finding.part for finding in report.between if finding.verdict is Verdict.REFUTED}
    assert "outputs" in found


def test_another_dtype_is_refuted():
    report = certify(network(), conv2attn.convert(network().double()), images=image())
    assert report.verdict is Verdict.REFUTED
    assert {row.verdict for row in report.rows} == {Verdict.REFUTED}


def test_a_skipped_layer_does_not_count_unless_it_was_touched():
    original = network()
    converted = conv2attn.convert(original, skip="oblong")
    report = certify(original, converted, images=image())
    assert outcome(report) == PROVED
    assert [row.skipped for row in report.rows] == [False, True, False]
    ulp(converted.oblong.weight.data, (0, 0, 0, 0))
    report = certify(original, converted, images=image())
    assert [row.name for row in report.rows if row.verdict is Verdict.REFUTED] == ["oblong"]


def test_where_nothing_was_checked_nothing_holds():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4 * 14 * 11, 3))
    report = certify(plain, plain, images=image())
    assert report.exit_code == 3
    assert "nothing was checked" in report.to_text()


def test_order_of_modules_counts():
    first = nn.Sequential()
    first.add_module("a", nn.Conv2d(4, 4, 1))
    first.add_module("b", nn.ReLU())
    second = nn.Sequential()
    second.add_module("b", nn.ReLU())
    second.add_module("a", conv2attn.convert(first.a))
    report = certify(first, second, images=image())
    assert report.verdict is Verdict.REFUTED
    assert report.between[0].part == "structure"


def test_attributes_that_no_operator_reads_are_no_part_of_the_map():
    original = network()
    original.scale = 2.0
    converted = conv2attn.convert(original)
    assert outcome(certify(original, converted, images=image())) == PROVED
    converted.scale = 2.0000001  # which no operator reads
    assert outcome(certify(original, converted, images=image())) == PROVED


def test_a_single_layer():
    layer = nn.Conv1d(3, 5, 4, stride=2, padding=1, padding_mode="circular")
    report = certify(layer, conv2attn.convert(layer), input_size=(3, 17), input_range=2.0)
    assert outcome(report) == PROVED
    assert report.rows[0].name == "(root)"
    assert 0 < report.rows[0].input_range <= 2


def test_zero_padding_is_not_what_unpadded_heads_do():
    """Unpadded hard heads read the nearest pixel: replicate padding, and not zeros (claim PAD)."""
    layer = nn.Conv2d(2, 2, 3, padding=1)
    given = torch.randn(1, 2, 6, 7)
    for mode, verdict in (("zeros", Verdict.REFUTED), ("replicate", Verdict.HOLDS)):
        layer.padding_mode = mode
        bare = conv2attn.convert(layer)
        bare.padding, bare.sites = Padding.none(2), Sites.everywhere(2)
        found = certify(layer, bare, images=given).rows[0].part("geometry")
        assert found.verdict is verdict


def test_content_is_unsupported():
    layer = nn.Conv2d(2, 2, 1)
    attention = conv2attn.convert(layer)
    other = MultiHeadSelfAttention(2, 2, attention.encoding, content=True)
    assert certify(layer, other, images=torch.randn(1, 2, 5, 6)).exit_code == 3


def test_equal_maps_in_other_groups_hold():
    layer, whole = nn.Conv2d(4, 6, 3, groups=2), nn.Conv2d(4, 6, 3)
    with torch.no_grad():
        whole.weight.zero_()
        whole.weight[:3, :2], whole.weight[3:, 2:] = layer.weight[:3], layer.weight[3:]
        whole.bias.copy_(layer.bias)
    assert outcome(certify(layer, conv2attn.convert(whole), images=image())) == PROVED
    whole.weight.data[5, 3, 1, 1] += 1
    report = certify(layer, conv2attn.convert(whole), images=image())
    assert "output channel 5, input channel 3" in report.rows[0].part("weights").sentence


def test_an_original_that_does_not_run_is_a_usage_error():
    with pytest.raises(UsageError, match="does not run"):
        certify(network(), conv2attn.convert(network()), images=torch.randn(1, 7, 9, 9))


def test_nothing_to_run_on_is_a_usage_error():
    with pytest.raises(UsageError, match="how large an image"):
        certify(Small(), Small())


def test_certify_leaves_both_networks_as_they_were():
    original = network().train()
    converted = conv2attn.convert(original)
    before = {key: value.clone() for key, value in original.state_dict().items()}
    certify(original, converted, images=image())
    assert all(torch.equal(before[key], value) for key, value in original.state_dict().items())
    assert original.training
    assert not original._forward_hooks


def test_enumerated_heads_are_read_too():
    original = network()
    converted = conv2attn.convert(original, encoding="enumerated")
    assert isinstance(converted.square.encoding, EnumeratedEncoding)
    assert outcome(certify(original, converted, images=image())) == PROVED


class Loose(QuadraticEncoding):
    """An encoding that looks quadratic and is not."""

    def scores(self, grid, rows, dtype):
        return super().scores(grid, rows, dtype) / 1000


def replaced(part, name, function):
    """Puts `function` where a method of `part` is looked up first."""
    vars(part)[name] = function


class Weight(nn.Parameter):
    """A parameter that could multiply in its own way."""


PATCHES = {
    "forward": lambda layer: replaced(layer, "forward", lambda image: image[:, :1]),
    "evaluate": lambda layer: replaced(layer, "evaluate", lambda basis, image: image),
    "evaluate of the same class": lambda layer: replaced(layer, "evaluate", layer.evaluate),
    "operators": lambda layer: replaced(layer.encoding, "operators", layer.encoding.operators),
    "pad": lambda layer: replaced(layer.padding, "pad", layer.padding.pad),
    "count": lambda layer: replaced(layer.sites, "count", layer.sites.count),
    "parametrised": lambda layer: nn.utils.parametrize.register_parametrization(layer, "bias", nn.Identity()),
    "a parametrised centre": lambda layer: nn.utils.parametrize.register_parametrization(
        layer.encoding, "center", nn.Identity()
    ),
    "pruned": lambda layer: nn.utils.prune.identity(layer, "bias"),
    "a tensor for a parameter": lambda layer: (
        layer._parameters.pop("output"),
        replaced(layer, "output", torch.zeros(8, 4, 9)),
    ),
    "a parameter of another class": lambda layer: layer._parameters.update(bias=Weight(layer.bias.detach())),
}


@pytest.mark.parametrize("way", PATCHES)
def test_a_layer_whose_code_was_replaced_is_not_proved(way):
    original = network()
    converted = conv2attn.convert(original)
    PATCHES[way](converted.square)
    report = certify(original, converted, images=image())
    row = next(row for row in report.rows if row.name == "square")
    assert row.verdict in (Verdict.UNSUPPORTED, Verdict.UNDECIDED), report.to_text()
    assert "so what it computes is not known" in row.decisive.sentence
    assert report.verdict is not Verdict.HOLDS


def test_a_functional_call_whose_code_was_replaced_has_a_row_that_says_so():
    torch.manual_seed(0)
    original = Calls()
    converted = conv2attn.convert(original, example_input=image())
    PATCHES["evaluate"](converted.attending_calls.layers[0])
    report = certify(original, converted, images=image())
    assert [row.name for row in report.rows if row.verdict is Verdict.UNSUPPORTED] == ["(root):conv2d"]


def test_a_class_whose_code_was_replaced_is_not_proved(monkeypatch):
    original = network()
    converted = conv2attn.convert(original)
    before = MultiHeadSelfAttention.forward
    monkeypatch.setattr(MultiHeadSelfAttention, "forward", wraps(before)(lambda self, image: before(self, image)))
    report = certify(original, converted, images=image())
    assert {row.verdict for row in report.rows} == {Verdict.UNSUPPORTED}
    assert "forward was replaced" in report.rows[0].decisive.sentence


class Doubled:
    """A callable that is no function."""

    def __call__(self, image):
        return 2 * image


CLASS_PATCHES = {
    "a property": (MultiHeadSelfAttention, "has_content", property(lambda self: False)),
    "a callable object": (MultiHeadSelfAttention, "forward", Doubled()),
    "a static method": (QuadraticEncoding, "scores", staticmethod(lambda grid, rows, dtype: 0)),
    "what every attribute passes": (
        nn.Module,
        "__getattribute__",
        lambda self, name: object.__getattribute__(self, name),
    ),
    "what every module calls first": (nn.Module, "_compiled_call_impl", lambda self, image: image),
}


@pytest.mark.parametrize("way", CLASS_PATCHES)
def test_whatever_replaces_code_of_a_class_is_seen(monkeypatch, way):
    layer = conv2attn.convert(network()).square
    place, name, held = CLASS_PATCHES[way]
    monkeypatch.setattr(place, name, held, raising=False)
    assert foreign(layer).endswith(f"{name} was replaced")


def test_what_others_add_to_every_module_is_no_matter(monkeypatch):
    """As libraries do that initialise weights: a new name, which nothing of torch looks up."""
    layer = conv2attn.convert(network()).square
    monkeypatch.setattr(nn.Module, "initialised_by_others", lambda self: self, raising=False)
    assert foreign(layer) == ""


@pytest.mark.parametrize("way", ["subclass", "patched", "heads"])
def test_what_is_not_known_to_be_hard_is_not_proved(way):
    original = network()
    converted = conv2attn.convert(original)
    encoding = converted.square.encoding
    if way == "subclass":
        converted.square.encoding = Loose(encoding.center.detach(), encoding.alpha.detach())
    elif way == "patched":
        encoding.operators = Loose.operators.__get__(encoding)
    else:
        converted.square.encoding = QuadraticEncoding(encoding.center.detach()[:4], encoding.alpha.detach()[:4])
    report = certify(original, converted, images=image())
    assert report.verdict is not Verdict.HOLDS
    assert report.rows[0].verdict is Verdict.UNSUPPORTED
