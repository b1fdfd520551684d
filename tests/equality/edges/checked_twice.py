"""The checker, code of its own on two layers: it finds what is planted, lets twins pass, and knows enough alphas."""

import copy
import math

import pytest
import torch
from equality.planted import IN_KINDS, KINDS, LAYERS, TWINS, pair
from equality.soft import SOFT, line
from torch import nn

import conv2attn
from conv2attn.bounds import leaked_mass
from conv2attn.equality import certify, checker
from conv2attn.verdicts import Strength, Verdict

with torch.random.fork_rng():
    torch.manual_seed(0)
    CONVOLUTIONS = {
        **{name: layer for name, (layer, _) in KINDS.items()},
        "dilated": nn.Conv1d(2, 2, 2, dilation=3, padding=2),
        "strided": nn.Conv2d(2, 4, 3, stride=(2, 3), padding=1, bias=False),
        "same": nn.Conv2d(2, 3, (2, 3), padding="same", dilation=(3, 1)),
        "valid": nn.Conv2d(3, 3, (1, 3), padding="valid", groups=3),
        "reflected": nn.Conv1d(2, 2, 3, padding=1, padding_mode="reflect"),
        "replicated": nn.Conv2d(2, 2, (3, 1), padding=(1, 0), padding_mode="replicate"),
        "transposed 1-D": nn.ConvTranspose1d(2, 4, 3, stride=2, padding=1, groups=2),
        "wide": nn.Conv1d(4, 2, 3).double(),
    }


def asked(first, second, *, bounded=False):
    return list(checker.objections(first, second, bounded=bounded))


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("options", [{}, {"d_head": 12}, {"stride_by": "pooling"}])
def test_a_conversion_is_the_convolution(name, options):
    conv = CONVOLUTIONS[name]
    if "d_head" in options:
        options = {"d_head": 12 * max(1, conv.groups)}
    assert asked(conv, conv2attn.convert(conv, **options)) == []
    assert asked(conv, copy.deepcopy(conv)) == []


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_an_output_sums_up_a_product_for_each_weight_of_its_channel_whatever_stands_in_the_middle(name):
    conv = CONVOLUTIONS[name]
    for each in (conv, conv2attn.convert(conv), conv2attn.convert(conv, d_head=12 * conv.groups)):
        assert checker.LayerNumbers.of(each).terms * conv.out_channels == conv.weight.numel()


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_planted_in_a_layer_is_found(name):
    layer, change, _ = LAYERS[name]
    original, converted = pair(lambda net: change(net.get_submodule(layer)))
    assert asked(original.get_submodule(layer), converted.get_submodule(layer))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", IN_KINDS)
def test_what_is_planted_in_layers_of_other_kinds_is_found(kind, name):
    original = KINDS[kind][0]
    converted = conv2attn.convert(copy.deepcopy(original))
    IN_KINDS[name][0](converted)
    assert asked(original, converted)


@pytest.mark.parametrize("name", TWINS)
def test_twins_are_the_same(name):
    original, converted = pair(TWINS[name])
    layer = name.rpartition(" ")[2]
    assert asked(original.get_submodule(layer), converted.get_submodule(layer)) == []


FORMS = ("stride", "padding", "dilation")


@pytest.mark.parametrize("name", FORMS)
def test_a_convolution_of_another_form_is_another_map(name):
    changed = copy.deepcopy(CONVOLUTIONS["strided"])
    setattr(changed, name, tuple(number + 1 for number in getattr(changed, name)))
    assert asked(CONVOLUTIONS["strided"], changed)
    circular = nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")
    zeros = nn.Conv2d(2, 4, 3, padding=1)
    zeros.load_state_dict(circular.state_dict())
    assert asked(circular, zeros)
    assert asked(zeros, conv2attn.convert(circular))


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("turned", [False, True])
def test_of_soft_layers_nothing_is_surely_wrong_where_they_attend_alike(name, turned):
    (change, same), layers = SOFT[name], [line(3), line(3)]
    change(layers[0 if turned else 1])
    found = asked(*layers)
    assert not any(each.sure for each in found) if same else found


LIMITS = {torch.float32: 150, torch.float64: 1075, torch.bfloat16: 134, torch.float16: 25}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("by", "sure"), [(0.0, None), (1e-9, False), (1e-5, True)])
def test_alphas_are_those_from_which_weights_vanish(dtype, by, sure):
    """150 log 2 in float32: half of the smallest number is 2^-150; next to the limit this code decides nothing."""
    original = nn.Conv1d(2, 3, 3, padding=1).to(dtype)
    converted = conv2attn.convert(original, alpha=5000.0)
    converted.encoding.double()
    converted.encoding.alpha[1] = LIMITS[dtype] * math.log(2) * (1 - by)
    assert [each.sure for each in asked(original, converted)] == ([] if sure is None else [sure])


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("dtype", LIMITS)
def test_where_roundoff_may_leak_no_head_leaks_more_and_few_that_leak_less_are_doubted(dtype, axes):
    roundoff = checker.UNIT_ROUNDOFFS[dtype]
    original = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1](1, 1, 3, padding=1).to(dtype)
    converted = conv2attn.convert(original, alpha=5000.0)
    converted.encoding.double()
    for share in (0.9, 1.5, 1.9, 2.1, 4.0):
        converted.encoding.alpha.data.fill_(alpha := math.log(share * axes / roundoff))
        assert bool(asked(original, converted, bounded=True)) is (leaked_mass(alpha, axes) > roundoff)


@pytest.mark.parametrize("alpha", [16.6, 16.7, 17.3, 18.03, 18.1])
@pytest.mark.parametrize("kind", ["1-D", "depthwise"])
def test_of_bounded_layers_the_checker_never_contradicts_certify(kind, alpha):
    """Between what a head surely leaks and what it surely does not the theta series decides, and not this code."""
    original, size = KINDS[kind]
    converted = conv2attn.convert(original, alpha=alpha)
    report = certify(original, converted, input_size=size)
    found = asked(original, converted, bounded=True)
    assert (report.verdict is Verdict.HOLDS and report.strength is Strength.BOUNDED) or found
    assert report.verdict is not Verdict.HOLDS or not any(each.sure for each in found)
    assert found or alpha > 16.6


@pytest.mark.parametrize("dtype", checker.UNIT_ROUNDOFFS)
def test_the_checker_has_the_roundoff_and_the_smallest_number_of_each_dtype(dtype):
    known = torch.finfo(dtype)
    assert checker.UNIT_ROUNDOFFS[dtype] == known.eps / 2
    assert 2.0 ** checker.SMALLEST_EXPONENTS[dtype] == known.smallest_normal * known.eps


def test_other_modules_are_not_checked_twice():
    found = asked(nn.Linear(2, 2), nn.Linear(2, 2))
    assert [each.sure for each in found] == [False]
    enumerated = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1), encoding="enumerated")
    assert [each.sure for each in asked(enumerated, enumerated)] == [False]
