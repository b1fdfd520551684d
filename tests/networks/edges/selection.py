"""The convolutions that were asked for are converted; the others are listed with a reason."""

import numpy as np
import pytest
import torch
from torch import nn
from whole import assert_equal, image_of, whole

import conv2attn
from conv2attn import conversion_of, convert
from conv2attn.errors import Conv2AttnError, UsageError
from conv2attn.networks import attention_layers
from conv2attn.verdicts import Verdict

IMAGE = image_of(2, 3, 8, 9)


def stages() -> nn.Module:
    stage = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1))
    return whole(nn.ModuleDict({"stem": nn.Conv2d(3, 4, 3), "stage": stage}))


@pytest.mark.parametrize(
    ("only", "skip", "expected"),
    [
        ((), (), {"stem", "stage.0", "stage.2"}),
        ("stage.*", (), {"stage.0", "stage.2"}),
        (["stem", "*.2"], (), {"stem", "stage.2"}),
        ((), "stem", {"stage.0", "stage.2"}),
        ("st*", ["*.0", "stem"], {"stage.2"}),
        ((), "*", set()),
    ],
)
def test_globs(only, skip, expected):
    model = stages()
    network = convert(model, only=only, skip=skip)
    assert set(attention_layers(network)) == expected
    rows = conversion_of(network).rows
    assert {row.name for row in rows if row.outcome == "converted"} == expected
    assert {row.name for row in conversion_of(network).remaining} == {"stem", "stage.0", "stage.2"} - expected
    assert {row.reason for row in conversion_of(network).remaining} <= {"on request"}
    for row in conversion_of(network).remaining:
        left, original = network.get_submodule(row.name), model.get_submodule(row.name)
        assert type(left) is nn.Conv2d
        assert torch.equal(left.weight, original.weight)
        assert not left._forward_hooks
        assert "forward" not in vars(left)


@pytest.mark.parametrize("where", ["only", "skip"])
@pytest.mark.parametrize("model", [stages(), nn.Conv2d(3, 3, 3), nn.ReLU()])
def test_a_pattern_that_fits_nothing_is_an_error(where, model):
    with pytest.raises(UsageError, match=r"C2A008 the pattern 'stage.1' fits no convolution"):
        convert(model, **{where: ["*" if isinstance(model, nn.Conv2d) else "stage.1", "stage.1"]})


def test_a_shared_module_goes_by_all_its_names_and_a_single_one_can_be_skipped():
    shared = nn.Conv2d(3, 3, 3)
    model = nn.ModuleDict({"a": shared, "b": shared, "c": nn.Conv2d(3, 3, 3)})
    assert set(attention_layers(convert(model, only="b"))) == {"a"}
    assert set(attention_layers(convert(model, skip="b"))) == {"c"}
    layer = convert(nn.Conv2d(3, 3, 3), skip="(root)")
    assert type(layer) is nn.Conv2d
    assert conversion_of(layer).rows[0].outcome == "skipped"


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_lazy_layers_are_converted_with_the_weights_that_they_draw_next():
    model = nn.Sequential(nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d(), nn.Conv2d(3, 2, 1))
    rows = conversion_of(convert(model)).rows
    assert [row.outcome for row in rows] == ["unsupported", "converted"]
    before = torch.get_rng_state()
    converted = convert(model, example_input=IMAGE)
    assert [row.outcome for row in conversion_of(converted).rows] == ["converted", "converted"]
    assert torch.equal(torch.get_rng_state(), before)
    assert converted.training
    assert int(converted[1].num_batches_tracked) == 0
    assert isinstance(model[0], nn.LazyConv2d)
    assert model[0].has_uninitialized_params()
    assert model[1].has_uninitialized_params()
    model.eval()(IMAGE)
    assert torch.equal(model[0].weight, converted[0].weight)
    assert_equal(whole(model), convert(model), IMAGE)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize("size", [{"input_size": (2, 5, 6)}, {"images": torch.rand(1, 2, 5, 6)}])
def test_certify_leaves_lazy_layers_lazy(size):
    lazy = nn.Sequential(nn.LazyConv2d(3, 3), nn.ReLU())
    real = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU())
    for pair in ((lazy, lazy), (lazy, real), (real, lazy)):
        certificate = conv2attn.certify(*pair, **size)
        assert certificate.verdict is Verdict.UNSUPPORTED
        assert "C2A103" in certificate.to_text()
        assert lazy[0].has_uninitialized_params()


def test_numbers_of_any_library_are_numbers():
    layer = convert(nn.Conv2d(3, 3, 3), alpha=np.int64(5), d_head=np.int64(4))
    assert (float(layer.encoding.alpha[0]), layer.d_head, layer.value is None) == (5.0, 4, False)
    assert convert(nn.Conv2d(3, 3, 3), alpha=torch.tensor(5)).encoding.alpha[0] == 5


def test_an_unknown_padding_mode_names_the_layer_and_can_be_skipped():
    model = stages()
    model["stem"].padding_mode = "mirror"
    with pytest.raises(Conv2AttnError, match="C2A104 stem"):
        convert(model)
    assert conversion_of(convert(model, skip="stem")).rows[0].outcome == "skipped"


def test_a_leaking_alpha_is_said_and_shown_in_every_row():
    rows = conversion_of(convert(stages(), alpha=20)).rows
    assert len(rows) == 3
    for row in rows:
        assert row.outcome == "converted"
        assert "C2A131 alpha=20 leaves up to 8.24e-09 of a head's attention" in row.reason
    assert {row.reason for row in conversion_of(convert(stages(), alpha=46)).rows} == {""}
