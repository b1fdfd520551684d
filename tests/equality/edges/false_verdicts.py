"""Pairs of networks that were once certified wrongly, each with the verdict that is right."""

import copy
import os
from dataclasses import replace

import pytest
import torch
from changes import changing
from commands import call, save_residual
from equality.pairs import After, Net, layer, row_of
from equality.reports import at_most_rounded
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.errors import UsageError
from conv2attn.layers.attention import Encoding
from conv2attn.theory.basis import Padding
from conv2attn.verdicts import Verdict


def convolution(**options):
    return layer(3, 4, padding=0, **options)


def test_what_was_assumed_about_a_state_dict_stands_in_the_first_line_and_in_the_claim(tmp_path):
    network = conv2attn.load(save_residual(tmp_path / "net.pt"))
    report = certify(network, conv2attn.convert(network), input_size=(3, 12, 10))
    assert report.verdict is Verdict.HOLDS
    for text in (report.to_text().partition("\n\n")[0], report.to_markdown().partition("\n\n")[0], report.claim):
        assert "from keys and shapes alone" in text


@pytest.mark.parametrize("engine", ["sdpa", "dense", "auto"])
def test_an_engine_that_refuses_other_sizes_alone_limits_the_claim(engine):
    original = convolution()
    report = certify(original, conv2attn.set_engine(conv2attn.convert(original), engine), input_size=(3, 12, 10))
    told = f"of sizes that the engine {engine} does not refuse in the layer"
    assert (told in report.claim) is ("does not refuse" in report.claim) is (engine != "auto")
    assert "keys and shapes" not in report.to_text()  # nothing was assumed of networks that were passed


@pytest.mark.parametrize(("size", "verdict"), [(1e38, Verdict.UNDECIDED), (3e38, Verdict.REFUTED)])
def test_heads_that_cancel_may_overflow_where_the_convolution_does_not(size, verdict):
    original = convolution(bias=False)
    converted = conv2attn.convert(original)
    twice = torch.cat([converted.positions.center, converted.positions.center[:1].repeat(2, 1)])
    converted.encoding = Encoding.of("quadratic", twice, 128.0)
    converted.heads = len(twice)
    weights = converted.weights
    huge = torch.full_like(weights.stored[:1], size)
    name = "value" if weights.output is None else "output"
    converted.hold(replace(weights, **{name: torch.cat([weights.stored, huge, -huge])}))
    row = row_of(original, converted)
    assert row.verdict is verdict, row.findings


def shifted(*numbers):
    """A convolution from which three numbers are subtracted, one after the other."""
    a, b, c = map(torch.tensor, numbers)
    return After(lambda net, x: x - net.a - net.b - net.c, a=a, b=b, c=c)


@pytest.mark.parametrize("size", [1e3, 1e6])
@pytest.mark.parametrize("change", [lambda network: network, conv2attn.convert])
def test_numbers_that_cancel_in_another_order_refute_nothing(size, change):
    a, b, c = size, -0.03 * size, -0.97 * size
    report = certify(shifted(a, b, c), change(shifted(b, a, c)), input_size=(3, 8, 8))
    assert report.verdict is not Verdict.REFUTED


def jumping(function, order):
    """A function of the difference of a chain of layers and its copy, whose channels may come in another order."""
    first, second = layer(3, 8), layer(8, 4)
    copies = copy.deepcopy(nn.Sequential(first, second))
    first.weight.data, first.bias.data = first.weight.data[order], first.bias.data[order]
    second.weight.data = second.weight.data[:, order]
    code = lambda net, image: function(net.second(net.first(image)) - net.copies(image))  # noqa: E731
    return Net(code, first=first, second=second, copies=copies)


JUMPS = {
    "a sign": torch.sign,
    "a comparison": lambda gap: (gap == 0).float(),
    "a quotient": lambda gap: nn.functional.normalize(gap, dim=1),
}


@pytest.mark.parametrize("name", JUMPS)
def test_code_that_jumps_where_numbers_cancel_refutes_nothing(name):
    orders = torch.arange(8), torch.tensor([3, 7, 1, 0, 6, 2, 5, 4])
    found = certify(*(jumping(JUMPS[name], order) for order in orders), input_size=(3, 8, 8))
    assert found.verdict is not Verdict.REFUTED, found.to_text()
    assert at_most_rounded(found)


@pytest.mark.parametrize("exponent", [30, 60])
@pytest.mark.parametrize("constants", [True, False])
def test_numbers_too_large_for_any_format_that_cancel_refute_nothing(exponent, constants):
    def summed(net, image):
        a, b, c = net.numbers.unbind() if constants else net.factors
        return net.layer(image) * a + net.layer(image) * b + net.layer(image) * c

    large = 2.0**exponent
    orders = (large, 1.0, -large), (large, -large, 1.0)
    pair = (Net(summed, layer=convolution(), factors=each, numbers=torch.tensor(each)) for each in orders)
    found = certify(*pair, input_size=(3, 8, 8))
    assert found.verdict is not Verdict.REFUTED, found.to_text()
    assert at_most_rounded(found)


def test_another_number_among_those_that_cancel_refutes():
    report = certify(shifted(1e3, -30.0, -970.0), shifted(1e3, -30.0, -970.1), input_size=(3, 8, 8))
    assert report.verdict is Verdict.REFUTED


class Odd(Exception):
    """An error that no library raises."""


def raising(net, image):
    if net.error:
        raise net.error
    return image


@pytest.mark.parametrize(
    "error", [Odd("odd"), KeyError("k"), AssertionError(), NotImplementedError("n"), OSError(2, "x")]
)
def test_a_second_network_that_raises_is_refuted_and_an_original_that_does_is_a_usage_error(error):
    networks = After(raising, error=None), After(raising, error=error)
    assert certify(*networks, input_size=(3, 12, 10)).verdict is Verdict.REFUTED
    with pytest.raises(UsageError, match="does not run"):
        certify(*networks[::-1], input_size=(3, 12, 10))


def test_a_padding_that_refuses_small_images_is_not_no_padding():
    original = convolution()
    converted = conv2attn.convert(original)
    converted.image_padding = Padding((3, 3), (3, 3), "reflect")
    converted.sites = replace(converted.sites, before=(4, 4), after=(4, 4))
    torch.testing.assert_close(original(torch.ones(1, 3, 9, 8)), converted(torch.ones(1, 3, 9, 8)))
    assert row_of(original, converted).part("geometry").verdict is Verdict.REFUTED


def test_the_alpha_of_a_head_of_zeros_refutes_nothing():
    original = convolution()
    with torch.no_grad():
        original.weight[:, :, 0, 0] = 0
    converted = conv2attn.convert(original)
    with changing(converted, "alpha") as numbers:
        numbers[0] = -1.0
    assert row_of(original, converted).part("leak").verdict is Verdict.HOLDS


def test_enumerated_centres_are_judged_as_they_are_computed():
    original = convolution().double().float()
    converted = conv2attn.convert(original, encoding="enumerated")
    with changing(converted, "center") as numbers:
        numbers[0, 0] += 2.0**-24
    assert certify(original, converted, input_size=(3, 9, 8)).verdict is not Verdict.HOLDS


@pytest.mark.parametrize("old", [False, True])
def test_a_spectral_norm_in_training_mode_is_no_map(old):
    norm = nn.utils.spectral_norm if old else nn.utils.parametrizations.spectral_norm
    original = norm(convolution()).train()
    converted = conv2attn.convert(original)
    before = {name: each.clone() for name, each in original.state_dict().items()}
    for inputs in ({"input_size": (3, 9, 8)}, {"images": torch.rand(2, 3, 9, 8)}):
        assert certify(original, converted, **inputs).verdict is Verdict.UNSUPPORTED
    after = original.state_dict()  # reading the weight of such a layer changes its norm
    assert all(torch.equal(after[name], each) for name, each in before.items())


def test_the_users_layers_are_not_run_on_probes_with_their_hooks_on():
    original = convolution()
    largest = []

    def note(module, args, output):
        if type(args[0]) is torch.Tensor:  # not while the network is exported
            largest.append(args[0].abs().max().item())

    original.register_forward_hook(note)
    certify(original, conv2attn.convert(original), input_size=(3, 9, 8))
    assert not largest or max(largest) <= 1.0


@pytest.mark.parametrize(
    ("name", "told"),
    [("f", "regular file"), ("/dev/zero", "regular file"), ("", "regular file"), ("x" * 300, "does not exist")],
)
def test_a_certificate_must_be_a_regular_file(tmp_path, name, told):
    os.mkfifo(tmp_path / "f")
    found = call("recheck", tmp_path / name)
    assert (found.exit_code, told in found.stderr) == (2, True), found.stderr


def elsewhere(net, image):
    """The network's operators, where torch does not see them, as those of an ONNX file."""
    with torch.no_grad():
        return torch.from_numpy(net.run[0](torch.from_numpy(image.detach().numpy())).numpy())


def test_a_network_of_which_nothing_is_seen_is_undecided_beside_the_conversion_of_its_source():
    source = nn.Sequential(layer(2, 3), nn.ReLU(), layer(3, 2)).eval()
    found = certify(Net(elsewhere, run=[source]), conv2attn.convert(source), input_size=(2, 8, 9))
    assert found.verdict is Verdict.UNDECIDED
    assert {row.verdict for row in found.rows} == {Verdict.UNDECIDED}
